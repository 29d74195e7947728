//! Correctness probes, run by the lab itself inside the namespaces (hidden subcommand `probe`).
//!
//! The server answers on two ports; the client sends payload that both sides can compute from a
//! seed, so that every octet is compared end to end.

pub(crate) mod client;
pub(crate) mod dial;
mod ftp;
pub(crate) mod gate;
mod http;
pub(crate) mod matrix;
pub(crate) mod names;
pub(crate) mod server;
pub(crate) mod start;

/// TCP port of the payload check.
pub(crate) const TCP_PORT: u16 = 5301;
/// UDP port on which nobody listens.
pub(crate) const CLOSED_PORT: u16 = 5399;

/// `length` octets that both ends can compute: words of SplitMix64 (Steele, Lea and Flood, 2014), which cost next to
/// nothing also where nothing is optimised.
fn payload(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 8);
    let mut state = seed;
    while bytes.len() < length {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend_from_slice(&(word ^ word >> 31).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
