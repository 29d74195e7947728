//! What the programs and the tester share: counters of one phase, and what is known of each flow.

use std::io::Result;
use std::sync::atomic::Ordering::Relaxed;

use crate::assembler::{Assembler, MONOTONIC, Register, Width};
use crate::bpf::Table;

/// A 64-bit number that the programs read or count up; the value is its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// The flow whose turn it is.
    Next,
    /// The flow at which the phase ends.
    Until,
    /// From one flow to the next.
    Step,
    /// Flows that may be under way at once.
    Window,
    /// The number of the phase, from 1.
    Phase,
    /// Packets sent.
    Sent,
    /// Flows that got to their end in this phase, each once.
    Done,
    /// Flows that were under way for too long and are no longer waited for.
    Forgiven,
    /// When the last flow got to its end, ns of CLOCK_MONOTONIC.
    Last,
    /// Packets of flows that had got to their end in this phase already.
    Again,
    /// Packets with a wrong checksum.
    Wrong,
    /// Packets of no flow of this tester, or of an unexpected length.
    Stray,
    /// Packets that came from another outer transport address than those of their flow before.
    Moved,
    /// Resets that the client got.
    Reset,
    /// Answers that the client got.
    Answers,
    /// Packets that reached the server.
    Reached,
    /// Runs of the sender's program that found its window full.
    Waited,
}

/// How many there are.
const WORDS: u32 = Word::Waited as u32 + 1;

impl Word {
    /// Where it lies, in octets.
    pub(super) fn at(self) -> i16 {
        8 * self as i16
    }
}

/// Words of a flow: the phase in which it last got to its end (32 bits), and its source as the server
/// sees it: 32 bits of the address, port, target port; 0 before it was seen.
const FLOW_WORDS: u32 = 2;
/// Where the phase of a flow is.
pub(super) const PHASE_AT: i16 = 0;
/// Where its source, as the server sees it, is.
pub(super) const SEEN_AT: i16 = 8;

/// Counters and flows.
#[derive(Debug)]
pub(super) struct Tables {
    /// The counters: one value.
    pub(super) counters: Table,
    /// One value per flow.
    pub(super) flows: Table,
}

impl Tables {
    /// For so many flows.
    pub(super) fn new(flows: u32) -> Result<Self> {
        Ok(Self { counters: Table::new(WORDS, 1)?, flows: Table::new(FLOW_WORDS, flows)? })
    }

    /// Reads a counter.
    pub(super) fn get(&self, word: Word) -> u64 {
        self.counters.words()[word as usize].load(Relaxed)
    }

    /// Sets a counter.
    pub(super) fn set(&self, word: Word, value: u64) {
        self.counters.words()[word as usize].store(value, Relaxed);
    }

    /// Adds to a counter.
    pub(super) fn add(&self, word: Word, value: u64) {
        self.counters.words()[word as usize].fetch_add(value, Relaxed);
    }

    /// Begins a phase: all counters at zero, but the number of the phase.
    pub(super) fn begin(&self, first: u32, until: u32, step: u32, window: u32) {
        let phase = self.get(Word::Phase) + 1;
        for word in self.counters.words() {
            word.store(0, Relaxed);
        }
        self.set(Word::Phase, phase);
        self.set(Word::Next, first.into());
        self.set(Word::Until, until.into());
        self.set(Word::Step, step.into());
        self.set(Word::Window, window.into());
    }

    /// The sources of all flows that the server has seen: address, port and target port in one number.
    pub(super) fn seen(&self) -> Vec<u64> {
        let words = self.flows.words().chunks_exact(FLOW_WORDS as usize);
        words.map(|flow| flow[1].load(Relaxed)).filter(|seen| *seen != 0).collect()
    }
}

/// Counts one more; `counters` holds the address of the counters, `scratch` is lost.
pub(super) fn count(a: &mut Assembler, counters: Register, word: Word, scratch: Register) {
    a.set(scratch, 1);
    a.atomic_add(counters, word.at(), scratch);
}

/// Notes that the flow at register 9 got to its end, once per phase; registers 0 to 5 are lost.
pub(super) fn done(a: &mut Assembler, counters: Register) {
    let (again, end) = (a.label(), a.label());
    a.load(Width::Long, 1, counters, Word::Phase.at());
    a.copy(2, 1);
    a.atomic_exchange(9, PHASE_AT, 1);
    a.jump_if_register(1, crate::assembler::If::Equal, 2, again);
    count(a, counters, Word::Done, 1);
    a.call(MONOTONIC);
    a.store(Width::Long, counters, Word::Last.at(), 0);
    a.jump(end);
    a.place(again);
    count(a, counters, Word::Again, 1);
    a.place(end);
}
