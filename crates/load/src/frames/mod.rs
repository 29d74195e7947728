//! Small frames put on a link, and taken from it, by programs that the kernel runs at XDP.
//!
//! A socket costs its sender more per packet than a gateway costs to forward it, so that a test with
//! sockets measures the tester. Here the kernel itself repeats one frame (`BPF_PROG_TEST_RUN` with
//! live frames, Linux 5.18): the sender's program writes the frame and redirects it into a veth, as
//! a network card would hand it over; the receiver's program counts and drops it where it arrives.
//! Together they cost about a tenth of kernel forwarding. The programs are a few instructions each
//! and are assembled here: no compiler is needed to run the lab.

mod program;
mod receive;
mod send;
mod wire;

pub(super) use receive::index_of;
pub use receive::{Received, receive};
pub use send::{Used, send, supported};
pub use wire::{Endpoint, frame};
