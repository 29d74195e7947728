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

use rand::Rng;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// TCP port of the payload check.
pub(crate) const TCP_PORT: u16 = 5301;
/// UDP port of the echo.
pub(crate) const UDP_PORT: u16 = 5302;
/// UDP port on which nobody listens.
pub(crate) const CLOSED_PORT: u16 = 5399;

/// One probe's outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub(crate) struct Check {
    /// What was probed; the row of the matrix.
    pub(crate) name: String,
    /// Whether the mechanism passed.
    pub(crate) ok: bool,
    /// What was seen.
    pub(crate) detail: String,
}

impl Check {
    /// A check that passed, or failed with the reason.
    pub(crate) fn of(name: &str, outcome: Result<String, String>) -> Self {
        let ok = outcome.is_ok();
        let detail = outcome.unwrap_or_else(|why| why);
        Self { name: name.to_owned(), ok, detail }
    }
}

/// `length` octets that both ends can compute.
fn payload(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}
