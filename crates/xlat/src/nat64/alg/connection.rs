//! Both directions of a connection: how an ALG changes each segment.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::nat64::Side;

use super::counters::Event;
use super::fields::TcpFields;
use super::flow::{Flow, before};
use super::{Advice, Context, Dialogue, HELD_MAX};
use fordway_wire::tcp::flag;

/// What happened to a segment's octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// They are unchanged.
    Same,
    /// They are replaced by those that were written.
    Other,
}

/// A connection that an ALG watches.
#[derive(Debug)]
pub struct Connection {
    dialogue: Box<dyn Dialogue>,
    directions: [Direction; 2],
    released: bool,
    /// It was reset, or both sides have sent FIN.
    over: bool,
    fins: [bool; 2],
    /// Buffer for what the dialogue writes.
    written: Vec<u8>,
}

/// One side's sending direction.
#[derive(Debug, Default)]
struct Direction {
    /// The octets that it sends; `None`: its SYN was not seen.
    flow: Option<Flow>,
    mss: Option<u16>,
    scale: Option<u8>,
}

impl Connection {
    /// Of a connection that begins.
    #[must_use]
    pub fn new(dialogue: Box<dyn Dialogue>) -> Connection {
        let directions = [Direction::default(), Direction::default()];
        let (released, over, fins, written) = (false, false, [false; 2], Vec::new());
        Connection { dialogue, directions, released, over, fins, written }
    }

    /// A connection that an earlier process watched: its octets pass unread, and `shift` is added to the sequence
    /// numbers of the IPv4 and of the IPv6 host.
    #[must_use]
    pub fn resumed(dialogue: Box<dyn Dialogue>, shift: [u32; 2]) -> Connection {
        let direction =
            |shift| Direction { flow: Some(Flow::resumed(shift)), ..Direction::default() };
        let directions = shift.map(direction);
        Connection { directions, released: true, ..Connection::new(dialogue) }
    }

    /// What is added to the numbers of the IPv4 and of the IPv6 host when everything is acknowledged.
    #[must_use]
    pub fn shift(&self) -> [u32; 2] {
        [0, 1].map(|side: usize| self.directions[side].flow.as_ref().map_or(0, Flow::shift))
    }

    /// Whether a SYN may be this connection's.
    #[must_use]
    pub fn is_begun_by(&self, from: Side, fields: &TcpFields) -> bool {
        let flow = self.directions[from.index()].flow.as_ref();
        flow.is_none_or(|flow| flow.first == fields.seq.wrapping_add(1))
    }

    /// Whether its ends may open another connection with the same ports.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Octets of memory that it holds.
    #[must_use]
    pub fn octets(&self) -> usize {
        let flows = self.directions.iter().filter_map(|direction| direction.flow.as_ref());
        flows.map(Flow::octets).sum::<usize>() + self.dialogue.kept()
    }

    /// The MSS of the receiver of what `from` sends, without options.
    #[must_use]
    pub fn mss_towards(&self, from: Side) -> u16 {
        // RFC 9293 section 3.7.1: without the option, 536.
        self.directions[from.other().index()].mss.unwrap_or(536)
    }

    /// Bypasses the ALG from here on.
    pub fn release(&mut self) {
        self.released = true;
        for flow in self.directions.iter_mut().filter_map(|direction| direction.flow.as_mut()) {
            flow.release();
        }
    }

    /// A segment: `fields` becomes what it is on the other side, and so do its octets, in `out`. `may_keep`: there is
    /// memory to keep what can't be dealt with yet.
    pub fn pass(
        &mut self,
        from: Side,
        fields: &mut TcpFields,
        payload: &[u8],
        may_keep: bool,
        out: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) -> Passed {
        out.clear();
        context.may_keep = may_keep;
        if fields.has(flag::SYN) {
            self.begin(from, fields);
        }
        if fields.has(flag::ACK) {
            self.acknowledge(from, fields);
        }
        let urgent = fields.seq.wrapping_add(u32::from(fields.urgent));
        let is_reset = self.is_reset(from, fields);
        let passed = self.data(from, fields, payload, may_keep, out, context);
        self.fins[from.index()] |= fields.has(flag::FIN);
        self.over |= is_reset || self.fins == [true; 2];
        if fields.has(flag::URG) {
            self.point(from, fields, urgent);
        }
        passed
    }

    fn begin(&mut self, from: Side, fields: &TcpFields) {
        let first = fields.seq.wrapping_add(1);
        let [own, other] = [from.index(), from.other().index()];
        let answers = self.answers(from, fields);
        match (&self.directions[own].flow, &self.directions[other].flow) {
            // A retransmission; or a forged SYN, to which the receiver answers with a challenge ACK (RFC 5961 section
            // 4.2).
            (Some(flow), _) if flow.first == first || !flow.is_new() => return,
            // A SYN-ACK that does not acknowledge the other side's SYN belongs to neither side.
            (Some(_), Some(_)) if !answers => return,
            (None, Some(_)) if fields.has(flag::ACK) && !answers => return,
            _ => {}
        }
        let TcpFields { mss, scale, .. } = *fields;
        self.directions[own] = Direction { flow: Some(Flow::new(first)), mss, scale };
    }

    /// Whether it acknowledges the other side's SYN and nothing more.
    fn answers(&self, from: Side, fields: &TcpFields) -> bool {
        let other = &self.directions[from.other().index()].flow;
        fields.has(flag::ACK) && other.as_ref().is_some_and(|flow| flow.first == fields.ack)
    }

    /// Whether a RST is genuine: its sequence number is the next expected one (RFC 5961 section 3.2), or it
    /// acknowledges the other side's SYN. Any other RST may be forged: the receiver ignores it, so the ALG does. If the
    /// connection did end, its state is removed with the session.
    fn is_reset(&self, from: Side, fields: &TcpFields) -> bool {
        fields.has(flag::RST)
            && match &self.directions[from.index()].flow {
                // A FIN takes one sequence number.
                Some(flow) => {
                    flow.known().wrapping_add(u32::from(self.fins[from.index()])) == fields.seq
                }
                None => self.answers(from, fields),
            }
    }

    /// Translates acknowledgement number, window and SACK blocks.
    fn acknowledge(&mut self, from: Side, fields: &mut TcpFields) {
        let [own, other] = [from.index(), from.other().index()];
        // RFC 7323 section 2.2: both have to say so, and it does not count in a SYN.
        let scale = match (self.directions[own].scale, self.directions[other].scale) {
            (Some(scale), Some(_)) if !fields.has(flag::SYN) => scale,
            _ => 0,
        };
        let Some(flow) = &mut self.directions[other].flow else { return };
        if !flow.is_changed() {
            return;
        }
        let edge = fields.ack.wrapping_add(u32::from(fields.window) << scale);
        flow.acknowledge(fields.ack);
        fields.ack = flow.to_input(fields.ack, false);
        if flow.has_edits() {
            let room = flow.to_input(edge, false).wrapping_sub(fields.ack) >> scale;
            fields.window = u16::try_from(room).unwrap_or(u16::MAX);
        }
        for block in &mut fields.sack {
            *block = block
                .map(|(left, right)| (flow.to_input(left, true), flow.to_input(right, false)))
                .filter(|(left, right)| before(*left, *right));
        }
    }

    fn data(
        &mut self,
        from: Side,
        fields: &mut TcpFields,
        payload: &[u8],
        may_keep: bool,
        out: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) -> Passed {
        let [own, other] = [from.index(), from.other().index()];
        if self.directions[other].flow.is_none() && !fields.has(flag::SYN) {
            // A direction alone can't be translated.
            self.release();
        }
        let Some(flow) = &mut self.directions[own].flow else { return Passed::Same };
        if fields.has(flag::SYN) {
            // Octets in a SYN (RFC 7413) are not acknowledged, and come again.
            return if payload.is_empty() { Passed::Same } else { Passed::Other };
        }
        let (seq, fin) = (fields.seq, fields.has(flag::FIN));
        if fields.has(flag::RST) || payload.is_empty() && !fin {
            fields.seq = flow.to_output(seq, self.released);
            return Passed::Same;
        }
        if self.released {
            return released(flow, fields, payload, out);
        }
        let end = seq.wrapping_add(payload.len() as u32);
        let mut start = flow.made();
        let again = flow.again(seq, end, payload, out);
        if !out.is_empty() {
            start = again;
        }
        if flow.hold(seq, payload, may_keep) {
            let ended = fin && flow.known() == end;
            self.talk(from, ended, may_keep, out, context);
        } else {
            context.count(Event::Waiting);
        }
        let Some(flow) = &self.directions[own].flow else { return Passed::Same };
        let waits = !flow.held().is_empty();
        if fin && (waits || flow.known() != end) {
            fields.flags &= !flag::FIN;
        }
        fields.seq = if !out.is_empty() {
            start
        } else if fields.has(flag::FIN) || waits && !flow.has_taken(seq) {
            flow.made()
        } else {
            // No octet is left, but its sender needs an acknowledgement: a segment in front of the expected one makes
            // the receiver send one (RFC 9293 section 3.10.7.4).
            flow.made().wrapping_sub(1)
        };
        Passed::Other
    }

    /// Shows the dialogue the octets that are held.
    fn talk(
        &mut self,
        from: Side,
        ended: bool,
        may_keep: bool,
        out: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) {
        loop {
            let Some(flow) = &mut self.directions[from.index()].flow else { return };
            let number = flow.held().len();
            if number == 0 {
                return;
            }
            if self.released {
                flow.pass(number, out);
                return;
            }
            if !flow.has_room() {
                return;
            }
            self.written.clear();
            let advice = self.dialogue.octets(from, flow.held(), ended, &mut self.written, context);
            match advice {
                Advice::Hold if ended => flow.pass(number, out),
                Advice::Hold if number <= HELD_MAX && may_keep => return,
                Advice::Pass(first) => flow.pass(first.clamp(1, number), out),
                Advice::Replace(first) => {
                    let first = first.clamp(1, number);
                    if flow.held()[..first] == self.written[..] {
                        flow.pass(first, out);
                    } else {
                        flow.replace(first, &self.written, out);
                        context.count(Event::Changed);
                    }
                }
                Advice::Hold | Advice::Bypass => {
                    flow.pass(number, out);
                    context.count(Event::Released);
                    self.release();
                }
            }
        }
    }

    /// The urgent pointer, relative to the segment's new number.
    fn point(&self, from: Side, fields: &mut TcpFields, urgent: u32) {
        let Some(flow) = &self.directions[from.index()].flow else { return };
        let distance = flow.to_output(urgent, self.released).wrapping_sub(fields.seq);
        match u16::try_from(distance) {
            Ok(distance) if distance != 0 => fields.urgent = distance,
            _ => {
                fields.flags &= !flag::URG;
                fields.urgent = 0;
            }
        }
    }
}

/// A segment of a connection that bypasses the ALG.
fn released(flow: &Flow, fields: &mut TcpFields, payload: &[u8], out: &mut Vec<u8>) -> Passed {
    let seq = fields.seq;
    let dealt_with = flow.known().wrapping_sub(seq) as usize;
    if !flow.has_edits() || !before(seq, flow.known()) {
        fields.seq = flow.to_output(seq, true);
        return Passed::Same;
    }
    let end = seq.wrapping_add(payload.len() as u32);
    fields.seq = flow.again(seq, end, payload, out);
    out.extend_from_slice(payload.get(dealt_with..).unwrap_or_default());
    Passed::Other
}
