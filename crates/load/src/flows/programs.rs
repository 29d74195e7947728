//! The programs of `c/flows.bpf.c`, and what they share with the tester: counters of one phase, and what is known of each
//! flow.

use std::io::Result;
use std::sync::atomic::Ordering::Relaxed;

use super::template::{PAYLOAD, SEQUENCE_BITS, SERVER_SEQUENCE, Template, UDP};
use super::walk::{FIRST_PORT, FIRST_TARGET_PORT, STRIDE, Walk};
use crate::bpf::{Link, Loaded, Shared, compiled};

/// The program that fills in a template and redirects it to the client's device.
pub(super) const SENDER: &str = "send";
/// The server's program.
pub(super) const SERVER: &str = "serve";
/// The client's program.
pub(super) const CLIENT: &str = "receive";

/// Words of a flow: the phase in which it last got to its end, and its source as the server sees it: 32 bits of the
/// address, port, target port; 0 before it was seen.
const FLOW_WORDS: usize = 2;

/// What the programs are loaded for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path {
    /// The client's device and the server's: answers go back through them.
    pub(super) devices: [u32; 2],
    /// Whether packets arrive at the server as IPv4.
    pub(super) far_v4: bool,
    /// UDP or TCP.
    pub(super) protocol: u8,
    /// Datagrams and data are sent back rather than ended at the server.
    pub(super) echo: bool,
}

/// Loaded programs.
#[derive(Debug)]
pub(super) struct Programs {
    loaded: Loaded,
    flows: Shared,
}

impl Programs {
    /// For so many flows.
    pub(super) fn new(walk: &Walk, flows: u32, path: Path) -> Result<Self> {
        let set = [
            ("near_device", path.devices[0]),
            ("near_v4", walk.source.is_ipv4().into()),
            ("far_device", path.devices[1]),
            ("far_v4", path.far_v4.into()),
            ("udp", (path.protocol == UDP).into()),
            ("echo", path.echo.into()),
            ("mask", walk.mask()),
            ("sources", walk.sources.into()),
            ("stride", STRIDE),
            ("first_port", FIRST_PORT.into()),
            ("first_target_port", FIRST_TARGET_PORT.into()),
            ("sequence_bits", SEQUENCE_BITS),
            ("server_sequence", SERVER_SEQUENCE),
            ("payload", PAYLOAD as u32),
        ];
        let octets = set.map(|(name, value)| (name, value.to_ne_bytes()));
        let octets: Vec<(&str, &[u8])> = octets.iter().map(|(n, value)| (*n, &value[..])).collect();
        let loaded = Loaded::new(compiled!("flows"), &octets, flows)?;
        let flows = loaded.map("flows")?;
        Ok(Self { loaded, flows })
    }

    /// Reads a counter, by the name of the programs' variable.
    pub(super) fn get(&self, counter: &str) -> u64 {
        self.loaded.words(counter)[0].load(Relaxed)
    }

    /// Sets a counter.
    pub(super) fn set(&self, counter: &str, value: u64) {
        self.loaded.words(counter)[0].store(value, Relaxed);
    }

    /// Adds to a counter.
    pub(super) fn add(&self, counter: &str, value: u64) {
        self.loaded.words(counter)[0].fetch_add(value, Relaxed);
    }

    /// Begins a phase: all counters at zero, but the number of the phase.
    pub(super) fn begin(&self, template: &Template, flows: [u32; 2], step: u32, window: u32) {
        let phase = self.get("phase") + 1;
        self.loaded.clear();
        for (to, octets) in self.loaded.words("template").iter().zip(template.octets.chunks(8)) {
            let mut word = [0; 8];
            word[..octets.len()].copy_from_slice(octets);
            to.store(u64::from_ne_bytes(word), Relaxed);
        }
        for (variable, value) in [
            ("transport_sum", u64::from(template.sum)),
            ("header_sum", template.header_sum.into()),
            ("sequence", template.packet.sequence().into()),
            ("phase", phase),
            ("next", flows[0].into()),
            ("until", flows[1].into()),
            ("step", step.into()),
            ("window", window.into()),
        ] {
            self.set(variable, value);
        }
    }

    /// The sources of all flows that the server has seen: address, port and target port in one number.
    pub(super) fn seen(&self) -> Vec<u64> {
        let words = self.flows.words().chunks_exact(FLOW_WORDS);
        words.map(|flow| flow[1].load(Relaxed)).filter(|seen| *seen != 0).collect()
    }

    /// Puts a program at a device of this namespace.
    pub(super) fn attach(&self, program: &str, device: u32) -> Result<Link> {
        self.loaded.attach(program, device)
    }

    /// Runs the sender until a signal comes, over frames as long as the template.
    pub(super) fn send(&self, template: &Template) -> Result<()> {
        self.loaded.repeat(SENDER, &template.octets, u32::MAX)
    }

    /// Runs a program once over a frame: its verdict, and the frame as it left it.
    #[cfg(test)]
    pub(super) fn run(&self, program: &str, frame: &[u8]) -> (u32, Vec<u8>) {
        self.loaded.run(program, frame).unwrap()
    }
}
