//! The two programs, as instructions (RFC 9669).

use super::bpf::Instruction;

/// `bpf_redirect(ifindex, flags)`.
const REDIRECT: i32 = 23;
/// The verdicts of an XDP program.
const ABORTED: i32 = 0;
const DROP: i32 = 1;
const PASS: i32 = 2;

/// Instruction codes in the words of RFC 9669 section 4 and 5.
const LOAD_WORD: u8 = 0x61;
const LOAD_HALF: u8 = 0x69;
const LOAD_OCTET: u8 = 0x71;
const STORE_WORD: u8 = 0x62;
const STORE_OCTET: u8 = 0x72;
const LOAD_64: u8 = 0x18;
const ATOMIC_64: u8 = 0xdb;
const MOVE: u8 = 0xb7;
const MOVE_REGISTER: u8 = 0xbf;
const ADD: u8 = 0x07;
const IF_NOT_EQUAL: u8 = 0x55;
const IF_GREATER: u8 = 0x2d;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Source "register" of a 64-bit load that means: the address of a map's value.
const MAP_VALUE: u8 = 2;

/// `struct xdp_md`: where the frame begins and ends.
const DATA: i16 = 0;
const DATA_END: i16 = 4;

fn op(code: u8, to: u8, from: u8, offset: i16, value: i32) -> Instruction {
    Instruction { code, registers: from << 4 | to, offset, value }
}

/// Loads begin and end of the frame into registers 2 and 3, and jumps to the end of the program when
/// it is shorter than `length`. The caller puts the verdict for that there.
fn begin(length: usize) -> Vec<Instruction> {
    vec![
        op(LOAD_WORD, 2, 1, DATA, 0),
        op(LOAD_WORD, 3, 1, DATA_END, 0),
        op(MOVE_REGISTER, 4, 2, 0, 0),
        op(ADD, 4, 0, 0, length as i32),
        op(IF_GREATER, 4, 3, 0, 0),
    ]
}

/// Ends a program: every jump without an aim gets the last verdict.
fn finish(mut program: Vec<Instruction>, otherwise: i32) -> Vec<Instruction> {
    let end = program.len();
    for (at, instruction) in program.iter_mut().enumerate() {
        if [IF_GREATER, IF_NOT_EQUAL].contains(&instruction.code) {
            instruction.offset = (end - at - 1) as i16;
        }
    }
    program.extend([op(MOVE, 0, 0, 0, otherwise), op(EXIT, 0, 0, 0, 0)]);
    program
}

/// Writes the whole frame anew, as a frame comes back changed when its memory is used again, and
/// redirects it to a device.
pub(super) fn sender(frame: &[u8], device: u32) -> Vec<Instruction> {
    let mut program = begin(frame.len());
    let mut words = frame.chunks_exact(4);
    let mut at = 0;
    for word in words.by_ref() {
        let value = i32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        program.push(op(STORE_WORD, 2, 0, at, value));
        at += 4;
    }
    for octet in words.remainder() {
        program.push(op(STORE_OCTET, 2, 0, at, i32::from(*octet)));
        at += 1;
    }
    program.extend([
        op(MOVE, 1, 0, 0, device as i32),
        op(MOVE, 2, 0, 0, 0),
        op(CALL, 0, 0, 0, REDIRECT),
        op(EXIT, 0, 0, 0, 0),
    ]);
    finish(program, ABORTED)
}

/// Counts and drops UDP of one family to one port, and passes everything else.
pub(super) fn receiver(v4: bool, port: u16, counter: i32) -> Vec<Instruction> {
    let (ethertype, protocol_at, port_at) =
        if v4 { (0x0800u16, 14 + 9, 14 + 20 + 2) } else { (0x86dd, 14 + 6, 14 + 40 + 2) };
    let mut program = begin(port_at as usize + 2);
    program.extend([
        op(LOAD_HALF, 5, 2, 12, 0),
        op(IF_NOT_EQUAL, 5, 0, 0, i32::from(ethertype.to_be())),
        op(LOAD_OCTET, 5, 2, protocol_at, 0),
        op(IF_NOT_EQUAL, 5, 0, 0, 17),
        op(LOAD_HALF, 5, 2, port_at, 0),
        op(IF_NOT_EQUAL, 5, 0, 0, i32::from(port.to_be())),
        op(LOAD_64, 1, MAP_VALUE, 0, counter),
        op(0, 0, 0, 0, 0),
        op(MOVE, 2, 0, 0, 1),
        op(ATOMIC_64, 1, 2, 0, 0),
        op(MOVE, 0, 0, 0, DROP),
        op(EXIT, 0, 0, 0, 0),
    ]);
    finish(program, PASS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_writes_every_octet_of_its_frame() {
        let frame: Vec<u8> = (1..=63).collect();
        let mut written = vec![0; frame.len()];
        for instruction in sender(&frame, 7) {
            let at = instruction.offset as usize;
            match instruction.code {
                STORE_WORD => {
                    written[at..at + 4].copy_from_slice(&instruction.value.to_ne_bytes());
                }
                STORE_OCTET => written[at] = instruction.value as u8,
                _ => {}
            }
        }
        assert_eq!(written, frame);
    }

    #[test]
    fn jumps_lead_to_the_last_verdict() {
        for program in [sender(&[0; 62], 1), receiver(true, 9, 3), receiver(false, 9, 3)] {
            let jumps = |i: &Instruction| [IF_GREATER, IF_NOT_EQUAL].contains(&i.code);
            for (at, jump) in program.iter().enumerate().filter(|(_, i)| jumps(i)) {
                assert_eq!(at + 1 + jump.offset as usize, program.len() - 2);
            }
        }
    }
}
