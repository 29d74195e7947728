//! Times as the tables hold them.

use core::time::Duration;

use crate::nat64::table::{TICK_SHIFT, TIMEOUTS};

use super::{Lifetimes, Settings};

/// Lifetimes in ticks, rounded up: nothing expires early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    sessions: [u32; TIMEOUTS],
    pub(crate) hold_down: u32,
    pub(crate) subscriber: u32,
    pub(crate) dynamic4: u32,
    pub(crate) hold: u32,
}

pub(crate) fn ticks(lifetime: Duration) -> u32 {
    let ticks = lifetime.as_nanos().div_ceil(1 << TICK_SHIFT);
    // Half of what the counter holds, so that ages can be told; nine years.
    u32::try_from(ticks).unwrap_or(u32::MAX).min(u32::MAX / 2 - 1)
}

impl Ticks {
    pub(crate) fn of(settings: &Settings) -> Ticks {
        let lifetimes = &settings.lifetimes;
        let Lifetimes { udp, icmp, tcp_est, tcp_trans, tcp_incoming_syn, .. } = *lifetimes;
        Ticks {
            sessions: [udp, icmp, tcp_est, tcp_trans, tcp_incoming_syn].map(ticks),
            hold_down: ticks(lifetimes.hold_down),
            subscriber: ticks(lifetimes.subscriber),
            dynamic4: ticks(lifetimes.dynamic4),
            hold: settings.addresses.as_ref().map_or(0, |it| ticks(it.hold())),
        }
    }

    pub(crate) fn of_class(&self, timeout: u8) -> u32 {
        self.sessions.get(usize::from(timeout)).copied().unwrap_or(0)
    }
}
