//! A clock that goes on while the host sleeps, and an alarm by it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{
    ClockId as TimerClock, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags,
};
use nix::time::{ClockId, clock_gettime};
use tokio::io::unix::AsyncFd;

use crate::readiness::watched;

/// How much the host's clocks may differ without the host having slept.
const JITTER: Duration = Duration::from_millis(500);

/// The time since the host was started, the time it has slept included (`CLOCK_BOOTTIME`).
pub fn now() -> Duration {
    read(ClockId::CLOCK_BOOTTIME)
}

fn read(clock: ClockId) -> Duration {
    // Both clocks are there on every Linux.
    clock_gettime(clock).map(Duration::from).unwrap_or_default()
}

/// For how long the host has slept since it was started; never less than was said before.
pub fn slept() -> Duration {
    static LONGEST: AtomicU64 = AtomicU64::new(0);
    // The two clocks are read one after the other.
    let slept = now().saturating_sub(read(ClockId::CLOCK_MONOTONIC));
    let slept = u64::try_from(slept.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(LONGEST.fetch_max(slept, Ordering::Relaxed).max(slept))
}

/// For how long the host has slept since it was started.
#[derive(Clone, Copy, Debug)]
pub struct Slept(Duration);

impl Slept {
    /// As of now.
    pub fn until_now() -> Self {
        Self(now().saturating_sub(read(ClockId::CLOCK_MONOTONIC)))
    }

    /// Whether it has slept since the last call.
    pub fn again(&mut self) -> bool {
        let before = std::mem::replace(self, Self::until_now());
        self.0 > before.0 + JITTER
    }
}

/// An alarm at a time of [`now`]: it also goes off, at once, when that has passed while the host slept.
#[derive(Debug)]
pub struct Alarm {
    timer: AsyncFd<Raw<TimerFd>>,
}

impl Alarm {
    /// Makes an alarm; has to be called within a tokio runtime.
    pub fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(TimerClock::CLOCK_BOOTTIME, flags)?;
        Ok(Self { timer: watched(Raw(timer))? })
    }

    /// Sets it, or turns it off.
    pub fn set(&self, at: Option<Duration>) -> io::Result<()> {
        let timer = &self.timer.get_ref().0;
        match at {
            None => timer.unset()?,
            // Zero would turn it off.
            Some(at) => timer.set(
                Expiration::OneShot(TimeSpec::from_duration(at.max(Duration::from_nanos(1)))),
                TimerSetTimeFlags::TFD_TIMER_ABSTIME,
            )?,
        }
        Ok(())
    }

    /// Waits until it goes off.
    pub async fn wait(&self) -> io::Result<()> {
        let mut guard = self.timer.readable().await?;
        // Reading it is the wait that returns at once; setting it anew is as good.
        guard.clear_ready();
        Ok(())
    }
}

/// A descriptor that tokio can wait for.
#[derive(Debug)]
pub struct Raw<T>(pub T);

impl<T: AsFd> AsFd for Raw<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<T: AsFd> AsRawFd for Raw<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}
