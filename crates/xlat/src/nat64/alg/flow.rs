//! One direction of a connection: its input and its output.
//!
//! Octets are numbered by TCP sequence numbers, of the input as the sender counts and of the output as the receiver
//! does; they wrap around. Between changes both differ by a constant. Each change that is not acknowledged yet is an
//! [`Edit`]; acknowledged ones become part of the constant.
//!
//! ```text
//!  input    ──────────┬─ edit ─┬────────┬─────────────┬ · · · · · · ┬─────────
//!            + shift  │        │        │ dealt with  │    held     │  early
//!  output   ──────────┴─ out ──┴────────┴─────────────┤
//!                                                 taken, made
//! ```

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Unacknowledged changes at most.
const EDITS_MAX: usize = 64;

/// Unacknowledged octets of changes: if there are more, no octets are taken.
const EDIT_OCTETS_MAX: usize = 16 * 1024;

/// Segments out of order that are kept at most.
const EARLY_MAX: usize = 8;

/// Octets of such segments.
const EARLY_OCTETS_MAX: usize = 16 * 1024;

/// A change: octets of the input, and those that replace them.
#[derive(Clone, Debug)]
struct Edit {
    at: u32,
    len: u32,
    out_at: u32,
    out: Box<[u8]>,
}

impl Edit {
    fn end(&self) -> u32 {
        self.at.wrapping_add(self.len)
    }

    fn out_end(&self) -> u32 {
        self.out_at.wrapping_add(self.out.len() as u32)
    }

    /// By how much the output is longer than the input.
    fn growth(&self) -> u32 {
        (self.out.len() as u32).wrapping_sub(self.len)
    }
}

/// Whether `a` lies before `b` (RFC 9293 section 3.4).
pub(super) fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// One direction of a connection.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    /// The number of the first octet.
    pub(super) first: u32,
    taken: u32,
    made: u32,
    /// Output less input, up to the first edit.
    shift: u32,
    edits: VecDeque<Edit>,
    held: Vec<u8>,
    early: Vec<(u32, Box<[u8]>)>,
}

impl Flow {
    /// A flow whose first octet has this number.
    pub(super) fn new(first: u32) -> Flow {
        Flow {
            first,
            taken: first,
            made: first,
            shift: 0,
            edits: VecDeque::new(),
            held: Vec::new(),
            early: Vec::new(),
        }
    }

    /// A flow that an earlier process watched, of which only the shift is known.
    pub(super) fn resumed(shift: u32) -> Flow {
        Flow { made: shift, shift, ..Flow::new(0) }
    }

    /// What is added to the input's numbers when everything is acknowledged.
    pub(super) fn shift(&self) -> u32 {
        self.made.wrapping_sub(self.taken)
    }

    /// The output's number of the next octet that will be made.
    pub(super) fn made(&self) -> u32 {
        self.made
    }

    /// The end of what is known of the input in order.
    pub(super) fn known(&self) -> u32 {
        self.taken.wrapping_add(self.held.len() as u32)
    }

    /// Whether the octet of this number is dealt with.
    pub(super) fn has_taken(&self, at: u32) -> bool {
        before(at, self.taken)
    }

    /// What is held.
    pub(super) fn held(&self) -> &[u8] {
        &self.held
    }

    /// Whether no octet has come.
    pub(super) fn is_new(&self) -> bool {
        self.taken == self.first && self.held.is_empty()
    }

    /// Whether numbers of the output that may be acknowledged differ from those of the input.
    pub(super) fn is_changed(&self) -> bool {
        self.shift != 0 || self.has_edits()
    }

    /// Whether a change is not acknowledged yet.
    pub(super) fn has_edits(&self) -> bool {
        !self.edits.is_empty()
    }

    /// Whether one more change can be remembered.
    pub(super) fn has_room(&self) -> bool {
        let octets: usize = self.edits.iter().map(|edit| edit.out.len()).sum();
        self.edits.len() < EDITS_MAX && octets < EDIT_OCTETS_MAX
    }

    /// Octets of memory that it holds.
    pub(super) fn octets(&self) -> usize {
        let edits: usize = self.edits.iter().map(|edit| edit.out.len()).sum();
        let early: usize = self.early.iter().map(|(_, octets)| octets.len()).sum();
        edits + early + self.held.len()
    }

    /// The output's number for one of the input. Numbers inside a change are that of its beginning, and of what is held
    /// that of the next octet.
    pub(super) fn to_output(&self, at: u32, released: bool) -> u32 {
        if released && self.edits.is_empty() {
            return at.wrapping_add(self.shift);
        }
        if before(self.taken, at) {
            let beyond = at.wrapping_sub(self.known());
            return if before(at, self.known()) {
                self.made
            } else {
                self.made.wrapping_add(beyond)
            };
        }
        let mut shift = self.shift;
        for edit in &self.edits {
            if !before(at, edit.end()) {
                shift = shift.wrapping_add(edit.growth());
            } else if before(edit.at, at) {
                return edit.out_at;
            } else {
                break;
            }
        }
        at.wrapping_add(shift)
    }

    /// The input's number for one of the output: what lies before both is the same. Inside a change, that of its
    /// beginning, or (`up`) of its end.
    pub(super) fn to_input(&self, at: u32, up: bool) -> u32 {
        let mut shift = self.shift;
        for edit in &self.edits {
            if !before(at, edit.out_end()) {
                shift = shift.wrapping_add(edit.growth());
            } else if before(edit.out_at, at) {
                return if up { edit.end() } else { edit.at };
            } else {
                break;
            }
        }
        at.wrapping_sub(shift)
    }

    /// The receiver has everything before this number of the output.
    pub(super) fn acknowledge(&mut self, at: u32) {
        // What was never made can't be acknowledged; 1 for the FIN.
        if before(self.made.wrapping_add(1), at) {
            return;
        }
        while let Some(edit) = self.edits.front()
            && !before(at, edit.out_end())
        {
            self.shift = self.shift.wrapping_add(edit.growth());
            self.edits.pop_front();
        }
    }

    /// Writes again what was made of the octets from `seq` up to `end`, which are in `payload`, as far as they are
    /// dealt with. Gives the output's number of the first octet written.
    pub(super) fn again(&self, seq: u32, end: u32, payload: &[u8], out: &mut Vec<u8>) -> u32 {
        let to = if before(self.taken, end) { self.taken } else { end };
        let piece = |from: u32, to: u32| {
            let at = |number: u32| number.wrapping_sub(seq) as usize;
            payload.get(at(from)..at(to)).unwrap_or_default()
        };
        let (mut at, mut shift, mut start) = (seq, self.shift, None);
        for edit in &self.edits {
            if !before(at, edit.end()) {
                shift = shift.wrapping_add(edit.growth());
                continue;
            }
            if !before(edit.at, to) {
                break;
            }
            if before(at, edit.at) {
                start = start.or(Some(at.wrapping_add(shift)));
                out.extend_from_slice(piece(at, edit.at));
            }
            start = start.or(Some(edit.out_at));
            out.extend_from_slice(&edit.out);
            at = edit.end();
            shift = shift.wrapping_add(edit.growth());
        }
        if before(at, to) {
            start = start.or(Some(at.wrapping_add(shift)));
            out.extend_from_slice(piece(at, to));
        }
        start.unwrap_or_else(|| to.wrapping_add(shift))
    }

    /// Takes in what a segment brings that is new. `false`: something is missing before it. `may_wait`: there is memory
    /// to keep it until then.
    pub(super) fn hold(&mut self, seq: u32, payload: &[u8], may_wait: bool) -> bool {
        let known = self.known();
        if before(known, seq) {
            if may_wait {
                self.keep(seq, payload);
            }
            return false;
        }
        let new = payload.get(known.wrapping_sub(seq) as usize..).unwrap_or_default();
        self.held.extend_from_slice(new);
        while let Some(place) = self.early.iter().position(|(at, _)| !before(self.known(), *at)) {
            let (at, octets) = self.early.swap_remove(place);
            let new = octets.get(self.known().wrapping_sub(at) as usize..).unwrap_or_default();
            self.held.extend_from_slice(new);
        }
        true
    }

    fn keep(&mut self, seq: u32, payload: &[u8]) {
        let octets: usize = self.early.iter().map(|(_, octets)| octets.len()).sum();
        let known =
            self.early.iter().any(|(at, octets)| *at == seq && octets.len() >= payload.len());
        let fits = self.early.len() < EARLY_MAX && octets + payload.len() <= EARLY_OCTETS_MAX;
        if fits && !known {
            self.early.push((seq, payload.into()));
        }
    }

    /// Passes the first held octets unchanged.
    pub(super) fn pass(&mut self, number: usize, out: &mut Vec<u8>) {
        let number = number.min(self.held.len());
        out.extend(self.held.drain(..number));
        self.taken = self.taken.wrapping_add(number as u32);
        self.made = self.made.wrapping_add(number as u32);
    }

    /// Replaces the first held octets.
    pub(super) fn replace(&mut self, number: usize, by: &[u8], out: &mut Vec<u8>) {
        let number = number.min(self.held.len());
        self.held.drain(..number);
        let (len, out_len) = (number as u32, by.len() as u32);
        self.edits.push_back(Edit { at: self.taken, len, out_at: self.made, out: by.into() });
        self.taken = self.taken.wrapping_add(len);
        self.made = self.made.wrapping_add(out_len);
        out.extend_from_slice(by);
    }

    /// The ALG reads no more: segments that came too early are dropped, and their sender retransmits them.
    pub(super) fn release(&mut self) {
        self.early = Vec::new();
    }
}
