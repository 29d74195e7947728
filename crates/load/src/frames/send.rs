//! The sender of frames.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::sender;

/// What the sender used.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Used {
    /// Time that it ran.
    pub seconds: f64,
    /// Processor time: its own, and what the kernel did in its place.
    pub cpu_s: f64,
}

/// In whose name frames are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hosts {
    /// How many hosts take turns: the frame's own and those with the addresses behind it.
    pub count: u32,
    /// Whether they are those that frames are sent to; otherwise those that send.
    pub at_target: bool,
}

impl Hosts {
    /// The frame's two hosts alone.
    pub const ONE: Self = Self { count: 1, at_target: false };
}

/// Sends at most `limit` frames through a device, as fast as the kernel can; those given take turns. SIGTERM ends it.
///
/// It stays on one processor, and so does the work that its frames cause: what is counted at the
/// other end is what one processor can do.
pub fn send(device: &str, frames: &[Vec<u8>], hosts: Hosts, limit: u32) -> std::io::Result<Used> {
    let ended = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, ended)?;
    crate::stay()?;
    let program = sender(frames, super::receive::index_of(device)?, hosts)?;
    let longest = frames.iter().max_by_key(|frame| frame.len()).map_or(&[][..], Vec::as_slice);
    let (cpu, start) = (crate::own_cpu(), Instant::now());
    program.repeat("send", longest, limit)?;
    Ok(Used { seconds: start.elapsed().as_secs_f64(), cpu_s: crate::own_cpu() - cpu })
}

/// Whether this kernel can do it: the reason when it can't.
pub fn supported() -> std::result::Result<(), String> {
    // Too short for what is written into it: the program aborts, and nothing leaves.
    sender(&[vec![0; 60]], 0, Hosts::ONE)
        .and_then(|program| program.repeat("send", &[0; 20], 1))
        .map_err(|error| {
            format!("this kernel does not send frames from XDP programs (Linux 5.18 does): {error}")
        })
}
