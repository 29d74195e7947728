//! The run loop of one queue: receive, translate, send.

use std::net::Ipv6Addr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fordway_tun::{MAX_PACKET, Queue, RecvOutcome, VnetHeader};
use fordway_wire::{ipv6, protocol, put_u8, put_u16};
use fordway_xlat::counters::Arrival;
use fordway_xlat::nat64::{Event, Shards, StoredSyn};
use fordway_xlat::reassembly::Outcome;
use fordway_xlat::{
    ChecksumState, Direction, DropReason, GsoKind, HEADROOM, Offload, Packet, State, TAILROOM,
    Verdict,
};

use crate::clock::{boottime, monotonic};
use crate::core::Wait;
use crate::counters::{IoError, QueueCounters};
use crate::current::Follower;
use crate::fragments::Fragments;
use crate::gro::Gro;
use crate::hand_over::HandOver;
use crate::held::{self, Held, Waiting};
use crate::idle::{Idle, Pace};
use crate::placement::Placement;
use crate::quiescence::Bursts;
use crate::stop::Stop;
use crate::sweep::Probes;
use crate::unchecked::dropped_unchecked;
use crate::{Error, Marks, Unbound, Unchecked, offload};

/// Where in the buffer a packet is received: room for longer headers and for the virtio-net header.
/// A multiple of 64 octets, so that headers share few cache lines.
const START: usize = (HEADROOM + VnetHeader::LEN).next_multiple_of(64);

/// Octets of a buffer.
const BUFFER: usize = START + MAX_PACKET + 1 + TAILROOM;

/// Packets received before the loop looks at the clock and at the stop signal again.
const BURST: usize = 64;

/// How often a stateful translator's thread looks for what is due by time.
const TEND: Duration = Duration::from_millis(200);

/// One queue's thread.
pub(crate) struct Worker {
    pub(crate) interface: String,
    pub(crate) queue: Queue,
    pub(crate) core: Follower,
    pub(crate) counters: Arc<QueueCounters>,
    pub(crate) stop: Stop,
    pub(crate) state: State,
    pub(crate) placement: Option<Placement>,
    pub(crate) bursts: Bursts,
    pub(crate) probes: Arc<Probes>,
    pub(crate) fragments: Arc<Fragments>,
    pub(crate) marks: Option<Marks>,
    pub(crate) unbound: Option<Unbound>,
    pub(crate) unchecked: Option<Unchecked>,
    pub(crate) hand_over: Option<Arc<dyn HandOver>>,
    /// Packets of shards that are between two owners.
    pub(crate) held: Held,
    /// Segments that leave when the burst ends, if not before.
    pub(crate) gro: Gro,
    /// Where packets become whole; empty until there is a fragment.
    pub(crate) whole: Vec<u8>,
    /// When the thread last did what is due by time.
    pub(crate) tended: Duration,
}

/// What a burst found.
enum Burst {
    /// Packets; the queue may hold more.
    Packets,
    /// An empty queue.
    Empty,
}

impl Worker {
    /// Runs until it is told to stop, or the interface goes.
    pub(crate) fn run(mut self) -> Result<(), Error> {
        let result = self.serve();
        self.drop_gathered();
        (0..self.held.len()).for_each(|_| self.counters.core.drop(DropReason::OtherShard));
        result
    }

    fn serve(&mut self) -> Result<(), Error> {
        let mut buffer = vec![0u8; BUFFER];
        let mut idle = Idle::default();
        loop {
            // Looked at here too: a busy queue may never wait.
            if self.stop.is_set() {
                return Ok(());
            }
            match self.burst(&mut buffer)? {
                Burst::Packets => {
                    idle.found();
                    continue;
                }
                Burst::Empty if idle.look_again() => continue,
                Burst::Empty => {}
            }
            let before = Instant::now();
            let timeout = match self.held.len() {
                0 => self.core.get().keeps_packets().then_some(TEND),
                _ => Some(held::LOOK),
            };
            let ready = self.queue.wait(self.stop.waker(), timeout).map_err(|e| self.error(e))?;
            if ready.woken {
                return Ok(());
            }
            if ready.gone {
                return Err(self.gone());
            }
            match (idle.slept(before.elapsed()), &self.placement) {
                (Some(Pace::Busy), Some(placement)) => placement.stay(),
                (Some(Pace::Calm), Some(placement)) => placement.roam(),
                _ => {}
            }
        }
    }

    /// Takes up to [`BURST`] packets through, and does what is due by time.
    fn burst(&mut self, buffer: &mut [u8]) -> Result<Burst, Error> {
        let now = monotonic();
        self.core.follow();
        self.bursts.begin();
        if let Some(shards) = self.core.get().shards() {
            self.state.enablings = shards.enablings();
        }
        let mut result = self.go_on(buffer, now).and_then(|()| self.receive(buffer, now));
        if result.is_ok() && now >= self.tended + TEND {
            self.tended = now;
            result = self.tend(buffer, now).and(result);
        }
        result = self.send_gathered().and(result);
        self.bursts.end();
        result
    }

    fn receive(&mut self, buffer: &mut [u8], now: Duration) -> Result<Burst, Error> {
        for taken in 0..BURST {
            match self.queue.recv(buffer, START) {
                Ok(RecvOutcome::Packet { header, len }) => {
                    self.packet(buffer, header, len, now)?;
                }
                Ok(RecvOutcome::Empty) if taken == 0 => return Ok(Burst::Empty),
                Ok(RecvOutcome::Empty) => return Ok(Burst::Packets),
                Ok(RecvOutcome::Truncated | RecvOutcome::Unreadable) => {
                    self.counters.io.raise(IoError::Receive);
                }
                Ok(RecvOutcome::Gone) => return Err(self.gone()),
                Err(error) => {
                    self.counters.io.raise(IoError::Receive);
                    return Err(self.error(error));
                }
            }
        }
        Ok(Burst::Packets)
    }

    /// One packet as it was received.
    fn packet(
        &mut self,
        buffer: &mut [u8],
        header: VnetHeader,
        len: usize,
        now: Duration,
    ) -> Result<(), Error> {
        let Some(offload) = offload::from_vnet(&header) else {
            self.counters.core.drop(DropReason::BadOffload);
            return Ok(());
        };
        let received = START..START + len;
        // A fragment that says it is to be segmented, or summed up, contradicts itself; the core drops it.
        let may_wait = offload.gso.kind == GsoKind::None
            && !matches!(offload.checksum, ChecksumState::Partial { .. });
        let packet = Packet::new(buffer, received, offload);
        let core = self.core.get();
        match core.wait(packet.bytes()) {
            Some(wait) if may_wait => match core.fragment_elsewhere(packet.bytes(), &self.state) {
                Some(shard) => {
                    let arrival = arrival(&packet);
                    self.finish(packet, arrival, Verdict::Elsewhere(shard))
                }
                None => self.reassemble(packet, wait, now),
            },
            _ => self.translate(packet, now),
        }
    }

    /// A fragment waits for the others, so that the core has the packet whole; what is none goes on.
    fn reassemble(&mut self, packet: Packet<'_>, wait: Wait, now: Duration) -> Result<(), Error> {
        let (front, origin) = match wait {
            Wait::Packet(origin) => (0, origin),
            Wait::Inside(at, origin) => (at, origin),
        };
        let mut whole = std::mem::take(&mut self.whole);
        whole.resize(BUFFER, 0);
        let (outer, fragment) = packet.bytes().split_at(front.min(packet.len()));
        let result = match self.fragments.insert(origin, fragment, now, &mut whole, START) {
            Outcome::Whole => self.translate(packet, now),
            Outcome::Complete(range) => {
                let range = if front == 0 { range } else { put_outer(outer, &mut whole, range) };
                // Out of fragments of a tunnel packet may come a packet in it that is a fragment.
                match self.core.get().wait(&whole[range.clone()]) {
                    Some(wait @ Wait::Inside(..)) if front == 0 => {
                        let packet = Packet::new(&mut whole, range, Offload::default());
                        self.reassemble(packet, wait, now)
                    }
                    _ => self.translate(Packet::new(&mut whole, range, Offload::default()), now),
                }
            }
            Outcome::Incomplete | Outcome::Duplicate => Ok(()),
            Outcome::Dropped { reason, fragments } => {
                (0..fragments).for_each(|_| self.counters.core.drop(reason));
                Ok(())
            }
        };
        self.whole = whole;
        result
    }

    /// One whole packet: translated, sent, counted.
    fn translate(&mut self, mut packet: Packet<'_>, now: Duration) -> Result<(), Error> {
        let arrival = arrival(&packet);
        if let Some(marks) = &self.marks
            && let Some(host) = source_v6(packet.bytes())
        {
            packet.mark = (marks.0)(host).unwrap_or(0);
        }
        self.tell_boottime();
        let core = self.core.get();
        // The clock is looked at only where there can be something to time.
        let began = core.tables().map(|_| Instant::now());
        let verdict = core.translate(&mut packet, now, &mut self.state, &mut ());
        if verdict == Verdict::Drop(DropReason::SoftwireUnbound)
            && arrival.direction == Some(Direction::V4ToV6)
            && let Some(unbound) = &self.unbound
        {
            let partial = matches!(packet.offload.checksum, ChecksumState::Partial { .. });
            (unbound.0)(packet.bytes(), partial);
        }
        if let Some(unchecked) = &self.unchecked
            && let Some((src, dst)) = dropped_unchecked(verdict, packet.bytes())
        {
            (unchecked.0)(src, dst);
        }
        if self.state.take_made()
            && let Some(began) = began
        {
            self.counters.creation.record(began.elapsed());
        }
        self.finish(packet, arrival, verdict)
    }

    /// What is due by time, where packets wait.
    fn tend(&mut self, buffer: &mut [u8], now: Duration) -> Result<(), Error> {
        if !self.core.get().keeps_packets() {
            return Ok(());
        }
        let expired = self.fragments.expire(now);
        (0..expired).for_each(|_| self.counters.core.drop(DropReason::FragmentTimeout));
        while let Some(syn) = self.state.syns.due(now) {
            self.answer_syn(buffer, &syn, now)?;
        }
        while let Some(probe) = self.probes.take() {
            self.send_probe(&probe)?;
        }
        Ok(())
    }

    /// An unsolicited SYN whose time is over is answered (RFC 6146 section 3.5.2.2, V4 INIT).
    fn answer_syn(
        &mut self,
        buffer: &mut [u8],
        syn: &StoredSyn,
        now: Duration,
    ) -> Result<(), Error> {
        let range = START..START + syn.packet.len();
        buffer[range.clone()].copy_from_slice(&syn.packet);
        let mut packet = Packet::new(buffer, range, Offload::default());
        let octets = packet.len();
        self.tell_boottime();
        let Some(translator) = self.core.get().translator() else { return Ok(()) };
        let verdict = translator.unanswered(syn, &mut packet, now, &mut self.state, &mut ());
        // Errors are counted by their own family, which is that of the answer.
        let arrival = Arrival { direction: Direction::of(packet.bytes()), octets, segments: 1 };
        self.finish(packet, arrival, verdict)
    }

    /// An idle TCP connection is asked whether it lives (RFC 6146 section 3.5.2.2, ESTABLISHED).
    fn send_probe(&mut self, probe: &Event) -> Result<(), Error> {
        let Event::Probe { host, remote, pool6 } = *probe else { return Ok(()) };
        let is_ours = |shards: &Shards| {
            let shard = shards.partition().of_host(host.0);
            shards.enter(shard, boottime(), self.state.enablings).is_ok()
        };
        let core = self.core.get();
        if !core.shards().is_none_or(is_ours) {
            return Ok(());
        }
        let translator = core.translator();
        if let Some(probe) = translator.and_then(|it| it.probe(host, remote, pool6)) {
            let outcome = self.queue.send(&VnetHeader::default(), &probe);
            // One that is lost is like one that is not answered; the queue's counters tell of it.
            let _ = self.sent(outcome, 1)?;
        }
        Ok(())
    }

    /// In a cluster: the time by which it is decided whether the next packet's shard is translated here.
    #[inline]
    fn tell_boottime(&mut self) {
        if self.core.get().shards().is_some() {
            self.state.boottime = boottime();
        }
    }

    /// Whether a shard is this gateway's by the store, but is not translated here: not any more, or not yet.
    fn is_between_owners(&self, shard: u16) -> bool {
        let is_own = self.hand_over.as_ref().is_some_and(|to| to.is_own(shard));
        let enablings = self.state.enablings;
        let shards = self.core.get().shards();
        is_own && shards.is_some_and(|shards| !shards.is_enabled(shard, enablings))
    }

    /// Keeps a packet whose shard is between two owners, or was: it does not overtake those that wait still. `false`: it may
    /// go on, or there is no room.
    pub(crate) fn hold(&mut self, packet: &Packet<'_>, shard: u16) -> bool {
        let Some(hand_over) = &self.hand_over else { return false };
        if !self.held.has(shard) && !self.is_between_owners(shard) {
            return false;
        }
        let header = offload::to_vnet(&packet.offload);
        let until = monotonic() + hand_over.patience();
        self.held.push(shard, Waiting { header, packet: packet.bytes().into(), until })
    }

    /// Packets whose shard has an owner now are taken through, in their order; what has waited for too long is dropped.
    fn go_on(&mut self, buffer: &mut [u8], now: Duration) -> Result<(), Error> {
        for shard in self.held.shards() {
            if self.is_between_owners(shard) {
                let expired = self.held.expire(shard, now);
                (0..expired).for_each(|_| self.counters.core.drop(DropReason::OtherShard));
                continue;
            }
            for it in self.held.take(shard) {
                let len = it.packet.len();
                buffer[START..START + len].copy_from_slice(&it.packet);
                self.packet(buffer, it.header, len, now)?;
            }
        }
        Ok(())
    }
}

/// A packet as it came.
fn arrival(packet: &Packet<'_>) -> Arrival {
    Arrival {
        direction: Direction::of(packet.bytes()),
        octets: packet.len(),
        segments: packet.segments(),
    }
}

/// Puts the header of a tunnel packet in front of the packet at `inside`, which came out of several; its range.
fn put_outer(outer: &[u8], buffer: &mut [u8], inside: Range<usize>) -> Range<usize> {
    let (Some(header), Some(start)) =
        (outer.get(..ipv6::HEADER_LEN), inside.start.checked_sub(ipv6::HEADER_LEN))
    else {
        return inside;
    };
    let front = &mut buffer[start..inside.start];
    front.copy_from_slice(header);
    put_u16(front, ipv6::PAYLOAD_LEN_AT, inside.len() as u16);
    // Without the extension headers: they were those of one fragment.
    put_u8(front, ipv6::NEXT_HEADER_AT, protocol::IPV4);
    start..inside.end
}

/// The source of an IPv6 packet.
fn source_v6(packet: &[u8]) -> Option<Ipv6Addr> {
    let octets: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
    (packet[0] >> 4 == 6).then(|| octets.into())
}
