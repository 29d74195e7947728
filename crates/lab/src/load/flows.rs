//! New flows and held sessions: runs the tester of `tester::flows`, which stands at both ends, and judges
//! what it says.

use std::net::IpAddr;
use std::time::Duration;

use fordway_data::addresses::{FLOWS_V4, FLOWS_V6};
use fordway_data::spec::Transport;
use fordway_load::flows::{Order, Packet, Passed, REST};

use super::frames::mac;
use crate::backend::Backend;
use crate::error::{LabError, Result};
use crate::process::Dialogue;
use crate::process::own_program;
use crate::topology::Network;

/// Fewest source addresses: subscribers of a translator.
const FEWEST: u32 = 256;
/// Most flows of a source address. Many hosts share an address of a pool then, so that its addresses have about equally many.
const FLOWS_OF_EACH: u32 = 1 << 12;
/// Flows under way at once: what a veth's ring holds, and half of what a TUN device's queue does. So
/// nothing is lost for want of room, and no path here is so long that it would wait for the sender.
const WINDOW: u32 = 256;
/// How long the programs may take to come up.
const READY: Duration = Duration::from_secs(10);
/// Flows that may fail before a phase has failed: one in a hundred.
const MAX_LOSS: f64 = 0.01;

/// Source addresses for so many flows beside the first of each, by which it is made known before anything is timed: 256,
/// or a power of two that is enough.
pub(crate) fn subscribers(flows: u32) -> u32 {
    let mut subscribers = FEWEST;
    while flows > subscribers.saturating_mul(FLOWS_OF_EACH - 1) {
        subscribers *= 2;
    }
    subscribers
}

/// A tester at both ends of a network.
pub(crate) struct Generator {
    dialogue: Dialogue,
    tcp: bool,
    subscribers: u32,
    /// Seconds in which nothing moves before what is under way counts as lost.
    patience_s: f64,
    /// Every answer as it came.
    pub(crate) said: String,
}

impl Generator {
    /// Puts the tester's programs at both ends. Neighbours on the way must be known already.
    /// Flows are numbered from 0 to below `most`, and come from so many `subscribers`. `echo`: the server sends datagrams and data back.
    pub(crate) fn open(
        backend: &dyn Backend,
        network: &Network,
        transport: Transport,
        (subscribers, most): (u32, u32),
        echo: bool,
        patience_s: f64,
    ) -> Result<Self> {
        network.receive_offload_on(backend)?;
        let (next, device) = match &network.host {
            Some(host) => (host, "to-client"),
            None => (&network.server, "uplink"),
        };
        let hex = |octets: [u8; 6]| octets.map(|o| format!("{o:02x}")).concat();
        let own = hex(mac(backend, &network.client, "uplink")?);
        let next = hex(mac(backend, next, device)?);
        let source: IpAddr =
            if network.target.is_ipv4() { FLOWS_V4.into() } else { FLOWS_V6.into() };
        let far = backend.namespace(&network.server).display().to_string();
        let [source, target] = [source, network.target].map(|a| a.to_string());
        let (sources, most) = (subscribers.ilog2().to_string(), most.to_string());
        let program = own_program()?;
        let mut argv = vec![program.as_str(), "tester", "flows", "--device", "uplink"];
        argv.extend(["--own", &own, "--next", &next, "--far", &far, "--far-device", "uplink"]);
        argv.extend(["--source", &source, "--target", &target]);
        argv.extend(["--sources", &sources, "--flows", &most]);
        let tcp = transport == Transport::Tcp;
        let flags =
            [("--far-v4", network.server_address.is_ipv4()), ("--tcp", tcp), ("--echo", echo)];
        argv.extend(flags.iter().filter(|(_, wanted)| *wanted).map(|(flag, _)| flag));
        let argv: Vec<String> = argv.into_iter().map(str::to_owned).collect();
        let dialogue = backend.talk(&network.client, &argv, READY)?;
        Ok(Self { dialogue, tcp, subscribers, patience_s, said: String::new() })
    }

    /// The order to go over flows once; everything else is as usual.
    pub(crate) fn once(&self, packet: Packet, first: u32, until: u32, limit_s: f64) -> Order {
        let patience_s = self.patience_s;
        Order { packet, first, until, step: 1, window: WINDOW, rounds: 1, limit_s, patience_s }
    }

    /// Does what is ordered.
    pub(crate) fn run(&mut self, order: &Order) -> Result<Passed> {
        let text = serde_json::to_string(order).map_err(|e| LabError::Usage(e.to_string()))?;
        let patience = Duration::from_secs_f64(order.limit_s + 20.0);
        let answer = self.dialogue.ask(&text, patience)?;
        self.said.push_str(&format!("{text}\n{answer}\n"));
        super::read_json(&answer)
    }

    /// Takes the tester's programs off until the next order, so that other loads run as without them.
    pub(crate) fn rest(&mut self) -> Result<()> {
        self.dialogue.ask(REST, READY).map(drop)
    }

    /// What opens a flow.
    pub(crate) fn opening(&self) -> Packet {
        if self.tcp { Packet::Syn } else { Packet::Datagram }
    }

    /// Makes the subscribers known with a flow each: the first flows.
    pub(crate) fn warm_up(&mut self) -> Result<()> {
        let subscribers = self.subscribers;
        let order = Order { rounds: 20, ..self.once(self.opening(), 0, subscribers, 20.0) };
        let passed = self.run(&order)?;
        if passed.done < u64::from(subscribers) {
            return Err(LabError::NotReady {
                mechanism: "the first flow of every source".into(),
                why: format!("{} of {subscribers} get through", passed.done),
            });
        }
        Ok(())
    }

    /// The command line.
    pub(crate) fn argv(&self) -> &[String] {
        self.dialogue.argv()
    }
}

/// Thousands per second.
pub(crate) fn rate(passed: &Passed) -> f64 {
    if passed.seconds > 0.0 { passed.done as f64 / passed.seconds / 1e3 } else { 0.0 }
}

/// What the path failed to do in a phase over `flows` flows.
pub(crate) fn faults(passed: &Passed, flows: u32) -> Vec<String> {
    let flows = u64::from(flows);
    let mut all = Vec::new();
    let failed = flows.saturating_sub(passed.done);
    if failed as f64 > MAX_LOSS * flows as f64 {
        let time = if passed.out_of_time { ", in time" } else { "" };
        all.push(format!("{failed} of {flows} flows did not get through{time}"));
    }
    if passed.wrong > 0 {
        all.push(format!("{} packets arrived with a wrong checksum", passed.wrong));
    }
    if passed.outer_tuples < passed.flows_seen {
        all.push(format!(
            "{} flows were given only {} outer sources: some share one",
            passed.flows_seen, passed.outer_tuples
        ));
    }
    all
}

/// What is worth knowing of a phase that counts.
pub(crate) fn remarks(passed: &Passed) -> Vec<String> {
    let of = |n: u64, what: &str| (n > 0).then(|| format!("{n} {what}"));
    [
        of(passed.lost, "flows were lost"),
        of(passed.moved, "packets came from another outer source than those of their flow before"),
        of(passed.reset, "connections were reset"),
        of(passed.stray, "packets belonged to no flow"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed() -> Passed {
        let seen = Passed { flows_seen: 1000, outer_tuples: 1000, ..Passed::default() };
        Passed { sent: 1000, done: 1000, seconds: 0.5, ..seen }
    }

    #[test]
    fn no_source_has_more_flows_than_ports() {
        assert_eq!([1, 1_048_320, 1_048_321].map(subscribers), [256, 256, 512]);
        assert_eq!(subscribers(20_000_000), 8192);
        let [source, target] = ["198.18.0.0", "198.51.100.2"].map(|it| it.parse().unwrap());
        for flows in [1, 1_048_320, 1_048_321, 20_000_000] {
            let all = subscribers(flows) + flows;
            let sources = subscribers(flows).ilog2() as u8;
            fordway_load::flows::Walk::new(source, target, sources, all).unwrap();
        }
    }

    #[test]
    fn flows_count_when_they_arrive_intact_and_apart() {
        assert_eq!(rate(&passed()), 2.0);
        assert!(faults(&passed(), 1000).is_empty() && remarks(&passed()).is_empty());
        assert!(faults(&Passed { done: 995, ..passed() }, 1000).is_empty());
        for broken in [
            Passed { done: 900, ..passed() },
            Passed { wrong: 1, ..passed() },
            Passed { outer_tuples: 999, ..passed() },
        ] {
            assert_eq!(faults(&broken, 1000).len(), 1, "{broken:?}");
        }
        assert_eq!(remarks(&Passed { lost: 3, moved: 1, ..passed() }).len(), 2);
        assert_eq!(rate(&Passed { done: 0, seconds: 0.0, ..passed() }), 0.0);
    }
}
