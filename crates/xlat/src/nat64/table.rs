//! The tables as plain values, for people and logs; and changes that an operator makes by hand.

use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use core::time::Duration;

use alloc::vec::Vec;

use crate::verdict::DropReason;

use super::Nat64;
use super::chain::state;
use super::layout::{Bib, Session, Subscriber, TICK_SHIFT, bib_flags};
use super::pool::PortBlock;
use super::settings::{Protocol, StaticBib};
use super::subscriber::For;
use super::tcp::TcpState;
use super::view::{Found, View, life_parts, one_less};

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
    /// It was asked for by name, and nobody has used it yet (NAT-PT).
    pub is_held: bool,
    /// It rests: its host is gone, and no other gets the port yet.
    pub is_resting: bool,
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

/// Why a BIB entry was not made by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BibError {
    /// The IPv4 transport address is bound to this.
    Taken(Binding),
    /// The IPv6 transport address is bound to this.
    Bound(Binding),
    /// The table is full.
    Full,
    /// There is no such entry.
    Missing,
}

fn duration(ticks: u32) -> Duration {
    Duration::from_nanos(u64::from(ticks) << TICK_SHIFT)
}

impl Nat64 {
    /// The BIB entries, as each is when it is its turn.
    pub fn bib(&self, now: Duration) -> impl Iterator<Item = BibEntry> {
        let view = self.view(now, 0);
        view.regions.bibs.iter().filter_map(move |bib| {
            let (state, sessions) = life_parts(bib.life.load(Acquire));
            matches!(state, state::LIVE | state::RESTING).then(|| BibEntry {
                binding: Binding::of(bib),
                is_static: bib.flags.load(Relaxed) & bib_flags::STATIC != 0,
                is_added: bib.flags.load(Relaxed) & bib_flags::ADDED != 0,
                is_held: bib.flags.load(Relaxed) & bib_flags::HELD != 0,
                is_resting: state == state::RESTING,
                sessions,
                age: duration(age(&view, bib.created.load(Relaxed))),
                idle: duration(age(&view, bib.since.load(Relaxed))),
            })
        })
    }

    /// The sessions, likewise.
    pub fn sessions(&self, now: Duration) -> impl Iterator<Item = SessionEntry> {
        let view = self.view(now, 0);
        view.regions.sessions.iter().filter_map(move |session| describe(&view, session))
    }

    /// The subscribers, likewise.
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
            age: duration(age(&view, subscriber.created.load(Relaxed))),
            idle: duration(age(&view, subscriber.last_used.load(Relaxed))),
        })
    }

    /// Makes the BIB entries of the settings that are not there yet; dynamic ones that are in the way go.
    /// Gives those that could not be made.
    pub fn make_static_bib(&self, now: Duration) -> Vec<(StaticBib, BibError)> {
        let _change = self.shared.begin_change();
        let mut failed = Vec::new();
        for wanted in &self.settings.bib {
            let mut made = self.put_bib(wanted, bib_flags::STATIC, now);
            // One at either end at most is in the way.
            for _ in 0..2 {
                let Err(BibError::Taken(other) | BibError::Bound(other)) = made else { break };
                let Some(protocol) = other.protocol else { break };
                if self.is_static(protocol, other.v4, now) {
                    break;
                }
                // Gone already is as good.
                let _ = self.remove_bib(protocol, other.v4, now);
                made = self.put_bib(wanted, bib_flags::STATIC, now);
            }
            failed.extend(made.err().map(|error| (*wanted, error)));
        }
        failed
    }

    fn is_static(&self, protocol: Protocol, v4: (Ipv4Addr, u16), now: Duration) -> bool {
        self.view(now, 0)
            .bib4(v4, protocol.number())
            .is_some_and(|(_, bib)| bib.flags.load(Relaxed) & bib_flags::STATIC != 0)
    }

    /// Makes a BIB entry that never expires and that a change of settings leaves. A dynamic one with the same
    /// two ends becomes such; one with only one of them is in the way.
    pub fn add_bib(&self, wanted: &StaticBib, now: Duration) -> Result<(), BibError> {
        self.put_bib(wanted, bib_flags::STATIC | bib_flags::ADDED, now)
    }

    fn put_bib(&self, wanted: &StaticBib, flags: u8, now: Duration) -> Result<(), BibError> {
        let _change = self.shared.begin_change();
        let view = self.view(now, 0);
        let protocol = wanted.protocol.number();
        let chain6 = view.bib6_chain(wanted.v6, protocol).ok_or(BibError::Full)?;
        let (found, _) = view.find6(&chain6, wanted.v6, protocol);
        if let Some((_, bib)) = found.filter(|(_, bib)| bib.state() == state::LIVE) {
            if bib.v4() != wanted.v4 {
                return Err(BibError::Bound(Binding::of(bib)));
            }
            bib.flags.fetch_or(flags, Relaxed);
            if bib.state() == state::LIVE {
                return Ok(());
            }
        }
        if let Some((_, holder)) = view.bib4(wanted.v4, protocol) {
            return Err(BibError::Taken(Binding::of(holder)));
        }
        let rests = |holder: &Bib| holder.change(state::RESTING, state::DEAD);
        // Its host is its owner: what strangers open through it counts.
        let (owner, subscriber) = view.owner_of(wanted.v6.0, wanted.protocol)?;
        found.map(|(_, bib)| bib.change(state::RESTING, state::DEAD));
        let Some(new) = view.new_bib(wanted.v6, protocol, owner) else {
            one_less(&subscriber.ports[wanted.protocol.index()]);
            return Err(BibError::Full);
        };
        new.1.flags.store(flags, Relaxed);
        view.put(new, wanted.v4, rests)
    }

    /// Makes a dynamic 1:1 mapping that there was before, unused for `idle`.
    pub fn put_dynamic4(
        &self,
        v6: Ipv6Addr,
        v4: Ipv4Addr,
        idle: Duration,
        now: Duration,
    ) -> Result<(), BibError> {
        let _change = self.shared.begin_change();
        let view = self.view(now, 0);
        if let Some((_, bib)) = view.bib6((v6, 0), 0) {
            let same = bib.v4().0 == v4;
            return if same { Ok(()) } else { Err(BibError::Bound(Binding::of(bib))) };
        }
        let new = view.new_bib((v6, 0), 0, 0).ok_or(BibError::Full)?;
        new.1.since.store(super::tick(now.saturating_sub(idle)), Relaxed);
        view.put(new, (v4, 0), |_| false)
    }

    /// Takes a BIB entry away, static or dynamic; its sessions end. The sweeper does the rest.
    pub fn remove_bib(
        &self,
        protocol: Protocol,
        v4: (Ipv4Addr, u16),
        now: Duration,
    ) -> Result<Binding, BibError> {
        let _change = self.shared.begin_change();
        let view = self.view(now, 0);
        let (_, bib) = view.bib4(v4, protocol.number()).ok_or(BibError::Missing)?;
        let binding = Binding::of(bib);
        if !bib.change(state::LIVE, state::DEAD) {
            return Err(BibError::Missing);
        }
        if let Some(subscriber) = view.subscriber_of(bib) {
            one_less(&subscriber.ports[protocol.index()]);
        }
        Ok(binding)
    }
}

impl<'a> View<'a> {
    /// The subscriber of a host, with one port more, whatever its quota: the operator wants it.
    fn owner_of(
        &self,
        host: Ipv6Addr,
        protocol: Protocol,
    ) -> Result<Found<'a, Subscriber>, BibError> {
        loop {
            let found = match self.subscriber(host, 0, For::Counts) {
                Err(DropReason::Busy) => continue,
                found => found.map_err(|_| BibError::Full)?,
            };
            let counter = &found.1.ports[protocol.index()];
            counter.fetch_add(1, SeqCst);
            if found.1.state() == state::LIVE {
                return Ok(found);
            }
            // It went meanwhile; the next is another.
            one_less(counter);
        }
    }

    /// Binds both ends of a new entry, or gives it back.
    pub(super) fn put(
        &self,
        new: Found<'a, Bib>,
        v4: (Ipv4Addr, u16),
        makes_way: impl Fn(&Bib) -> bool,
    ) -> Result<(), BibError> {
        let protocol = Protocol::of(new.1.protocol.load(Relaxed));
        let counter = self.subscriber_of(new.1).zip(protocol);
        let counter = counter.map(|(owner, protocol)| &owner.ports[protocol.index()]);
        if let Err(holder) = self.claim4(new, v4, makes_way) {
            self.unclaim(new);
            counter.inspect(|counter| one_less(counter));
            return Err(
                holder.map_or(BibError::Full, |holder| BibError::Taken(Binding::of(holder)))
            );
        }
        if self.announce(new) {
            return Ok(());
        }
        if new.1.change(state::LIVE, state::DEAD) {
            counter.inspect(|counter| one_less(counter));
        }
        let (v6, protocol) = (new.1.v6(), new.1.protocol.load(Relaxed));
        let other = self.bib6(v6, protocol).map_or(new.1, |(_, other)| other);
        Err(BibError::Bound(Binding::of(other)))
    }
}

fn age(view: &View<'_>, tick: u32) -> u32 {
    let age = view.now.wrapping_sub(tick);
    if age > u32::MAX / 2 { 0 } else { age }
}

fn describe(view: &View<'_>, session: &Session) -> Option<SessionEntry> {
    let life = session.life();
    if !life.is_live() || session.is_permission() {
        return None;
    }
    let bib = View::entry(view.regions.bibs, session.bib.load(Relaxed))?;
    let left = view.nat.ticks.of_class(life.timeout).saturating_sub(age(view, life.tick));
    Some(SessionEntry {
        binding: Binding::of(bib),
        remote: session.remote(),
        tcp: TcpState::of(life.state),
        remaining: duration(left),
        counts: [0, 1].map(|side: usize| {
            (session.packets[side].load(Relaxed), session.octets[side].load(Relaxed))
        }),
    })
}
