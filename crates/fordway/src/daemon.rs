//! `fordway run` and the short forms: set up, translate, take down.
//!
//! The order: signals are caught first, so that none cuts a set-up in two; then the sockets, so that
//! a second daemon is refused before it touches anything; then devices and host changes, which need
//! privileges; then privileges are given up; then the user engines start, on threads without any, and
//! the kernel engines in front of them. At the end, the other way round.

mod asks;
mod auto;
mod borrow;
mod change;
mod clat_address;
mod handle;
mod journal;
mod kernel;
mod plan;
mod pool4;
mod prepared;
mod privilege;
mod reload;
mod resolve;
mod running;
mod services;
mod signals;
mod softwire;
mod stateful;
mod status;
mod trace;
mod tunnels;
mod unchecked;
mod upkeep;
mod uplink;
mod watch;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fordway_bpf::{Host as BpfHost, Unsupported};
use fordway_config::{Config, InterfaceName, LogLevel, OnSigterm, Settings, Translator};
use fordway_net::privilege::Capability;
use fordway_net::{Host, Ipv6State, Netlink};
use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;
use tracing::{error, info, warn};

pub(crate) use asks::Asks;
pub(crate) use handle::Handle;
pub(crate) use kernel::pins;
pub(crate) use services::{advertised, prefixes, proxies, upstream};
pub(crate) use stateful::{Filter, Read, Reader, deterministic, with_gateway};
pub(crate) use trace::Subscription;

use crate::control;
use crate::failure::Failure;
use crate::metrics;
use auto::Left;
use prepared::{Prepared, SetUp};
use running::Running;
use signals::{Signals, drain, hung_up};
use watch::{Looks, Watch};

/// How often the engines are looked after.
const WATCH: Duration = Duration::from_millis(500);

/// What the daemon is to run.
pub(crate) struct Job {
    /// The configuration.
    pub(crate) config: Config,
    /// Where it came from, for people.
    pub(crate) origin: String,
    /// The file that it can be read from again.
    pub(crate) file: Option<PathBuf>,
    /// Values that replace those of the file.
    pub(crate) settings: Settings,
    /// What comes before the file.
    pub(crate) adjust: Adjust,
    /// Folder for locks and the ledger.
    pub(crate) run_dir: PathBuf,
}

/// Options of the command line that come before what the file says.
pub(crate) struct Adjust(Box<dyn Fn(&mut Config)>);

impl Adjust {
    pub(crate) fn new(adjust: impl Fn(&mut Config) + 'static) -> Adjust {
        Adjust(Box::new(adjust))
    }

    pub(crate) fn apply(&self, config: &mut Config) {
        (self.0)(config);
    }
}

/// What all translators of the daemon share.
pub(crate) struct Context {
    run_dir: PathBuf,
    /// Whether the host allows the kernel engine.
    host: Result<BpfHost, Unsupported>,
    /// Queues that have been started.
    queues: usize,
    /// What DSTM lends.
    tunnels: tunnels::Tunnels,
}

/// How the daemon ends.
enum End {
    /// Everything is taken down.
    TakeDown,
    /// Kernel engines go on.
    Leave,
}

/// Runs until a signal, or until an engine fails.
pub(crate) fn run(job: Job) -> Result<(), Failure> {
    let silent = job.config.log.level == LogLevel::Off;
    crate::log::start(job.config.log);
    let result = run_logged(job);
    if let Err(failure) = result {
        error!("{}", failure.line());
        notify(&[NotifyState::Status(&failure.line())]);
        // Somebody has to say it.
        return Err(if silent { failure } else { Failure::Logged });
    }
    info!("ended");
    Ok(())
}

fn run_logged(mut job: Job) -> Result<(), Failure> {
    borrow::expand(&mut job.config);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start the event loop: {error}")))?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let started = Instant::now();
        let mut signals = Signals::catch(&job)?;
        check_host(&job.config)?;
        let sockets = Sockets::open(&job)?;
        clear_the_way(&job.config, &job.run_dir)?;
        let host = kernel::probe(&job.config.translators);
        let tunnels = tunnels::Tunnels::default();
        let services = services::Prepared::set_up(&job.config, &job.run_dir, &tunnels)?;
        let mut context = Context { run_dir: job.run_dir.clone(), host, queues: 0, tunnels };
        let borrowers = borrow::open(&job.config.dstm_clients)?;
        let (automatic, fixed) = auto::split(&job.config.translators);
        let automatic = auto::open(&automatic, &context)?;
        let prepared = set_up(&fixed, &context)?;
        let manages = prepared.iter().any(Prepared::manages) || !automatic.is_empty();
        let kernel = prepared.iter().any(|one| one.wants_kernel() || one.may_have_pins())
            || automatic.iter().any(|one| one.may_need_kernel(&context));
        let mut others = services.capabilities();
        others.extend(auto::capabilities(&automatic));
        others.extend(borrow::capabilities(&borrowers));
        if let Err(failure) = privilege::lower(manages, kernel, &others) {
            undo(prepared);
            return Err(failure);
        }
        let running = start_prepared(prepared, &mut context)?;
        let timeout = job.config.control.timeout;
        let services = match services.start() {
            Ok(services) => services,
            Err(failure) => {
                running.into_iter().rev().for_each(Running::give_up);
                return Err(failure);
            }
        };
        let daemon = Handle::new(job, context, running, automatic, services);
        daemon.borrow(borrowers);
        let served = serve(sockets, &daemon, timeout);
        let end = match &served {
            Ok(_) => {
                announce(&daemon, started);
                daemon.attend();
                wait(&daemon, &mut signals).await
            }
            Err(_) => End::TakeDown,
        };
        notify(&[NotifyState::Stopping]);
        // Hosts are told before what they use is gone, and before anybody is waited for.
        daemon.begin_end(matches!(end, End::Leave));
        drain(&daemon, &mut signals).await;
        daemon.end_automatic(matches!(end, End::TakeDown));
        daemon.end_borrowing(matches!(end, End::TakeDown)).await;
        match end {
            End::TakeDown => daemon.take_services().stop(),
            End::Leave => daemon.take_services().leave(),
        }
        let ended = match end {
            End::TakeDown => end_all(daemon.take_running(), Running::take_down),
            End::Leave => end_all(daemon.take_running(), Running::leave),
        };
        // The control socket's file goes when all has been taken down.
        served.and(ended)
    })
}

/// What no set-up can do without, each said in a sentence of its own.
fn check_host(config: &Config) -> Result<(), Failure> {
    let manages = config.translators.iter().any(|translator| translator.manage);
    if manages {
        fordway_net::privilege::require(&[Capability::CAP_NET_ADMIN])?;
    }
    // IPv4 alone needs no IPv6.
    let only_v4 = config.translators.is_empty()
        && config.dstm_server.is_none()
        && config.dual_stack.is_empty()
        && config.dns64.is_none()
        && config.advertise.is_empty();
    match Ipv6State::probe() {
        Ipv6State::Enabled => Ok(()),
        _ if only_v4 => Ok(()),
        Ipv6State::Absent => Err(Failure::failed("the kernel has no IPv6")
            .hint("start it without ipv6.disable=1, or take a kernel with IPv6")),
        Ipv6State::DisabledBySysctl => Err(Failure::failed(
            "IPv6 is disabled: net.ipv6.conf.all.disable_ipv6 or default.disable_ipv6 is 1",
        )
        .hint("sysctl -w net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0")),
    }?;
    match Host::probe().tun {
        Ok(()) => Ok(()),
        Err(_) if config.translators.is_empty() => Ok(()),
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

/// Takes down what is nobody's any more, before anything is made that might need its place: what an earlier daemon of this
/// control socket has left under a name that the file has no more, and translators of killed daemons.
fn clear_the_way(config: &Config, run_dir: &Path) -> Result<(), Failure> {
    let home = upkeep::settle_at(&config.control.socket);
    for orphan in Left::orphans(config, run_dir, home)? {
        orphan.take_down();
    }
    // What this file has a name for is its own, to be taken up; services take up theirs.
    let names: Vec<&str> = config.translators.iter().map(|it| it.name.as_str()).collect();
    reclaim(run_dir, |owner| names.contains(&owner) || owner.len() > InterfaceName::MAX);
    Ok(())
}

/// Takes back what killed daemons left, but for these owners and those that are held.
fn reclaim(run_dir: &Path, spare: impl Fn(&str) -> bool) {
    match fordway_net::reclaim_dead(run_dir, spare) {
        Ok(reports) => {
            for (owner, report) in reports.iter().filter(|(_, report)| !report.is_empty()) {
                journal::log_report(owner, "left by a daemon that was killed: ", report);
            }
        }
        Err(error) => warn!("cannot take back what killed daemons left: {error}"),
    }
}

/// Sets all translators up, or none.
fn set_up(translators: &[Translator], context: &Context) -> Result<Vec<Prepared>, Failure> {
    let mut prepared = Vec::new();
    for translator in translators {
        match Prepared::set_up(translator, context) {
            Ok(one) => prepared.push(one),
            Err(failure) => {
                undo(prepared);
                return Err(failure);
            }
        }
    }
    // Ours are held by now.
    reclaim(&context.run_dir, |_| false);
    Ok(prepared)
}

fn undo(prepared: Vec<Prepared>) {
    for one in prepared.into_iter().rev() {
        one.into_set_up().take_down();
    }
}

/// Sets translators up and starts them while the daemon runs already: all of them, or none.
fn start_all(translators: &[Translator], context: &mut Context) -> Result<Vec<Running>, Failure> {
    if translators.is_empty() {
        return Ok(Vec::new());
    }
    let prepared = set_up(translators, context)?;
    start_prepared(prepared, context)
}

/// Starts the user engines on threads without privileges, then the kernel engines in front of them.
fn start_prepared(prepared: Vec<Prepared>, context: &mut Context) -> Result<Vec<Running>, Failure> {
    let place = context.queues;
    let mut running = match privilege::without(prepared, |all| start_engines(all, place)) {
        Ok(Ok(running)) => running,
        Ok(Err(stopped)) => return Err(stopped.give_up()),
        Err((failure, prepared)) => {
            undo(prepared.unwrap_or_default());
            return Err(failure);
        }
    };
    context.queues += running.iter().map(|one| one.queues).sum::<usize>();
    for at in 0..running.len() {
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

/// Starts all user engines. On a thread without privileges, so whoever has them takes down what a
/// failure leaves. `place`: queues that were started before.
fn start_engines(prepared: Vec<Prepared>, mut place: usize) -> Result<Vec<Running>, Box<Stopped>> {
    let mut running: Vec<Running> = Vec::new();
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

/// Starts to answer on the sockets, by threads without privileges. The control socket's file lives as long as what is
/// returned.
fn serve(sockets: Sockets, daemon: &Handle, timeout: Duration) -> Result<control::Guard, Failure> {
    let (listener, guard) = sockets.control;
    let (asks, asked) = asks::channel();
    tokio::task::spawn_local(asked.serve(daemon.clone()));
    if !sockets.metrics.is_empty() {
        let asks = asks.clone();
        let take = async move || asks.ask(Handle::stats).await;
        let serve = move || metrics::serve(sockets.metrics, take);
        privilege::apart("fordway-metrics", serve)?;
    }
    privilege::apart("fordway-control", move || control::serve(listener, asks, timeout))?;
    Ok(guard)
}

/// Says that everything works from now on.
fn announce(daemon: &Handle, started: Instant) {
    let names = daemon.names();
    info!("ready after {} ms: {names}", started.elapsed().as_millis());
    notify(&[NotifyState::Ready, NotifyState::Status(&format!("Running: {names}"))]);
}

/// Waits for a signal or a request to end, or for an engine to fail.
async fn wait(daemon: &Handle, signals: &mut Signals) -> End {
    let mut watch = tokio::time::interval(WATCH);
    watch.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut netlink = Netlink::open().ok();
    let mut changes = Watch::of_everything();
    let mut looks = Looks::new(Instant::now());
    let mut down = BTreeSet::new();
    loop {
        tokio::select! {
            // In this order, where several wait: whoever keeps sending SIGHUP or changing addresses must not
            // keep it from ending.
            biased;
            _ = signals.terminate.recv() => {
                return match signals.on_sigterm {
                    OnSigterm::Down => {
                        info!("SIGTERM: ending");
                        End::TakeDown
                    }
                    OnSigterm::Leave => {
                        info!("SIGTERM: ending; kernel engines go on, as [control] on_sigterm says");
                        End::Leave
                    }
                };
            }
            _ = signals.restart.recv() => {
                info!("SIGUSR2: ending; kernel engines go on");
                return End::Leave;
            }
            _ = signals.interrupt.recv() => {
                info!("SIGINT: ending");
                return End::TakeDown;
            }
            () = daemon.asked_to_leave() => {
                info!("ending, as asked; kernel engines go on");
                return End::Leave;
            }
            () = hung_up(&mut signals.hangup) => {
                if signals.has_file {
                    reload(daemon);
                } else {
                    info!("SIGHUP: ending; there is no file that could be read again");
                    return End::TakeDown;
                }
            }
            _ = watch.tick() => {
                if daemon.failed() {
                    // Nobody else's sessions are to end for it: the service manager starts the daemon again.
                    error!("an engine has failed: ending; kernel engines go on");
                    return End::Leave;
                }
                daemon.mend_services();
                daemon.tell_paths();
            }
            () = tokio::time::sleep_until(looks.due().into()) => {
                let began = Instant::now();
                if netlink.is_none() {
                    netlink = Netlink::open().ok();
                }
                let (again, spent) = match &mut netlink {
                    Some(netlink) => daemon.follow_host(netlink, began),
                    None => (None, Duration::ZERO),
                };
                down.clear();
                looks.looked(Instant::now(), spent, again);
            }
            () = changes.changed(&mut down) => looks.hear(Instant::now()),
        }
    }
}

/// Reloads because of a signal, which nobody waits for to hear of an error.
fn reload(daemon: &Handle) {
    match daemon.reload() {
        Ok(done) => {
            info!("SIGHUP: {done}");
            notify(&[NotifyState::Status(&format!("Running: {}", daemon.names()))]);
        }
        Err(failure) => error!("SIGHUP: nothing is changed: {}", failure.line()),
    }
}

/// Ends all, the latest first. Gives the first reason of an engine that failed.
fn end_all(
    running: Vec<Running>,
    end: impl Fn(Running) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut result = Ok(());
    for one in running.into_iter().rev() {
        let ended = end(one);
        if let (Err(earlier), Err(_)) = (&result, &ended) {
            error!("{}", Failure::line(earlier));
        }
        result = ended.and(result);
    }
    result
}

/// What the daemon listens on.
struct Sockets {
    control: (std::os::unix::net::UnixListener, control::Guard),
    metrics: Vec<std::net::TcpListener>,
}

impl Sockets {
    fn open(job: &Job) -> Result<Sockets, Failure> {
        let control = control::listen(&job.config.control.socket)?;
        let metrics = job.config.metrics.listen.iter().map(|address| metrics::listen(*address));
        Ok(Sockets { control, metrics: metrics.collect::<Result<_, _>>()? })
    }
}

/// Tells systemd, if it listens.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!("cannot tell the service manager: {error}");
    }
}
