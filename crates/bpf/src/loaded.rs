//! Programs that are loaded but not attached, for tests and benchmarks.

use fordway_xlat::Config;

use crate::{Outcome, Result, Totals};

/// One of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Program {
    /// At the egress of the TUN device.
    Interface,
    /// At the egress of the uplink: IPv4 to IPv6.
    UplinkEgress,
    /// At the ingress of the uplink: IPv6 to IPv4.
    UplinkIngress,
    /// XDP.
    Xdp,
}

/// How programs are loaded for tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct TestOptions {
    /// The interface index that the programs take for the translator's TUN device.
    pub tun: u32,
    /// Take the time that each translation needs.
    pub measure: bool,
    /// Write events, at most so many per second and processor.
    pub trace: Option<u32>,
}

/// Programs that are loaded but not attached. They go when this is dropped.
#[derive(Debug)]
pub struct Loaded {
    _private: (),
}

/// What a program told the kernel to do with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Go on with the frame as it is now: `TC_ACT_UNSPEC`, `XDP_PASS`.
    Continue,
    /// Send it elsewhere: `TC_ACT_REDIRECT`, `XDP_REDIRECT`.
    Redirect,
    /// Drop it: `TC_ACT_SHOT`, `XDP_DROP`.
    Drop,
    /// Another return code.
    Other(i32),
}

/// A program's run on a frame.
#[derive(Clone, Debug)]
pub struct Run {
    /// What the program told the kernel to do.
    pub action: Action,
    /// The program's return code.
    pub code: i32,
    /// By the counters; `None` if nothing, or more than one thing, was counted.
    pub outcome: Option<Outcome>,
    /// The frame afterwards, with its Ethernet header.
    pub frame: Vec<u8>,
    /// Nanoseconds per run.
    pub ns: u32,
}

impl Loaded {
    /// Loads `programs` for `config`, all with an Ethernet header of 14 octets and with the hop-limit
    /// setting of `config`.
    pub fn load(config: &Config, programs: &[Program], options: &TestOptions) -> Result<Loaded> {
        let _ = (config, programs, options);
        todo!()
    }

    /// Runs `program` on an Ethernet frame, a super-packet if `gso_size` is not 0 (not for XDP).
    ///
    /// With `repeat` above 1 the kernel runs the program on the same buffer again, as the run before
    /// left it.
    pub fn run(
        &mut self,
        program: Program,
        frame: &[u8],
        gso_size: u32,
        repeat: u32,
    ) -> Result<Run> {
        let _ = (program, frame, gso_size, repeat);
        todo!()
    }

    /// The counters so far.
    pub fn totals(&self) -> Result<Totals> {
        todo!()
    }
}
