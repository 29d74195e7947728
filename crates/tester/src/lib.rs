//! The tester of RFC 8219 and RFC 9693: it sends paced, tagged Ethernet frames at one or both ends of a device under test,
//! and says of every frame what became of it.
//!
//! ```text
//!   client end ──► device under test ──► server end      forward
//!              ◄──                   ◄──                 reverse
//! ```
//!
//! Each end is a network device, in a namespace of its own or not: a veth here, a network card elsewhere, by the same code.
//! Frames arrive through sockets of AF_XDP, one for each queue; a program at the device ([`Tester::open`]) redirects the tester's
//! frames to them and passes everything else to the kernel, which answers ARP, Neighbor Discovery and pings as usual. Every
//! frame carries a tag ([`Tag`]) with its number and the time at which it was to be sent.
//!
//! Frames leave through these sockets, or are sent by a program that the kernel repeats ([`Sending`]): on a veth, where each frame
//! of a socket becomes a packet buffer, the program sends several times as many. Both send the same octets in the same order.
//!
//! Times of arrival are the kernel's at the device's program; time stamps of network cards are not used. A frame is one chunk of a
//! socket's memory, so that the largest has [`LARGEST`] octets: 4096, 8192 and 9216 (RFC 8219 section 5.1) are refused.
//!
//! A [`Trial`] says what to send; its [`Outcome`] counts, by direction and by class (translated, native), what was sent, what
//! arrived in time, and what did not. A trial in which the tester itself failed is marked as invalid, with the reason.

#![deny(unsafe_code)]

mod ceiling;
mod class;
mod frame;
mod live;
mod outcome;
mod plan;
mod program;
mod setup;
#[allow(unsafe_code)]
mod sys;
mod tally;
mod tester;
mod trial;
mod tuple;
mod worker;

pub use ceiling::{Ceiling, Jitter, ceiling, jitter};
pub use class::{Class, Direction};
pub use frame::{LARGEST, MAGIC, SMALLEST_V4, SMALLEST_V6, Stream, TAG, Tag};
pub use outcome::{Counts, Fault, Histogram, Ipdv, Mode, Outcome, Sender, Side, Wrong};
pub use setup::{End, Sending, Setup};
pub use tester::Tester;
pub use trial::{Addresses, Flow, Pace, Pairs, Step, Trial, Tuples};
pub use tuple::Enumeration;

/// Why a trial, or a tester, can't be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for contradicts itself or a limit, which the text names.
    #[error("{0}")]
    Unfit(String),
    /// The machine refused something.
    #[error("{what}: {error}")]
    Machine {
        /// What was attempted.
        what: String,
        /// What the system answered.
        #[source]
        error: std::io::Error,
    },
}

/// The result of what can fail so.
pub type Result<T> = std::result::Result<T, Error>;

/// A system's error, with what was attempted.
fn machine(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::Machine { what: what.to_string(), error }
}

/// The clock of tags and of the program, CLOCK_MONOTONIC, in ns.
fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Processor time of the calling thread so far, s. It includes what the kernel does in its place.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
