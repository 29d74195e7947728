//! The two programs of the frame tester.

use crate::assembler::{
    ABORTED, Assembler, DATA, DATA_END, DROP, Do, If, Label, PASS, REDIRECT, Width,
};
use crate::bpf::Instruction;

/// Loads begin and end of the frame into registers 2 and 3, and jumps when it is shorter than `length`.
fn begin(a: &mut Assembler, length: usize, short: Label) {
    a.load(Width::Word, 2, 1, DATA);
    a.load(Width::Word, 3, 1, DATA_END);
    a.copy(4, 2);
    a.alu(Do::Add, 4, length as i32);
    a.jump_if_register(4, If::Above, 3, short);
}

/// Writes the whole frame anew, as a frame comes back changed when its memory is used again, and
/// redirects it to a device.
pub(super) fn sender(frame: &[u8], device: u32) -> Vec<Instruction> {
    let mut a = Assembler::new();
    let short = a.label();
    begin(&mut a, frame.len(), short);
    a.write(2, 0, frame);
    a.set(1, device as i32);
    a.set(2, 0);
    a.call(REDIRECT);
    a.end();
    a.place(short);
    a.verdict(ABORTED);
    a.finish()
}

/// Counts and drops UDP of one family to one port, and passes everything else.
pub(super) fn receiver(v4: bool, port: u16, counter: i32) -> Vec<Instruction> {
    let (ethertype, protocol_at, port_at) =
        if v4 { (0x0800u16, 14 + 9, 14 + 20 + 2) } else { (0x86dd, 14 + 6, 14 + 40 + 2) };
    let mut a = Assembler::new();
    let other = a.label();
    begin(&mut a, port_at as usize + 2, other);
    a.load(Width::Half, 5, 2, 12);
    a.jump_if(5, If::NotEqual, i32::from(ethertype.to_be()), other);
    a.load(Width::Octet, 5, 2, protocol_at);
    a.jump_if(5, If::NotEqual, 17, other);
    a.load(Width::Half, 5, 2, port_at);
    a.jump_if(5, If::NotEqual, i32::from(port.to_be()), other);
    a.map_value(1, counter);
    a.set(2, 1);
    a.atomic_add(1, 0, 2);
    a.verdict(DROP);
    a.place(other);
    a.verdict(PASS);
    a.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_ends_with_a_redirection_and_short_frames_with_none() {
        let program = sender(&[7; 63], 9);
        let last = &program[program.len() - 2..];
        assert_eq!((last[0].value, last[1].code), (ABORTED, 0x95));
        let calls = program.iter().filter(|i| i.code == 0x85);
        assert_eq!(calls.map(|i| i.value).collect::<Vec<i32>>(), [REDIRECT]);
    }

    #[test]
    fn what_is_not_counted_is_passed_on() {
        for program in [receiver(true, 9, 3), receiver(false, 9, 3)] {
            let verdicts: Vec<i32> =
                program.windows(2).filter(|w| w[1].code == 0x95).map(|w| w[0].value).collect();
            assert_eq!(verdicts, [DROP, PASS]);
        }
    }
}
