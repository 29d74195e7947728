//! Flows by the hundred thousand: every packet, or every TCP connection, from a source transport
//! address of its own, so that a translator has to make a session for each.
//!
//! Both ends are programs at XDP, as in `frames`, and for the same reason: sockets, or packets
//! handed over by a process, would cost more than what is measured. The client's sender numbers its
//! flows; the number travels in the payload, or in the sequence numbers, and the server's program notes
//! who arrived, from where, and whether the checksum is right. TCP connections are opened and closed
//! properly by both programs, without any state.
//!
//! The load is a closed loop: only so many flows are under way at once. What is lost is noticed after a
//! while, counted, and its place in the window given to others. So the rate is what the path gives
//! without being flooded, and no flow is counted that did not get to its end.

mod programs;
mod run;
mod template;
#[cfg(test)]
mod tests;
mod walk;

pub use run::{Ends, Order, Passed, REST, Tester};
pub use template::Packet;
pub use walk::Walk;
