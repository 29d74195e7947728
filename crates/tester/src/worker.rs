//! The loop of one thread: sends what is due, takes what has arrived.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram as Recorder;

use crate::frame::{self, Tuple};
use crate::plan::Plan;
use crate::sys::Socket;
use crate::tally::Tally;
use crate::{Class, Direction, Wrong};
use crate::{now, processor_time};

/// Frames taken from a socket before the loop looks at its clock again.
const TAKEN: u32 = 256;
/// Longest sleep of a thread that has nothing to do, ns: far less than a socket's ring takes to fill. Frames get their time
/// of arrival from the program, so that a sleep changes no delay.
const NAP: u64 = 200_000;
/// A thread does not sleep in the last part of the time before its next frame, ns: so late may it wake.
const AWAKE: u64 = 100_000;

/// What all threads of a trial share.
#[derive(Debug)]
pub(crate) struct Shared<'a> {
    /// When the trial starts, CLOCK_MONOTONIC, ns.
    pub(crate) start: u64,
    /// When it ends at the latest.
    pub(crate) deadline: u64,
    /// Time for frames to arrive after the last one was sent, ns.
    pub(crate) residual: u64,
    /// Ends it early, from outside.
    pub(crate) stop: &'a AtomicBool,
    /// Ends it early, because a thread failed.
    pub(crate) failed: AtomicBool,
    /// Threads that still send.
    pub(crate) senders: AtomicU64,
    /// Frames sent by those that have ended.
    pub(crate) sent: AtomicU64,
    /// When the last of them ended.
    pub(crate) ended: AtomicU64,
    /// Frames that arrived, each once.
    pub(crate) arrived: AtomicU64,
}

impl Shared<'_> {
    /// Whether nothing more is to be sent at a time.
    pub(crate) fn is_ended(&self, now: u64) -> bool {
        self.stop.load(Relaxed) || self.failed.load(Relaxed) || now >= self.deadline
    }

    /// A sender has sent so many frames, and sends no more.
    pub(crate) fn end_sender(&self, sent: u64) {
        self.sent.fetch_add(sent, Relaxed);
        self.ended.fetch_max(now(), Relaxed);
        self.senders.fetch_sub(1, Relaxed);
    }

    /// Whether the trial is over at a time.
    fn is_over(&self, now: u64) -> bool {
        if self.is_ended(now) {
            return true;
        }
        self.senders.load(Relaxed) == 0
            && (self.arrived.load(Relaxed) >= self.sent.load(Relaxed)
                || now > self.ended.load(Relaxed).max(self.start) + self.residual)
    }
}

/// What a thread sends through one socket: every `step`th frame of a plan.
#[derive(Debug)]
pub(crate) struct Outbound<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) next: u64,
    pub(crate) step: u64,
    pub(crate) batch: u32,
    /// Frames sent, by class.
    pub(crate) sent: [u64; 2],
    /// When the last one was.
    pub(crate) last: u64,
    pub(crate) lateness: Recorder<u64>,
    pub(crate) ended: bool,
}

impl Outbound<'_> {
    /// Sends at most a batch of what is due. Returns whether there was something, and when the next is due.
    fn send(&mut self, socket: &mut Socket, start: u64) -> std::io::Result<(bool, u64)> {
        let (first, begun) = (self.next, now());
        let mut room = socket.room().min(self.batch as usize);
        let mut due = start;
        while self.next < self.plan.total() {
            due = if self.plan.is_burst() {
                begun.max(start)
            } else {
                start + self.plan.due(self.next)
            };
            if room == 0 || due > begun {
                break;
            }
            let frame = self.plan.frame(self.next, due);
            if !socket.stage(frame.length(), |octets| frame.write(octets)) {
                break;
            }
            self.sent[frame.class() as usize] += 1;
            self.next += self.step;
            room -= 1;
        }
        if self.next == first {
            return Ok((false, due));
        }
        let given = now();
        socket.flush()?;
        self.last = given;
        if !self.plan.is_burst() {
            let mut number = first;
            while number < self.next {
                self.lateness
                    .saturating_record(given.saturating_sub(start + self.plan.due(number)));
                number += self.step;
            }
        }
        Ok((true, due))
    }
}

/// What a thread takes from one socket.
#[derive(Debug)]
pub(crate) struct Inbound<'a> {
    /// Where the frames come from.
    pub(crate) direction: Direction,
    pub(crate) trial: u16,
    pub(crate) payload: u16,
    /// By class; none where nothing is sent.
    pub(crate) tallies: Option<[Tally; 2]>,
    pub(crate) wrong: Wrong,
    pub(crate) unstamped: u64,
    /// Where the tuples of translated frames are noted, by flow.
    pub(crate) notes: Option<&'a Mutex<Vec<Option<Tuple>>>>,
}

impl Inbound<'_> {
    /// Takes what has arrived; how many frames, and how many of them were the first of their number.
    fn receive(&mut self, socket: &mut Socket) -> (usize, u64) {
        let (mut new, mut read) = (0, None);
        let notes = self.notes;
        let mut notes = notes.map(|notes| notes.lock().unwrap_or_else(PoisonError::into_inner));
        let count = socket.receive(TAKEN, |octets, stamp| {
            if stamp.is_none() {
                self.unstamped += 1;
            }
            let arrival = stamp.unwrap_or_else(|| *read.get_or_insert_with(now));
            let notes = notes.as_deref_mut().map(Vec::as_mut_slice);
            new += u64::from(self.take(octets, arrival, notes));
        });
        (count, new)
    }

    /// Takes a frame; whether it is the first of its number.
    pub(crate) fn take(
        &mut self,
        octets: &[u8],
        arrival: u64,
        notes: Option<&mut [Option<Tuple>]>,
    ) -> bool {
        let Some(frame) = frame::parse(octets) else {
            self.wrong.tag += 1;
            return false;
        };
        let tag = frame.tag;
        if tag.trial != self.trial {
            // Learning frames have number 0 and are nobody's.
            self.wrong.foreign += u64::from(tag.trial != 0);
            return false;
        }
        if frame.payload != self.payload {
            self.wrong.length += 1;
            return false;
        }
        if !frame.intact {
            self.wrong.checksum += 1;
            return false;
        }
        let expected = tag.stream.direction == self.direction;
        let tallies = self.tallies.as_mut().filter(|_| expected);
        let noted = tallies.and_then(|it| it[tag.stream.class as usize].note(tag, arrival));
        let Some(new) = noted else {
            self.wrong.tag += 1;
            return false;
        };
        if tag.stream.class == Class::Translated
            && let Some(notes) = notes
            && let Some(place) =
                notes.len().checked_sub(1).map(|last| tag.sequence as usize % (last + 1))
        {
            notes[place] = Some(frame.tuple);
        }
        new
    }
}

/// One socket and what passes through it.
#[derive(Debug)]
pub(crate) struct Lane<'a> {
    pub(crate) socket: &'a mut Socket,
    pub(crate) outbound: Option<Outbound<'a>>,
    pub(crate) inbound: Inbound<'a>,
}

/// Runs lanes until the trial is over. Returns the processor time that it took, s: that of the kernel's work for its frames
/// included, as far as the kernel does it in place.
pub(crate) fn run(lanes: &mut [Lane<'_>], shared: &Shared<'_>) -> std::io::Result<f64> {
    let before = processor_time();
    let outcome = serve(lanes, shared).map(|()| processor_time() - before);
    if outcome.is_err() {
        shared.failed.store(true, Relaxed);
    }
    outcome
}

fn serve(lanes: &mut [Lane<'_>], shared: &Shared<'_>) -> std::io::Result<()> {
    loop {
        let (mut busy, mut next) = (false, u64::MAX);
        for lane in &mut *lanes {
            if let Some(outbound) = lane.outbound.as_mut().filter(|it| !it.ended) {
                let (sent, due) = outbound.send(lane.socket, shared.start)?;
                busy |= sent;
                next = next.min(due);
                if outbound.next >= outbound.plan.total() {
                    outbound.ended = true;
                    shared.end_sender(outbound.sent.iter().sum());
                }
            }
            // In zero-copy mode a socket without memory for the device is not sent anything.
            let (taken, new) = lane.inbound.receive(lane.socket);
            if new > 0 {
                shared.arrived.fetch_add(new, Relaxed);
            }
            busy |= taken > 0;
        }
        let time = now();
        if shared.is_over(time) {
            return Ok(());
        }
        let idle = next.saturating_sub(time).saturating_sub(AWAKE).min(NAP);
        if !busy && idle > AWAKE / 2 {
            std::thread::sleep(Duration::from_nanos(idle));
        } else if !busy {
            std::hint::spin_loop();
        }
    }
}
