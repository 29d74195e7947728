//! The way out of a queue: sent, alone or with what follows it; answered; handed over; counted.

use fordway_tun::{SendOutcome, VnetHeader};
use fordway_xlat::counters::Arrival;
use fordway_xlat::{DropReason, Packet, Verdict};

use crate::clock::boottime;
use crate::counters::{IoError, Sent};
use crate::gro::{Begun, Offer};
use crate::queue::Worker;
use crate::{Error, offload};

impl Worker {
    /// Sends what a packet has become, at once or with what follows it in its burst, and counts it.
    pub(crate) fn finish(
        &mut self,
        mut packet: Packet<'_>,
        arrival: Arrival,
        verdict: Verdict,
    ) -> Result<(), Error> {
        self.counters.core.suppress(self.state.take_suppressed());
        if let Verdict::Elsewhere(shard) = verdict
            && self.hold(&packet, shard)
        {
            return Ok(());
        }
        if verdict == Verdict::Forward && self.gather(&packet, arrival)? {
            return Ok(());
        }
        let sent = match verdict {
            Verdict::Forward if packet.is_split() => self.send_fragments(&packet)?,
            Verdict::Forward | Verdict::Reply(_) => self.send(&mut packet)?,
            Verdict::Elsewhere(shard) => self.hand_over(&packet, shard),
            Verdict::Drop(_) | Verdict::Stored | Verdict::Pass => Ok(1),
        };
        self.counters.record(arrival, verdict, sent);
        Ok(())
    }

    /// Lets a packet wait for those that may leave with it, after what it must not overtake has been sent. `false`: it is to
    /// be sent now.
    fn gather(&mut self, packet: &Packet<'_>, arrival: Arrival) -> Result<bool, Error> {
        // In a cluster each packet leaves by what its own translation was allowed.
        if self.core.get().shards().is_some() {
            return Ok(false);
        }
        loop {
            let Offer { ahead, is_taken } = self.gro.offer(packet, arrival);
            match ahead {
                Some(ahead) => self.send_one_gathered(ahead)?,
                None => return Ok(is_taken),
            }
            if is_taken {
                return Ok(true);
            }
        }
    }

    /// Sends all that waits for more.
    pub(crate) fn send_gathered(&mut self) -> Result<(), Error> {
        while let Some(next) = self.gro.pop() {
            self.send_one_gathered(next)?;
        }
        Ok(())
    }

    fn send_one_gathered(&mut self, mut begun: Begun) -> Result<(), Error> {
        let header = begun.finish();
        let end = begun.buffer.len();
        let outcome = self.queue.send_in_place(&mut begun.buffer, VnetHeader::LEN, end, &header);
        let result = match outcome {
            // Some releases of Linux 6.1, 6.6 and 6.10 refuse super-packets of segments of some lengths.
            Ok(SendOutcome::Refused) if begun.arrivals.len() > 1 => {
                self.gro.cease();
                self.send_pieces(&begun)
            }
            outcome => self.sent_all(outcome, &begun.arrivals),
        };
        self.gro.recycle(begun);
        result
    }

    /// Sends what the kernel does not take as one.
    fn send_pieces(&mut self, begun: &Begun) -> Result<(), Error> {
        let mut arrivals = begun.arrivals.chunks(1);
        let mut result = Ok(());
        for (piece, arrival) in begun.pieces().zip(&mut arrivals) {
            let outcome = self.queue.send(&VnetHeader::default(), &piece);
            result = self.sent_all(outcome, arrival);
            if result.is_err() {
                break;
            }
        }
        arrivals.for_each(|_| self.counters.core.drop(DropReason::DeviceError));
        result
    }

    /// Counts what came of sending what these packets have become. The result ends the thread.
    fn sent_all(
        &self,
        outcome: std::io::Result<SendOutcome>,
        arrivals: &[Arrival],
    ) -> Result<(), Error> {
        let sent = self.sent(outcome, arrivals.len());
        let counted = match &sent {
            Ok(sent) => sent.map(|()| 1),
            Err(_) => Err(DropReason::DeviceError),
        };
        arrivals.iter().for_each(|it| self.counters.record(*it, Verdict::Forward, counted));
        sent.map(drop)
    }

    /// Drops what waits still when the thread ends.
    pub(crate) fn drop_gathered(&mut self) {
        while let Some(begun) = self.gro.pop() {
            begun.arrivals.iter().for_each(|_| self.counters.core.drop(DropReason::DeviceError));
        }
    }

    /// In a cluster: whether what a packet has become may be sent now. The thread may have been paused since the packet's
    /// translation began, for longer than the lease lasts.
    #[inline]
    fn may_leave(&self) -> Result<(), DropReason> {
        let shards = self.core.get().shards();
        shards.map_or(Ok(()), |shards| shards.let_leave(&self.state, boottime()))
    }

    /// A packet for another gateway of the cluster.
    fn hand_over(&self, packet: &Packet<'_>, shard: u16) -> Sent {
        let header = offload::to_vnet(&packet.offload);
        let is_taken = self
            .hand_over
            .as_ref()
            .is_some_and(|to| to.hand_over(self.queue.index(), shard, &header, packet.bytes()));
        if is_taken { Ok(1) } else { Err(DropReason::OtherShard) }
    }

    fn send(&mut self, packet: &mut Packet<'_>) -> Result<Sent, Error> {
        if let Err(reason) = self.may_leave() {
            return Ok(Err(reason));
        }
        let header = offload::to_vnet(&packet.offload);
        let range = packet.range();
        let outcome =
            self.queue.send_in_place(packet.buffer_mut(), range.start, range.end, &header);
        Ok(self.sent(outcome, 1)?.map(|()| 1))
    }

    /// Sends the pieces of a packet; stops at the first that is not taken, for the rest would be of no
    /// use to the receiver.
    fn send_fragments(&mut self, packet: &Packet<'_>) -> Result<Sent, Error> {
        let header = offload::to_vnet(&packet.offload);
        let mut pieces = 0;
        for fragment in packet.fragments() {
            if let Err(reason) = self.may_leave() {
                return Ok(Err(reason));
            }
            let outcome = self.queue.send_parts(&header, fragment.head(), fragment.body);
            if let Err(reason) = self.sent(outcome, 1)? {
                return Ok(Err(reason));
            }
            pieces += 1;
        }
        Ok(Ok(pieces))
    }

    /// Counts what came of sending so many packets. The outer result ends the thread.
    pub(crate) fn sent(
        &self,
        outcome: std::io::Result<SendOutcome>,
        packets: usize,
    ) -> Result<Result<(), DropReason>, Error> {
        let (error, reason) = match outcome.map_err(|e| self.error(e))? {
            SendOutcome::Sent => return Ok(Ok(())),
            SendOutcome::Gone => return Err(self.gone()),
            SendOutcome::Full => (IoError::Full, DropReason::QueueFull),
            SendOutcome::Down => (IoError::Down, DropReason::DeviceError),
            SendOutcome::NoBuffers => (IoError::NoBuffers, DropReason::DeviceError),
            SendOutcome::Refused => (IoError::Refused, DropReason::DeviceError),
        };
        (0..packets).for_each(|_| self.counters.io.raise(error));
        Ok(Err(reason))
    }

    pub(crate) fn gone(&self) -> Error {
        Error::Gone { interface: self.interface.clone() }
    }

    pub(crate) fn error(&self, source: std::io::Error) -> Error {
        Error::Queue { interface: self.interface.clone(), queue: self.queue.index(), source }
    }
}
