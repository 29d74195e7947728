//! The stubs at a pod's device.
//!
//! A stub identifies its pod and continues with the programs that all pods share. It belongs to the device: with the
//! device, and so with the pod's network namespace, it vanishes, and needs no pin. With tcx it is attached without a
//! link, else by a filter of the clsact queueing discipline.
//!
//! At the egress the stub is in front of all others, at the ingress behind them: other programs see the packets of the
//! pod's network, which are IPv6, and none that ends the chain lets IPv4 leave the pod untranslated.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fordway_net::Netlink;
use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder};

use crate::attach::device_name;
use crate::capture::captured;
use crate::clsact::{FIRST, LAST};
use crate::device::into_io;
use crate::error::io_error;
use crate::pods::{PodPrograms, SLOTS, fnv};
use crate::sys::{self, TcxHook};
use crate::{Error, Kind, Place, Result};

/// The handle of the filters.
const HANDLE: u32 = 0x00f0_c1a7;

/// The hook of one device for one pod. All calls act on the network namespace of the calling thread.
#[derive(Clone, Copy, Debug)]
pub struct PodHook {
    ifindex: u32,
    kind: Kind,
}

/// A hook of tc, with the entry of the map of programs that belongs there.
#[derive(Clone, Copy, Debug)]
struct Side {
    place: Place,
    slot: usize,
}

const SIDES: [Side; SLOTS.len()] =
    [Side { place: Place::Egress, slot: 0 }, Side { place: Place::Ingress, slot: 1 }];

impl Side {
    /// How the names of its stubs begin.
    const fn mark(self) -> &'static str {
        match self.place {
            Place::Egress => "fwe",
            Place::Ingress | Place::Xdp => "fwi",
        }
    }

    /// The name of the stub of one pod that continues with a map of programs: 15 characters. `map`: the kernel's number
    /// of the map, which no later map has. A map whose pin was lost is empty, and one with the same programs has another.
    fn name(self, key: u64, map: u32) -> String {
        format!("{}{:05x}", self.begin(key), map & 0xf_ffff)
    }

    /// How the names of all stubs of one pod begin.
    fn begin(self, key: u64) -> String {
        format!("{}{:07x}", self.mark(), fnv(&[&key.to_ne_bytes()]) >> 36)
    }

    fn is_ours(self, name: &str) -> bool {
        name.len() == 15
            && name
                .strip_prefix(self.mark())
                .is_some_and(|digits| u64::from_str_radix(digits, 16).is_ok())
    }

    const fn is_egress(self) -> bool {
        matches!(self.place, Place::Egress)
    }

    const fn tcx(self) -> TcxHook {
        if self.is_egress() { TcxHook::Egress } else { TcxHook::Ingress }
    }

    const fn priority(self) -> u32 {
        if self.is_egress() { FIRST } else { LAST }
    }
}

/// A program at a hook.
struct Found {
    name: String,
    program: OwnedFd,
}

impl PodHook {
    /// The hook of the device with this index. `force_clsact`: by clsact filters even where the kernel has tcx.
    #[must_use]
    pub fn new(ifindex: u32, force_clsact: bool) -> Self {
        let clsact = force_clsact || !sys::has_tcx();
        PodHook { ifindex, kind: if clsact { Kind::Clsact } else { Kind::Tcx } }
    }

    /// Attaches the stubs of the pod `key`, and takes off those of others. What is attached already, and in its place, stays.
    pub fn attach(&self, key: u64, programs: &PodPrograms) -> Result<()> {
        if self.kind == Kind::Clsact {
            let (made, log) = captured(|| sys::clsact_create(self.ifindex));
            made.map_err(|error| {
                self.failed("add the clsact queueing discipline to", error, &log)
            })?;
        }
        for side in SIDES {
            let name = side.name(key, programs.map);
            let there = self.stubs(side)?;
            let is_there = there.iter().any(|found| found.name == name);
            let stays = is_there && (!side.is_egress() || self.is_first(side, &name)?);
            if !stays {
                let stub = sys::load_stub(&name, key, programs.tails.as_fd(), side.slot as i32)
                    .map_err(|error| self.failed("load a program for", error, ""))?;
                self.put(side, stub.as_fd())?;
            }
            // A filter was replaced.
            let others = there.iter().filter(|found| !(stays && found.name == name));
            for found in others.filter(|_| self.kind == Kind::Tcx) {
                self.take_off(side, found.program.as_fd())?;
            }
        }
        Ok(())
    }

    /// What is wrong with the stubs of the pod `key`, as clauses; nothing if all is well.
    pub fn check(&self, key: u64, programs: &PodPrograms) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        for side in SIDES {
            let place = side.place.label();
            let name = side.name(key, programs.map);
            let stubs = self.stubs(side)?;
            if !stubs.iter().any(|found| found.name == name) {
                let begin = side.begin(key);
                let what = match &stubs[..] {
                    [] => "no program",
                    [..] if stubs.iter().any(|found| found.name.starts_with(&begin)) => {
                        "a program that continues with other programs, or with lost ones,"
                    }
                    [..] => "another pod's program",
                };
                wrong.push(format!("{what} is attached to the {place} of the pod's device"));
            } else if side.is_egress() && !self.is_first(side, &name)? {
                wrong.push(format!(
                    "another program runs first at the {place} of the pod's device, so that IPv4 may leave untranslated"
                ));
            }
        }
        Ok(wrong)
    }

    /// Takes off all stubs, and then the queueing discipline, if nothing else uses it. Where there is no stub, the queueing
    /// discipline stays unless [`PodHook::attach`] `was_begun`: it may be another program's.
    pub fn detach(&self, was_begun: bool) -> Result<()> {
        let mut is_ours = was_begun;
        for side in SIDES {
            for found in self.stubs(side)? {
                self.take_off(side, found.program.as_fd())?;
                is_ours = true;
            }
        }
        if self.kind != Kind::Clsact || !is_ours {
            return Ok(());
        }
        let mut is_used = false;
        for side in SIDES {
            is_used |= !self.filters(side)?.is_empty();
        }
        if !is_used {
            // There may be none.
            let _ = captured(|| sys::clsact_destroy(self.ifindex));
        }
        Ok(())
    }

    /// The names of the stubs that are attached.
    pub fn names(&self) -> Result<Vec<String>> {
        let stubs = SIDES.into_iter().map(|side| self.stubs(side)).collect::<Result<Vec<_>>>()?;
        Ok(stubs.into_iter().flatten().map(|found| found.name).collect())
    }

    /// Programs of ours.
    fn stubs(&self, side: Side) -> Result<Vec<Found>> {
        Ok(self.found(side)?.into_iter().filter(|found| side.is_ours(&found.name)).collect())
    }

    /// With tcx all programs, in their order; with filters the one at our place.
    fn found(&self, side: Side) -> Result<Vec<Found>> {
        let look = || -> io::Result<Vec<Found>> {
            let numbers = if self.kind == Kind::Clsact {
                let any = sys::load_trivial()?;
                let (found, _) = captured(|| self.filter(side, any.as_fd()).query());
                found.into_iter().collect()
            } else {
                sys::tcx_programs(self.ifindex, side.tcx())?
            };
            let mut found = Vec::new();
            for number in numbers {
                // One that has gone meanwhile.
                let Ok(program) = libbpf_rs::Program::fd_from_id(number) else { continue };
                found.push(Found { name: sys::program_name(program.as_fd())?, program });
            }
            Ok(found)
        };
        look().map_err(|error| self.failed("list the programs at", error, ""))
    }

    fn is_first(&self, side: Side, name: &str) -> Result<bool> {
        if self.kind == Kind::Clsact {
            let first = self.filters(side)?.into_iter().next();
            return Ok(first == Some((side.priority(), HANDLE)));
        }
        Ok(self.found(side)?.first().is_some_and(|found| found.name == name))
    }

    /// Priority and handle of each filter, in their order.
    fn filters(&self, side: Side) -> Result<Vec<(u32, u32)>> {
        let list = || Netlink::open()?.traffic_filters(self.ifindex, side.is_egress());
        let filters =
            list().map_err(|error| self.failed("list the filters of", into_io(&error), ""))?;
        Ok(filters.into_iter().map(|filter| (filter.priority, filter.handle)).collect())
    }

    fn put(&self, side: Side, stub: BorrowedFd<'_>) -> Result<()> {
        if self.kind != Kind::Clsact {
            let attached = sys::tcx_attach(stub, self.ifindex, side.tcx(), side.is_egress());
            return attached.map_err(|error| self.failed("attach a program to", error, ""));
        }
        let (attached, log) = captured(|| {
            let mut filter = self.filter(side, stub);
            let is_there = filter.query().is_ok();
            filter.replace(is_there).attach()
        });
        attached
            .map(drop)
            .map_err(|error| self.failed("attach a filter to", io_error(&error), &log))
    }

    fn take_off(&self, side: Side, program: BorrowedFd<'_>) -> Result<()> {
        let (detached, operation, log) = if self.kind == Kind::Clsact {
            let (detached, log) = captured(|| self.filter(side, program).detach());
            (detached.map_err(|error| io_error(&error)), "take a filter off", log)
        } else {
            let detached = sys::tcx_detach(program, self.ifindex, side.tcx());
            (detached, "take a program off", String::new())
        };
        match detached {
            // Another process has taken it off.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result.map_err(|error| self.failed(operation, error, &log)),
        }
    }

    fn filter(&self, side: Side, program: BorrowedFd<'_>) -> TcHook {
        TcHookBuilder::new(program)
            .ifindex(self.ifindex as i32)
            .handle(HANDLE)
            .priority(side.priority())
            .hook(if side.is_egress() { TC_EGRESS } else { TC_INGRESS })
    }

    fn failed(&self, operation: &str, error: io::Error, log: &str) -> Error {
        let source =
            if log.is_empty() { error } else { io::Error::new(error.kind(), log.to_owned()) };
        Error::Attach { operation: operation.to_owned(), device: device_name(self.ifindex), source }
    }
}

/// Which of the pods `keys` have a stub at a device, in any network namespace. Needs CAP_SYS_ADMIN.
pub fn attached_pods(keys: &[u64]) -> Result<Vec<u64>> {
    let names = sys::loaded_programs().map_err(|source| Error::Attach {
        operation: "list the programs of".to_owned(),
        device: "all devices".to_owned(),
        source,
    })?;
    let is_attached = |key: &u64| {
        let begins = SIDES.map(|side| side.begin(*key));
        names.iter().any(|name| begins.iter().any(|begin| name.starts_with(begin)))
    };
    Ok(keys.iter().copied().filter(is_attached).collect())
}

#[cfg(test)]
mod tests;
