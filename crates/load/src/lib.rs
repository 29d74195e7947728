//! Senders and receivers of small packets, run by the lab itself inside its namespaces (hidden
//! subcommand `tester`). Each prints what it did as one line of JSON.

#![deny(unsafe_code)]

pub mod background;
#[allow(unsafe_code)]
mod bpf;
pub mod datagrams;
pub mod dns;
pub mod echo;
pub mod flows;
pub mod frames;
pub mod processors;
pub mod pulses;
pub mod web;

use rustix::thread::CpuSet;

/// What was asked for can't be sent.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unfit(pub String);

/// Result of what can fail for the caller's numbers alone.
pub type Result<T> = std::result::Result<T, Unfit>;

/// UDP port on which nobody listens: what reaches it is counted and dropped on arrival.
pub const SINK_PORT: u16 = 9;

/// Octets of payload that make the smallest Ethernet frame with IPv4 and UDP in front.
pub const SMALL: usize = 18;

/// Octets that a socket may hold for a program that waits for a processor.
const BUFFER: usize = 8 << 20;

/// Lets a socket hold what arrives while its program waits for a processor: that is the tester's
/// delay, and must not become a loss of the path.
pub fn widen(socket: &std::net::UdpSocket) {
    // Where the larger size is not allowed, the usual one serves slower loads as well.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, BUFFER)
        .or_else(|_| rustix::net::sockopt::set_socket_recv_buffer_size(socket, BUFFER));
}

/// Processor time of this process so far, in seconds.
fn own_cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// The last processor that this thread may use.
fn last_processor() -> std::io::Result<Option<usize>> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).rev().find(|cpu| allowed.is_set(*cpu)))
}

/// Keeps the calling thread on the last processor that it may use.
fn stay() -> std::io::Result<()> {
    if let Some(last) = last_processor()? {
        let mut one = CpuSet::new();
        one.set(last);
        rustix::thread::sched_setaffinity(None, &one)?;
    }
    Ok(())
}
