//! Why an operation on the host failed, and what to do about it.

use std::io;
use std::path::PathBuf;

/// Why an operation failed. The text names operation, object and reason; [`Error::hint`] gives the way out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused a netlink request.
    #[error("cannot {operation}: {source}{}", in_brackets(detail.as_deref()))]
    Netlink {
        /// What was asked for, with its object, such as `add address ... to fw0`.
        operation: String,
        /// The kernel's error number.
        source: io::Error,
        /// The kernel's own explanation, where it gave one.
        detail: Option<String>,
    },

    /// The kernel refused a request to nftables.
    #[error("cannot {operation}: {source}{}", in_brackets(detail.as_deref()))]
    Netfilter {
        /// What was asked for, with its object, such as `set up nftables table ...`.
        operation: String,
        /// The kernel's error number.
        source: io::Error,
        /// The kernel's own explanation, where it gave one.
        detail: Option<String>,
    },

    /// A packet socket failed.
    #[error("cannot {operation}: {source}")]
    Socket {
        /// What was tried.
        operation: &'static str,
        /// The system's reason.
        source: io::Error,
    },

    /// The kernel's answer cannot be understood.
    #[error("cannot {operation}: unexpected answer from the kernel: {reason}")]
    Answer {
        /// What was asked for.
        operation: String,
        /// What is wrong with the answer.
        reason: String,
    },

    /// No interface has the name.
    #[error("there is no interface {0}")]
    NoDevice(String),

    /// A sysctl cannot be read or written.
    #[error("cannot {operation} sysctl {key}: {source}")]
    Sysctl {
        /// `read`, or `set to VALUE`.
        operation: String,
        /// The key in its dotted form.
        key: String,
        /// The system's reason.
        source: io::Error,
    },

    /// Not a key below `net`.
    #[error("{0:?} is not a sysctl key below net")]
    SysctlKey(String),

    /// A network namespace cannot be opened or entered.
    #[error("cannot {operation} network namespace {name}: {source}")]
    Namespace {
        /// What was tried.
        operation: &'static str,
        /// Name or path.
        name: String,
        /// The system's reason.
        source: io::Error,
    },

    /// A manager was called from a thread in another network namespace than the one it was opened in.
    #[error("called from a thread in another network namespace than the manager's")]
    OtherNamespace,

    /// The process lacks capabilities, such as `CAP_NET_ADMIN`.
    #[error("the process lacks {}", .0.join(", "))]
    Capability(Vec<String>),

    /// Privileges cannot be changed.
    #[error("cannot {operation}: {reason}")]
    Privilege {
        /// What was tried.
        operation: &'static str,
        /// The system's reason.
        reason: String,
    },

    /// A file cannot be read, written or locked.
    #[error("cannot {operation} {}: {source}", path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },

    /// A ledger's content is not what this program writes.
    #[error("{} is damaged: {reason}", path.display())]
    Ledger {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },

    /// The name of an owner is not 1 to 64 letters, digits, `.`, `_` or `-`.
    #[error(
        "{0:?} cannot name an owner: 1 to 64 letters, digits, '.', '_', '-', \
         not beginning with '.'"
    )]
    OwnerName(String),

    /// Another process has a lock.
    #[error("{} is locked by {}", path.display(), process(*pid))]
    Locked {
        /// The lock's file.
        path: PathBuf,
        /// The other process, where the file tells.
        pid: Option<u32>,
    },

    /// Another process is the owner.
    #[error("{owner} is in use by {}", process(*pid))]
    OwnerRunning {
        /// The owner's name.
        owner: String,
        /// The other process, where it can be told.
        pid: Option<u32>,
    },

    /// Two owners want the same thing differently.
    #[error(
        "cannot {wanted}: {} needs it otherwise ({present})",
        owners.join(" and ")
    )]
    Conflict {
        /// What was asked for.
        wanted: String,
        /// What is in force.
        present: String,
        /// Who asked for that.
        owners: Vec<String>,
    },
}

impl Error {
    /// The system's error number, where there is one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Netlink { source, .. }
            | Self::Netfilter { source, .. }
            | Self::Socket { source, .. }
            | Self::Sysctl { source, .. }
            | Self::Namespace { source, .. }
            | Self::File { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// What a person can do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Netlink { .. } => match self.errno()? {
                libc::EPERM | libc::EACCES => Some(NEEDS_NET_ADMIN),
                libc::EOPNOTSUPP | libc::EAFNOSUPPORT => Some(
                    "is IPv6 disabled? See sysctl net.ipv6.conf.all.disable_ipv6 and the \
                     kernel parameter ipv6.disable",
                ),
                libc::EEXIST => {
                    Some("something else made it; remove it, or use manage = false and keep it")
                }
                libc::ENODEV => Some("the interface went away; see: ip link"),
                libc::ENETUNREACH | libc::EHOSTUNREACH => {
                    Some("the gateway is not on a connected network of that interface")
                }
                libc::ENETDOWN => Some("the interface is down: ip link set NAME up"),
                libc::EINVAL => Some("the kernel does not accept one of the values"),
                _ => None,
            },
            Self::Netfilter { .. } => match self.errno()? {
                libc::EPERM | libc::EACCES => Some(NEEDS_NET_ADMIN),
                libc::ENOENT | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT => {
                    Some(
                        "nftables is needed where a pool4 address is the host's own: load the \
                         modules nf_tables, nft_socket and nft_dup_ipv4, or take a kernel with \
                         them; or give pool4 an address that the host does not have itself",
                    )
                }
                libc::EEXIST => Some("another program made a table of that name; remove it"),
                _ => None,
            },
            Self::Socket { .. } => match self.errno()? {
                libc::EPERM | libc::EACCES => {
                    Some("CAP_NET_RAW in the network namespace is needed: run as root or grant it")
                }
                _ => None,
            },
            Self::Sysctl { .. } => match self.errno()? {
                libc::EPERM | libc::EACCES => Some(NEEDS_NET_ADMIN),
                libc::EROFS => Some(
                    "/proc/sys is read-only here: in a container, set it from outside; under \
                     systemd, ProtectKernelTunables=no",
                ),
                libc::ENOENT => Some(
                    "the kernel has no such setting: is the interface there, and IPv6 not \
                     disabled by ipv6.disable=1?",
                ),
                libc::EINVAL => Some("the kernel does not accept the value"),
                _ => None,
            },
            Self::Namespace { .. } => match self.errno()? {
                libc::ENOENT => Some("see: ip netns list"),
                libc::EPERM => Some("CAP_SYS_ADMIN is needed to enter a network namespace"),
                libc::EINVAL => Some("the file is no network namespace"),
                _ => None,
            },
            Self::File { .. } => match self.errno()? {
                libc::EPERM | libc::EACCES | libc::EROFS => {
                    Some("run as root, or name a writable run directory")
                }
                libc::ENOSPC => Some("the file system of the run directory is full"),
                libc::ELOOP | libc::ENOTDIR => {
                    Some("a symbolic link is not followed there; if it is one, remove it")
                }
                _ => None,
            },
            Self::Capability(_) => Some(
                "run as root, or under systemd with AmbientCapabilities=, or give the program \
                 file capabilities (setcap)",
            ),
            Self::Ledger { .. } => {
                Some("remove the file; what it recorded then has to be taken back by hand")
            }
            Self::Locked { .. } | Self::OwnerRunning { .. } => {
                Some("stop that process or choose another name")
            }
            Self::NoDevice(_) => Some("see: ip link"),
            _ => None,
        }
    }

    /// Whether the kernel does not have the version of IP that was asked for.
    pub(crate) fn is_unsupported(&self) -> bool {
        matches!(self.errno(), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT))
    }

    pub(crate) fn netlink(operation: impl Into<String>, source: io::Error) -> Self {
        Self::Netlink { operation: operation.into(), source, detail: None }
    }

    pub(crate) fn netfilter(
        operation: impl Into<String>,
        source: io::Error,
        detail: Option<String>,
    ) -> Self {
        Self::Netfilter { operation: operation.into(), source, detail }
    }

    /// For mapping an I/O error on `path`.
    pub(crate) fn file(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { operation, path, source }
    }
}

const NEEDS_NET_ADMIN: &str =
    "CAP_NET_ADMIN in the network namespace is needed: run as root or grant it";

fn in_brackets(detail: Option<&str>) -> String {
    detail.map_or_else(String::new, |detail| format!(" ({detail})"))
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}
