//! Paced, tagged frames through a device under test, and what became of each of them (see `fordway_tester`): the trials of
//! RFC 8219 and RFC 9693.

use std::io::{BufRead, Write};
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::frames::{link_address, mac};
use crate::backend::{Backend, Place, must};
use crate::error::{LabError, Result};
use crate::process::{Dialogue, own_program};
use crate::topology::Network;
use fordway_data::addresses::{FLOWS_V4, FLOWS_V6, HOST_EDGE_V4, HOST_V4, SERVER_V6, SIIT_POOL6};
use fordway_data::spec::{Kind, Sender};
use fordway_procedures::frame::LEAST_V6;
use fordway_tester::{Addresses, End, Flow, Outcome, Pace, Pairs, Sending, Setup, Tester, Trial};

/// How long the tester may take to come up.
const READY: Duration = Duration::from_secs(15);
/// What a trial may take beyond its own time.
const PATIENCE: Duration = Duration::from_secs(30);
/// Frames that may wait for a receiver: 8 ms of two million a second, two turns of a scheduler with 250 ticks a second.
const WAITING: u32 = 1 << 14;
/// Frames per second at which a burst leaves at least.
const SLOWEST_BURST: f64 = 10_000.0;
/// Bits behind those that count networks: IPv4 networks of length 24, IPv6 networks of length 64.
const SHIFTS: [u8; 2] = [8, 64];
/// Addresses of the box in the middle on its links.
const NEXT_HOPS: [&str; 3] = ["fe80::1", HOST_EDGE_V4, HOST_V4];
/// The same address in every network.
pub(crate) const ONE: u8 = 128;

/// The devices between which a tester stands.
#[derive(Debug, clap::Args)]
pub(crate) struct Ends {
    /// The client's device
    #[arg(long)]
    pub(crate) device: String,
    /// Its link address, in hexadecimal
    #[arg(long)]
    pub(crate) own: String,
    /// The next hop's link address, in hexadecimal
    #[arg(long)]
    pub(crate) next: String,
    /// File that names the server's network namespace
    #[arg(long)]
    pub(crate) far: PathBuf,
    /// The server's device
    #[arg(long)]
    pub(crate) far_device: String,
}

/// The devices at which a tester of paced frames stands.
#[derive(Debug, clap::Args)]
pub(crate) struct Stand {
    #[command(flatten)]
    ends: Ends,
    /// The link address of the server's device, in hexadecimal
    #[arg(long)]
    far_own: String,
    /// The link address of the server's next hop, in hexadecimal
    #[arg(long)]
    far_next: String,
    /// Octets of the largest frame
    #[arg(long)]
    largest: u16,
    /// What sends: `program`, `socket`, or `best` for sockets only where the program is refused
    #[arg(long, default_value_t)]
    sender: Sender,
}

impl Stand {
    /// Opens the tester, which stays at the devices for as long as there may be trials: one JSON object a line, which is
    /// answered with the outcome.
    pub(crate) fn serve(
        self,
        address: impl Fn(&str) -> Result<[u8; 6]>,
        orders: impl BufRead,
        mut answers: impl Write,
    ) -> Result<()> {
        let client = End {
            device: self.ends.device,
            namespace: None,
            own: address(&self.ends.own)?,
            next: address(&self.ends.next)?,
            queues: 1,
        };
        let server = End {
            device: self.ends.far_device,
            namespace: Some(self.ends.far),
            own: address(&self.far_own)?,
            next: address(&self.far_next)?,
            queues: 1,
        };
        let setup = Setup {
            largest_frame: self.largest,
            sending: match self.sender {
                Sender::Socket => Sending::Sockets,
                Sender::Best | Sender::Program => Sending::Program,
            },
            falls_back: self.sender == Sender::Best,
            waiting: WAITING,
            ..Setup::new(client, server)
        };
        let failed = |error: fordway_tester::Error| LabError::Usage(error.to_string());
        let mut tester = Tester::open(setup).map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = |error| LabError::file("tester")(error);
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(told)?;
        }
        let mut say = |line: &str| -> Result<()> {
            writeln!(answers, "{line}").and_then(|()| answers.flush()).map_err(told)
        };
        say("ready")?;
        for line in orders.lines() {
            let line = line.map_err(told)?;
            let usage = |error: serde_json::Error| LabError::Usage(error.to_string());
            let trial: Trial = serde_json::from_str(&line).map_err(usage)?;
            let outcome = tester.run(&trial, &stop).map_err(failed)?;
            let answer = serde_json::to_string(&outcome).map_err(usage)?;
            say(&answer)?;
        }
        Ok(())
    }
}

/// A tester at both ends of a network.
pub(crate) struct Generator {
    dialogue: Dialogue,
    /// Addresses of the frames that the mechanism translates.
    pub(crate) translated: Pairs,
    /// Addresses of native IPv6 frames beside them.
    pub(crate) native: Option<Pairs>,
    /// Every order and its answer as they were.
    pub(crate) said: String,
}

impl Generator {
    /// Puts it at the client's and the server's device, for frames of up to so many octets. Neighbours on the way must be
    /// known already.
    pub(crate) fn open(
        backend: &dyn Backend,
        network: &Network,
        largest: u16,
        sender: Sender,
    ) -> Result<Self> {
        // A veth accepts redirected frames only if its peer has receive offload.
        network.receive_offload_on(backend)?;
        let hex = |octets: [u8; 6]| octets.map(|octet| format!("{octet:02x}")).concat();
        let link = |place, device| mac(backend, place, device).map(hex);
        let (own, far_own) = (link(&network.app, "uplink")?, link(&network.server, "uplink")?);
        let (next, far_next) = match (&network.host, &network.cables) {
            (Some(host), _) if network.app == network.client => {
                (link(host, "to-client")?, link(host, "to-iperf")?)
            }
            (Some(host), _) => (link(&network.client, "to-app")?, link(host, "to-iperf")?),
            (None, None) => (far_own.clone(), own.clone()),
            (None, Some(_)) => {
                let next = |place| next_hop(backend, place).map(hex);
                (next(&network.client)?, next(&network.server)?)
            }
        };
        let far = backend.namespace(&network.server).display().to_string();
        let (program, largest) = (own_program()?, largest.max(LEAST_V6).to_string());
        let argv = [&program, "tester", "trials", "--device", "uplink", "--far-device", "uplink"];
        let values = [
            ("--own", own),
            ("--next", next),
            ("--far", far),
            ("--far-own", far_own),
            ("--far-next", far_next),
            ("--largest", largest),
            ("--sender", sender.to_string()),
        ];
        let values = values.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
        let argv: Vec<String> = argv.into_iter().map(str::to_owned).chain(values).collect();
        let dialogue = backend.talk(&network.app, &argv, READY)?;
        if let Some(host) = network.host.as_ref().filter(|_| beside(network)) {
            // A server of IPv4 alone has no IPv6 address, and needs none for frames that the tester takes.
            let route =
                ["ip", "-6", "route", "replace", "2001:db8:5::/64", "via", "fe80::2", "dev"];
            must(backend, host, &[&route[..], &["to-iperf"]].concat())?;
        }
        let (translated, native) = (pairs(network)?, native(network)?);
        Ok(Self { dialogue, translated, native, said: String::new() })
    }

    /// Runs a trial.
    pub(crate) fn run(&mut self, trial: &Trial) -> Result<Outcome> {
        self.run_beside(trial, || Ok(()))
    }

    /// Runs a trial, and does something else meanwhile.
    pub(crate) fn run_beside(
        &mut self,
        trial: &Trial,
        meanwhile: impl FnOnce() -> Result<()>,
    ) -> Result<Outcome> {
        let text =
            serde_json::to_string(trial).map_err(|error| LabError::Usage(error.to_string()))?;
        self.dialogue.tell(&text)?;
        let beside = meanwhile();
        let patience = Duration::try_from_secs_f64(seconds(trial))
            .map_err(|error| LabError::Usage(error.to_string()))?;
        let answer = self.dialogue.answer(patience + PATIENCE, true)?;
        self.said.push_str(&format!("{text}\n{answer}\n"));
        beside?;
        super::read_json(&answer)
    }

    /// The command line.
    pub(crate) fn argv(&self) -> &[String] {
        self.dialogue.argv()
    }
}

/// How long a trial sends, settles and waits, s.
fn seconds(trial: &Trial) -> f64 {
    let of = |pace: &Pace| match pace {
        Pace::Silent => 0.0,
        Pace::Steps(steps) => steps.iter().map(|step| step.seconds).sum(),
        Pace::Burst(frames) => *frames as f64 / SLOWEST_BURST,
    };
    let starts = trial.start_s * f64::from(trial.networks.saturating_sub(1));
    starts + trial.settle_s + of(&trial.forward).max(of(&trial.reverse)) + trial.timeout_s
}

/// The link address of the other machine, which answered before.
fn next_hop(backend: &dyn Backend, place: &Place) -> Result<[u8; 6]> {
    let text = must(backend, place, &["ip", "-j", "neigh", "show", "dev", "uplink"])?.stdout;
    let known: Vec<serde_json::Value> = serde_json::from_str(&text)
        .map_err(|error| LabError::Parse { tool: "ip neigh", why: error.to_string() })?;
    let hops = NEXT_HOPS.iter().filter_map(|hop| known.iter().find(|one| one["dst"] == **hop));
    let link = hops.filter_map(|one| link_address(one["lladdr"].as_str()?)).next();
    let missing = || {
        LabError::Failed(format!(
            "none of {} answers on the link of {}: the device under test needs these addresses",
            NEXT_HOPS.join(", "),
            place.0
        ))
    };
    link.ok_or_else(missing)
}

/// Whether native IPv6 can pass beside what is translated.
fn beside(network: &Network) -> bool {
    let translates = matches!(network.kind, Kind::Siit | Kind::Nat64 | Kind::NatPt);
    let through = network.host.is_some() || network.cables.is_some();
    through && (translates || network.has_hosts_behind())
}

/// One address for all networks.
fn one(address: IpAddr) -> Addresses {
    Addresses { first: address, shift: ONE }
}

/// The hosts behind the client: one in each of its networks.
fn hosts(v4: bool) -> Addresses {
    match v4 {
        true => Addresses { first: FLOWS_V4.into(), shift: SHIFTS[0] },
        false => Addresses { first: FLOWS_V6.into(), shift: SHIFTS[1] },
    }
}

/// Addresses of the frames that a mechanism translates, each way as they are sent.
fn pairs(network: &Network) -> Result<Pairs> {
    let source = match network.kind {
        // A CLAT knows the address of its application alone.
        Kind::Clat => one(network.app_address),
        _ => hosts(network.target.is_ipv4()),
    };
    let forward = Flow { source, target: one(network.target) };
    let source = one(network.server_address);
    let target = match network.kind {
        // A stateless gateway shows IPv4 hosts in its prefix (RFC 6052 section 2.2).
        Kind::Siit => {
            let prefix: Ipv6Addr = SIIT_POOL6
                .trim_end_matches("/96")
                .parse()
                .map_err(|_| LabError::Usage(format!("{SIIT_POOL6} is no prefix")))?;
            let shown = prefix.to_bits() | u128::from(FLOWS_V4.to_bits());
            Addresses { first: Ipv6Addr::from_bits(shown).into(), shift: SHIFTS[0] }
        }
        Kind::Native | Kind::DualStack => hosts(network.server_address.is_ipv4()),
        // What a stateful mechanism shows is learned.
        _ => one(network.seen_address),
    };
    Ok(Pairs { forward, reverse: Flow { source, target } })
}

/// Addresses of native IPv6 frames, where both links have IPv6.
fn native(network: &Network) -> Result<Option<Pairs>> {
    let server: Ipv6Addr =
        SERVER_V6.parse().map_err(|_| LabError::Usage(format!("{SERVER_V6} is no address")))?;
    let (server, hosts) = (one(server.into()), hosts(false));
    let forward = Flow { source: hosts, target: server };
    let reverse = Flow { source: server, target: hosts };
    Ok(beside(network).then_some(Pairs { forward, reverse }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Shape;
    use fordway_data::spec::Experiment;

    /// The network of an arm of an experiment.
    fn network(experiment: &str, arm: &str) -> Network {
        let experiment = Experiment::find(experiment).unwrap();
        let arm = experiment.mechanism(arm).unwrap();
        Network::described("x-", Shape::of(arm, true), Some(arm)).unwrap()
    }

    /// Source and destination in the first network, each way as they are sent.
    fn first(pairs: Pairs) -> [[String; 2]; 2] {
        [pairs.forward, pairs.reverse]
            .map(|flow| [flow.source, flow.target].map(|side| side.first.to_string()))
    }

    /// Whether the client's side has an address in each network.
    fn varies(pairs: Pairs) -> [bool; 2] {
        [pairs.forward.source, pairs.reverse.target].map(|side| side.shift != ONE)
    }

    #[test]
    fn frames_have_the_addresses_of_their_link() {
        for (experiment, arm, forward, reverse, both) in [
            (
                "rfc8219",
                "native-v6",
                ["2001:db8:f00::1", "2001:db8:5::5"],
                ["2001:db8:5::5", "2001:db8:f00::1"],
                [true, true],
            ),
            (
                "rfc8219",
                "native-v4-2hop",
                ["198.18.0.0", "198.51.100.2"],
                ["198.51.100.2", "198.18.0.0"],
                [true, true],
            ),
            (
                "rfc8219",
                "siit-tayga",
                ["198.18.0.0", "198.51.100.2"],
                ["2001:db8:5::5", "2001:db8:64::c612:0"],
                [true, true],
            ),
            (
                "rfc8219",
                "nat64-tayga",
                ["2001:db8:f00::1", "2001:db8:64::c633:6402"],
                ["198.51.100.2", "203.0.113.64"],
                [true, false],
            ),
            (
                "rfc8219",
                "464xlat-fordway-interface",
                ["198.18.0.0", "198.51.100.2"],
                ["198.51.100.2", "203.0.113.64"],
                [true, false],
            ),
            (
                "rfc8219",
                "softwire-fordway-interface",
                ["198.18.0.0", "198.51.100.2"],
                ["198.51.100.2", "203.0.113.65"],
                [true, false],
            ),
            // A CLAT translates only the address of its application.
            (
                "rfc8219",
                "clat-tundra",
                ["192.0.0.2", "192.0.0.171"],
                ["64:ff9b::c000:ab", "2001:db8:1::c"],
                [false, false],
            ),
        ] {
            let pairs = pairs(&network(experiment, arm)).unwrap();
            assert_eq!(first(pairs), [forward, reverse].map(|way| way.map(str::to_owned)), "{arm}");
            assert_eq!(varies(pairs), both, "{arm}");
        }
    }

    #[test]
    fn native_frames_pass_where_the_whole_path_has_ipv6() {
        let has = |arm| native(&network("rfc8219", arm)).unwrap().is_some();
        for arm in ["siit-tayga", "nat64-tayga", "nat-pt-fordway-interface"] {
            assert!(has(arm), "{arm}");
        }
        assert!(has("464xlat-fordway-interface") && has("softwire-fordway-interface"));
        assert!(!has("clat-tundra") && !has("nat44"));
    }
}
