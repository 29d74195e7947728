//! The programs at both ends. They keep no state but what the tester wants to know: all that an answer
//! needs is in the packet that it answers.
//!
//! ```text
//! client's sender      server's program        client's program
//! SYN          ──────► SYN-ACK          ──────► ACK  ──────► (server) done
//! data         ──────► data, echoed     ──────► done
//! FIN          ──────► FIN-ACK          ──────► ACK  ──────► (server) done
//! datagram     ──────► done, or echoed  ──────► done
//! ```

use super::tables::{SEEN_AT, Tables, Word, count, done};
use super::template::{HOST_AT, PAYLOAD, SEQUENCE_BITS, SERVER_SEQUENCE, TCP, UDP, flag, front};
use super::walk::{FIRST_TARGET_PORT, Walk};
use crate::assembler::{
    Assembler, DATA, DATA_END, DROP, Do, FRAME, If, LOOKUP, Label, PASS, REDIRECT, Register,
    SUM_DIFFERENCE, Width,
};
use crate::bpf::Instruction;

/// The context.
const CONTEXT: Register = 6;
/// The frame.
const PACKET: Register = 7;
/// The counters.
const COUNTERS: Register = 8;
/// What is known of the flow.
const FLOW: Register = 9;

/// Length of a datagram with its header.
const DATAGRAM: i16 = 8 + PAYLOAD as i16;
/// Lengths of segments: bare, with one option, with data.
const SEGMENTS: [i16; 3] = [20 + PAYLOAD as i16, OPENING, 20];
/// Length of a segment that opens a connection: it has one option.
const OPENING: i16 = 24;

/// What a program at an end is made for.
#[derive(Debug, Clone, Copy)]
pub(super) struct End<'a> {
    /// Counters and flows.
    pub(super) tables: &'a Tables,
    /// The flows.
    pub(super) walk: &'a Walk,
    /// Whether packets arrive as IPv4 at this end.
    pub(super) v4: bool,
    /// UDP or TCP.
    pub(super) protocol: u8,
    /// The device at this end, through which answers go back. (They are redirected to it rather than
    /// turned round on the spot: a veth forgets those unless its peer has a program, too.)
    pub(super) device: u32,
}

/// The server's program. `echo`: datagrams and data are sent back rather than ended there.
pub(super) fn server(end: End<'_>, echo: bool) -> Vec<Instruction> {
    let mut a = Assembler::new();
    let l = Labels::new(&mut a);
    let t = front(end.v4) as i16;
    // Packets of the tester go to the ports of its flows; a client's sequence number names the flow.
    begin(&mut a, end, l, t + 2);
    let number_at = if end.protocol == UDP { 8 } else { 4 };
    find(&mut a, end, l, number_at);
    verify(&mut a, end, l);
    count(&mut a, COUNTERS, Word::Reached, 1);
    note_source(&mut a, end.v4);
    if end.protocol == UDP {
        if echo {
            send_back(&mut a, end);
        } else {
            a.jump(l.done);
        }
    } else {
        let (opening, closing) = (a.label(), a.label());
        a.load(Width::Octet, 1, PACKET, t + 13);
        a.jump_if(1, If::Bits, flag::SYN.into(), opening);
        a.jump_if(1, If::Bits, flag::RST.into(), l.done);
        a.jump_if(1, If::Bits, flag::FIN.into(), closing);
        if echo {
            let answered = a.label();
            a.jump_if(1, If::Bits, flag::PSH.into(), answered);
            a.jump(l.done);
            a.place(answered);
            let as_asked = (Sequence::Acknowledged, PAYLOAD as i32);
            answer(&mut a, end, as_asked, flag::PSH | flag::ACK, false);
        } else {
            a.jump(l.done);
        }
        a.place(opening);
        answer(&mut a, end, (Sequence::First, 1), flag::SYN | flag::ACK, false);
        a.place(closing);
        answer(&mut a, end, (Sequence::Acknowledged, 1), flag::FIN | flag::ACK, false);
    }
    l.finish(&mut a);
    a.finish()
}

/// The client's program.
pub(super) fn client(end: End<'_>) -> Vec<Instruction> {
    let mut a = Assembler::new();
    let l = Labels::new(&mut a);
    let t = front(end.v4) as i16;
    // Answers come from the ports of the flows; what they acknowledge names the flow.
    begin(&mut a, end, l, t);
    find(&mut a, end, l, 8);
    verify(&mut a, end, l);
    count(&mut a, COUNTERS, Word::Answers, 1);
    if end.protocol == TCP {
        let (opened, closed, reset) = (a.label(), a.label(), a.label());
        a.load(Width::Octet, 1, PACKET, t + 13);
        a.jump_if(1, If::Bits, flag::RST.into(), reset);
        a.jump_if(1, If::Bits, flag::SYN.into(), opened);
        a.jump_if(1, If::Bits, flag::FIN.into(), closed);
        a.jump(l.done);
        a.place(reset);
        count(&mut a, COUNTERS, Word::Reset, 1);
        a.verdict(DROP);
        a.place(opened);
        within(&mut a, t + OPENING, l.stray);
        answer(&mut a, end, (Sequence::Acknowledged, 1), flag::ACK, true);
        a.place(closed);
        answer(&mut a, end, (Sequence::Acknowledged, 1), flag::ACK, false);
    } else {
        a.jump(l.done);
    }
    l.finish(&mut a);
    a.finish()
}

/// Where the paths of a program end.
#[derive(Debug, Clone, Copy)]
struct Labels {
    /// Not a packet of the tester: the kernel's.
    other: Label,
    /// A packet of the tester that it does not understand.
    stray: Label,
    /// A wrong checksum.
    wrong: Label,
    /// The flow got to its end.
    done: Label,
}

impl Labels {
    fn new(a: &mut Assembler) -> Self {
        Self { other: a.label(), stray: a.label(), wrong: a.label(), done: a.label() }
    }

    fn finish(self, a: &mut Assembler) {
        if a.is_used(self.done) {
            a.place(self.done);
            done(a, COUNTERS);
            a.verdict(DROP);
        }
        for (label, word) in [(self.stray, Word::Stray), (self.wrong, Word::Wrong)] {
            a.place(label);
            count(a, COUNTERS, word, 1);
            a.verdict(DROP);
        }
        a.place(self.other);
        a.verdict(PASS);
    }
}

/// Jumps when the frame is shorter than `length`; registers 4 and 5 are lost.
fn within(a: &mut Assembler, length: i16, short: Label) {
    a.load(Width::Word, 5, CONTEXT, DATA_END);
    a.copy(4, PACKET);
    a.alu(Do::Add, 4, length.into());
    a.jump_if_register(4, If::Above, 5, short);
}

/// Looks at the packet's headers: what is not of this family and protocol, or has no port of the
/// tester's at `port_at`, is left to the kernel.
fn begin(a: &mut Assembler, end: End<'_>, l: Labels, port_at: i16) {
    let t = front(end.v4) as i16;
    a.copy(CONTEXT, 1);
    a.load(Width::Word, PACKET, CONTEXT, DATA);
    let least = if end.protocol == UDP { DATAGRAM } else { 20 };
    within(a, t + least, l.other);
    let (ethertype, protocol_at) = if end.v4 { (0x0800u16, 14 + 9) } else { (0x86dd, 14 + 6) };
    a.load(Width::Half, 1, PACKET, 12);
    a.jump_if(1, If::NotEqual, ethertype.to_be().into(), l.other);
    a.load(Width::Octet, 1, PACKET, protocol_at);
    a.jump_if(1, If::NotEqual, end.protocol.into(), l.other);
    if end.v4 {
        // An IPv4 header without options.
        a.load(Width::Octet, 1, PACKET, 14);
        a.jump_if(1, If::NotEqual, 0x45, l.other);
    }
    a.load(Width::Half, 1, PACKET, port_at);
    a.network_order(1, 16);
    a.alu(Do::Subtract, 1, FIRST_TARGET_PORT.into());
    a.jump_if(1, If::AtLeast, end.walk.hosts() as i32, l.other);
    a.map_value(COUNTERS, end.tables.counters.number());
}

/// Finds what is known of the flow whose number the packet bears.
fn find(a: &mut Assembler, end: End<'_>, l: Labels, number_at: i16) {
    a.load(Width::Word, 1, PACKET, front(end.v4) as i16 + number_at);
    a.network_order(1, 32);
    if end.protocol == TCP {
        a.alu(Do::ShiftRight, 1, SEQUENCE_BITS as i32);
    }
    a.store(Width::Word, FRAME, -4, 1);
    a.map(1, end.tables.flows.number());
    a.copy(2, FRAME);
    a.alu(Do::Add, 2, -4);
    a.call(LOOKUP);
    a.jump_if(0, If::Equal, 0, l.stray);
    a.copy(FLOW, 0);
}

/// Sums the packet up: a wrong checksum is no arrival.
fn verify(a: &mut Assembler, end: End<'_>, l: Labels) {
    let right = a.label();
    if end.protocol == UDP && end.v4 {
        // A datagram without a checksum (RFC 768): every host takes it.
        a.load(Width::Half, 1, PACKET, front(true) as i16 + 6);
        a.jump_if(1, If::Equal, 0, right);
    }
    let lengths: &[i16] = if end.protocol == UDP { &[DATAGRAM] } else { &SEGMENTS };
    let (addresses_at, addresses) = if end.v4 { (14 + 12, 8) } else { (14 + 8, 32) };
    for length in lengths {
        let next = a.label();
        within(a, front(end.v4) as i16 + length, next);
        a.jump_if_register(5, If::Above, 4, next);
        a.set(1, 0);
        a.set(2, 0);
        // The addresses stand right before the transport part; of the pseudo-header only protocol and
        // length are missing.
        a.copy(3, PACKET);
        a.alu(Do::Add, 3, addresses_at);
        a.set(4, addresses + i32::from(*length));
        let rest = (u16::from(end.protocol) + *length as u16).to_be();
        a.set(5, rest.into());
        a.call(SUM_DIFFERENCE);
        a.fold(0, 1);
        a.jump_if(0, If::NotEqual, 0xffff, l.wrong);
        a.jump(right);
        a.place(next);
    }
    a.jump(l.stray);
    a.place(right);
}

/// Keeps the source of the flow's first packet, and counts later ones that come from another.
fn note_source(a: &mut Assembler, v4: bool) {
    let (same, known) = (a.label(), a.label());
    // Of an IPv6 address, the half of the prefix that differs from source to source.
    a.load(Width::Word, 1, PACKET, HOST_AT - 2);
    a.alu(Do::ShiftLeft, 1, 32);
    a.load(Width::Word, 2, PACKET, front(v4) as i16);
    a.alu_register(Do::Or, 1, 2);
    a.load(Width::Long, 2, FLOW, SEEN_AT);
    a.jump_if(2, If::NotEqual, 0, known);
    a.store(Width::Long, FLOW, SEEN_AT, 1);
    a.jump(same);
    a.place(known);
    a.jump_if_register(2, If::Equal, 1, same);
    count(a, COUNTERS, Word::Moved, 3);
    a.place(same);
}

/// The sequence number of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sequence {
    /// The server's first.
    First,
    /// What the packet that is answered has acknowledged.
    Acknowledged,
}

/// Turns a segment into its answer and sends it back. `further`: sequence numbers that the answered
/// segment took. With `opening`, its one option is overwritten: an answer to it has none.
fn answer(
    a: &mut Assembler,
    end: End<'_>,
    (sequence, further): (Sequence, i32),
    flags: u8,
    opening: bool,
) {
    /// Where the old and the new words are put side by side, below the frame's end.
    const OLD: i16 = -24;
    const NEW: i16 = -40;
    /// Four options without meaning (RFC 9293 section 3.2).
    const NOTHING: i32 = 0x0101_0101;
    let t = front(end.v4) as i16;
    let length = if opening { 16 } else { 12 };
    for at in [0, 4, 8] {
        a.load(Width::Word, 1, PACKET, t + 4 + at);
        a.store(Width::Word, FRAME, OLD + at, 1);
    }
    if sequence == Sequence::First {
        a.store_value(Width::Word, FRAME, NEW, SERVER_SEQUENCE.to_be() as i32);
    } else {
        a.load(Width::Word, 1, PACKET, t + 8);
        a.store(Width::Word, FRAME, NEW, 1);
    }
    a.load(Width::Word, 1, PACKET, t + 4);
    a.network_order(1, 32);
    a.alu(Do::Add, 1, further);
    a.network_order(1, 32);
    a.store(Width::Word, FRAME, NEW + 4, 1);
    a.load(Width::Octet, 1, PACKET, t + 12);
    a.store(Width::Octet, FRAME, NEW + 8, 1);
    a.store_value(Width::Octet, FRAME, NEW + 9, flags.into());
    a.load(Width::Half, 1, PACKET, t + 14);
    a.store(Width::Half, FRAME, NEW + 10, 1);
    if opening {
        a.load(Width::Word, 1, PACKET, t + 20);
        a.store(Width::Word, FRAME, OLD + 12, 1);
        a.store_value(Width::Word, FRAME, NEW + 12, NOTHING);
        a.store_value(Width::Word, PACKET, t + 20, NOTHING);
    }
    for at in [0, 4, 8] {
        a.load(Width::Word, 1, FRAME, NEW + at);
        a.store(Width::Word, PACKET, t + 4 + at, 1);
    }
    for (register, from) in [(1, OLD), (3, NEW)] {
        a.copy(register, FRAME);
        a.alu(Do::Add, register, from.into());
        a.set(register + 1, length);
    }
    a.load(Width::Half, 5, PACKET, t + 16);
    a.alu(Do::Xor, 5, 0xffff);
    a.call(SUM_DIFFERENCE);
    a.fold(0, 1);
    a.alu(Do::Xor, 0, 0xffff);
    a.store(Width::Half, PACKET, t + 16, 0);
    send_back(a, end);
}

/// Exchanges source and target (link addresses, addresses, ports) and sends the packet back.
fn send_back(a: &mut Assembler, end: End<'_>) {
    let t = front(end.v4) as i16;
    let (first, second, words) = if end.v4 { (26, 30, 1) } else { (22, 38, 4) };
    let mut pairs = vec![(Width::Word, 0, 6), (Width::Half, 4, 10), (Width::Half, t, t + 2)];
    pairs.extend((0..words).map(|n| (Width::Word, first + 4 * n, second + 4 * n)));
    for (width, one, other) in pairs {
        a.load(width, 1, PACKET, one);
        a.load(width, 2, PACKET, other);
        a.store(width, PACKET, one, 2);
        a.store(width, PACKET, other, 1);
    }
    a.set(1, end.device as i32);
    a.set(2, 0);
    a.call(REDIRECT);
    a.end();
}
