//! `fordway run` and the short forms: set up, translate, take down.
//!
//! The order: signals are caught first, so that none cuts a set-up in two; then the sockets, so that
//! a second daemon is refused before it touches anything; then devices and host changes, which need
//! privileges; then privileges are given up; then the engines start, on threads without any. At the
//! end, the other way round.

mod clat_address;
mod instance;
mod plan;
mod privilege;
mod resolve;
mod shared;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fordway_config::{Config, Translator};
use fordway_net::privilege::Capability;
use fordway_net::{Host, Ipv6State};
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

pub(crate) use shared::Shared;

use crate::control;
use crate::failure::Failure;
use crate::metrics;
use instance::{Prepared, Running, SetUp};

/// How often the engines are looked after.
const WATCH: Duration = Duration::from_millis(500);

/// What the daemon is to run.
pub(crate) struct Job {
    /// The configuration.
    pub(crate) config: Config,
    /// Where it came from, for people.
    pub(crate) origin: String,
    /// Folder for locks and the ledger.
    pub(crate) run_dir: PathBuf,
}

/// Runs until a signal, or until an engine fails.
pub(crate) fn run(job: &Job) -> Result<(), Failure> {
    crate::log::start(job.config.log);
    let result = run_logged(job);
    if let Err(failure) = &result {
        error!("{}", failure.line());
        notify(&[NotifyState::Status(&failure.line())]);
        return Err(Failure::Logged);
    }
    info!("ended");
    Ok(())
}

fn run_logged(job: &Job) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start the event loop: {error}")))?;
    runtime.block_on(async {
        let started = Instant::now();
        let mut signals = Signals::catch()?;
        check_host(&job.config.translators)?;
        let sockets = Sockets::open(job)?;
        let prepared = set_up(&job.config.translators, &job.run_dir)?;
        let manages = prepared.iter().any(Prepared::manages);
        if let Err(failure) = privilege::lower(manages) {
            undo(prepared);
            return Err(failure);
        }
        let running = match privilege::without(prepared, start_engines) {
            Ok(Ok(running)) => running,
            Ok(Err(stopped)) => return Err(stopped.take_down()),
            Err((failure, prepared)) => {
                undo(prepared.unwrap_or_default());
                return Err(failure);
            }
        };
        // Taken away when all has been taken down.
        let _socket = serve(job, sockets, &running);
        announce(&running, started);
        wait(&running, &mut signals).await;
        notify(&[NotifyState::Stopping]);
        take_down(running)
    })
}

/// What no set-up can do without, each said in a sentence of its own.
fn check_host(translators: &[Translator]) -> Result<(), Failure> {
    let manages = translators.iter().any(|translator| translator.manage);
    if manages {
        fordway_net::privilege::require(&[Capability::CAP_NET_ADMIN])?;
    }
    match Ipv6State::probe() {
        Ipv6State::Enabled => Ok(()),
        Ipv6State::Absent => Err(Failure::failed("the kernel has no IPv6")
            .hint("start it without ipv6.disable=1, or take a kernel with IPv6")),
        Ipv6State::DisabledBySysctl => Err(Failure::failed(
            "IPv6 is disabled: net.ipv6.conf.all.disable_ipv6 or default.disable_ipv6 is 1",
        )
        .hint("sysctl -w net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0")),
    }?;
    match Host::probe().tun {
        Ok(()) => Ok(()),
        // Without the node nothing works; without the permission an adopted device may.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Failure::failed("there is no /dev/net/tun").hint(
                "load the driver (modprobe tun), or make the node: mkdir -p /dev/net && mknod \
                 /dev/net/tun c 10 200; in a container, pass the device in",
            ))
        }
        Err(_) => Ok(()),
    }
}

/// Sets all translators up, or none.
fn set_up(translators: &[Translator], run_dir: &Path) -> Result<Vec<Prepared>, Failure> {
    let mut prepared = Vec::new();
    for translator in translators {
        match Prepared::set_up(translator, run_dir) {
            Ok(one) => prepared.push(one),
            Err(failure) => {
                undo(prepared);
                return Err(failure);
            }
        }
    }
    // Whatever daemons of other names left when they were killed. Ours are held by now.
    match fordway_net::reclaim_dead(run_dir) {
        Ok(reports) => {
            for (owner, report) in reports.iter().filter(|(_, report)| !report.is_empty()) {
                instance::log_report(owner, "left by a daemon that was killed: ", report);
            }
        }
        Err(error) => warn!("cannot take back what killed daemons left: {error}"),
    }
    Ok(prepared)
}

fn undo(prepared: Vec<Prepared>) {
    for one in prepared.into_iter().rev() {
        one.into_set_up().take_down();
    }
}

/// Starts to answer on the sockets. The control socket's file lives as long as what is returned.
fn serve(job: &Job, sockets: Sockets, running: &[Running]) -> control::Guard {
    let shared = Arc::new(Shared::new(&job.origin, running));
    let (listener, guard) = sockets.control;
    tokio::spawn(control::serve(listener, Arc::clone(&shared), job.config.control.timeout));
    for listener in sockets.metrics {
        tokio::spawn(metrics::serve(listener, Arc::clone(&shared)));
    }
    guard
}

/// Says that packets are translated from now on.
fn announce(running: &[Running], started: Instant) {
    let names: Vec<&str> = running.iter().map(Running::name).collect();
    let names = names.join(", ");
    info!("ready after {} ms: {names}", started.elapsed().as_millis());
    notify(&[NotifyState::Ready, NotifyState::Status(&format!("Translating: {names}"))]);
}

/// What there is to take down when an engine does not start.
struct Stopped {
    failure: Failure,
    running: Vec<Running>,
    set_up: Vec<SetUp>,
}

impl Stopped {
    /// Takes it down, and gives the failure back.
    fn take_down(self) -> Failure {
        for one in self.set_up.into_iter().rev() {
            one.take_down();
        }
        // The first failure is the one to tell.
        let _ = take_down(self.running);
        self.failure
    }
}

/// Starts all engines. On a thread without privileges, so whoever has them takes down what a failure
/// leaves.
fn start_engines(prepared: Vec<Prepared>) -> Result<Vec<Running>, Box<Stopped>> {
    let mut running: Vec<Running> = Vec::new();
    let mut place = 0;
    let mut waiting = prepared.into_iter();
    while let Some(one) = waiting.next() {
        let started = match getrandom::u64() {
            Ok(seed) => one.start(seed, place),
            Err(error) => {
                let failure = Failure::failed(format!("cannot draw a random number: {error}"));
                Err(Box::new((failure, one.into_set_up())))
            }
        };
        match started {
            Ok(one) => {
                place += one.status().queues;
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

/// Waits for a signal to end, or for an engine to fail.
async fn wait(running: &[Running], signals: &mut Signals) {
    let mut watch = tokio::time::interval(WATCH);
    loop {
        tokio::select! {
            // In this order, where several wait: what does not end comes first.
            biased;
            _ = signals.hangup.recv() => {
                warn!("SIGHUP: this version cannot reload its configuration; restart it");
            }
            _ = signals.terminate.recv() => return info!("SIGTERM: ending"),
            _ = signals.interrupt.recv() => return info!("SIGINT: ending"),
            _ = watch.tick() => {
                if running.iter().any(Running::failed) {
                    return;
                }
            }
        }
    }
}

/// Takes all down, the latest first. Gives the first reason of an engine that failed.
fn take_down(running: Vec<Running>) -> Result<(), Failure> {
    let mut result = Ok(());
    for one in running.into_iter().rev() {
        let ended = one.take_down();
        if let (Err(earlier), Err(_)) = (&result, &ended) {
            error!("{}", Failure::line(earlier));
        }
        result = ended.and(result);
    }
    result
}

/// What the daemon listens on.
struct Sockets {
    control: (tokio::net::UnixListener, control::Guard),
    metrics: Vec<tokio::net::TcpListener>,
}

impl Sockets {
    fn open(job: &Job) -> Result<Sockets, Failure> {
        let control = control::listen(&job.config.control.socket)?;
        let metrics = job.config.metrics.listen.iter().map(|address| metrics::listen(*address));
        Ok(Sockets { control, metrics: metrics.collect::<Result<_, _>>()? })
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn catch() -> Result<Signals, Failure> {
        let catch = |kind| {
            signal(kind).map_err(|error| Failure::failed(format!("cannot catch signals: {error}")))
        };
        Ok(Signals {
            terminate: catch(SignalKind::terminate())?,
            interrupt: catch(SignalKind::interrupt())?,
            hangup: catch(SignalKind::hangup())?,
        })
    }
}

/// Tells systemd, if it listens.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!("cannot tell the service manager: {error}");
    }
}
