//! The sweeper: the one thread that lets entries expire, and that takes them out of the tables.
//!
//! It looks at every entry that was ever used, again and again. Since nothing is taken out but by the
//! sweeper, it has seen every entry at least once before it is gone: what it tells of is complete, though
//! the entries are made elsewhere, in the kernel too.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::time::Duration;

use super::Nat64;
use super::chain::{FreeList, state};
use super::filter::one_session_less;
use super::layout::{Bib, Kind, LAYOUT, Session, Subscriber, bib_flags};
use super::pool::PortBlock;
use super::settings::Protocol;
use super::subscriber::ADDING;
use super::table::Binding;
use super::tcp::{TcpState, Timeout};
use super::view::{SessionKey, SessionLife, View, life, life_parts, one_less};

/// Ticks after which what a killed process had begun to make counts as left behind.
const LEFT_BEHIND: u32 = 75;

/// Ticks for which a BIB entry may be without its first session.
const FIRST_SESSION: u32 = 8;

/// What the sweeper tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A BIB entry was made, at that time.
    BibCreated(Binding, Duration),
    /// A BIB entry is gone.
    BibRemoved(Binding),
    /// A session was made: its BIB entry, and (Z,z).
    SessionCreated(Binding, (Ipv4Addr, u16)),
    /// A session is gone, with its packets and octets from IPv4 and from IPv6.
    SessionRemoved(Binding, (Ipv4Addr, u16), [(u64, u64); 2]),
    /// A subscriber (a prefix of the configured length) was given ports.
    BlockAssigned(Ipv6Addr, PortBlock),
    /// It has given them back.
    BlockReleased(Ipv6Addr, PortBlock),
    /// A TCP session had no packet for TCP_EST: a probe is due (RFC 6146 section 3.5.2.2), to the host.
    Probe {
        /// The IPv6 host.
        host: (Ipv6Addr, u16),
        /// (Z,z).
        remote: (Ipv4Addr, u16),
        /// Which of `pool6`.
        pool6: u8,
    },
}

/// What a sweep did, and how full the tables are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// BIB entries of TCP, UDP, ICMP, and of dynamic 1:1 mappings.
    pub bibs: [u64; 4],
    /// Sessions of TCP, UDP, ICMP.
    pub sessions: [u64; 3],
    /// TCP sessions by state, in the order of [`TcpState::ALL`].
    pub tcp_states: [u64; 7],
    /// Ports that rest.
    pub resting: u64,
    /// Subscribers.
    pub subscribers: u64,
    /// Sessions that expired in this sweep, by protocol.
    pub expired: [u64; 3],
    /// Entries that wait for [`Sweeper::release`].
    pub waiting: usize,
}

/// The state of sweeping. One for each set of tables.
#[derive(Debug, Default)]
pub struct Sweeper {
    limbo: Vec<(Kind, u32)>,
    started: bool,
    shard: usize,
    review: bool,
    /// BIB entries that were being made at the first sweep, and when that began: perhaps by a process that was
    /// killed.
    claimed: Vec<(u32, u32)>,
}

impl Sweeper {
    /// A sweeper for tables that may have been in use before.
    #[must_use]
    pub fn new() -> Sweeper {
        Sweeper::default()
    }

    /// At the next sweep, whatever does not fit the settings goes: after a change of settings.
    pub fn review(&mut self) {
        self.review = true;
    }

    /// Looks at every entry once.
    ///
    /// Entries that it took out of the tables may still be looked at by whoever found them before:
    /// [`Sweeper::release`] has to follow when nobody does.
    pub fn sweep(&mut self, nat: &Nat64, now: Duration, tell: &mut dyn FnMut(Event)) -> Swept {
        let mut pass = Pass {
            view: nat.view(now, 0),
            now,
            limbo: &mut self.limbo,
            claimed: &mut self.claimed,
            found_limbo: !self.started,
            review: core::mem::take(&mut self.review),
            tell,
            swept: Swept::default(),
        };
        debug_assert_eq!(pass.view.regions.meta.layout.load(Relaxed), LAYOUT);
        if pass.review {
            pass.review_subscribers();
        }
        pass.sessions();
        pass.bibs();
        pass.left_behind();
        pass.subscribers();
        let mut swept = pass.swept;
        self.started = true;
        swept.waiting = self.limbo.len();
        swept
    }

    /// Gives entries back to the free lists that earlier sweeps have taken out.
    ///
    /// To be called only after a grace period that began after the last sweep: every thread of the user
    /// engine has finished the packets it had, and every program in the kernel (RCU).
    pub fn release(&mut self, nat: &Nat64) {
        let regions = nat.memory.regions();
        for (kind, index) in self.limbo.drain(..) {
            self.shard = self.shard.wrapping_add(1);
            let list = FreeList::of(&regions, kind);
            let at = index as usize;
            match kind {
                Kind::Bib => {
                    regions.bibs[at].life.store(life(state::FREE, 0), Release);
                    list.give(regions.bibs, self.shard, index);
                }
                Kind::Session => {
                    regions.sessions[at].life.store(0, Release);
                    list.give(regions.sessions, self.shard, index);
                }
                Kind::Subscriber => {
                    regions.subscribers[at].life.store(life(state::FREE, 0), Release);
                    list.give(regions.subscribers, self.shard, index);
                }
            }
        }
    }
}

struct Pass<'a, 'b> {
    view: View<'a>,
    now: Duration,
    limbo: &'b mut Vec<(Kind, u32)>,
    claimed: &'b mut Vec<(u32, u32)>,
    /// What an earlier process had taken out is found by its state.
    found_limbo: bool,
    review: bool,
    tell: &'b mut dyn FnMut(Event),
    swept: Swept,
}

impl Pass<'_, '_> {
    /// Entries of a kind that were ever used.
    fn used(&self, kind: Kind) -> core::ops::Range<u32> {
        let meta = self.view.regions.meta;
        let entries = meta.entries[kind as usize].load(Relaxed);
        1..meta.fresh[kind as usize].load(Acquire).min(entries)
    }

    fn age(&self, tick: u32) -> u32 {
        // Another processor's clock may be a tick ahead.
        let age = self.view.now.wrapping_sub(tick);
        if age > u32::MAX / 2 { 0 } else { age }
    }

    fn expired(&self, tick: u32, lifetime: u32) -> bool {
        self.age(tick) > lifetime
    }

    fn sessions(&mut self) {
        for index in self.used(Kind::Session) {
            let session = &self.view.regions.sessions[index as usize];
            let life = session.life();
            match life.state {
                state::FREE | state::CLAIMED => {}
                state::LIMBO if self.found_limbo => self.limbo.push((Kind::Session, index)),
                state::LIMBO => {}
                state::DEAD => self.finish_session(index, session),
                _ => self.session(index, session, life),
            }
        }
    }

    fn session(&mut self, index: u32, session: &Session, life: SessionLife) {
        let entry = session.bib.load(Relaxed);
        let bib = View::entry(self.view.regions.bibs, entry);
        let Some(bib) = bib.filter(|bib| bib.state() == state::LIVE) else {
            if session.life.compare_exchange(life.word(), dead(life), AcqRel, Acquire).is_ok() {
                self.finish_session(index, session);
            }
            return;
        };
        if session.seen.load(Relaxed) == 0 {
            session.seen.store(1, Relaxed);
            (self.tell)(Event::SessionCreated(describe(bib), session.remote()));
        }
        let timeout = self.view.nat.ticks.of_class(life.timeout);
        if !self.expired(life.tick, timeout) {
            self.count_session(session, life);
            return;
        }
        if life.state == TcpState::Established as u8 {
            let after = SessionLife {
                tick: self.view.now,
                state: TcpState::Trans as u8,
                timeout: Timeout::TcpTrans as u8,
            };
            let swapped = session.life.compare_exchange(life.word(), after.word(), AcqRel, Acquire);
            if swapped.is_ok() {
                let pool6 = session.pool6.load(Relaxed);
                let remote = session.remote();
                (self.tell)(Event::Probe { host: bib.v6(), remote, pool6 });
            }
            self.count_session(session, session.life());
        } else if session.life.compare_exchange(life.word(), dead(life), AcqRel, Acquire).is_ok() {
            if let Some(protocol) = Protocol::of(session.protocol.load(Relaxed)) {
                self.swept.expired[protocol.index()] += 1;
            }
            self.finish_session(index, session);
        }
    }

    fn count_session(&mut self, session: &Session, life: SessionLife) {
        if let Some(protocol) = Protocol::of(session.protocol.load(Relaxed)) {
            self.swept.sessions[protocol.index()] += 1;
        }
        if let Some(place) = TcpState::ALL.iter().position(|state| *state as u8 == life.state) {
            self.swept.tcp_states[place] += 1;
        }
    }

    /// A dead session: out of its chain, and off the counts.
    fn finish_session(&mut self, index: u32, session: &Session) {
        let protocol = session.protocol.load(Relaxed);
        let key = SessionKey { local: session.local(), remote: session.remote(), protocol };
        if let Some(chain) = self.view.session_chain(&key) {
            chain.unlink(index);
        }
        if let Some(bib) = View::entry(self.view.regions.bibs, session.bib.load(Relaxed)) {
            if session.seen.load(Relaxed) != 0 {
                let counts = [0, 1].map(|side| {
                    (session.packets[side].load(Relaxed), session.octets[side].load(Relaxed))
                });
                (self.tell)(Event::SessionRemoved(describe(bib), session.remote(), counts));
            }
            if let Some(subscriber) = self.view.subscriber_of(bib) {
                one_less(&subscriber.sessions);
            }
            if one_session_less(bib) == 0 {
                bib.since.store(self.view.now, Relaxed);
            }
        }
        let limbo = SessionLife { tick: 0, state: state::LIMBO, timeout: 0 };
        session.life.store(limbo.word(), Release);
        self.limbo.push((Kind::Session, index));
    }

    fn bibs(&mut self) {
        for index in self.used(Kind::Bib) {
            let bib = &self.view.regions.bibs[index as usize];
            let (state, sessions) = life_parts(bib.life.load(Acquire));
            match state {
                state::CLAIMED if self.found_limbo => {
                    self.claimed.push((index, bib.created.load(Relaxed)));
                }
                state::LIVE => self.live_bib(bib, sessions),
                state::RESTING => {
                    self.swept.resting += 1;
                    if self.expired(bib.since.load(Relaxed), self.view.nat.ticks.port_rest) {
                        bib.change(state::RESTING, state::DEAD);
                    }
                }
                state::LIMBO if self.found_limbo => self.limbo.push((Kind::Bib, index)),
                _ => {}
            }
            // One that the steps above let die goes at once; its sessions hold it until they are gone.
            if life_parts(bib.life.load(Acquire)) == (state::DEAD, 0) {
                self.finish_bib(index, bib);
            }
        }
    }

    /// BIB entries that a killed process had begun to make. Only those: whoever lives finishes what he made.
    fn left_behind(&mut self) {
        let bibs = self.view.regions.bibs;
        let mut claimed = core::mem::take(self.claimed);
        claimed.retain(|&(index, created)| {
            let bib = &bibs[index as usize];
            let is_the_same = bib.state() == state::CLAIMED && bib.created.load(Relaxed) == created;
            if is_the_same && self.age(created) > LEFT_BEHIND {
                bib.change(state::CLAIMED, state::DEAD);
                return false;
            }
            is_the_same
        });
        *self.claimed = claimed;
    }

    fn live_bib(&mut self, bib: &Bib, sessions: u32) {
        let flags = bib.flags.load(Relaxed);
        let protocol = Protocol::of(bib.protocol.load(Relaxed));
        if flags & bib_flags::SEEN == 0 {
            bib.flags.fetch_or(bib_flags::SEEN, Relaxed);
            let age = u64::from(self.age(bib.created.load(Relaxed))) << super::layout::TICK_SHIFT;
            let created = self.now.saturating_sub(Duration::from_nanos(age));
            (self.tell)(Event::BibCreated(describe(bib), created));
        }
        if self.review && !self.view.nat.keeps(bib) {
            self.end_bib(bib, protocol, state::DEAD);
            return;
        }
        let since = bib.since.load(Relaxed);
        let is_over = match protocol {
            None => self.expired(since, self.view.nat.ticks.dynamic4),
            Some(_) => {
                let created = bib.created.load(Relaxed);
                sessions == 0 && (since != created || self.age(created) > FIRST_SESSION)
            }
        };
        if !is_over || flags & bib_flags::STATIC != 0 {
            self.swept.bibs[protocol.map_or(3, Protocol::index)] += 1;
            return;
        }
        let rests = matches!(protocol, Some(Protocol::Udp | Protocol::Icmp))
            && self.view.nat.ticks.port_rest != 0
            && self.swept.resting < u64::from(self.view.nat.settings.lifetimes.rest_most);
        if protocol.is_some() {
            self.end_bib(bib, protocol, if rests { state::RESTING } else { state::DEAD });
        } else {
            bib.change(state::LIVE, state::DEAD);
        }
    }

    /// A BIB entry lives no more: its subscriber has a port more.
    fn end_bib(&mut self, bib: &Bib, protocol: Option<Protocol>, to: u8) {
        let word = bib.life.load(Acquire);
        let (from, sessions) = life_parts(word);
        let may_rest = to != state::RESTING || sessions == 0;
        // Somebody opens a session: then it goes on.
        if from != state::LIVE
            || !may_rest
            || bib.life.compare_exchange(word, life(to, sessions), AcqRel, Acquire).is_err()
        {
            return;
        }
        if let (Some(protocol), Some(subscriber)) = (protocol, self.view.subscriber_of(bib)) {
            one_less(&subscriber.ports[protocol.index()]);
        }
        if to == state::RESTING {
            self.swept.resting += 1;
            bib.subscriber.store(0, Relaxed);
            bib.since.store(self.view.now, Relaxed);
        }
    }

    /// A dead BIB entry without sessions: out of its chains.
    fn finish_bib(&mut self, index: u32, bib: &Bib) {
        let protocol = bib.protocol.load(Relaxed);
        if let Some(chain) = self.view.bib6_chain(bib.v6(), protocol) {
            chain.unlink(index);
        }
        if let Some(chain) = self.view.bib4_chain(bib.v4(), protocol) {
            chain.unlink(index);
        }
        if bib.flags.load(Relaxed) & bib_flags::SEEN != 0 {
            (self.tell)(Event::BibRemoved(describe(bib)));
        }
        bib.life.store(life(state::LIMBO, 0), Release);
        self.limbo.push((Kind::Bib, index));
    }

    /// Subscribers whose blocks are none of the settings' any more.
    fn review_subscribers(&mut self) {
        for index in self.used(Kind::Subscriber) {
            let subscriber = &self.view.regions.subscribers[index as usize];
            if subscriber.state() != state::LIVE {
                continue;
            }
            if self.view.nat.keeps_subscriber(subscriber) {
                // It may have got a block after the settings were made.
                self.view.nat.mark_blocks(subscriber);
            } else {
                let number = life_parts(subscriber.life.load(SeqCst)).1;
                subscriber.life.store(life(state::DEAD, number), SeqCst);
            }
        }
    }

    fn subscribers(&mut self) {
        for index in self.used(Kind::Subscriber) {
            let subscriber = &self.view.regions.subscribers[index as usize];
            match subscriber.state() {
                state::LIVE => self.live_subscriber(subscriber),
                state::LIMBO if self.found_limbo => self.limbo.push((Kind::Subscriber, index)),
                _ => {}
            }
            if subscriber.state() == state::DEAD && is_unused(subscriber) {
                self.finish_subscriber(index, subscriber);
            }
        }
    }

    fn live_subscriber(&mut self, subscriber: &Subscriber) {
        let seen = subscriber.seen.load(Relaxed);
        let mut told = seen;
        for block in subscriber.blocks().skip(usize::from(seen)) {
            (self.tell)(Event::BlockAssigned(subscriber.prefix(), block));
            told += 1;
        }
        subscriber.seen.store(told, Relaxed);
        self.swept.subscribers += 1;
        let word = subscriber.life.load(SeqCst);
        let last_used = subscriber.last_used.load(Relaxed);
        if !is_unused(subscriber)
            || life_parts(word).1 & ADDING != 0
            || !self.expired(last_used, self.view.nat.ticks.subscriber)
        {
            return;
        }
        let dead = life(state::DEAD, life_parts(word).1);
        if subscriber.life.compare_exchange(word, dead, SeqCst, SeqCst).is_ok()
            && !is_unused(subscriber)
        {
            // Somebody has taken a port before he could see that it dies.
            subscriber.life.store(word, SeqCst);
        }
    }

    fn finish_subscriber(&mut self, index: u32, subscriber: &Subscriber) {
        let (prefix, mark) = (subscriber.prefix(), subscriber.mark.load(Relaxed));
        if let Some(chain) = self.view.subscriber_chain(prefix, mark) {
            chain.unlink(index);
        }
        let pool = usize::from(subscriber.pool.load(Relaxed));
        let seen = usize::from(subscriber.seen.load(Relaxed));
        for (place, block) in subscriber.blocks().enumerate() {
            self.view.nat.take_back(pool, block);
            if place < seen {
                (self.tell)(Event::BlockReleased(prefix, block));
            }
        }
        subscriber.life.store(life(state::LIMBO, 0), SeqCst);
        self.limbo.push((Kind::Subscriber, index));
    }
}

fn is_unused(subscriber: &Subscriber) -> bool {
    subscriber.sessions.load(SeqCst) == 0
        && subscriber.ports.iter().all(|ports| ports.load(SeqCst) == 0)
}

fn dead(life: SessionLife) -> u64 {
    SessionLife { state: state::DEAD, ..life }.word()
}

fn describe(bib: &Bib) -> Binding {
    Binding::of(bib)
}
