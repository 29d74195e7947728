//! The measurements of one deployment, and the rules by which a trial counts.

mod ab;
pub(crate) mod benchmark;
mod beside;
mod exchange;
mod failover;
mod fetch;
mod flow;
mod initiation;
mod links;
mod own;
mod packets;
mod questions;
mod recycled;
mod rfc8219;
mod round_trip;
mod sessions;
mod start;
mod streams;
mod transactions;
mod waiting;

use std::collections::BTreeMap;
use std::path::Path;

use fordway_data::files::write_file;
use fordway_data::spec::{Axis, Exclusion, Kind, Load, Metric, Point, Profile, Quantity};
pub(crate) use fordway_data::trial::Lack;
use fordway_data::trial::{
    CpuUse, FLAG_OTHER, OTHER_WORK, Snapshot, Trial, calibrates, difference,
};

use crate::backend::{Backend, Counting};
use crate::error::Result;
use crate::host::now;
use crate::load::dns::Authority;
use crate::load::frames::Frames;
use crate::mechanism::{Deployed, Mechanism};
use crate::topology::Network;
use links::snapshot;

/// A trial with more stolen processor time than this is flagged.
const FLAG_STEAL: f64 = 0.02;
/// What one load yielded: a value per metric, or why there is none.
pub(crate) type Values = BTreeMap<Metric, std::result::Result<f64, Lack>>;

/// What is measured where.
#[derive(Clone, Copy)]
pub(crate) struct Measured<'a> {
    /// Runs the tools.
    pub(crate) backend: &'a dyn Backend,
    /// The network with the mechanism on it.
    pub(crate) network: &'a Network,
    /// The mechanism's process.
    pub(crate) deployed: &'a Deployed,
    /// Reads its counters; `None` while calibrating.
    pub(crate) mechanism: Option<&'a dyn Mechanism>,
    /// Sizes.
    pub(crate) profile: &'a Profile,
    /// What the experiment measures.
    pub(crate) metrics: &'a [Metric],
    /// Folder for raw outputs.
    pub(crate) raw: &'a Path,
    /// Name of the deployment, for files.
    pub(crate) name: &'a str,
    /// Whether processor cycles can be counted.
    pub(crate) cycles: bool,
    /// Whether packets are translated in the kernel rather than by the mechanism's process.
    pub(crate) in_kernel: bool,
    /// What the arm is for; `None` while calibrating.
    pub(crate) kind: Option<Kind>,
    /// Whether the gateway has many mappings, of hosts behind the server.
    pub(crate) maps_servers: bool,
    /// Threads of a name server, as the arm says.
    pub(crate) threads: Option<u32>,
    /// The tester's own highest rates, by size of frame.
    pub(crate) highest: &'a BTreeMap<u64, benchmark::Ceiling>,
    /// Lengths and repetitions of the tests of RFC 8219 and RFC 9693.
    pub(crate) rfc: &'a fordway_procedures::profile::Profile,
    /// Who answers for the tester's zone, where a name server stands in the network.
    pub(crate) authority: Option<&'a Authority>,
}

impl Measured<'_> {
    fn counters(&self) -> Result<Option<serde_json::Value>> {
        self.mechanism.map_or(Ok(None), |mechanism| mechanism.counters(self.deployed))
    }

    /// Begins to count processor time where the mechanism runs.
    fn count(&self) -> Result<Counting> {
        self.backend.count(&self.deployed.pids(), &self.deployed.handles())
    }

    /// What was used since.
    fn used(&self, counting: Counting) -> Result<CpuUse> {
        let of_two = self.backend.wire(&self.network.server).is_some();
        Ok(CpuUse { of_two, ..counting.stop()? })
    }

    fn keep(&self, what: &str, text: &str) -> Result<()> {
        Ok(write_file(&self.raw.join(format!("{}-{what}", self.name)), text.as_bytes())?)
    }
}

/// Counters and processor time at the start of a load.
struct Before {
    counters: Option<serde_json::Value>,
    links: Snapshot,
    meter: Counting,
}

/// The same once the load has ended, while what it left in queues still arrives.
struct After {
    counters: Option<serde_json::Value>,
    links: Snapshot,
    used: CpuUse,
}

impl Before {
    fn read(at: &Measured<'_>) -> Result<Self> {
        let counters = at.counters()?;
        let links = snapshot(at.backend, &at.network.places())?;
        Ok(Self { counters, links, meter: at.count()? })
    }

    /// Stops to count processor time.
    fn stop(self, at: &Measured<'_>) -> Result<After> {
        let Self { counters, links, meter } = self;
        Ok(After { counters, links, used: at.used(meter)? })
    }

    /// Reads them again, and puts the differences into the trial.
    fn finish(self, at: &Measured<'_>, trial: &mut Trial) -> Result<()> {
        self.stop(at)?.finish(at, trial)
    }
}

impl After {
    fn finish(self, at: &Measured<'_>, trial: &mut Trial) -> Result<()> {
        trial.cpu = Some(self.used);
        let after = snapshot(at.backend, &at.network.places())?;
        trial.links = difference(&self.links, &after);
        trial.counters = self.counters.zip(at.counters()?);
        Ok(())
    }
}

/// Runs one load at a point, where it has some; `seconds` is the length of a TCP flow.
pub(crate) fn run(
    load: Load,
    at: &Measured<'_>,
    point: Option<&Point>,
    seconds: u64,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    match load {
        Load::Flow(way) => flow::measure(at, way, seconds, trial, values),
        Load::Ping => round_trip::ping(at, trial, values),
        Load::Probe => round_trip::probe(at, trial, values),
        Load::Datagrams(way) => packets::datagrams(at, way, trial, values),
        Load::Paced(way) => packets::paced(at, way, trial, values),
        Load::Frames(way) => packets::frames(at, way, Frames::Small, trial, values),
        Load::Pairs(way) => {
            let hosts = point.and_then(|point| point.at(Axis::Pairs)).unwrap_or(1);
            let between = Frames::Between { hosts, at_server: at.maps_servers };
            packets::frames(at, way, between, trial, values)
        }
        Load::Imix(way) => packets::frames(at, way, Frames::Imix(&at.profile.imix), trial, values),
        Load::NewFlows(transport) => sessions::new_flows(at, transport, trial, values),
        Load::Recycled => recycled::measure(at, trial, values),
        Load::Hold => sessions::hold(at, seconds, trial, values),
        Load::Search => questions::search(at, trial, values),
        Load::Questions(mixed) => questions::flood(at, mixed, trial, values),
        Load::Dnsperf(mixed) => questions::by_dnsperf(at, mixed, trial, values),
        Load::Sessions(by) => waiting::measure(at, by, false, trial, values),
        Load::Pages(by) => waiting::measure(at, by, true, trial, values),
        Load::Fetch(what) => fetch::measure(at, what, trial, values),
        Load::Transactions(what) => transactions::measure(at, what, point, trial, values),
        Load::Ab => ab::measure(at, point, trial, values),
        Load::Exchange(what) => exchange::measure(at, what, point, trial, values),
        Load::Simplex | Load::Duplex => beside::measure(at, load, point, seconds, trial, values),
        Load::Streams => streams::one_way(at, point, seconds, trial, values),
        Load::Rrul => streams::both_ways(at, point, seconds, trial, values),
        Load::Initiation => initiation::measure(at, trial, values),
        Load::Failover => failover::measure(at, trial, values),
        Load::Forwarding => rfc8219::forwarding(at, point, trial, values),
        Load::FrameLoss => rfc8219::frame_loss(at, point, trial, values),
        Load::Disturbance => rfc8219::disturbance(at, point, trial, values),
        Load::Overload => rfc8219::overload(at, false, point, trial, values),
        Load::Incremental => rfc8219::overload(at, true, point, trial, values),
        Load::Own(load) => own::measure(at, load, point, seconds, trial, values),
        // These take the mechanism down and start it again: see `runner`.
        Load::Start | Load::Reset | Load::Connections | Load::Capacity => Ok(()),
    }
}

pub(crate) use initiation::with_a_lease;
pub(crate) use start::start_time;

/// Cores that were busy with neither what the lab has started nor forwarding.
fn other_cores(trial: &Trial) -> f64 {
    // Of two hosts, nobody knows how much of the lab's work is done on which.
    trial.cpu.as_ref().filter(|cpu| !cpu.of_two).map_or(0.0, CpuUse::other_cores)
}

/// How much of a quantity there was in a trial; `None` where it has no meaning.
fn amount(trial: &Trial, quantity: Quantity) -> Option<f64> {
    match quantity {
        Quantity::Steal => trial.cpu.as_ref().map(|cpu| cpu.steal_share),
        Quantity::Other => trial.cpu.as_ref().map(|_| other_cores(trial)),
        Quantity::Loss => trial.lost,
        Quantity::LostDatagrams => {
            let (sent, arrived) = trial.sent.zip(trial.arrived)?;
            let steady = trial.metric.load() == Some(Load::Probe) && sent > 0;
            steady.then(|| sent.saturating_sub(arrived) as f64 / sent as f64)
        }
        Quantity::Retransmits => trial.retransmits.map(|segments| segments as f64),
    }
}

/// Decides whether a trial counts, and whether the mechanism failed in it.
///
/// A rule about what the mechanism did makes the trial a failure, which counts. A rule about the machine, and what the
/// workbench could not do, makes it a trial that does not count. In a calibration there is no mechanism that could fail.
pub(crate) fn judge(trial: &mut Trial, rules: &[Exclusion]) {
    for rule in rules {
        let found = amount(trial, rule.when.quantity).filter(|found| *found > rule.when.above);
        if let Some(found) = found {
            let (when, reason) = (rule.when.to_string(), &rule.reason);
            if rule.when.quantity.of_the_mechanism() {
                trial.failed.push(format!("failed by `{when}`: it was {found:.3} ({reason})"));
            } else {
                trial.invalid.push(format!("excluded by `{when}`: it was {found:.3} ({reason})"));
            }
            trial.excluded.push(when);
        }
    }
    let other = other_cores(trial);
    if other > FLAG_OTHER {
        trial.flags.push(format!("{OTHER_WORK} {other:.1} cores busy"));
    }
    let stolen = amount(trial, Quantity::Steal).filter(|share| *share > FLAG_STEAL);
    if let Some(share) = stolen.filter(|_| trial.excluded.is_empty()) {
        trial.flags.push(format!("the hypervisor took {:.1} % of the time", 100.0 * share));
    }
    if let Some(status) = trial.exit_status.filter(|s| *s != 0) {
        // ping says 1 for a single lost reply; the loss rule above decides about those. What a failed mechanism did to
        // the tool is known already.
        if trial.metric.load() != Some(Load::Ping) && trial.failed.is_empty() {
            trial.invalid.push(format!("the tool ended with status {status}"));
        }
    }
    let gated = trial.metric == Metric::Gate && !trial.checks.is_empty();
    if !gated && trial.invalid.is_empty() && trial.failed.is_empty() {
        match trial.value {
            Some(value) if value.is_finite() && value > 0.0 => {}
            Some(value) if value.is_finite() && trial.metric.may_be_zero() => {}
            Some(0.0) if trial.metric.higher_is_better() => {
                trial.failed.push("nothing got through".into());
            }
            _ => trial.invalid.push("nothing was measured".into()),
        }
    }
    if calibrates(&trial.mechanism).is_some() {
        trial.invalid.append(&mut trial.failed);
    }
    trial.valid = trial.invalid.is_empty();
}

#[cfg(test)]
mod tests {
    use super::*;
    use fordway_data::spec::rules;

    #[test]
    fn a_declared_rule_excludes_what_it_is_about_and_nothing_else() {
        let rule = |when: &str| {
            let when = when.to_owned().try_into().unwrap();
            rules(&[Exclusion { when, reason: "so".into() }])
        };
        let lost = || Trial {
            value: Some(1.0),
            sent: Some(100),
            arrived: Some(90),
            lost: Some(0.04),
            retransmits: Some(7),
            ..Trial::blank(Metric::LatencyP50)
        };
        for (when, excluded) in [
            ("lost_datagrams > 0.05", true),
            ("lost_datagrams > 0.1", false),
            ("loss > 0.03", true),
            ("loss > 0.05", false),
            ("retransmits > 6", true),
            ("retransmits > 7", false),
            ("other > 0", false),
        ] {
            let mut trial = lost();
            judge(&mut trial, &rule(when));
            // All of these quantities are the mechanism's doing: the trial counts.
            assert!(trial.valid, "{when}: {:?}", trial.invalid);
            assert_eq!(trial.failed.len(), usize::from(excluded), "{when}: {:?}", trial.failed);
        }
        // As many datagrams as a sender can are lost on purpose.
        let mut flood = Trial { metric: Metric::UdpRateUp, ..lost() };
        judge(&mut flood, &rule("lost_datagrams > 0.05"));
        assert!(flood.valid && flood.failed.is_empty(), "{:?}", flood.failed);
    }

    #[test]
    fn what_the_mechanism_failed_to_do_counts_and_what_the_workbench_could_not_do_does_not() {
        let judged = |trial: Trial| {
            let mut trial = trial;
            judge(&mut trial, &rules(&[]));
            (trial.valid, trial.failed.len(), trial.counted())
        };
        let rate = || Trial { value: Some(5.0), ..Trial::blank(Metric::UdpRateUp) };
        assert_eq!(judged(rate()), (true, 0, Some(5.0)));
        // Zero throughput, more than 5 % of the pings, a load that said so itself.
        assert_eq!(judged(Trial { value: Some(0.0), ..rate() }), (true, 1, None));
        let pings = Trial { lost: Some(1.0), exit_status: Some(1), ..Trial::blank(Metric::Rtt) };
        assert_eq!(judged(pings.clone()), (true, 1, None));
        let told = Trial { failed: vec!["900 of 1000 flows".into()], ..rate() };
        assert_eq!(judged(told.clone()), (true, 1, None));
        // A load too short for the kernel's clock says nothing of its cost.
        assert!(!judged(Trial { value: Some(0.0), ..Trial::blank(Metric::CpuPerPacketUp) }).0);
        // The tool, the counters, the hypervisor.
        assert!(!judged(Trial { exit_status: Some(2), ..rate() }).0);
        assert!(!judged(Trial { invalid: vec!["counters disagree".into()], ..told.clone() }).0);
        let stolen = CpuUse { steal_share: 0.2, ..CpuUse::default() };
        assert!(!judged(Trial { cpu: Some(stolen), ..pings }).0);
        // Without a mechanism, nothing but the workbench can fail.
        let own = fordway_data::trial::calibration(fordway_data::spec::Family::V4);
        assert!(!judged(Trial { mechanism: own, ..told }).0);
    }

    #[test]
    fn work_of_others_is_remarked_and_discards_a_trial_where_a_rule_says_so() {
        // In two seconds: 0.5 s of forwarding, 1 s of the lab's own, and the rest of others.
        let with = |others_s: f64, rule: Option<&str>| {
            let cpu = CpuUse {
                busy_s: 1.5 + others_s,
                softirq_s: 0.5,
                lab_cores: 0.5,
                seconds: 2.0,
                ..CpuUse::default()
            };
            let mut trial = Trial { value: Some(1.0), cpu: Some(cpu), ..Trial::blank(Metric::Rtt) };
            let declared = rule.map(|when| Exclusion {
                when: when.to_owned().try_into().unwrap(),
                reason: "so".into(),
            });
            judge(&mut trial, &rules(declared.as_slice()));
            trial
        };
        let quiet = with(0.09, Some("other > 0"));
        assert!(quiet.valid && quiet.flags.is_empty(), "what the kernel's ticks cannot tell");
        let busy = with(1.0, None);
        assert!(busy.valid, "{:?}", busy.invalid);
        assert_eq!(busy.flags, ["other programs kept 0.5 cores busy"]);
        let excluded = with(1.0, Some("other > 0.4"));
        assert_eq!((excluded.valid, &excluded.excluded[..]), (false, &["other > 0.4".into()][..]));
        assert!(with(1.0, Some("other > 0.6")).valid);
    }

    #[test]
    fn a_limit_that_nothing_exceeds_keeps_every_trial() {
        let stolen = CpuUse { steal_share: 1.0, ..CpuUse::default() };
        let mut trial = Trial {
            value: Some(1.0),
            cpu: Some(stolen),
            lost: Some(0.9),
            ..Trial::blank(Metric::Rtt)
        };
        let rule = |when: &str| Exclusion {
            when: when.to_owned().try_into().unwrap(),
            reason: "all trials are kept".into(),
        };
        judge(&mut trial, &rules(&[rule("steal > 1"), rule("loss > 1")]));
        assert!(trial.valid, "{:?}", trial.invalid);
        assert!(trial.flags[0].contains("the hypervisor took 100.0 %"), "{:?}", trial.flags);
    }

    #[test]
    fn a_trial_counts_only_when_nothing_speaks_against_it() {
        let mut good = Trial { value: Some(1.0), ..Trial::blank(Metric::Rtt) };
        judge(&mut good, &[]);
        assert!(good.valid);
        let mut empty = Trial::blank(Metric::Rtt);
        judge(&mut empty, &[]);
        assert_eq!(
            (empty.valid, &empty.invalid[..]),
            (false, &["nothing was measured".into()][..])
        );
        let stolen = CpuUse { steal_share: 0.2, ..CpuUse::default() };
        let mut stolen = Trial { value: Some(1.0), cpu: Some(stolen), ..Trial::blank(Metric::Rtt) };
        judge(&mut stolen, &rules(&[]));
        assert!(!stolen.valid);
        assert_eq!(stolen.excluded, ["steal > 0.1"]);
    }
}
