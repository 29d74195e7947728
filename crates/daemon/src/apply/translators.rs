//! All translators of the daemon: set up and started together, or none of them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use fordway_bpf::{Host as BpfHost, Unsupported};
use fordway_config::Translator;
use tracing::error;

use super::cluster::Part;
use super::prepared::{Prepared, SetUp};
use super::privilege;
use super::running::Running;
use super::tunnels;
use crate::failure::Failure;
use crate::handover::ledger;
use crate::systemd::alive;

/// The translators that run, and what they share.
pub(crate) struct Translators {
    /// In the order of the configuration.
    pub(crate) running: Vec<Running>,
    pub(crate) context: Context,
}

/// What all translators of the daemon share.
pub(crate) struct Context {
    pub(crate) run_dir: PathBuf,
    /// Whether the host allows the kernel engine.
    pub(crate) host: Result<BpfHost, Unsupported>,
    /// Queues that have been started.
    pub(crate) queues: usize,
    /// What DSTM lends.
    pub(crate) tunnels: tunnels::Tunnels,
    /// Translators that give up routes which new ones may take over.
    pub(crate) yielding: BTreeSet<String>,
    /// The part in a cluster, which the translator of mode `nat64` takes.
    pub(crate) part: Option<Arc<Part>>,
}

/// Sets all translators up, or none.
pub(crate) fn set_up(
    translators: &[Translator],
    context: &Context,
) -> Result<Vec<Prepared>, Failure> {
    let mut prepared = Vec::new();
    for translator in translators {
        alive();
        match Prepared::set_up(translator, context) {
            Ok(one) => prepared.push(one),
            Err(failure) => {
                undo(prepared);
                return Err(failure);
            }
        }
    }
    // Ours are held by now.
    ledger::reclaim(&context.run_dir, |_| false);
    Ok(prepared)
}

pub(crate) fn undo(prepared: Vec<Prepared>) {
    for one in prepared.into_iter().rev() {
        one.into_set_up().take_down();
    }
}

/// Sets translators up and starts them while the daemon runs already: all of them, or none.
pub(crate) fn start_all(
    translators: &[Translator],
    context: &mut Context,
) -> Result<Vec<Running>, Failure> {
    if translators.is_empty() {
        return Ok(Vec::new());
    }
    let prepared = set_up(translators, context)?;
    start_prepared(prepared, context)
}

/// Starts the user engines on threads without privileges, then the kernel engines in front of them.
pub(crate) fn start_prepared(
    prepared: Vec<Prepared>,
    context: &mut Context,
) -> Result<Vec<Running>, Failure> {
    let place = context.queues;
    let mut running = match privilege::preferred(prepared, |all| start_engines(all, place)) {
        Ok(Ok(running)) => running,
        Ok(Err(stopped)) => return Err(stopped.give_up()),
        Err((failure, prepared)) => {
            undo(prepared.unwrap_or_default());
            return Err(failure);
        }
    };
    context.queues += running.iter().map(|one| one.queues).sum::<usize>();
    for at in 0..running.len() {
        alive();
        if let Err(failure) = running[at].accelerate() {
            for one in running.into_iter().rev() {
                one.give_up();
            }
            return Err(failure);
        }
    }
    Ok(running)
}

/// What there is to take down when an engine does not start.
struct Stopped {
    failure: Failure,
    running: Vec<Running>,
    set_up: Vec<SetUp>,
}

impl Stopped {
    /// Takes it down, and gives the failure back.
    fn give_up(self) -> Failure {
        for one in self.set_up.into_iter().rev() {
            one.take_down();
        }
        for one in self.running.into_iter().rev() {
            one.give_up();
        }
        self.failure
    }
}

/// Starts all user engines, on a thread without privileges; the caller, which has them, takes down what a failure leaves. `place`: queues that were started before.
fn start_engines(prepared: Vec<Prepared>, mut place: usize) -> Result<Vec<Running>, Box<Stopped>> {
    let mut running: Vec<Running> = Vec::new();
    let mut waiting = prepared.into_iter();
    while let Some(one) = waiting.next() {
        let started = match getrandom::u64() {
            Ok(seed) => one.start(seed, place),
            Err(error) => Err(Box::new((error.into(), one.into_set_up()))),
        };
        match started {
            Ok(one) => {
                place += one.queues;
                running.push(one);
            }
            Err(stopped) => {
                let (failure, set_up) = *stopped;
                let rest = waiting.map(Prepared::into_set_up);
                let set_up = std::iter::once(set_up).chain(rest).collect();
                return Err(Box::new(Stopped { failure, running, set_up }));
            }
        }
    }
    Ok(running)
}

/// Ends all, the latest first. Gives the first reason of an engine that failed.
pub(crate) fn end_all(
    running: Vec<Running>,
    end: impl Fn(Running) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut result = Ok(());
    for one in running.into_iter().rev() {
        alive();
        let ended = end(one);
        if let (Err(earlier), Err(_)) = (&result, &ended) {
            error!("{}", Failure::line(earlier));
        }
        result = ended.and(result);
    }
    result
}
