//! An assembler for the few instructions that the lab's XDP programs are made of (RFC 9669): no
//! compiler is needed to run the lab.

use super::bpf::Instruction;

/// A register, 0 to 10. 0 holds results, 1 to 5 arguments, 6 to 9 survive calls, 10 is the frame.
pub(super) type Register = u8;

/// The stack frame's end: what lies below it is the program's own.
pub(super) const FRAME: Register = 10;

/// The verdicts of an XDP program.
pub(super) const ABORTED: i32 = 0;
/// The frame goes no further.
pub(super) const DROP: i32 = 1;
/// The frame goes on to the kernel.
pub(super) const PASS: i32 = 2;

/// `struct xdp_md`: where the frame begins.
pub(super) const DATA: i16 = 0;
/// `struct xdp_md`: where the frame ends.
pub(super) const DATA_END: i16 = 4;

/// `bpf_map_lookup_elem(map, key)`.
pub(super) const LOOKUP: i32 = 1;
/// `bpf_ktime_get_ns()`.
pub(super) const MONOTONIC: i32 = 5;
/// `bpf_redirect(ifindex, flags)`.
pub(super) const REDIRECT: i32 = 23;
/// `bpf_csum_diff(from, length, to, length, seed)`.
pub(super) const SUM_DIFFERENCE: i32 = 28;

/// Width of a memory access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// One octet.
    Octet,
    /// Two octets.
    Half,
    /// Four octets.
    Word,
    /// Eight octets.
    Long,
}

impl Width {
    /// The size bits of an instruction (RFC 9669 section 5).
    fn bits(self) -> u8 {
        match self {
            Self::Word => 0x00,
            Self::Half => 0x08,
            Self::Octet => 0x10,
            Self::Long => 0x18,
        }
    }
}

/// 64-bit arithmetic (RFC 9669 section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Do {
    Add = 0x00,
    Subtract = 0x10,
    Multiply = 0x20,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Xor = 0xa0,
    Move = 0xb0,
}

/// When to jump (RFC 9669 section 4.3); comparisons are of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum If {
    Equal = 0x10,
    Above = 0x20,
    AtLeast = 0x30,
    Bits = 0x40,
    NotEqual = 0x50,
    SignedAtLeast = 0x70,
}

const ALU64: u8 = 0x07;
const JUMP: u8 = 0x05;
const LOAD: u8 = 0x61;
const STORE_IMMEDIATE: u8 = 0x62;
const STORE: u8 = 0x63;
const ATOMIC: u8 = 0xc3;
const FROM_REGISTER: u8 = 0x08;
const LOAD_64: u8 = 0x18;
const TO_BIG_ENDIAN: u8 = 0xdc;
const ALWAYS: u8 = 0x05;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Source "register" of a 64-bit load that means: a map.
const MAP: u8 = 1;
/// Source "register" of a 64-bit load that means: the address of a map's first value.
const MAP_VALUE: u8 = 2;
const ATOMIC_ADD: i32 = 0x00;
const ATOMIC_EXCHANGE: i32 = 0xe1;

/// A place in a program that jumps lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Label(usize);

/// A program in the making.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    instructions: Vec<Instruction>,
    places: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// An empty program.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Whether anything jumps to a label: the kernel refuses programs with parts that nothing reaches.
    pub(super) fn is_used(&self, label: Label) -> bool {
        self.jumps.iter().any(|(_, to)| *to == label)
    }

    fn push(&mut self, code: u8, to: Register, from: Register, offset: i16, value: i32) {
        self.instructions.push(Instruction { code, registers: from << 4 | to, offset, value });
    }

    /// A label that is not placed yet.
    pub(super) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// Places a label at the next instruction.
    pub(super) fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.instructions.len());
    }

    /// `to = to OP value`.
    pub(super) fn alu(&mut self, op: Do, to: Register, value: i32) {
        self.push(ALU64 | op as u8, to, 0, 0, value);
    }

    /// `to = to OP from`.
    pub(super) fn alu_register(&mut self, op: Do, to: Register, from: Register) {
        self.push(ALU64 | FROM_REGISTER | op as u8, to, from, 0, 0);
    }

    /// `to = value`.
    pub(super) fn set(&mut self, to: Register, value: i32) {
        self.alu(Do::Move, to, value);
    }

    /// `to = from`.
    pub(super) fn copy(&mut self, to: Register, from: Register) {
        self.alu_register(Do::Move, to, from);
    }

    /// Turns the low 16 or 32 bits between the host's and the network's order; the rest becomes 0.
    pub(super) fn network_order(&mut self, register: Register, bits: i32) {
        self.push(TO_BIG_ENDIAN, register, 0, 0, bits);
    }

    /// `to = *(base + offset)`.
    pub(super) fn load(&mut self, width: Width, to: Register, base: Register, offset: i16) {
        self.push(LOAD | width.bits(), to, base, offset, 0);
    }

    /// `*(base + offset) = from`.
    pub(super) fn store(&mut self, width: Width, base: Register, offset: i16, from: Register) {
        self.push(STORE | width.bits(), base, from, offset, 0);
    }

    /// `*(base + offset) = value`.
    pub(super) fn store_value(&mut self, width: Width, base: Register, offset: i16, value: i32) {
        self.push(STORE_IMMEDIATE | width.bits(), base, 0, offset, value);
    }

    /// Writes octets, four at a time.
    pub(super) fn write(&mut self, base: Register, offset: i16, octets: &[u8]) {
        let mut words = octets.chunks_exact(4);
        let mut at = offset;
        for word in words.by_ref() {
            let value = i32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
            self.store_value(Width::Word, base, at, value);
            at += 4;
        }
        for octet in words.remainder() {
            self.store_value(Width::Octet, base, at, i32::from(*octet));
            at += 1;
        }
    }

    /// Adds to a 64-bit number in memory that other processors may change as well.
    pub(super) fn atomic_add(&mut self, base: Register, offset: i16, from: Register) {
        self.push(ATOMIC | Width::Long.bits(), base, from, offset, ATOMIC_ADD);
    }

    /// Exchanges a register with a 32-bit number in memory.
    pub(super) fn atomic_exchange(&mut self, base: Register, offset: i16, with: Register) {
        self.push(ATOMIC | Width::Word.bits(), base, with, offset, ATOMIC_EXCHANGE);
    }

    /// Jumps.
    pub(super) fn jump(&mut self, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.push(ALWAYS, 0, 0, 0, 0);
    }

    /// Jumps if `register` compares so with a value.
    pub(super) fn jump_if(&mut self, register: Register, test: If, value: i32, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.push(JUMP | test as u8, register, 0, 0, value);
    }

    /// Jumps if `register` compares so with another.
    pub(super) fn jump_if_register(&mut self, a: Register, test: If, b: Register, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.push(JUMP | FROM_REGISTER | test as u8, a, b, 0, 0);
    }

    /// Calls a helper; registers 1 to 5 are undefined afterwards.
    pub(super) fn call(&mut self, helper: i32) {
        self.push(CALL, 0, 0, 0, helper);
    }

    /// `to = map`, for a helper.
    pub(super) fn map(&mut self, to: Register, descriptor: i32) {
        self.push(LOAD_64, to, MAP, 0, descriptor);
        self.push(0, 0, 0, 0, 0);
    }

    /// `to = address of the only value of a map`.
    pub(super) fn map_value(&mut self, to: Register, descriptor: i32) {
        self.push(LOAD_64, to, MAP_VALUE, 0, descriptor);
        self.push(0, 0, 0, 0, 0);
    }

    /// Ends the program with a verdict.
    pub(super) fn verdict(&mut self, verdict: i32) {
        self.set(0, verdict);
        self.end();
    }

    /// Ends the program with what register 0 holds.
    pub(super) fn end(&mut self) {
        self.push(EXIT, 0, 0, 0, 0);
    }

    /// Folds a sum of 16-bit words, of up to 32 bits, to 16 bits (RFC 1071); `scratch` is lost.
    pub(super) fn fold(&mut self, sum: Register, scratch: Register) {
        for _ in 0..2 {
            self.copy(scratch, sum);
            self.alu(Do::ShiftRight, scratch, 16);
            self.alu(Do::And, sum, 0xffff);
            self.alu_register(Do::Add, sum, scratch);
        }
    }

    /// The program: every label that is jumped to has been placed.
    pub(super) fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in &self.jumps {
            let to = self.places[label.0].expect("a jump's label is placed");
            let distance = to as i64 - *at as i64 - 1;
            self.instructions[*at].offset =
                i16::try_from(distance).expect("programs are shorter than a jump reaches");
        }
        self.instructions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_lead_to_their_labels_both_ways() {
        let mut a = Assembler::new();
        let (back, out) = (a.label(), a.label());
        a.place(back);
        a.set(0, 1);
        a.jump_if(0, If::NotEqual, 1, back);
        a.jump(out);
        a.verdict(DROP);
        a.place(out);
        a.verdict(PASS);
        let offsets: Vec<i16> = a.finish().iter().map(|i| i.offset).collect();
        assert_eq!(offsets, [0, -2, 2, 0, 0, 0, 0]);
    }

    #[test]
    fn every_octet_is_written_in_its_place() {
        let octets: Vec<u8> = (1..=63).collect();
        let mut a = Assembler::new();
        a.write(2, 0, &octets);
        let mut written = vec![0; octets.len()];
        for instruction in a.finish() {
            let at = instruction.offset as usize;
            match instruction.code {
                0x62 => written[at..at + 4].copy_from_slice(&instruction.value.to_ne_bytes()),
                _ => written[at] = instruction.value as u8,
            }
        }
        assert_eq!(written, octets);
    }

    #[test]
    fn instructions_are_those_of_the_rfc() {
        let mut a = Assembler::new();
        a.load(Width::Half, 5, 2, 12);
        a.store_value(Width::Octet, 2, 3, 7);
        a.store(Width::Long, 10, -8, 1);
        a.atomic_add(1, 0, 2);
        a.alu(Do::Add, 4, 62);
        a.copy(4, 2);
        a.jump_if_register(4, If::Above, 3, Label(0));
        a.places.push(Some(7));
        let codes: Vec<u8> = a.finish().iter().map(|i| i.code).collect();
        // LDX H, ST B, STX DW, STX DW ATOMIC, ADD64 K, MOV64 X, JGT X.
        assert_eq!(codes, [0x69, 0x72, 0x7b, 0xdb, 0x07, 0xbf, 0x2d]);
    }
}
