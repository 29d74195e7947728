use super::*;

const R1: u8 = 1;
const ADD64: u8 = 0x0f;
const MOV64: u8 = 0xbf;
const JUMP_IF_LESS: u8 = 0xa5;

fn instruction(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> bpf_insn {
    let mut made = bpf_insn { code, off, imm, ..bpf_insn::default() };
    made.set_dst_reg(dst);
    made.set_src_reg(src);
    made
}

/// Runs a program as a processor would; gives r0, how many instructions it ran, and the counters.
fn run(program: &[bpf_insn]) -> (u64, u64, Vec<u64>) {
    let (mut registers, mut stack) = ([0_u64; 11], BTreeMap::new());
    let mut counters = vec![0; program.len()];
    let (mut at, mut ran, mut callers) = (0, 0, Vec::new());
    loop {
        let it = &program[at];
        let (dst, src) = (usize::from(it.dst_reg()), usize::from(it.src_reg()));
        ran += 1;
        match it.code {
            code::MOV64_IMM => registers[dst] = it.imm as u64,
            code::ADD64_IMM => registers[dst] += it.imm as u64,
            ADD64 => registers[dst] += registers[src],
            MOV64 => registers[dst] = registers[src],
            code::LD_IMM64 => registers[dst] = program[at + 1].imm as u64,
            code::STX64 => drop(stack.insert(it.off, registers[src])),
            code::LDX64 => registers[dst] = stack[&it.off],
            code::ATOMIC64 => counters[registers[dst] as usize / 8] += registers[src],
            // A function has r6 to r9 for itself.
            code::CALL => callers.push((at + 1, registers)),
            code::EXIT if callers.is_empty() => return (registers[0], ran, counters),
            _ => {}
        }
        at = match it.code {
            code::EXIT => {
                let (next, caller) = callers.pop().expect("a caller");
                registers[6..].copy_from_slice(&caller[6..]);
                next
            }
            code::CALL => (at as isize + 1 + it.imm as isize) as usize,
            JUMP_IF_LESS if registers[dst] >= it.imm as u64 => at + 1,
            _ => target(program, at).unwrap_or(at + slots(it)),
        };
    }
}

/// A loop that calls a function, and a block in which all registers are in use.
fn program() -> Vec<bpf_insn> {
    let set = |register| instruction(code::MOV64_IMM, register, 0, 0, 1);
    let on = instruction(code::JUMP, 0, 0, 0, 0);
    let mut program: Vec<bpf_insn> = (6..10).map(set).collect();
    program.extend([
        // 4: r6 is what the function at 27 makes of it, as long as r6 < 8
        instruction(MOV64, R1, 6, 0, 0),
        instruction(code::CALL, 0, TO_FUNCTION, 0, 21),
        instruction(MOV64, 6, 0, 0, 0),
        instruction(JUMP_IF_LESS, 6, 0, -4, 8),
        on,
    ]);
    program.extend((1..6).map(set));
    program.extend([on, on]);
    program.extend((1..10).map(|register| instruction(ADD64, 0, register, 0, 0)));
    program.extend([
        instruction(code::STX64, FRAME, 0, -16, 0),
        instruction(code::EXIT, 0, 0, 0, 0),
        instruction(MOV64, 0, R1, 0, 0),
        instruction(code::ADD64_IMM, 0, 0, 0, 1),
        instruction(code::EXIT, 0, 0, 0, 0),
    ]);
    program
}

#[test]
fn every_instruction_that_runs_is_counted_and_nothing_else_changes() {
    let old = program();
    let (result, ran, _) = run(&old);
    let counted = count(&old, &[0, 27], &BTreeMap::new(), 3);
    assert!(counted.instructions.iter().any(|it| it.code == code::LDX64), "registers are saved");
    let (same, _, counters) = run(&counted.instructions);
    assert_eq!(same, result);
    let sums = counted.blocks.iter().zip(&counters).map(|(work, count)| work.instructions * count);
    assert_eq!(sums.sum::<u64>(), ran);
    assert_eq!(ran, 4 + 7 * (4 + 3) + 1 + 5 + 2 + 9 + 2);
    assert_eq!(counted.instructions[counted.place(27)].code, code::LD_IMM64, "a counter in front");
}

/// A counter takes registers that nothing reads later; else it saves what they hold below the function's own stack.
#[test]
fn registers_in_use_are_saved() {
    let used = add_one(WRITABLE, -32, 3, 8);
    let places: Vec<i16> =
        used.iter().filter(|it| it.dst_reg() == FRAME).map(|it| it.off).collect();
    assert_eq!((used.len(), places), (8, vec![-40, -48]));
    assert_eq!(add_one(WRITABLE & !0b110, -32, 3, 8).len(), 4);
    let mut program = program();
    assert_eq!(stack(&program, 0, &[0, 27]), -16);
    program[3] = instruction(code::ADD64_IMM, R1, 0, 0, -100);
    assert_eq!(stack(&program, 0, &[0, 27]), -104, "an address on the stack");
    assert_eq!(stack(&program, 27, &[0, 27]), 0);
}
