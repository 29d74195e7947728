//! Bytecode with a counter in each of its basic blocks.

use std::collections::BTreeMap;

use libbpf_rs::libbpf_sys::bpf_insn;

use crate::verifier::Target;

/// Classes of instructions (RFC 9669 section 3.2), and what else a reader of bytecode has to know.
mod code {
    pub(super) const CLASS: u8 = 0x07;
    pub(super) const LD: u8 = 0x00;
    pub(super) const LDX: u8 = 0x01;
    pub(super) const ST: u8 = 0x02;
    pub(super) const STX: u8 = 0x03;
    pub(super) const ALU: u8 = 0x04;
    pub(super) const JMP: u8 = 0x05;
    pub(super) const JMP32: u8 = 0x06;
    pub(super) const ALU64: u8 = 0x07;
    /// The operand is a register.
    pub(super) const REGISTER: u8 = 0x08;
    /// Of arithmetic and of jumps.
    pub(super) const OPERATION: u8 = 0xf0;
    pub(super) const MOV: u8 = 0xb0;
    pub(super) const MODE: u8 = 0xe0;
    pub(super) const ATOMIC: u8 = 0xc0;
    /// Two slots: a constant of 64 bits.
    pub(super) const LD_IMM64: u8 = 0x18;
    pub(super) const JUMP: u8 = 0x05;
    pub(super) const JUMP_LONG: u8 = 0x06;
    pub(super) const CALL: u8 = 0x85;
    pub(super) const EXIT: u8 = 0x95;
    pub(super) const MOV64_IMM: u8 = 0xb7;
    pub(super) const ATOMIC64: u8 = 0xdb;
    pub(super) const ADD64_IMM: u8 = 0x07;
    pub(super) const STX64: u8 = 0x7b;
    pub(super) const LDX64: u8 = 0x79;
}

/// `src_reg` of a call of another function of the program.
const TO_FUNCTION: u8 = 1;
/// `src_reg` of constants: the address of a map's value; the address of a function.
const MAP_VALUE: u8 = 2;
const FUNCTION: u8 = 4;
/// In `imm` of atomic instructions; it reads and writes r0 as well.
const COMPARE_AND_SWAP: i32 = 0xf1;
/// Helpers that search a map, and those that change one.
const LOOKUP: i32 = 1;
const CHANGES: [i32; 2] = [2, 3];

const R0: u16 = 1;
const ARGUMENTS: u16 = 0b11_1110;
/// Helpers with fewer arguments than five: r1 to r4, r3, r2, none.
const FOUR: [i32; 5] = [2, 26, 50, 69, 152];
const THREE: [i32; 5] = [31, 38, 43, 51, 131];
const TWO: [i32; 6] = [1, 3, 23, 39, 44, 132];
const NONE: [i32; 5] = [5, 8, 118, 125, 160];
/// The frame pointer, and how many octets below it a function may have at most.
const FRAME: u8 = 10;
const STACK: i16 = 512;
/// r0 to r9.
const WRITABLE: u16 = 0x3ff;

/// Stands for a map where the verifier did not say where an instruction writes to.
pub(crate) const UNKNOWN: &str = "?";

/// What a straight piece of a program does when it is run once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) instructions: u64,
    pub(crate) lookups: u64,
    /// Changes of maps by helpers.
    pub(crate) updates: u64,
    /// All other helpers.
    pub(crate) helpers: u64,
    /// Writes into the values of maps, by map; and how many of them are atomic.
    pub(crate) writes: BTreeMap<String, Writes>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Writes {
    pub(crate) all: u64,
    pub(crate) atomic: u64,
}

impl Work {
    /// Adds what `times` runs of `other` do.
    pub(crate) fn add(&mut self, other: &Work, times: u64) {
        self.instructions += other.instructions * times;
        self.lookups += other.lookups * times;
        self.updates += other.updates * times;
        self.helpers += other.helpers * times;
        for (map, writes) in &other.writes {
            let sum = self.writes.entry(map.clone()).or_default();
            sum.all += writes.all * times;
            sum.atomic += writes.atomic * times;
        }
    }
}

/// A program that counts how often each of its blocks is run.
pub(crate) struct Counted {
    pub(crate) instructions: Vec<bpf_insn>,
    /// Of each block; its counter is the u64 with its number.
    pub(crate) blocks: Vec<Work>,
    /// The new place of each old instruction.
    places: Vec<usize>,
}

impl Counted {
    /// Where an instruction, or a counter in front of it, is now.
    pub(crate) fn place(&self, old: usize) -> usize {
        self.places[old]
    }
}

/// Where each block begins and ends.
fn blocks(program: &[bpf_insn], functions: &[usize]) -> Vec<(usize, usize)> {
    let mut begins: Vec<usize> = functions.to_vec();
    let mut at = 0;
    while at < program.len() {
        let next = at + slots(&program[at]);
        if let Some(target) = target(program, at) {
            begins.push(target);
        }
        if is_jump(&program[at]) || program[at].code == code::EXIT {
            begins.push(next);
        }
        at = next;
    }
    begins.retain(|&at| at < program.len());
    begins.push(0);
    begins.sort_unstable();
    begins.dedup();
    let ends = begins.iter().skip(1).copied().chain([program.len()]);
    begins.iter().copied().zip(ends).collect()
}

fn is_second_slot(program: &[bpf_insn], at: usize) -> bool {
    at > 0 && program[at - 1].code == code::LD_IMM64
}

fn slots(instruction: &bpf_insn) -> usize {
    if instruction.code == code::LD_IMM64 { 2 } else { 1 }
}

fn is_jump(instruction: &bpf_insn) -> bool {
    let class = instruction.code & code::CLASS;
    (class == code::JMP || class == code::JMP32)
        && instruction.code != code::CALL
        && instruction.code != code::EXIT
}

/// Where a jump leads to.
fn target(program: &[bpf_insn], at: usize) -> Option<usize> {
    let instruction = &program[at];
    let distance = match instruction.code {
        code::JUMP_LONG => instruction.imm as isize,
        _ if is_jump(instruction) => isize::from(instruction.off),
        _ => return None,
    };
    Some((at as isize + 1 + distance) as usize)
}

/// Which registers an instruction reads and which it writes. Calls are taken to read all arguments.
fn registers(instruction: &bpf_insn) -> (u16, u16) {
    let (dst, src) = (1 << instruction.dst_reg(), 1 << instruction.src_reg());
    let operand = if instruction.code & code::REGISTER != 0 { src } else { 0 };
    match instruction.code & code::CLASS {
        _ if instruction.code == code::LD_IMM64 => (0, dst),
        code::LD => panic!("legacy packet access"),
        code::LDX => (src, dst),
        code::ST => (dst, 0),
        code::STX if instruction.imm == COMPARE_AND_SWAP && is_atomic(instruction) => {
            (dst | src | R0, 0)
        }
        code::STX => (dst | src, 0),
        code::ALU | code::ALU64 if instruction.code & code::OPERATION == code::MOV => {
            (operand, dst)
        }
        code::ALU | code::ALU64 => (dst | operand, dst),
        _ if instruction.code == code::CALL => (arguments(instruction), R0 | ARGUMENTS),
        _ if instruction.code == code::EXIT => (R0, 0),
        _ if instruction.code == code::JUMP || instruction.code == code::JUMP_LONG => (0, 0),
        _ => (dst | operand, 0),
    }
}

fn is_atomic(instruction: &bpf_insn) -> bool {
    instruction.code & code::CLASS == code::STX && instruction.code & code::MODE == code::ATOMIC
}

/// Which registers a call reads, or more.
fn arguments(call: &bpf_insn) -> u16 {
    let all = [(&FOUR[..], 0b1_1110), (&THREE[..], 0b1110), (&TWO[..], 0b110), (&NONE[..], 0)];
    let few = all.iter().find(|(helpers, _)| helpers.contains(&call.imm));
    if call.src_reg() == 0 { few.map_or(ARGUMENTS, |&(_, registers)| registers) } else { ARGUMENTS }
}

/// Of each instruction: which registers are read later without being written first.
fn live(program: &[bpf_insn]) -> Vec<u16> {
    let mut live = vec![0; program.len() + 1];
    loop {
        let before = live.clone();
        let mut at = program.len();
        while at > 0 {
            at -= 1;
            if is_second_slot(program, at) {
                continue;
            }
            let instruction = &program[at];
            let falls = instruction.code != code::EXIT
                && instruction.code != code::JUMP
                && instruction.code != code::JUMP_LONG;
            let next = if falls { live[at + slots(instruction)] } else { 0 };
            let jumped = target(program, at).map_or(0, |target| live[target]);
            let (reads, writes) = registers(instruction);
            live[at] = reads | ((next | jumped) & !writes);
        }
        if live == before {
            return live;
        }
    }
}

/// Puts a counter into each block: a u64 in the value of the only entry of an array, whose descriptor is
/// `counters`. `functions`: where functions begin. `targets`: where instructions write to.
pub(crate) fn count(
    program: &[bpf_insn],
    functions: &[usize],
    targets: &BTreeMap<usize, Target>,
    counters: i32,
) -> Counted {
    let live = live(program);
    let mut counted =
        Counted { instructions: Vec::new(), blocks: Vec::new(), places: vec![0; program.len()] };
    for (begin, end) in blocks(program, functions) {
        let starts: Vec<usize> = (begin..end).filter(|&at| !is_second_slot(program, at)).collect();
        // The counter stands where most registers are free.
        let place = starts.iter().copied().min_by_key(|&at| (live[at] & WRITABLE).count_ones());
        let mut work = Work::default();
        for at in starts {
            counted.places[at] = counted.instructions.len();
            if place == Some(at) {
                let function = functions.iter().copied().filter(|&begin| begin <= at).max();
                let stack = stack(program, function.unwrap_or(0), functions);
                counted.instructions.extend(add_one(
                    live[at],
                    stack,
                    counters,
                    counted.blocks.len() * 8,
                ));
            }
            counted.instructions.extend(&program[at..at + slots(&program[at])]);
            note(&program[at], targets.get(&at), &mut work);
        }
        counted.blocks.push(work);
    }
    for at in (0..program.len()).filter(|&at| !is_second_slot(program, at)) {
        mend(program, at, &mut counted);
    }
    counted
}

/// The lowest octet of the stack that a function may use, from r10; or a lower one.
fn stack(program: &[bpf_insn], begin: usize, functions: &[usize]) -> i16 {
    let end =
        functions.iter().copied().filter(|&other| other > begin).min().unwrap_or(program.len());
    let places = program[begin..end].iter().filter_map(|instruction| {
        let class = instruction.code & code::CLASS;
        let through =
            if class == code::LDX { instruction.src_reg() } else { instruction.dst_reg() };
        match instruction.code {
            // Addresses of what lies on the stack are sums.
            code::ADD64_IMM => i16::try_from(instruction.imm).ok().filter(|&sum| sum >= -STACK),
            _ if through == FRAME && [code::LDX, code::ST, code::STX].contains(&class) => {
                Some(instruction.off)
            }
            _ => None,
        }
    });
    places.min().unwrap_or(0).min(0) & -8
}

/// Adds 1 to the u64 at `offset` of the counters, by registers that are not `live`, or that are saved below
/// `stack` meanwhile.
fn add_one(live: u16, stack: i16, counters: i32, offset: usize) -> Vec<bpf_insn> {
    let instruction = |code, dst, src, off, imm| {
        let mut made = bpf_insn { code, off, imm, ..bpf_insn::default() };
        made.set_dst_reg(dst);
        made.set_src_reg(src);
        made
    };
    let mut registers: Vec<u8> = (0..FRAME).collect();
    registers.sort_by_key(|register| live & 1 << register != 0);
    let (address, one) = (registers[0], registers[1]);
    let saved: Vec<(u8, i16)> = [address, one]
        .into_iter()
        .filter(|register| live & 1 << register != 0)
        .zip([stack - 8, stack - 16])
        .collect();
    let mut made: Vec<bpf_insn> = saved
        .iter()
        .map(|&(register, place)| instruction(code::STX64, FRAME, register, place, 0))
        .collect();
    made.extend([
        instruction(code::LD_IMM64, address, MAP_VALUE, 0, counters),
        instruction(0, 0, 0, 0, offset as i32),
        instruction(code::MOV64_IMM, one, 0, 0, 1),
        instruction(code::ATOMIC64, address, one, 0, 0),
    ]);
    made.extend(
        saved.iter().map(|&(register, place)| instruction(code::LDX64, register, FRAME, place, 0)),
    );
    made
}

/// Counts an instruction as a part of its block.
fn note(instruction: &bpf_insn, target: Option<&Target>, work: &mut Work) {
    work.instructions += 1;
    if instruction.code == code::CALL && instruction.src_reg() != TO_FUNCTION {
        match instruction.imm {
            LOOKUP if instruction.src_reg() == 0 => work.lookups += 1,
            helper if instruction.src_reg() == 0 && CHANGES.contains(&helper) => work.updates += 1,
            _ => work.helpers += 1,
        }
    }
    if !writes(instruction) {
        return;
    }
    let map = match target {
        Some(Target::Own) => return,
        Some(Target::Map(map)) => map.clone(),
        None => UNKNOWN.to_owned(),
    };
    let sum = work.writes.entry(map).or_default();
    sum.all += 1;
    sum.atomic += u64::from(is_atomic(instruction));
}

/// Whether an instruction writes to memory, other than by the frame pointer.
fn writes(instruction: &bpf_insn) -> bool {
    let class = instruction.code & code::CLASS;
    [code::ST, code::STX].contains(&class) && instruction.dst_reg() != FRAME
}

/// Lets a jump or a call of a function lead to where its target is now.
fn mend(program: &[bpf_insn], at: usize, counted: &mut Counted) {
    let old = &program[at];
    assert!(
        old.code != code::LD_IMM64 || old.src_reg() != FUNCTION,
        "functions as values are not known here"
    );
    let is_call = old.code == code::CALL && old.src_reg() == TO_FUNCTION;
    let to = if is_call {
        Some((at as isize + 1 + old.imm as isize) as usize)
    } else {
        target(program, at)
    };
    let Some(to) = to else { return };
    // A counter may stand in front of the jump.
    let next = counted.places.get(at + 1).copied().unwrap_or(counted.instructions.len());
    let here = next - 1;
    let distance = counted.places[to] as isize - here as isize - 1;
    let new = &mut counted.instructions[here];
    if is_call || old.code == code::JUMP_LONG {
        new.imm = distance as i32;
    } else {
        new.off = i16::try_from(distance).expect("a short jump");
    }
}

// By its path, because the example has this file under another folder.
#[cfg(test)]
#[path = "bytecode/tests.rs"]
mod tests;
