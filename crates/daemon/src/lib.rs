//! `fordway run` and the short forms: set up, translate, take down.
//!
//! The order: signals are caught first, so that none cuts a set-up in two; then the sockets, so that
//! a second daemon is refused before it touches anything; then devices and host changes, which need
//! privileges; then privileges are given up; then the user engines start, on threads without any, and
//! the kernel engines in front of them. At the end, the other way round.
//!
//! What commands without a daemon need as well is public: [`failure`], [`output`], what a configuration means for
//! servers ([`settings`]), [`tables`], [`metrics`], the filters of a [`trace`], folders of pinned objects ([`pins`]), an
//! event loop ([`runtime`]).

#![forbid(unsafe_code)]

mod apply;
pub mod failure;
mod handover;
mod log;
pub mod metrics;
mod natlog;
pub mod output;
pub mod pins;
mod plan;
mod reconcile;
pub mod runtime;
mod serve;
pub mod settings;
mod signals;
mod systemd;
pub mod tables;
mod terminal;
pub mod trace;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use fordway_config::{Config, LevelFilter, OnSigterm};
use fordway_net::privilege::Capability;
use fordway_net::{Host, Ipv6State, Netlink};
use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;
use tracing::{error, info};

pub use handover::leftover::orphans;
pub use handover::mappings::HEAD as MAPPINGS_HEAD;
pub use serve::desired::with_kept;
pub use serve::handle::{Adjust, Job};

use crate::failure::Failure;
use crate::runtime::event_loop;
use crate::systemd::{alive, notify, ready};
use apply::cluster::Part;
use apply::prepared::Prepared;
use apply::running::Running;
use apply::translators::{Context, Translators, end_all, set_up, start_prepared, undo};
use apply::{kernel, privilege, tunnels};
use handover::leftover;
use reconcile::auto;
use reconcile::watch::{Looks, Watch};
use serve::handle::Handle;

use serve::{cluster, control, dstm_client, requests, services};
use signals::{Signals, drain, hung_up};

/// How often engines, servers and path MTUs are checked.
const WATCH: Duration = Duration::from_millis(500);

/// How the daemon ends.
enum End {
    /// Everything is taken down.
    TakeDown,
    /// Kernel engines go on.
    Leave,
}

/// Runs until a signal, or until an engine fails.
pub fn run(job: Job) -> Result<(), Failure> {
    let silent = job.config.log.level == LevelFilter::OFF;
    crate::log::start(job.config.log);
    let result = run_logged(job);
    if let Err(failure) = result {
        error!("{}", failure.line());
        notify(&[NotifyState::Status(&failure.line())]);
        // Without a log, the command line shows it.
        return Err(if silent { failure } else { Failure::Logged });
    }
    info!("ended");
    Ok(())
}

fn run_logged(mut job: Job) -> Result<(), Failure> {
    dstm_client::expand(&mut job.config);
    let runtime = event_loop()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let started = Instant::now();
        let mut signals = Signals::catch(&job)?;
        check_host(&job.config)?;
        let sockets = Sockets::open(&job)?;
        leftover::clear(&job.config, &job.run_dir)?;
        let host = kernel::probe(&job.config.translators);
        let tunnels = tunnels::Tunnels::default();
        let mut services = services::Services::set_up(&job.config, &job.run_dir, &tunnels)?;
        let mut context = Context {
            run_dir: job.run_dir.clone(),
            host,
            queues: 0,
            tunnels,
            yielding: BTreeSet::new(),
            part: Part::read(&job.config)?,
        };
        let dstm_clients = dstm_client::open(&job.config.dstm_clients)?;
        let (automatic, fixed) = auto::split(&job.config.translators);
        let automatic = auto::open(&automatic, &context)?;
        let prepared = set_up(&fixed, &context)?;
        let manages = prepared.iter().any(Prepared::manages) || !automatic.is_empty();
        let kernel = prepared.iter().any(|one| one.wants_kernel() || one.may_have_pins())
            || automatic.iter().any(|one| one.may_need_kernel(&context));
        let mut others = services.capabilities();
        if !prepared.is_empty() || !automatic.is_empty() {
            others.push(Capability::CAP_SYS_NICE);
        }
        others.extend(auto::capabilities(&automatic));
        others.extend(dstm_client::capabilities(&dstm_clients));
        others.extend(privilege::for_folder(&context.run_dir));
        // Announced routes are made whether the translator's host is managed or not.
        others.extend(context.part.iter().map(|_| Capability::CAP_NET_ADMIN));
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
        let translators = Translators { running, context };
        let access = sockets.access.clone();
        let daemon = Handle::new(job, translators, automatic, services, access);
        daemon.start_dstm_clients(dstm_clients);
        let joined = daemon.join_cluster();
        let served = serve(sockets, &daemon, timeout);
        let served = joined.and(served);
        let end = match &served {
            Ok(_) => {
                announce(&daemon, started);
                daemon.start_automatic();
                wait(&daemon, &mut signals).await
            }
            Err(_) => End::TakeDown,
        };
        notify(&[NotifyState::Stopping]);
        // Router advertisements are withdrawn first, before what hosts use is gone.
        daemon.begin_end(matches!(end, End::Leave));
        drain(&daemon, &mut signals).await;
        tokio::select! {
            () = daemon.leave_cluster() => {}
            signal = signals.again() => info!("{signal} again: other gateways are not waited for"),
        }
        daemon.end_automatic(matches!(end, End::TakeDown));
        daemon.end_all_dstm_clients(matches!(end, End::TakeDown)).await;
        let mut services = std::mem::take(&mut daemon.state().services);
        services.end(matches!(end, End::Leave));
        let running = std::mem::take(&mut daemon.state().translators.running);
        let ended = match end {
            End::TakeDown => end_all(running, Running::take_down),
            End::Leave => end_all(running, Running::leave),
        };
        // The control socket's file goes when all has been taken down.
        served.and(ended)
    })
}

/// Checks what every set-up needs, with an error for each.
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

/// Serves the control socket and the metrics on threads without privileges. The control socket's file is removed when
/// the returned guard is dropped.
fn serve(sockets: Sockets, daemon: &Handle, timeout: Duration) -> Result<control::Guard, Failure> {
    let (listeners, guard) = sockets.control;
    let (requests, queue) = requests::channel();
    tokio::task::spawn_local(queue.serve(daemon.clone()));
    if !sockets.metrics.is_empty() {
        let (stats, health) = (requests.clone(), requests.clone());
        let take = async move || cluster::with_stats(&stats).await;
        let waits_for = async move || cluster::waits_for(&health).await;
        let access = sockets.access;
        let serve = move || metrics::serve(sockets.metrics, access, take, waits_for);
        privilege::apart("fordway-metrics", serve)?;
    }
    privilege::apart("fordway-control", move || control::serve(listeners, requests, timeout))?;
    Ok(guard)
}

/// Tells the log and the service manager that the daemon is ready.
fn announce(daemon: &Handle, started: Instant) {
    let names = daemon.names();
    info!("ready after {} ms: {names}", started.elapsed().as_millis());
    ready(&format!("Running: {names}"));
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
            // Polled in this order: a flood of SIGHUPs or of address changes must not delay the end.
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
                    // Sessions of other translators go on in the kernel while the service manager restarts the daemon.
                    error!("an engine, or the part in the cluster, has failed: ending; kernel engines go on");
                    return End::Leave;
                }
                daemon.mend_services();
                reconcile::routing::hear();
                daemon.state().translators.running.iter().for_each(Running::tell_paths);
                alive();
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
            () = changes.changed(&mut down) => looks.changed(Instant::now()),
        }
    }
}

/// Reloads because of a signal. Errors go to the log.
fn reload(daemon: &Handle) {
    match daemon.reload() {
        Ok(done) => {
            info!("SIGHUP: {done}");
            notify(&[NotifyState::Status(&format!("Running: {}", daemon.names()))]);
        }
        Err(failure) => error!("SIGHUP: nothing is changed: {}", failure.line()),
    }
}

/// What the daemon listens on.
struct Sockets {
    control: (control::Listeners, control::Guard),
    metrics: Vec<std::net::TcpListener>,
    /// Who may read them.
    access: metrics::Access,
}

impl Sockets {
    fn open(job: &Job) -> Result<Sockets, Failure> {
        let settings = &job.config.control;
        let readers = control::readers(settings.read_group.as_deref())?;
        let control = control::listen(&settings.socket, readers)?;
        let metrics = &job.config.metrics;
        let access = metrics::Access::default();
        access.set(metrics::Guards::read(metrics)?);
        let metrics = metrics.listen.iter().map(|address| metrics::listen(*address));
        Ok(Sockets { control, metrics: metrics.collect::<Result<_, _>>()?, access })
    }
}
