//! Drops privileges that are not needed once the host is set up.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::{self, JoinHandle};

use fordway_net::privilege::{self, Capability};
use tokio::runtime::Builder;
use tokio::task::LocalSet;
use tracing::debug;

use crate::failure::Failure;

/// What a kernel engine needs: to load programs, which follow pointers, and to attach them.
const KERNEL: [Capability; 3] =
    [Capability::CAP_BPF, Capability::CAP_PERFMON, Capability::CAP_NET_ADMIN];

/// Keeps CAP_NET_ADMIN for taking down, if there is something to take down, what kernel engines need if
/// there are to be any, what `others` need, and nothing else.
pub(crate) fn lower(manages: bool, kernel: bool, others: &[Capability]) -> Result<(), Failure> {
    let mut keep = Vec::new();
    let of_kernel =
        KERNEL.into_iter().filter(|it| kernel || manages && *it == Capability::CAP_NET_ADMIN);
    for capability in of_kernel.chain(others.iter().copied()) {
        if !keep.contains(&capability) && privilege::has(capability)? {
            keep.push(capability);
        }
    }
    Ok(privilege::drop_all_but(&keep)?)
}

/// What root needs beside them if another user owns the folder of the ledger, as where the service has run: without it, not
/// even root could write there, and host changes would stay at the end.
pub(crate) fn for_folder(run_dir: &Path) -> Vec<Capability> {
    let is_foreign = rustix::process::geteuid().is_root()
        && std::fs::metadata(run_dir).is_ok_and(|found| found.uid() != 0);
    let needed = [Capability::CAP_DAC_OVERRIDE, Capability::CAP_CHOWN];
    needed.into_iter().filter(|_| is_foreign).collect()
}

/// Runs `start` with `value` on a thread without any capability, so that the threads it starts have none either: they
/// parse packets from the network.
///
/// If `start` is not reached, the value is returned, so that its owner can undo what belongs to it; `None` only after a
/// panic.
pub(crate) fn without<V: Send, T: Send>(
    value: V,
    start: impl FnOnce(V) -> T + Send,
) -> Result<T, (Failure, Option<V>)> {
    after(|| {}, value, start)
}

/// The same for engines: the thread first gets the priority of a queue's, by CAP_SYS_NICE or a limit that allows it, and those
/// that it starts inherit it.
pub(crate) fn preferred<V: Send, T: Send>(
    value: V,
    start: impl FnOnce(V) -> T + Send,
) -> Result<T, (Failure, Option<V>)> {
    after(fordway_engine::prefer, value, start)
}

/// Runs `first` on a thread of its own, gives its capabilities up, and runs `start`.
fn after<V: Send, T: Send>(
    first: impl FnOnce() + Send,
    value: V,
    start: impl FnOnce(V) -> T + Send,
) -> Result<T, (Failure, Option<V>)> {
    let mut waiting = Some(value);
    let slot = &mut waiting;
    let run = move || {
        first();
        privilege::drop_all_of_thread()?;
        slot.take().map(start).ok_or_else(|| Failure::failed("nothing to start"))
    };
    let ended = thread::scope(|scope| {
        let thread = thread::Builder::new()
            .spawn_scoped(scope, run)
            .map_err(|error| Failure::failed(format!("cannot make a thread: {error}")))?;
        thread.join().unwrap_or_else(|_| Err(Failure::failed("starting the engines panicked")))
    });
    ended.map_err(|failure| (failure, waiting))
}

/// Starts a thread without any capability that runs `work` on its own event loop and ends with it. Input from the network
/// and from clients is received and parsed on such threads. A seccomp filter keeps them from starting programs and from
/// other system calls that they do not need.
pub(crate) fn apart<F: Future<Output = ()>>(
    name: &str,
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<JoinHandle<()>, Failure> {
    let failed =
        |error: std::io::Error| Failure::failed(format!("cannot start the thread {name}: {error}"));
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let run = move || LocalSet::new().block_on(&runtime, async { work().await });
    let start = |run| {
        // A kernel need not have seccomp.
        if let Err(error) = privilege::confine() {
            debug!("{name}: {error}");
        }
        thread::Builder::new().name(name.to_owned()).spawn(run)
    };
    without(run, start).map_err(|(failure, _)| failure)?.map_err(failed)
}

#[cfg(test)]
mod tests {
    use caps::CapSet;

    use super::*;

    #[test]
    fn a_value_that_was_not_started_comes_back_and_a_started_one_does_not() {
        let started = without(7, |value| value + 1);
        assert!(matches!(started, Ok(8)));
        let panicked = without(7, |_| -> u8 { panic!("on purpose") });
        assert!(matches!(panicked, Err((_, None))));
    }

    #[test]
    fn a_thread_apart_has_no_capability_nor_have_those_that_it_starts() {
        let (tell, told) = std::sync::mpsc::channel();
        let work = move || async move {
            let look = || caps::read(None, CapSet::Permitted).unwrap();
            tell.send((look(), thread::current().name().map(str::to_owned))).unwrap();
            let there = tokio::task::spawn_blocking(move || tell.send((look(), None)));
            there.await.unwrap().unwrap();
        };
        apart("apart", work).unwrap().join().unwrap();
        let all: Vec<_> = told.iter().collect();
        assert!(all.len() == 2 && all.iter().all(|(capabilities, _)| capabilities.is_empty()));
        assert_eq!(all[0].1.as_deref(), Some("apart"));
    }

    #[test]
    fn a_thread_apart_starts_no_program() {
        let (tell, told) = std::sync::mpsc::channel();
        let run = || std::process::Command::new("true").status().map_err(|error| error.kind());
        let work = move || async move { tell.send(run()).unwrap() };
        apart("apart", work).unwrap().join().unwrap();
        assert_eq!(told.recv().unwrap(), Err(std::io::ErrorKind::PermissionDenied));
        // Other threads are as they were.
        assert!(run().is_ok_and(|status| status.success()));
    }

    #[test]
    fn the_thread_has_no_capability_and_this_one_keeps_its_own() {
        let before = caps::read(None, CapSet::Effective).unwrap();
        let there = without((), |()| caps::read(None, CapSet::Effective).unwrap());
        assert!(there.is_ok_and(|there| there.is_empty()));
        assert_eq!(caps::read(None, CapSet::Effective).unwrap(), before);
    }
}
