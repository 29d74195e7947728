//! What the verifier says of a program's writes to memory.

use std::collections::BTreeMap;

/// Where an instruction writes to, other than by the frame pointer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// The value of a map; the kernel shortens names to 15 octets.
    Map(String),
    /// The packet, the context, the stack, or what a function was given by its caller.
    Own,
}

/// The targets of instructions, by the verifier's log of each instruction, which says what the registers that it uses
/// hold: `12: (7b) *(u64 *)(r1 +8) = r2 ; R1=map_value(map=NAME,...)`. Reads are among them. Of an instruction
/// whose line says nothing, lines before it have said what its registers hold.
pub(crate) fn targets(log: &str) -> BTreeMap<usize, Target> {
    let mut held: [Option<Target>; 11] = Default::default();
    let mut targets = BTreeMap::new();
    for line in log.lines() {
        let (instruction, state) = line.split_once("; ").unwrap_or((line, line));
        for said in state.split(" R").skip(1).chain(state.strip_prefix('R')) {
            let Some((register, value)) = said.split_once('=') else { continue };
            let register = register.strip_suffix("_w").unwrap_or(register);
            if let Some(place) =
                register.parse().ok().and_then(|number: usize| held.get_mut(number))
            {
                *place = target(value);
            }
        }
        let base = place(instruction).and_then(|(at, base)| Some((at, held.get(base)?.clone()?)));
        targets.extend(base);
    }
    targets
}

/// The number of an instruction that uses memory, and the register with the address.
fn place(line: &str) -> Option<(usize, usize)> {
    let (at, instruction) = line.split_once(": (")?;
    let (_, memory) = instruction.split_once(" *)(r")?;
    Some((at.parse().ok()?, memory.split(' ').next()?.parse().ok()?))
}

/// What a register points to, by what the verifier says it holds.
fn target(value: &str) -> Option<Target> {
    if let Some(value) = value.strip_prefix("map_value(") {
        let (_, name) = value.split_once("map=")?;
        return Some(Target::Map(name.split([',', ')']).next()?.to_owned()));
    }
    ["fp", "pkt", "ctx", "mem"].iter().any(|own| value.starts_with(own)).then_some(Target::Own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_maps_and_what_is_the_programs_own() {
        let log = "\
            Live regs before insn:\n\
            \x20     0: .1........ (7b) *(u64 *)(r1 +8) = r2\n\
            7: (7b) *(u64 *)(r1 +8) = r2          ; R1=map_value(map=nat64_sessions,ks=4,vs=64) R2=1\n\
            8: (db) lock *(u64 *)(r10_no +8) += r2\n\
            9: (c3) r3 = atomic_fetch_add((u32 *)(r6 +60), r3) ; R3=scalar() R6_w=map_value(off=8,map=nat64_meta)\n\
            10: (63) *(u32 *)(r2 +144) = r9      ; R2=mem(off=336,sz=392) R9=0\n\
            11: (63) *(u32 *)(r2 +144) = r9      ; R2=scalar() R9=0\n\
            from 11 to 12: R1=map_value(map=other) R10=fp0\n\
            12: (7a) *(u64 *)(r1 +8) = 0\n";
        let map = |name: &str| Target::Map(name.to_owned());
        let found: Vec<(usize, Target)> = targets(log).into_iter().collect();
        assert_eq!(
            found,
            [
                (7, map("nat64_sessions")),
                (9, map("nat64_meta")),
                (10, Target::Own),
                (12, map("other"))
            ]
        );
    }
}
