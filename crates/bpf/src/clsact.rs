//! Filters of the clsact queueing discipline: how programs are attached before tcx (kernel 6.6).
//!
//! A filter stands after everybody else's that is not put behind it on purpose, as a tcx program does
//! by default. It is told by priority and handle, which a translator always takes alike, so that a later
//! process finds it. What the translator made is pinned before it is made: the filter's program, and
//! a mark for the queueing discipline.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder};

use crate::capture::captured;
use crate::object::io_error;
use crate::pins::{Pin, Pins};
use crate::{Error, Place, Result, netlink, sys};

/// Behind the priorities that the kernel gives by itself (49152 and below).
const PRIORITY: u32 = 0xf000;

/// A filter's place.
#[derive(Clone, Debug)]
pub(crate) struct Filter<'a> {
    pub(crate) pins: &'a Pins,
    pub(crate) place: Place,
    pub(crate) ifindex: u32,
}

impl Filter<'_> {
    /// The program that is attached; `None`: there is no filter of ours.
    pub(crate) fn attached(&self, any: BorrowedFd<'_>) -> Option<u32> {
        captured(|| self.hook(any).query()).0.ok()
    }

    /// Attaches a program, in the place of an earlier one at once.
    pub(crate) fn put(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let replace = self.attached(program).is_some();
        let (attached, log) = captured(|| self.hook(program).replace(replace).attach());
        attached.map(drop).map_err(|error| explained(&error, &log))
    }

    /// Pins the program that is attached, also in the mark's place, so that no pin keeps an old one.
    pub(crate) fn pin(&self, program: BorrowedFd<'_>) -> Result<()> {
        self.pins.put(Pin::Filter(self.place, self.ifindex), program)?;
        let mark = Pin::Clsact(self.ifindex);
        if self.pins.exists(mark) { self.pins.put(mark, program) } else { Ok(()) }
    }

    /// Makes sure that the queueing discipline is there, and marks it if it was made now.
    pub(crate) fn prepare(&self, program: BorrowedFd<'_>) -> Result<()> {
        let mark = Pin::Clsact(self.ifindex);
        let marked = self.pins.exists(mark);
        if !marked {
            self.pins.put(mark, program)?;
        }
        let (made, log) = captured(|| sys::clsact_create(self.ifindex));
        match made {
            Ok(true) => Ok(()),
            // It was there: somebody else's, unless an earlier mark says that it is ours.
            Ok(false) if marked => Ok(()),
            Ok(false) => self.pins.remove(mark),
            Err(source) => {
                if !marked {
                    self.pins.remove(mark)?;
                }
                Err(Error::Attach {
                    operation: "add the clsact queueing discipline to".to_owned(),
                    device: format!("device {}", self.ifindex),
                    source: if log.is_empty() {
                        source
                    } else {
                        io::Error::new(source.kind(), log)
                    },
                })
            }
        }
    }

    /// Removes our filter, and the queueing discipline if it was made here and nobody else uses it.
    pub(crate) fn take_down(&self) -> Result<()> {
        let pin = Pin::Filter(self.place, self.ifindex);
        if let Some(pinned) = self.pinned(pin)? {
            // None if the device has gone.
            if self.attached(pinned.as_fd()).is_some() {
                self.remove(pinned.as_fd())?;
            }
            self.pins.remove(pin)?;
        }
        let other = if self.place == Place::Egress { Place::Ingress } else { Place::Egress };
        if self.pins.exists(Pin::Filter(other, self.ifindex)) {
            return Ok(());
        }
        self.release()
    }

    /// Removes the queueing discipline if it was made here and nobody else uses it.
    pub(crate) fn release(&self) -> Result<()> {
        let mark = Pin::Clsact(self.ifindex);
        if !self.pins.exists(mark) {
            return Ok(());
        }
        // If that can't be told, somebody may.
        if !netlink::has_filters(self.ifindex).unwrap_or(true) {
            let (removed, _) = captured(|| sys::clsact_destroy(self.ifindex));
            removed.or_else(ignore_absent).map_err(|source| Error::Attach {
                operation: "remove the clsact queueing discipline from".to_owned(),
                device: format!("device {}", self.ifindex),
                source,
            })?;
        }
        self.pins.remove(mark)
    }

    /// Removes the filter.
    pub(crate) fn remove(&self, any: BorrowedFd<'_>) -> Result<()> {
        let (removed, log) = captured(|| self.hook(any).detach());
        removed.map_err(|error| Error::Attach {
            operation: format!("remove the filter from the {} of", self.place.label()),
            device: format!("device {}", self.ifindex),
            source: explained(&error, &log),
        })
    }

    fn pinned(&self, pin: Pin) -> Result<Option<OwnedFd>> {
        let path = self.pins.path(pin);
        match sys::open_pin(&path) {
            Ok(program) => Ok(Some(program)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Pin { operation: "open", path, source }),
        }
    }

    fn hook(&self, program: BorrowedFd<'_>) -> TcHook {
        let point = if self.place == Place::Ingress { TC_INGRESS } else { TC_EGRESS };
        TcHookBuilder::new(program)
            .ifindex(self.ifindex as i32)
            .handle(self.handle())
            .priority(PRIORITY)
            .hook(point)
    }

    /// FNV-1a of the folder of pins: each translator has its own at a device that many use.
    fn handle(&self) -> u32 {
        let folder = self.pins.folder().as_os_str().as_encoded_bytes();
        let hash = folder.iter().fold(0x811c_9dc5_u32, |hash, octet| {
            (hash ^ u32::from(*octet)).wrapping_mul(0x0100_0193)
        });
        // Neither 0 (any handle) nor beyond what a handle may be.
        (hash >> 4).max(1)
    }
}

fn ignore_absent(error: io::Error) -> io::Result<()> {
    use rustix::io::Errno;
    let absent = [Errno::NODEV, Errno::NOENT, Errno::INVAL].map(Errno::raw_os_error);
    match error.raw_os_error() {
        Some(number) if absent.contains(&number) => Ok(()),
        _ => Err(error),
    }
}

/// An error with the kernel's own explanation, where it gave one.
fn explained(error: &libbpf_rs::Error, log: &str) -> io::Error {
    let error = io_error(error);
    if log.is_empty() {
        return error;
    }
    let log = log.trim_start_matches("libbpf: ").trim_start_matches("Kernel error message: ");
    io::Error::new(error.kind(), format!("{error}: {log}"))
}
