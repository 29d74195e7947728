//! Filters of the clsact queueing discipline: how programs are attached before tcx (kernel 6.6).
//!
//! A filter runs after all others with usual priorities, as a tcx program does by default; or before all others, where
//! packets must not bypass it. A translator always uses the same handle, at one of two priorities, so that a later process
//! finds the filter. Pins are made before the objects that they stand for: the filter's program, and a mark for the
//! queueing discipline.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use fordway_net::{Netlink, TrafficFilter};
use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder};

use crate::capture::captured;
use crate::device::into_io;
use crate::error::io_error;
use crate::pins::{Pin, Pins};
use crate::{Error, Place, Result, sys};

/// In front of all others. Within a priority the newest filter runs first.
pub(crate) const FIRST: u32 = 1;

/// Behind the priorities that the kernel gives by itself (49152 and below).
pub(crate) const LAST: u32 = 0xf000;

/// A filter's place.
#[derive(Clone, Debug)]
pub(crate) struct Filter<'a> {
    pub(crate) pins: &'a Pins,
    pub(crate) place: Place,
    pub(crate) ifindex: u32,
    /// Before all others; only for a filter that is put.
    pub(crate) first: bool,
}

impl Filter<'_> {
    /// The program that is attached; `None`: there is no filter of ours.
    pub(crate) fn attached(&self, any: BorrowedFd<'_>) -> Option<u32> {
        [FIRST, LAST].into_iter().find_map(|priority| self.attached_at(any, priority))
    }

    fn attached_at(&self, any: BorrowedFd<'_>, priority: u32) -> Option<u32> {
        captured(|| self.hook(any, priority).query()).0.ok()
    }

    /// Attaches a program, in the place of an earlier one at once.
    pub(crate) fn put(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let (wanted, other) = if self.first { (FIRST, LAST) } else { (LAST, FIRST) };
        let put = self.put_at(program, wanted);
        // A classifier of another kind may have the priority.
        if put.is_err() && self.first {
            return self.put_at(program, other);
        }
        put?;
        // A filter of ours at the other priority, from an earlier configuration. Until here both ran, and the second found
        // nothing to translate.
        if self.attached_at(program, other).is_some() {
            self.remove_at(program, other)?;
        }
        Ok(())
    }

    fn put_at(&self, program: BorrowedFd<'_>, priority: u32) -> io::Result<()> {
        let replace = self.attached_at(program, priority).is_some();
        let (attached, log) = captured(|| self.hook(program, priority).replace(replace).attach());
        attached.map(drop).map_err(|error| explained(&error, &log))
    }

    /// Filters at the egress that run before this one, as texts, except those of the translators in `folders`.
    pub(crate) fn ahead(&self, folders: &[PathBuf]) -> io::Result<Vec<String>> {
        let theirs: Vec<u32> = folders.iter().map(|folder| handle(folder)).collect();
        let mut ahead = Vec::new();
        let filters = Netlink::open().and_then(|mut it| it.traffic_filters(self.ifindex, true));
        for found in filters.map_err(|error| into_io(&error))? {
            let TrafficFilter { priority, handle, kind } = found;
            let may_be_ours = kind == "bpf" && [FIRST, LAST].contains(&priority);
            if may_be_ours && handle == self.handle() {
                return Ok(ahead);
            }
            if !(may_be_ours && theirs.contains(&handle)) {
                ahead.push(format!("a filter of kind {kind} and priority {priority}"));
            }
        }
        // It is not there.
        Err(io::ErrorKind::NotFound.into())
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
            // It was there, and is not ours unless an earlier mark says so.
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

    /// Removes our filter, and the queueing discipline if it was made here and has no other filters.
    pub(crate) fn take_down(&self) -> Result<()> {
        let pin = Pin::Filter(self.place, self.ifindex);
        if let Some(pinned) = self.pins.open(pin)? {
            // None if the device has gone.
            for priority in [FIRST, LAST] {
                if self.attached_at(pinned.as_fd(), priority).is_some() {
                    self.remove(pinned.as_fd(), priority)?;
                }
            }
            self.pins.remove(pin)?;
        }
        let other = if self.place == Place::Egress { Place::Ingress } else { Place::Egress };
        if self.pins.exists(Pin::Filter(other, self.ifindex)) {
            return Ok(());
        }
        self.release()
    }

    /// Removes the queueing discipline if it was made here and has no filters.
    pub(crate) fn release(&self) -> Result<()> {
        let mark = Pin::Clsact(self.ifindex);
        if !self.pins.exists(mark) {
            return Ok(());
        }
        let has_filters = || -> fordway_net::Result<bool> {
            let mut netlink = Netlink::open()?;
            Ok(!netlink.traffic_filters(self.ifindex, false)?.is_empty()
                || !netlink.traffic_filters(self.ifindex, true)?.is_empty())
        };
        // If that can't be found out, assume that there are some.
        if !has_filters().unwrap_or(true) {
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
    fn remove(&self, any: BorrowedFd<'_>, priority: u32) -> Result<()> {
        self.remove_at(any, priority).map_err(|source| Error::Attach {
            operation: format!("remove the filter from the {} of", self.place.label()),
            device: format!("device {}", self.ifindex),
            source,
        })
    }

    fn remove_at(&self, any: BorrowedFd<'_>, priority: u32) -> io::Result<()> {
        let (removed, log) = captured(|| self.hook(any, priority).detach());
        removed.map_err(|error| explained(&error, &log))
    }

    fn hook(&self, program: BorrowedFd<'_>, priority: u32) -> TcHook {
        let point = if self.place == Place::Ingress { TC_INGRESS } else { TC_EGRESS };
        TcHookBuilder::new(program)
            .ifindex(self.ifindex as i32)
            .handle(self.handle())
            .priority(priority)
            .hook(point)
    }

    fn handle(&self) -> u32 {
        handle(self.pins.folder())
    }
}

/// FNV-1a of the folder of pins: each translator has its own at a device that many use.
fn handle(folder: &Path) -> u32 {
    let folder = folder.as_os_str().as_encoded_bytes();
    let hash = folder
        .iter()
        .fold(0x811c_9dc5_u32, |hash, octet| (hash ^ u32::from(*octet)).wrapping_mul(0x0100_0193));
    // Neither 0 (any handle) nor beyond what a handle may be.
    (hash >> 4).max(1)
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
