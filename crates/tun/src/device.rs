//! Opening, creating and adopting TUN devices.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use fordway_net::{DEFAULT_RUN_DIR, Netlink, ProcessLock, Tun};
use rustix::fs::{Mode, OFlags};

use crate::error::Error;
use crate::lock::lock;
use crate::offload::{OffloadReport, Offloads, negotiate};
use crate::probe::{probe, system};
use crate::queue::Queue;
use crate::sys;
use crate::vnet::VnetHeader;

/// The most queues a TUN device can have.
pub const MAX_QUEUES: usize = 256;

/// How to open a device; the defaults are in each field's description.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Queues to open, 1 to [`MAX_QUEUES`] (1). An adopted single-queue device gives one whatever is asked for.
    pub queues: usize,
    /// Offloads to ask the kernel for (all).
    pub offloads: Offloads,
    /// Whether an existing persistent TUN device of the name may be used (yes).
    pub adopt: bool,
    /// Whether a device that is created here shall outlive the process (no). An adopted device is persistent and stays
    /// so.
    pub persist: bool,
    /// Where lock files go, in a folder `tun` ([`DEFAULT_RUN_DIR`]). Processes that shall exclude each other must use
    /// the same.
    pub run_dir: PathBuf,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            queues: 1,
            offloads: Offloads::all(),
            adopt: true,
            persist: false,
            run_dir: PathBuf::from(DEFAULT_RUN_DIR),
        }
    }
}

/// A TUN interface that this process has to itself.
///
/// Keeps the interface in being and locked: a device that was created here vanishes, with its addresses and routes,
/// once the `Device` and all its queues are dropped. An adopted one stays, without offloads unless it is
/// [left](Device::leave).
#[derive(Debug)]
pub struct Device {
    name: String,
    ifindex: u32,
    adopted: bool,
    single_queue: bool,
    offloads: OffloadReport,
    /// Whether the interface stays as it is when this is dropped.
    left: bool,
    /// A second descriptor of the first queue, for the device's own ioctls.
    control: OwnedFd,
    // Last: the lock goes when everything else has gone.
    _lock: ProcessLock,
}

impl Device {
    /// Opens `name` in the calling thread's network namespace, creating the interface if it does not exist.
    ///
    /// Neither addresses nor state nor MTU are touched: a created interface is down.
    ///
    /// Errors: each variant of [`Error`]; see there.
    pub fn open(name: &str, options: &OpenOptions) -> Result<(Self, Vec<Queue>), Error> {
        check_name(name)?;
        if options.queues == 0 || options.queues > MAX_QUEUES {
            return Err(Error::QueueCount { name: name.to_owned(), queues: options.queues });
        }
        let lock = lock(&options.run_dir, name)?;
        let plan = plan(name, options)?;
        let fds = match attach_all(name, plan) {
            // The interface was created in between: retry once.
            Err(Error::InUse(_)) if !plan.adopted => {
                let plan = self::plan(name, options)?;
                (plan, attach_all(name, plan)?)
            }
            result => (plan, result?),
        };
        let (plan, fds) = fds;
        Self::finish(name, options, plan, fds, lock)
    }

    fn finish(
        name: &str,
        options: &OpenOptions,
        plan: Plan,
        fds: Vec<OwnedFd>,
        lock: ProcessLock,
    ) -> Result<(Self, Vec<Queue>), Error> {
        let first = &fds[0];
        sys::set_vnet_header_size(first.as_fd(), VnetHeader::LEN as i32)
            .map_err(|error| Error::system("set the packet header of", name, error))?;
        let offloads =
            negotiate(options.offloads, |asked| sys::set_offload(first.as_fd(), asked.bits()))
                .map_err(|error| Error::system("set the offloads of", name, error))?;
        let control = first
            .try_clone()
            .map_err(|error| Error::system("keep a descriptor of", name, error))?;
        let device = Self {
            name: name.to_owned(),
            ifindex: ifindex(name)?,
            adopted: plan.adopted,
            single_queue: !plan.multi_queue,
            offloads,
            left: false,
            control,
            _lock: lock,
        };
        if options.persist && !plan.adopted {
            device.set_persistent(true)?;
        }
        let queues = fds.into_iter().enumerate();
        let queues = queues.map(|(index, fd)| Queue::new(fd, index)).collect();
        Ok((device, queues))
    }

    /// The interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The interface's index at the time of opening.
    #[must_use]
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Whether the interface existed before, and thus stays at the end.
    #[must_use]
    pub fn adopted(&self) -> bool {
        self.adopted
    }

    /// Whether an adopted interface allows one queue only; made with `ip tuntap add dev NAME mode tun multi_queue
    /// vnet_hdr` it would allow more.
    #[must_use]
    pub fn single_queue(&self) -> bool {
        self.single_queue
    }

    /// Which offloads were asked for and granted.
    #[must_use]
    pub fn offloads(&self) -> OffloadReport {
        self.offloads
    }

    /// Gives the interface another name. Queues stay open. `run_dir`: as in [`OpenOptions`].
    ///
    /// Errors: [`Error::Name`]; [`Error::Locked`] if another process uses the name; [`Error::System`] with `EEXIST` if
    /// another interface has it, `EBUSY` if the kernel renames only interfaces that are down.
    pub fn rename(&mut self, name: &str, run_dir: &Path) -> Result<(), Error> {
        check_name(name)?;
        let lock = lock(run_dir, name)?;
        Netlink::open()
            .and_then(|mut netlink| netlink.rename_link(self.ifindex, name))
            .map_err(|error| Error::system("rename", &self.name, system(error)))?;
        name.clone_into(&mut self.name);
        self._lock = lock;
        Ok(())
    }

    /// Sets whether the interface outlives the process.
    ///
    /// Errors: [`Error::System`] if the interface is gone (`EBADFD`).
    pub fn set_persistent(&self, persistent: bool) -> Result<(), Error> {
        sys::set_persist(self.control.as_fd(), persistent)
            .map_err(|error| Error::system("change the persistence of", &self.name, error))
    }

    /// Lets a persistent interface stay with its offloads when the `Device` is dropped: for an interface of this
    /// program's own whose packets a kernel program goes on handling.
    pub fn leave(&mut self) {
        self.left = true;
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.adopted && !self.left {
            // The next program may not know super-packets. If the interface is gone there is nothing to reset.
            let _ = sys::set_offload(self.control.as_fd(), 0);
        }
    }
}

/// How to attach, from what exists under the name.
#[derive(Clone, Copy, Debug)]
struct Plan {
    adopted: bool,
    multi_queue: bool,
    queues: usize,
}

fn plan(name: &str, options: &OpenOptions) -> Result<Plan, Error> {
    let owned = || name.to_owned();
    let existing = probe(name).map_err(|error| Error::system("look up", name, error))?;
    let Some(link) = existing else {
        return Ok(Plan { adopted: false, multi_queue: true, queues: options.queues });
    };
    match link.tun {
        None => {
            let kind = link.kind.unwrap_or_else(|| "physical".to_owned());
            Err(Error::NotTun { name: owned(), kind })
        }
        Some(Tun { tap: true, .. }) => Err(Error::IsTap(owned())),
        Some(_) if !options.adopt => Err(Error::Exists(owned())),
        Some(Tun { open_queues: 1.., .. }) => Err(Error::InUse(owned())),
        Some(Tun { multi_queue, .. }) => Ok(Plan {
            adopted: true,
            multi_queue,
            queues: if multi_queue { options.queues } else { 1 },
        }),
    }
}

fn attach_all(name: &str, plan: Plan) -> Result<Vec<OwnedFd>, Error> {
    (0..plan.queues)
        .map(|index| {
            let mut flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
            if plan.multi_queue {
                flags |= libc::IFF_MULTI_QUEUE;
            }
            if index == 0 && !plan.adopted {
                flags |= libc::IFF_TUN_EXCL;
            }
            attach(name, flags, plan.adopted)
        })
        .collect()
}

fn attach(name: &str, flags: i32, adopted: bool) -> Result<OwnedFd, Error> {
    let fd = rustix::fs::open(
        Path::new("/dev/net/tun"),
        OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|error| Error::Node(error.into()))?;
    let operation = if adopted { "open" } else { "create" };
    match sys::set_iff(fd.as_fd(), name, flags) {
        Ok(()) => Ok(fd),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            Err(Error::InUse(name.to_owned()))
        }
        Err(error) => Err(Error::system(operation, name, error)),
    }
}

fn ifindex(name: &str) -> Result<u32, Error> {
    let found = probe(name).map_err(|error| Error::system("find the index of", name, error))?;
    let gone = || io::Error::from_raw_os_error(libc::ENODEV);
    found.map(|link| link.index).ok_or_else(|| Error::system("find the index of", name, gone()))
}

/// The kernel's rules for interface names, and no `%`, which would make it choose a name of its own.
fn check_name(name: &str) -> Result<(), Error> {
    let bad = |octet: u8| matches!(octet, b'/' | b':' | b'%' | 0x0b) || octet.is_ascii_whitespace();
    if name.is_empty()
        || name.len() >= libc::IFNAMSIZ
        || matches!(name, "." | "..")
        || name.bytes().any(|octet| octet == 0 || bad(octet))
    {
        return Err(Error::Name(name.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_kernel() {
        for good in ["fw0", "a", "fifteen-octets1", "clat.0"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a b", "tun%d", "a:b", "sixteen--octets1", "a\0"] {
            assert!(matches!(check_name(bad), Err(Error::Name(_))), "{bad:?}");
        }
    }

    #[test]
    fn the_number_of_queues_is_checked_first() {
        for queues in [0, MAX_QUEUES + 1] {
            let options = OpenOptions { queues, ..OpenOptions::default() };
            assert!(matches!(Device::open("fw0", &options), Err(Error::QueueCount { .. })));
        }
    }
}
