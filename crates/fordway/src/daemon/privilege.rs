//! Giving up what is not needed once the host is set up.

use std::thread;

use caps::CapSet;
use fordway_net::privilege::{self, Capability};

use crate::failure::Failure;

/// Keeps CAP_NET_ADMIN for taking down, if there is something to take down, and nothing else.
pub(crate) fn lower(manages: bool) -> Result<(), Failure> {
    let keep: &[Capability] = if manages { &[Capability::CAP_NET_ADMIN] } else { &[] };
    Ok(privilege::drop_all_but(keep)?)
}

/// Runs `start` on a thread without any capability, so that the threads it starts have none either:
/// they read packets, which anybody may have written.
pub(crate) fn without<T: Send>(
    start: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    let run = || {
        for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
            caps::clear(None, set).map_err(|error| {
                Failure::failed(format!("cannot drop the capabilities of a thread: {error}"))
            })?;
        }
        start()
    };
    thread::scope(|scope| scope.spawn(run).join())
        .unwrap_or_else(|_| Err(Failure::failed("starting the engines panicked")))
}
