//! The tables as plain values, for people and logs.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::time::Duration;

use crate::nat64::Nat64;

use super::{
    Bib, PortBlock, Protocol, Session, Subscriber, TICK_SHIFT, TcpState, View, bib_flags,
    life_parts, state,
};

/// A binding: (X',x) and (T,t).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Binding {
    /// The protocol; `None`: a dynamic 1:1 mapping of all protocols, ports 0.
    pub protocol: Option<Protocol>,
    /// (X',x).
    pub v6: (Ipv6Addr, u16),
    /// (T,t).
    pub v4: (Ipv4Addr, u16),
}

impl Binding {
    pub(crate) fn of(bib: &Bib) -> Binding {
        let protocol = Protocol::of(bib.protocol.load(Relaxed));
        Binding { protocol, v6: bib.v6(), v4: bib.v4() }
    }
}

/// A BIB entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BibEntry {
    /// What is bound.
    pub binding: Binding,
    /// The operator has made it.
    pub is_static: bool,
    /// It was made while the daemon ran ([`Nat64::add_bib`]), not by the settings.
    pub is_added: bool,
    /// A DNS query made it, and no packet has used it yet (NAT-PT).
    pub is_held: bool,
    /// Its port is in hold-down: the last session has ended, and no other subscriber gets the port yet.
    pub in_hold_down: bool,
    /// Its sessions.
    pub sessions: u32,
    /// Time since it was made.
    pub age: Duration,
    /// Of dynamic 1:1 mappings, time since the last packet.
    pub idle: Duration,
}

/// A session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionEntry {
    /// Its BIB entry.
    pub binding: Binding,
    /// (Z,z); of ICMP, the port is 0.
    pub remote: (Ipv4Addr, u16),
    /// The state of TCP sessions.
    pub tcp: Option<TcpState>,
    /// What is left of its lifetime.
    pub remaining: Duration,
    /// Packets and octets from IPv4, and from IPv6.
    pub counts: [(u64, u64); 2],
}

/// A subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriberEntry {
    /// Its prefix; the length is in the settings.
    pub prefix: Ipv6Addr,
    /// The mark of its packets.
    pub mark: u32,
    /// The number of its pool.
    pub pool: u16,
    /// What it was given.
    pub blocks: Vec<PortBlock>,
    /// Its BIB entries: TCP, UDP, ICMP.
    pub ports: [u32; 3],
    /// Its sessions.
    pub sessions: u32,
    /// Time since it was made.
    pub age: Duration,
    /// Time since its last new session.
    pub idle: Duration,
}

fn duration(ticks: u32) -> Duration {
    Duration::from_nanos(u64::from(ticks) << TICK_SHIFT)
}

impl Nat64 {
    /// The live BIB entries and those in hold-down, each as it is when the iterator comes to it.
    pub fn bib(&self, now: Duration) -> impl Iterator<Item = BibEntry> {
        let view = self.view(now, 0);
        view.regions.bibs.iter().filter_map(move |bib| {
            let (state, sessions) = life_parts(bib.life.load(Acquire));
            matches!(state, state::LIVE | state::HOLD_DOWN).then(|| BibEntry {
                binding: Binding::of(bib),
                is_static: bib.flags.load(Relaxed) & bib_flags::STATIC != 0,
                is_added: bib.flags.load(Relaxed) & bib_flags::ADDED != 0,
                is_held: bib.flags.load(Relaxed) & bib_flags::HELD != 0,
                in_hold_down: state == state::HOLD_DOWN,
                sessions,
                age: duration(view.age(bib.created.load(Relaxed))),
                idle: duration(view.age(bib.since.load(Relaxed))),
            })
        })
    }

    /// The live sessions, each as it is when the iterator comes to it.
    pub fn sessions(&self, now: Duration) -> impl Iterator<Item = SessionEntry> {
        let view = self.view(now, 0);
        view.regions.sessions.iter().filter_map(move |session| describe(&view, session))
    }

    /// The live subscribers, each as it is when the iterator comes to it.
    pub fn subscribers(&self, now: Duration) -> impl Iterator<Item = SubscriberEntry> {
        let view = self.view(now, 0);
        let live = |subscriber: &&Subscriber| subscriber.state() == state::LIVE;
        view.regions.subscribers.iter().filter(live).map(move |subscriber| SubscriberEntry {
            prefix: subscriber.prefix(),
            mark: subscriber.mark.load(Relaxed),
            pool: subscriber.pool.load(Relaxed),
            blocks: subscriber.blocks().collect(),
            ports: [0, 1, 2].map(|place: usize| subscriber.ports[place].load(Relaxed)),
            sessions: subscriber.sessions.load(Relaxed),
            age: duration(view.age(subscriber.created.load(Relaxed))),
            idle: duration(view.age(subscriber.last_used.load(Relaxed))),
        })
    }
}

fn describe(view: &View<'_>, session: &Session) -> Option<SessionEntry> {
    let life = session.life();
    if !life.is_live() || session.is_permission() {
        return None;
    }
    let bib = View::entry(view.regions.bibs, session.bib.load(Relaxed))?;
    let left = view.nat.ticks.of_class(life.timeout).saturating_sub(view.age(life.tick));
    Some(SessionEntry {
        binding: Binding::of(bib),
        remote: session.remote(),
        tcp: TcpState::of(life.state),
        remaining: duration(left),
        counts: session.counts(),
    })
}
