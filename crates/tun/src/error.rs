//! Why a device could not be opened.

use std::io;
use std::path::PathBuf;

/// Why opening or changing a TUN device failed.
///
/// The text names the object and, where there is one, the way out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name cannot be an interface's name.
    #[error("{0:?} is not an interface name: 1 to 15 octets without '/', ':', '%' or white space")]
    Name(String),

    /// The number of queues is outside 1 to [`crate::MAX_QUEUES`].
    #[error("{queues} queues for {name}: a TUN device has 1 to 256")]
    QueueCount {
        /// The interface.
        name: String,
        /// The number asked for.
        queues: usize,
    },

    /// The TUN driver's control node cannot be opened.
    #[error("cannot open /dev/net/tun: {}{}", .0, tun_node_hint(.0))]
    Node(#[source] io::Error),

    /// Another process of this program has the device.
    #[error(
        "{name} is held by {} (lock file {}); stop that process or choose another name",
        holder(*pid), path.display()
    )]
    Locked {
        /// The interface.
        name: String,
        /// The holder, where the lock file tells.
        pid: Option<u32>,
        /// The lock file.
        path: PathBuf,
    },

    /// The lock file cannot be made.
    #[error("cannot lock {}: {source}", path.display())]
    Lock {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },

    /// An interface of that name exists and is no TUN or TAP device.
    #[error("{name} exists and is of kind {kind}, not tun; choose another name")]
    NotTun {
        /// The interface.
        name: String,
        /// Its kind as the kernel names it, or `physical`.
        kind: String,
    },

    /// A TAP device of that name exists.
    #[error(
        "{0} exists as a TAP device; delete it (ip link del {0}) and make it with: \
         ip tuntap add dev {0} mode tun multi_queue vnet_hdr"
    )]
    IsTap(String),

    /// A TUN device of that name exists and adopting it was not allowed.
    #[error("{0} exists; delete it (ip link del {0}) or choose another name")]
    Exists(String),

    /// A TUN device of that name exists and some process reads it.
    #[error("{0} exists and another program has it open; stop that program or choose another name")]
    InUse(String),

    /// The process may not create or attach to the device.
    #[error(
        "not permitted to {operation} {name}: CAP_NET_ADMIN in the user namespace that owns \
         this network namespace is needed (or be the owner of the device: \
         ip tuntap add dev {name} mode tun user USER multi_queue vnet_hdr)"
    )]
    Permission {
        /// What was tried.
        operation: &'static str,
        /// The interface.
        name: String,
    },

    /// A system call failed for another reason.
    #[error("cannot {operation} {name}: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// The interface.
        name: String,
        /// The system's reason.
        source: io::Error,
    },
}

impl Error {
    /// Sorts a failed system call about `name`.
    pub(crate) fn system(operation: &'static str, name: &str, source: io::Error) -> Self {
        let name = name.to_owned();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Permission { operation, name },
            _ => Self::System { operation, name, source },
        }
    }
}

fn tun_node_hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOENT) => {
            " (make it: mkdir -p /dev/net && mknod /dev/net/tun c 10 200; \
             in a container, pass the device in)"
        }
        Some(libc::ENODEV | libc::ENXIO) => " (the kernel has no TUN driver: modprobe tun)",
        Some(libc::EPERM | libc::EACCES) => {
            " (in a container or under systemd, allow the device: DeviceAllow=/dev/net/tun rw)"
        }
        _ => "",
    }
}

fn holder(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    }
}
