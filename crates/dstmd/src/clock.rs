//! The time, in ms since 1970: that of the clock when the process began, and monotonic from there, including the time
//! that the host sleeps: a lease also ends while the host sleeps.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fordway_serve::boottime::{self, Alarm};
use fordway_serve::clock;

/// A clock that never goes back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    base: u64,
    started: Instant,
    /// How long the host has slept, and that value when the clock was started.
    slept: fn() -> Duration,
    before: Duration,
}

impl Clock {
    pub(super) fn start() -> Clock {
        Clock::over(boottime::slept)
    }

    fn over(slept: fn() -> Duration) -> Clock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { base: millis(since), started: clock::now(), slept, before: slept() }
    }

    /// Now, in ms since 1970.
    pub(super) fn now(&self) -> u64 {
        let slept = (self.slept)().saturating_sub(self.before);
        self.base + millis(clock::since(self.started) + slept)
    }

    /// The moment `at`, in ms since 1970, if the host stays awake; now, if it has passed.
    pub(super) fn instant(&self, at: u64) -> Instant {
        clock::now() + Duration::from_millis(at.saturating_sub(self.now()))
    }

    /// A number that grows from one start of the process to the next: µs since 1970.
    pub(super) fn number(&self) -> u64 {
        self.base * 1000
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Waits for moments, also for those that pass while the host sleeps.
#[derive(Debug)]
pub(super) struct Timer(Option<Alarm>);

impl Timer {
    /// Within a tokio runtime.
    pub(super) fn new() -> Timer {
        // Without an alarm, moments that pass while the host sleeps are noticed late.
        Timer(Alarm::new().ok())
    }

    /// Waits until `due`, the time that the host sleeps included. May return earlier.
    pub(super) async fn until(&self, due: Instant) {
        // The runtime's timers stand still while the host sleeps.
        let left = due.saturating_duration_since(clock::now());
        let alarm = async {
            let Some(alarm) = &self.0 else { return std::future::pending().await };
            let set = alarm.set(Some(boottime::now() + left));
            if set.is_err() || alarm.wait().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = tokio::time::sleep_until(due.into()) => {}
            () = alarm => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static SLEPT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    #[tokio::test(start_paused = true)]
    async fn it_goes_on_while_the_host_sleeps() {
        SLEPT.set(Duration::from_secs(1000));
        let clock = Clock::over(|| SLEPT.get());
        let start = clock.now();
        assert_eq!(clock.instant(start + 60_000), clock::now() + Duration::from_secs(60));
        // The host is awake for 10 s, and sleeps for 30.
        tokio::time::advance(Duration::from_secs(10)).await;
        SLEPT.set(Duration::from_secs(1030));
        assert_eq!(clock.now() - start, 40_000);
        assert_eq!(clock.instant(start + 60_000), clock::now() + Duration::from_secs(20));
        // What has passed meanwhile is due.
        SLEPT.set(Duration::from_secs(2000));
        assert_eq!(clock.instant(start + 60_000), clock::now());
    }

    /// Time in which the runtime's timers stand still: something else keeps it from letting them run.
    #[tokio::test(start_paused = true)]
    async fn a_moment_comes_though_the_runtimes_timers_stand_still() {
        let timer = Timer::new();
        assert!(timer.0.is_some());
        let busy = tokio::task::spawn(async {
            loop {
                tokio::task::yield_now().await;
            }
        });
        let before = clock::now();
        timer.until(before + Duration::from_millis(1)).await;
        assert_eq!(clock::now(), before);
        busy.abort();
    }
}
