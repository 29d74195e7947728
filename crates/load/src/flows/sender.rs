//! The sender's program: each run sends one packet of the flow whose turn it is, unless enough flows are
//! under way.

use super::tables::{PHASE_AT, Tables, Word, count};
use super::template::{HOST_AT, Packet, SEQUENCE_BITS, Template};
use super::walk::{FIRST_PORT, FIRST_TARGET_PORT, STRIDE, Walk};
use crate::assembler::{
    ABORTED, Assembler, DATA, DATA_END, DROP, Do, FRAME, If, LOOKUP, REDIRECT, Register, Width,
};
use crate::bpf::Instruction;

/// The context, later the source's own 16 bits.
const CONTEXT: Register = 6;
/// The flow's number.
const FLOW: Register = 7;
/// The counters.
const COUNTERS: Register = 8;
/// The frame.
const PACKET: Register = 9;

/// The program that fills in a template and redirects it to a device.
///
/// It drops its frame, which costs next to nothing, when no flow is left, when the window is full, and
/// when the flow has got to its end in this phase already.
pub(super) fn sender(
    tables: &Tables,
    walk: &Walk,
    template: &Template,
    device: u32,
) -> Vec<Instruction> {
    let mut a = Assembler::new();
    let (idle, full, short) = (a.label(), a.label(), a.label());
    a.copy(CONTEXT, 1);
    a.map_value(COUNTERS, tables.counters.number());

    // Whose turn is it, and may it go?
    a.load(Width::Long, FLOW, COUNTERS, Word::Next.at());
    a.load(Width::Long, 1, COUNTERS, Word::Until.at());
    a.jump_if_register(FLOW, If::AtLeast, 1, idle);
    a.load(Width::Long, 1, COUNTERS, Word::Sent.at());
    for gone in [Word::Done, Word::Forgiven] {
        a.load(Width::Long, 2, COUNTERS, gone.at());
        a.alu_register(Do::Subtract, 1, 2);
    }
    a.load(Width::Long, 2, COUNTERS, Word::Window.at());
    a.jump_if_register(1, If::SignedAtLeast, 2, full);
    a.load(Width::Long, 1, COUNTERS, Word::Step.at());
    a.alu_register(Do::Add, 1, FLOW);
    a.store(Width::Long, COUNTERS, Word::Next.at(), 1);
    a.store(Width::Word, FRAME, -4, FLOW);
    a.map(1, tables.flows.number());
    a.copy(2, FRAME);
    a.alu(Do::Add, 2, -4);
    a.call(LOOKUP);
    a.jump_if(0, If::Equal, 0, idle);
    a.load(Width::Word, 1, 0, PHASE_AT);
    a.load(Width::Long, 2, COUNTERS, Word::Phase.at());
    a.jump_if_register(1, If::Equal, 2, idle);

    // What all flows have in common.
    a.load(Width::Word, PACKET, CONTEXT, DATA);
    a.load(Width::Word, 3, CONTEXT, DATA_END);
    a.copy(4, PACKET);
    a.alu(Do::Add, 4, template.octets.len() as i32);
    a.jump_if_register(4, If::Above, 3, short);
    a.write(PACKET, 0, &template.octets);

    fill_in(&mut a, walk, template);
    count(&mut a, COUNTERS, Word::Sent, 1);
    a.set(1, device as i32);
    a.set(2, 0);
    a.call(REDIRECT);
    a.end();
    a.place(full);
    count(&mut a, COUNTERS, Word::Waited, 1);
    a.place(idle);
    a.verdict(DROP);
    a.place(short);
    a.verdict(ABORTED);
    a.finish()
}

/// Writes addresses, ports, number and checksums of a flow.
fn fill_in(a: &mut Assembler, walk: &Walk, template: &Template) {
    const SUM: Register = 0;
    const HOST: Register = CONTEXT;
    let transport = template.transport_at();
    a.set(SUM, template.sum as i32);

    // See `Walk::tuple`: register 2 becomes the port, HOST the address.
    a.set(3, STRIDE as i32);
    a.copy(2, FLOW);
    a.alu_register(Do::Multiply, 2, 3);
    a.alu(Do::And, 2, walk.mask() as i32);
    a.copy(HOST, 2);
    a.alu(Do::And, HOST, (walk.hosts() - 1) as i32);
    a.alu(Do::ShiftRight, 2, walk.sources.into());
    a.alu(Do::Add, 2, FIRST_PORT.into());
    a.copy(3, HOST);
    a.alu(Do::Add, 3, FIRST_TARGET_PORT.into());
    a.alu(Do::Add, HOST, 1);
    for (register, at) in [(2, transport), (3, transport + 2), (HOST, HOST_AT)] {
        a.alu_register(Do::Add, SUM, register);
        a.copy(4, register);
        a.network_order(4, 16);
        a.store(Width::Half, PACKET, at, 4);
    }

    // The flow's number: 32 bits, of which the sum takes both halves.
    let (number_at, checksum_at) = match template.packet {
        Packet::Datagram => (transport + 8, transport + 6),
        _ => (transport + 4, transport + 16),
    };
    match template.packet {
        Packet::Datagram => {}
        Packet::Syn => a.alu(Do::ShiftLeft, FLOW, SEQUENCE_BITS as i32),
        Packet::Data | Packet::Fin => {
            a.alu(Do::ShiftLeft, FLOW, SEQUENCE_BITS as i32);
            // The segment that opened the connection took one sequence number.
            a.alu(Do::Add, FLOW, 1);
        }
    }
    a.copy(2, FLOW);
    a.alu(Do::And, 2, 0xffff);
    a.alu_register(Do::Add, SUM, 2);
    a.copy(2, FLOW);
    a.alu(Do::ShiftRight, 2, 16);
    a.alu_register(Do::Add, SUM, 2);
    a.network_order(FLOW, 32);
    a.store(Width::Word, PACKET, number_at, FLOW);

    put_sum(a, SUM, checksum_at, template.packet == Packet::Datagram);
    if template.v4 {
        a.set(SUM, template.header_sum as i32);
        a.alu_register(Do::Add, SUM, HOST);
        put_sum(a, SUM, 14 + 10, false);
    }
}

/// Folds a sum and writes its complement; a datagram's is never zero, which would mean that there is
/// none (RFC 768).
fn put_sum(a: &mut Assembler, sum: Register, at: i16, never_zero: bool) {
    a.fold(sum, 2);
    a.alu(Do::Xor, sum, 0xffff);
    if never_zero {
        let fine = a.label();
        a.jump_if(sum, If::NotEqual, 0, fine);
        a.set(sum, 0xffff);
        a.place(fine);
    }
    a.network_order(sum, 16);
    a.store(Width::Half, PACKET, at, sum);
}
