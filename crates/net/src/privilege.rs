//! Capabilities: asking for them and giving them up.

use std::fs;

use caps::{CapSet, CapsHashSet};

pub use caps::Capability;

use crate::{Error, Result};

/// Whether the calling thread may use `capability` now.
///
/// # Errors
///
/// [`Error::Privilege`] if the kernel does not tell.
pub fn has(capability: Capability) -> Result<bool> {
    caps::has_cap(None, CapSet::Effective, capability).map_err(failed("read capabilities"))
}

/// Checks that the calling thread may use all of `wanted`.
///
/// # Errors
///
/// [`Error::Capability`] names all that are missing.
pub fn require(wanted: &[Capability]) -> Result<()> {
    let have = caps::read(None, CapSet::Effective).map_err(failed("read capabilities"))?;
    let missing: Vec<_> = wanted
        .iter()
        .filter(|capability| !have.contains(capability))
        .map(ToString::to_string)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::Capability { missing })
}

/// Gives up, for good, every capability outside `keep`, and the way to new
/// ones through programs that would grant them (`no_new_privs`).
///
/// Capabilities belong to threads: call it while the process has one thread.
/// All threads started later, and all programs, have no more than `keep`. The
/// user stays: root without capabilities still owns root's files.
///
/// # Errors
///
/// [`Error::Capability`] if the thread lacks one of `keep`;
/// [`Error::Privilege`] if the process has more than one thread, or the kernel
/// refuses. Nothing has been given up in the first two cases.
pub fn drop_all_but(keep: &[Capability]) -> Result<()> {
    let threads = fs::read_dir("/proc/self/task").map_err(failed("count threads"))?.count();
    if threads != 1 {
        return Err(Error::Privilege {
            operation: "drop privileges",
            reason: format!("the process has {threads} threads, and each has its own"),
        });
    }
    let keep: CapsHashSet = keep.iter().copied().collect();
    let permitted = caps::read(None, CapSet::Permitted).map_err(failed("read capabilities"))?;
    let missing: Vec<_> = keep.difference(&permitted).map(ToString::to_string).collect();
    if !missing.is_empty() {
        return Err(Error::Capability { missing });
    }

    rustix::thread::set_no_new_privs(true).map_err(failed("set no_new_privs"))?;
    // The bounding set can be lowered with CAP_SETPCAP only. Without it,
    // no_new_privs already keeps every program at or below what we have.
    if permitted.contains(&Capability::CAP_SETPCAP) {
        caps::raise(None, CapSet::Effective, Capability::CAP_SETPCAP)
            .map_err(failed("use CAP_SETPCAP"))?;
        let bounding =
            caps::read(None, CapSet::Bounding).map_err(failed("read the bounding set"))?;
        for capability in bounding.difference(&keep) {
            caps::drop(None, CapSet::Bounding, *capability)
                .map_err(failed("lower the bounding set"))?;
        }
    }
    caps::clear(None, CapSet::Ambient).map_err(failed("clear ambient capabilities"))?;
    caps::clear(None, CapSet::Inheritable).map_err(failed("clear inheritable capabilities"))?;
    caps::set(None, CapSet::Effective, &keep).map_err(failed("lower capabilities"))?;
    caps::set(None, CapSet::Permitted, &keep).map_err(failed("lower capabilities"))
}

fn failed<E: ToString>(operation: &'static str) -> impl FnOnce(E) -> Error {
    move |error| Error::Privilege { operation, reason: error.to_string() }
}
