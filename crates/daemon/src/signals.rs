//! Signals, and waiting until proxies are drained.

use std::time::{Duration, Instant};

use fordway_config::OnSigterm;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;
use tracing::info;

use super::serve::handle::{Handle, Job};

use crate::failure::Failure;
use crate::systemd::notify;

/// How often a daemon that ends looks whether its proxies have.
const DRAIN_LOOK: Duration = Duration::from_millis(50);

/// For how much longer the service manager is asked to wait while they have not, and how often.
const EXTENSION: Duration = Duration::from_secs(60);
const EXTEND: Duration = Duration::from_secs(15);

/// The signals that mean something to a daemon.
pub(crate) struct Signals {
    pub(crate) terminate: Signal,
    pub(crate) interrupt: Signal,
    /// SIGUSR2: a next start is to take over what the kernel carries.
    pub(crate) restart: Signal,
    /// `None`: it is ignored (nohup).
    pub(crate) hangup: Option<Signal>,
    /// SIGHUP means to read it again; without one, that the terminal is gone.
    pub(crate) has_file: bool,
    pub(crate) on_sigterm: OnSigterm,
}

impl Signals {
    /// Catches them.
    pub(crate) fn catch(job: &Job) -> Result<Signals, Failure> {
        let has_file = job.file.is_some();
        let catch = |kind| {
            signal(kind).map_err(|error| Failure::failed(format!("cannot catch signals: {error}")))
        };
        Ok(Signals {
            terminate: catch(SignalKind::terminate())?,
            interrupt: catch(SignalKind::interrupt())?,
            restart: catch(SignalKind::user_defined2())?,
            hangup: match !has_file && ignores_hangup() {
                true => None,
                false => Some(catch(SignalKind::hangup())?),
            },
            has_file,
            on_sigterm: job.config.control.on_sigterm,
        })
    }
}

impl Signals {
    /// Waits for one more signal to end, and gives its name.
    pub(crate) async fn again(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.restart.recv() => "SIGUSR2",
        }
    }
}

/// Waits for SIGHUP.
pub(crate) async fn hung_up(hangup: &mut Option<Signal>) {
    match hangup {
        Some(hangup) => {
            hangup.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Waits until requests and tunnels of proxies have ended, for the time that their settings give them. The service
/// manager is asked for as much; a second signal ends the wait.
pub(crate) async fn drain(daemon: &Handle, signals: &mut Signals) {
    let mut look = tokio::time::interval(DRAIN_LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut extend = Instant::now();
    while !daemon.is_drained() {
        if Instant::now() >= extend {
            extend = Instant::now() + EXTEND;
            let time = u32::try_from(EXTENSION.as_micros()).unwrap_or(u32::MAX);
            let status = "Stopping: requests and tunnels of proxies end";
            notify(&[NotifyState::ExtendTimeoutUsec(time), NotifyState::Status(status)]);
        }
        tokio::select! {
            _ = look.tick() => {}
            signal = signals.again() => return info!("{signal} again: requests are cut"),
        }
    }
}

/// Whether this process was started with SIGHUP ignored.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 != 0)
}
