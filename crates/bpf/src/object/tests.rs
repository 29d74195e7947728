//! What the kernel asks of the programs, of the oldest kernel too.

use std::cmp::max;
use std::collections::BTreeMap;

use libbpf_rs::libbpf_sys::bpf_insn;

use super::*;
use crate::abi::Abi;

/// Octets of stack that a program and the functions it calls may use together.
const STACK: usize = 512;

/// Kernels before 6.8 round each function's share up to this.
const ROUNDED_TO: usize = 32;

const FRAME_POINTER: u8 = 10;
const MOVE: u8 = 0xbf;
const ADD: u8 = 0x07;
const CALL: u8 = 0x85;
/// In a call's source register: to a function of the program.
const OWN: u8 = 1;

/// A function: octets of its frame, and where those begin that it calls.
#[derive(Debug, Default)]
struct Function {
    frame: usize,
    calls: Vec<usize>,
}

/// The functions of a program by their first instruction.
fn functions(instructions: &[bpf_insn]) -> BTreeMap<usize, Function> {
    let callee = |at: usize, call: &bpf_insn| {
        let own = call.code == CALL && call.src_reg() == OWN;
        own.then(|| (at as i64 + 1 + i64::from(call.imm)) as usize)
    };
    let calls = instructions.iter().enumerate().filter_map(|(at, it)| callee(at, it));
    let mut functions: BTreeMap<usize, Function> =
        calls.chain([0]).map(|begin| (begin, Function::default())).collect();
    // The register that a moment ago became the frame pointer.
    let mut copied = None;
    for (at, instruction) in instructions.iter().enumerate() {
        let (_, function) = functions.range_mut(..=at).next_back().expect("the program itself");
        function.calls.extend(callee(at, instruction));
        let (to, from) = (instruction.dst_reg(), instruction.src_reg());
        let lowest = match instruction.code & 7 {
            // Loads, and stores by value and from registers.
            1 if from == FRAME_POINTER => i32::from(instruction.off),
            2 | 3 if to == FRAME_POINTER => i32::from(instruction.off),
            _ if instruction.code == ADD && copied == Some(to) => instruction.imm,
            _ => 0,
        };
        function.frame = max(function.frame, usize::try_from(-lowest).unwrap_or(0));
        copied = (instruction.code == MOVE && from == FRAME_POINTER).then_some(to);
    }
    functions
}

/// Octets that the function at `begin` uses with those it calls.
fn depth(functions: &BTreeMap<usize, Function>, begin: usize) -> usize {
    let function = &functions[&begin];
    let deepest = function.calls.iter().map(|&callee| depth(functions, callee)).max();
    max(function.frame, 1).next_multiple_of(ROUNDED_TO) + deepest.unwrap_or(0)
}

#[test]
fn the_stack_suffices() {
    if !fordway_testhost::is_root() {
        return;
    }
    let mut depths = BTreeMap::new();
    for program in Program::ALL {
        let request = Request {
            file: program.file(),
            programs: &[program],
            config: &FwConfig::zeroed(),
            eam: None,
            state: None,
            tunnels: None,
            gates: None,
            routing: None,
            pods: None,
            counters: None,
            trace: None,
        };
        let loaded = Programs::load(request).expect("a program");
        let found = loaded.object.progs().find(|found| found.name() == program.name());
        let functions = functions(found.expect("it is in its object").insns());
        let has_frame = functions.values().any(|function| function.frame > 0);
        assert!(has_frame, "no frame was found: {functions:?}");
        depths.insert(program.name(), depth(&functions, 0));
    }
    assert!(depths.values().all(|depth| *depth <= STACK), "{depths:?}");
    println!("{depths:?}");
}

#[test]
fn memory_that_is_short_for_a_moment_is_waited_for() {
    let mut left = 3;
    let fails_at_first = || {
        left -= 1;
        if left > 0 { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(()) }
    };
    patiently(fails_at_first).unwrap();
    assert_eq!(left, 0);
    let mut tried = 0;
    let refused = patiently(|| {
        tried += 1;
        Err(io::ErrorKind::PermissionDenied.into())
    });
    assert_eq!((tried, refused.unwrap_err().kind()), (1, io::ErrorKind::PermissionDenied));
}
