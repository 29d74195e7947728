//! What the model takes: the user's numbers, and cells of runs. A cell that no run has is missing, never assumed.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::analysis::{Ceiling, Cell};
use crate::artefacts::Run;
use crate::spec::{Kind, MechanismSpec, Metric};

/// The user's network.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct User {
    /// Subscribers.
    pub subscribers: f64,
    /// Traffic of all of them at the busiest time, Gbit/s.
    pub peak_gbit_s: f64,
    /// Share of it that goes to IPv6 destinations, 0 to 1; of the sessions, too.
    pub native_v6_share: f64,
    /// Sessions of a subscriber at once, at the busiest time.
    pub sessions_per_subscriber: f64,
    /// Processors of one gateway machine.
    pub cores: u32,
    /// Mean length of a packet, octets.
    pub packet_octets: f64,
    /// Mean length of a session, s.
    pub session_s: f64,
    /// Names that are asked for per session.
    pub names_per_session: f64,
    /// Ports of an IPv4 address that sessions may use.
    pub ports_per_address: f64,
    /// Share of its time that a processor may work at the busiest time, 0 to 1.
    pub utilisation: f64,
}

impl Default for User {
    fn default() -> Self {
        Self {
            subscribers: 10_000.0,
            peak_gbit_s: 20.0,
            native_v6_share: 0.6,
            sessions_per_subscriber: 50.0,
            cores: 8,
            packet_octets: 800.0,
            session_s: 60.0,
            names_per_session: 0.5,
            ports_per_address: 64_512.0,
            utilisation: 0.7,
        }
    }
}

impl User {
    /// Sessions at once.
    pub fn sessions(&self) -> f64 {
        self.subscribers * self.sessions_per_subscriber
    }

    /// New sessions per second, by Little's law.
    pub(crate) fn new_sessions(&self) -> f64 {
        self.sessions() / self.session_s
    }

    /// Packets per Gbit.
    pub(crate) fn packets_per_gbit(&self) -> f64 {
        1e9 / (8.0 * self.packet_octets)
    }
}

/// A measured quantity of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Processor time for traffic without translation.
    NativeTraffic,
    /// Processor time for traffic through NAT44.
    Nat44Traffic,
    /// Processor time for traffic through NAT64.
    Nat64Traffic,
    /// New sessions per second of NAT44.
    Nat44Sessions,
    /// New sessions per second of NAT64.
    Nat64Sessions,
    /// Octets per session of NAT44.
    Nat44Memory,
    /// Octets per session of NAT64.
    Nat64Memory,
    /// Processor time per answer of a DNS64 server.
    Dns64,
    /// Round trip that NAT44 adds.
    Nat44Delay,
    /// Round trip that NAT64 adds.
    Nat64Delay,
    /// Round trip that CLAT and NAT64 together add.
    ClatDelay,
}

impl Quantity {
    /// All, in the order of the page.
    pub const ALL: [Self; 11] = [
        Self::NativeTraffic,
        Self::Nat44Traffic,
        Self::Nat64Traffic,
        Self::Nat44Sessions,
        Self::Nat64Sessions,
        Self::Nat44Memory,
        Self::Nat64Memory,
        Self::Dns64,
        Self::Nat44Delay,
        Self::Nat64Delay,
        Self::ClatDelay,
    ];

    /// The letter that stands for it in formulas.
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::NativeTraffic => "c6",
            Self::Nat44Traffic => "c44",
            Self::Nat64Traffic => "c64",
            Self::Nat44Sessions => "r44",
            Self::Nat64Sessions => "r64",
            Self::Nat44Memory => "m44",
            Self::Nat64Memory => "m64",
            Self::Dns64 => "d",
            Self::Nat44Delay => "l44",
            Self::Nat64Delay => "l64",
            Self::ClatDelay => "l464",
        }
    }

    /// What it is, with its unit in the model.
    pub fn label(self) -> &'static str {
        match self {
            Self::NativeTraffic => "processor time of traffic, no translation, s per Gbit",
            Self::Nat44Traffic => "processor time of traffic, NAT44, s per Gbit",
            Self::Nat64Traffic => "processor time of traffic, NAT64, s per Gbit",
            Self::Nat44Sessions => "processor time of a new session, NAT44, s",
            Self::Nat64Sessions => "processor time of a new session, NAT64, s",
            Self::Nat44Memory => "memory of a session, NAT44, octets",
            Self::Nat64Memory => "memory of a session, NAT64, octets",
            Self::Dns64 => "processor time of an answer, DNS64, s",
            Self::Nat44Delay => "round trip added by NAT44, ms",
            Self::Nat64Delay => "round trip added by NAT64, ms",
            Self::ClatDelay => "round trip added by CLAT and NAT64, ms",
        }
    }
}

/// Where a quantity comes from.
#[derive(Debug, Clone, Serialize)]
pub struct Source {
    /// The quantity.
    pub quantity: Quantity,
    /// Place of its run among those that were given.
    pub run: usize,
    /// Folder of the run.
    pub folder: String,
    /// Arm.
    pub mechanism: String,
    /// Its name for people.
    pub label: String,
    /// What was measured.
    pub metric: Metric,
    /// Condition.
    pub condition: String,
    /// How the model's value is made of it, in words.
    pub made: &'static str,
    /// Value of each deployment in the model's unit, by block.
    pub values: Vec<(u32, f64)>,
}

impl Source {
    /// Whether the value is that of a packet, which the user's length of packets turns into one of traffic.
    pub(crate) fn per_packet(&self) -> bool {
        self.made == PER_PACKET
    }
}

/// Cells by quantity; what no run has is not in it.
pub(crate) type Sources = BTreeMap<Quantity, Source>;

/// How the cost of traffic is known, the best way first: small packets are what a router sees.
const TRAFFIC: [(Metric, &str); 4] = [
    (Metric::CpuPerPacketDown, PER_PACKET),
    (Metric::CpuPerPacketUp, PER_PACKET),
    (Metric::CpuPerGbitDown, PER_GBIT),
    (Metric::CpuPerGbitUp, PER_GBIT),
];

const PER_PACKET: &str =
    "processor time per small packet less the tester's own, times packets per Gbit";
const PER_GBIT: &str =
    "processor time per Gbit of TCP, whose packets may be of 64 KB, less the tester's own";
const PER_SESSION: &str =
    "processors at work over new sessions per second, less the tester's own time per session";
const AS_MEASURED: &str = "as measured";
const PER_ANSWER: &str = "processor time per answer less the tester's own";
const DIFFERENCE: &str = "difference to the untranslated path of the same block";

/// A run with the folder it was read from.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// Folder.
    pub folder: &'a str,
    /// The run.
    pub run: &'a Run,
}

/// Looks the quantities up. `wanted` names arms that are to be taken; else it is the experiment's first arm that was
/// measured of each kind.
pub fn find(runs: &[Named<'_>], wanted: &[String], user: &User) -> Sources {
    let mut found = Sources::new();
    traffic(runs, wanted, user, &mut found);
    for (number, named) in runs.iter().enumerate() {
        let at = At { number, named, wanted };
        let mut add = |quantity, kind, of: &dyn Fn(&At<'_>, &MechanismSpec) -> Option<Found>| {
            if !found.contains_key(&quantity)
                && let Some(source) =
                    at.first(kind, |arm| of(&at, arm).map(|f| at.source(quantity, arm, f)))
            {
                found.insert(quantity, source);
            }
        };
        add(Quantity::Nat44Sessions, Kind::Nat44, &new_sessions);
        add(Quantity::Nat64Sessions, Kind::Nat64, &new_sessions);
        add(Quantity::Nat44Memory, Kind::Nat44, &memory);
        add(Quantity::Nat64Memory, Kind::Nat64, &memory);
        add(Quantity::Dns64, Kind::Dns64, &answer);
        add(Quantity::Nat44Delay, Kind::Nat44, &delay);
        add(Quantity::Nat64Delay, Kind::Nat64, &delay);
        add(Quantity::ClatDelay, Kind::Xlat464, &delay);
    }
    found
}

/// A metric, how the value is made of it, and values by block.
type Found = (Metric, &'static str, Vec<(u32, f64)>);

struct At<'a> {
    number: usize,
    named: &'a Named<'a>,
    wanted: &'a [String],
}

impl At<'_> {
    /// The first arm of a kind that has what is looked for; arms that the user named come first.
    fn first<T>(&self, kind: Kind, of: impl Fn(&MechanismSpec) -> Option<T>) -> Option<T> {
        let arms = || {
            self.named
                .run
                .experiment
                .mechanisms
                .iter()
                .filter(|m| m.kind == kind && m.same_as.is_none())
        };
        let named = |m: &&MechanismSpec| self.wanted.contains(&m.name);
        if arms().any(|m| named(&m)) {
            return arms().filter(named).find_map(of);
        }
        arms().find_map(of)
    }

    fn cell(&self, arm: &str, metric: Metric) -> Option<&Cell> {
        crate::analysis::first(&self.named.run.results, arm, metric).filter(|c| c.valid)
    }

    /// What sender and receiver do by themselves, where an arm was measured. Without it nobody knows how much of a
    /// processor time is the tester's, and a model of networks would contain it.
    fn tester(&self, arm: &MechanismSpec, metric: Metric, cell: &Cell) -> Option<&Ceiling> {
        let results = &self.named.run.results;
        results.ceiling(&cell.condition, metric, None, arm.family).filter(|own| own.value > 0.0)
    }

    /// Values of a processor time by block, less the tester's own in the same block.
    fn without_the_tester(&self, arm: &MechanismSpec, metric: Metric) -> Option<Vec<(u32, f64)>> {
        let cell = self.cell(&arm.name, metric)?;
        let tester = self.tester(arm, metric, cell)?;
        Some(cell.values.iter().map(|(block, all)| (*block, all - tester.at(*block))).collect())
    }

    fn source(
        &self,
        quantity: Quantity,
        arm: &MechanismSpec,
        (metric, made, values): Found,
    ) -> Source {
        let condition = self.cell(&arm.name, metric).map(|c| c.condition.label());
        Source {
            quantity,
            run: self.number,
            folder: self.named.folder.to_owned(),
            mechanism: arm.name.clone(),
            label: arm.label.clone(),
            metric,
            condition: condition.unwrap_or_default(),
            made,
            values,
        }
    }
}

/// The cost of traffic, for all three in the same way and from the same run, or a comparison would be of the ways.
fn traffic(runs: &[Named<'_>], wanted: &[String], user: &User, found: &mut Sources) {
    let kinds = [
        (Quantity::NativeTraffic, Kind::Native),
        (Quantity::Nat44Traffic, Kind::Nat44),
        (Quantity::Nat64Traffic, Kind::Nat64),
    ];
    let mut best: Vec<Source> = Vec::new();
    for (metric, made) in TRAFFIC {
        for (number, named) in runs.iter().enumerate() {
            let at = At { number, named, wanted };
            let here: Vec<Source> = kinds
                .iter()
                .filter_map(|(quantity, kind)| {
                    at.first(*kind, |arm| {
                        let own = at.without_the_tester(arm, metric)?;
                        let by = match made {
                            PER_PACKET => 1e-6 * user.packets_per_gbit(),
                            _ => 1e-3,
                        };
                        let values = scaled(&own, by);
                        Some(at.source(*quantity, arm, (metric, made, values)))
                    })
                })
                .collect();
            if here.len() > best.len() {
                best = here;
            }
        }
    }
    found.extend(best.into_iter().map(|source| (source.quantity, source)));
}

fn scaled(values: &[(u32, f64)], by: f64) -> Vec<(u32, f64)> {
    values.iter().map(|(block, value)| (*block, value * by)).collect()
}

/// New sessions go through one processor, and through the mechanism's process where it has one.
fn new_sessions(at: &At<'_>, arm: &MechanismSpec) -> Option<Found> {
    [Metric::NewTcpConnections, Metric::NewUdpFlows].into_iter().find_map(|metric| {
        let cell = at.cell(&arm.name, metric)?;
        let tester = at.tester(arm, metric, cell)?;
        let processors = 1.0 + cell.mechanism_cores.unwrap_or(0.0);
        let values = cell.values.iter().filter(|v| v.1 > 0.0);
        let values = values.map(|(block, thousands)| {
            (*block, processors / (1e3 * thousands) - 1.0 / (1e3 * tester.at(*block)))
        });
        Some((metric, PER_SESSION, values.collect()))
    })
}

fn memory(at: &At<'_>, arm: &MechanismSpec) -> Option<Found> {
    let cell = at.cell(&arm.name, Metric::MemoryPerSession)?;
    Some((cell.metric, AS_MEASURED, cell.values.clone()))
}

fn answer(at: &At<'_>, arm: &MechanismSpec) -> Option<Found> {
    let metric = Metric::CpuPerAnswerFresh;
    Some((metric, PER_ANSWER, scaled(&at.without_the_tester(arm, metric)?, 1e-6)))
}

/// What an arm adds to the round trip of the untranslated path that its comparisons end at.
fn delay(at: &At<'_>, arm: &MechanismSpec) -> Option<Found> {
    let cell = at.cell(&arm.name, Metric::Rtt)?;
    let experiment = &at.named.run.experiment;
    let mut base = experiment.mechanism(arm.base.as_deref()?).ok()?;
    // A base's base: at most as many steps as there are arms.
    for _ in 0..experiment.mechanisms.len() {
        match base.base.as_deref().and_then(|name| experiment.mechanism(name).ok()) {
            Some(next) if base.kind != Kind::Native => base = next,
            _ => break,
        }
    }
    let native = at.cell(&base.name, Metric::Rtt)?;
    let pairs = |(block, value): &(u32, f64)| {
        let other = native.values.iter().find(|(b, _)| b == block)?;
        Some((*block, value - other.1))
    };
    let values: Vec<(u32, f64)> = cell.values.iter().filter_map(pairs).collect();
    (!values.is_empty()).then_some((Metric::Rtt, DIFFERENCE, values))
}
