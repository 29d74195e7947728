//! Experiments as data: the built-in TOML files, and the choices of one run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{DataError, Result};
use crate::findings::{self, Findings};

mod check;
mod command;
mod device;
mod document;
mod entries;
mod exclude;
pub(crate) mod goals;
mod group;
mod guest;
mod hosts;
mod implementation;
mod kind;
mod metric;
mod own;
mod pin;
mod point;
mod profile;
pub(crate) mod published;
mod schema;

pub use command::{Commands, End, filled, fixed};
pub use device::{Device, DeviceCounters};
pub use entries::{Entries, Table};
pub use exclude::{Exclusion, Quantity, rules};
pub use goals::{Goal, Measure, Want};
pub use group::{By, Exchange, Fetch, Group, Load, Mixed, Transact, Transport, Way};
pub use guest::{Accelerator, Guest};
pub use hosts::{EXAMPLE, HostSpec, Hosts};
pub use implementation::{IMPLEMENTATIONS, RESOLVERS, kinds};
pub use kind::{Carries, Kind};
pub use metric::Metric;
pub(crate) use own::Known;
pub use own::{Better, LoadSpec, MetricSpec, Missing, OwnLoad, OwnMetric, Scan, experiment};
pub use pin::{Cores, Pin, Processors, Role};
pub use point::{Axis, Point, quantity};
pub use profile::{Profile, Sender};
pub(crate) use schema::SCHEMA;

const BUILT_IN: &[&str] = &[
    include_str!("../experiments/aa.toml"),
    include_str!("../experiments/clat-vs-dual-stack.toml"),
    include_str!("../experiments/control.toml"),
    include_str!("../experiments/demo.toml"),
    include_str!("../experiments/dns64.toml"),
    include_str!("../experiments/entries.toml"),
    include_str!("../experiments/failover.toml"),
    include_str!("../experiments/goals.toml"),
    include_str!("../experiments/http-translators.toml"),
    include_str!("../experiments/interop-mechanisms.toml"),
    include_str!("../experiments/kernel-translators.toml"),
    include_str!("../experiments/mechanisms-goals.toml"),
    include_str!("../experiments/nat64-vs-nat44.toml"),
    include_str!("../experiments/nat64.toml"),
    include_str!("../experiments/pairs.toml"),
    include_str!("../experiments/imix.toml"),
    include_str!("../experiments/replication.toml"),
    include_str!("../experiments/rfc8219.toml"),
    include_str!("../experiments/rfc9411.toml"),
    include_str!("../experiments/rfc9693.toml"),
    include_str!("../experiments/small-packets.toml"),
    include_str!("../experiments/tables.toml"),
    include_str!("../experiments/tcp-load.toml"),
];

/// How runs are measured: raised when numbers of one way and of another must not be mixed. Method 1 took conditions and
/// loads in a fixed order, found the generator's ceiling once, divided a flood's processor time by what arrived, and
/// discarded trials in which a mechanism had failed.
pub const METHOD: u32 = 2;

/// An experiment: question, decision rule, mechanisms, profiles.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name on the command line.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9._-]*$"))]
    pub name: String,
    /// Heading of the report.
    pub title: String,
    /// The question, fixed before the run.
    pub question: String,
    /// The decision rule, fixed before the run.
    pub decision: String,
    /// Equivalence margin of a ratio: 0.03 is 3 %.
    #[schemars(range(min = 0.001, max = 0.5))]
    pub margin: f64,
    /// Error rate of the tests.
    #[schemars(range(min = 0.0001, max = 0.5))]
    pub alpha: f64,
    /// What is measured on each deployment.
    #[schemars(length(min = 1))]
    pub metrics: Vec<Metric>,
    /// The mechanism that shows drift.
    pub sentinel: String,
    /// Entry of `published.toml` to print beside the results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<String>,
    /// Set when the run is judged by the goals table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goals: Option<String>,
    /// Loads of the experiment's own.
    #[serde(default, rename = "load", skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<LoadSpec>,
    /// Metrics of the experiment's own.
    #[serde(default, rename = "metric", skip_serializing_if = "Vec::is_empty")]
    pub own_metrics: Vec<MetricSpec>,
    /// Goals of the experiment's own.
    #[serde(default, rename = "goal", skip_serializing_if = "Vec::is_empty")]
    pub own_goals: Vec<Goal>,
    /// Set when the run asks the gateway what its programs cost per packet (`fordway bench`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub program_costs: bool,
    /// Set when the run also finds out which ways each mechanism opens.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub matrix: bool,
    /// Mechanisms without which the experiment is skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// Differences that the report shows for quantities measured at many points.
    #[serde(default, rename = "difference", skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
    /// Coefficient of variation of one deployment's value, where it is known: what blocks can show follows from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0001, max = 5.0))]
    pub expected_cv: Option<f64>,
    /// Rules by which trials don't count, beside the built-in ones.
    #[serde(default, rename = "exclude", skip_serializing_if = "Vec::is_empty")]
    pub exclusions: Vec<Exclusion>,
    /// Sizes of a run.
    pub profile: BTreeMap<String, Profile>,
    /// What is compared.
    #[serde(rename = "mechanism")]
    #[schemars(length(min = 1))]
    pub mechanisms: Vec<MechanismSpec>,
    /// The choices of one run; only in a run's own `spec.toml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub run: Option<RunSpec>,
}

/// A difference between two mechanisms.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// The one.
    pub of: String,
    /// The other, whose value is taken away.
    pub minus: String,
}

/// IPv4 or IPv6 as the application sees it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// `v4` or `v6`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
        }
    }
}

/// What another gateway beside one that keeps sessions does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Standby {
    /// It is told of all sessions.
    Told,
    /// It is told, and goes on with them when the first one dies: next hops of client and server move to it by VRRP.
    TakesOver,
}

/// One arm of an experiment.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MechanismSpec {
    /// Name in artefacts and on the command line.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9._-]*$"))]
    pub name: String,
    /// Name for people.
    pub label: String,
    /// Which program does it.
    pub implementation: String,
    /// What it is for.
    pub kind: Kind,
    /// What the application speaks.
    pub family: Family,
    /// Namespaces between application and server that forward.
    #[schemars(range(min = 1, max = 2))]
    pub hops: u8,
    /// The mechanism that its ratios are taken to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The mechanism it repeats, for the A/A noise floor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<String>,
    /// Engine, for implementations that have several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Attach point, for engines that have several. Of Fordway's, `direct` is the ingress with direct forwarding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach: Option<String>,
    /// Application gateways, for implementations that have some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alg: Vec<String>,
    /// A table with many entries, for implementation `fordway`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<Entries>,
    /// What another one beside it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<Standby>,
    /// Threads of a DNS64 server; 0 is one per processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Implementation of the name server in the box in the middle, where sessions are found by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolver: Option<String>,
    /// A known cost, for implementation `native`: per cent of small datagrams that are dropped just before they are
    /// counted; with 0 the same rule drops none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 50))]
    pub cost_percent: Option<u8>,
    /// What is measured on it; empty: all of the experiment's metrics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Metric>,
    /// Command lines, for implementation `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Commands>,
    /// Another machine, for implementation `device`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,
}

/// The choices of one run, written beside the experiment.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    /// Profile name.
    pub profile: String,
    /// How it is measured: see [`METHOD`]. Absent in runs of method 1.
    #[serde(default = "first_method")]
    pub method: u32,
    /// Seed of the order of conditions, mechanisms and loads.
    pub seed: u64,
    /// Randomised complete blocks per condition.
    pub blocks: u32,
    /// Lengths of a TCP flow.
    pub durations_s: Vec<u64>,
    /// Clock sources to switch through; empty leaves the machine's own.
    pub clocksources: Vec<String>,
    /// Whether segmentation and checksum offloads of the veth devices stay on.
    pub offloads: bool,
    /// Shares of questions for known names, per cent; several are a factor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cached: Vec<u8>,
    /// Shares of names with an AAAA record of their own, per cent; several are a factor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub native: Vec<u8>,
    /// Mechanisms that run, in the experiment's order.
    pub mechanisms: Vec<String>,
    /// Mechanisms left out, and why.
    pub skipped: BTreeMap<String, String>,
    /// Metrics left out, by name, and why.
    #[serde(default)]
    pub unmeasured: BTreeMap<String, String>,
    /// Version of each implementation.
    pub versions: BTreeMap<String, String>,
    /// The command line that repeats the run.
    pub replay: String,
    /// The two hosts, when it is not one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Hosts>,
    /// What its parts are bound to, when they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<Pin>,
    /// The guest in which it runs, when it is not the machine itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<Guest>,
}

fn first_method() -> u32 {
    1
}

impl RunSpec {
    /// Choices for what is no run: only the network is as usual.
    pub fn bare() -> Self {
        Self {
            profile: "quick".into(),
            method: METHOD,
            seed: 0,
            blocks: 1,
            durations_s: vec![1],
            clocksources: Vec::new(),
            offloads: true,
            cached: Vec::new(),
            native: Vec::new(),
            mechanisms: Vec::new(),
            skipped: BTreeMap::new(),
            unmeasured: BTreeMap::new(),
            versions: BTreeMap::new(),
            replay: String::new(),
            hosts: None,
            pin: None,
            guest: None,
        }
    }

    /// Labels of the metrics left out, by the reason.
    pub fn unmeasured_by_reason(&self) -> BTreeMap<&str, Vec<&str>> {
        let built_in = |name: &str| Metric::ALL.iter().position(|metric| metric.name() == name);
        let mut names: Vec<(&String, &String)> = self.unmeasured.iter().collect();
        names.sort_by_key(|(name, _)| built_in(name).unwrap_or(usize::MAX));
        let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, reason) in names {
            let label = built_in(name).map_or(name.as_str(), |place| Metric::ALL[place].label());
            all.entry(reason).or_default().push(label);
        }
        all
    }
}

/// Whether what was named is a file rather than a built-in experiment.
pub fn is_file(name: &str) -> bool {
    name.ends_with(".toml") || name.contains('/')
}

impl Experiment {
    /// All built-in experiments.
    pub fn built_in() -> Result<Vec<Self>> {
        BUILT_IN.iter().map(|text| Self::parse(text)).collect()
    }

    /// The built-in experiment of this name, or the one in this file.
    pub fn named(name: &str) -> Result<Self> {
        if !is_file(name) {
            return Self::find(name);
        }
        Self::from_file(name)
    }

    /// The experiment in this file.
    pub fn from_file(file: &str) -> Result<Self> {
        let text = std::fs::read_to_string(file).map_err(|error| {
            DataError::Usage(format!(
                "{file}: {error}; `fordway-lab show NAME > {file}` writes one to begin with"
            ))
        })?;
        let mut own = Self::read(file, &text)?;
        // Of a finished run's file, only the experiment is asked for here.
        own.run = None;
        Ok(own)
    }

    /// The built-in experiment of this name.
    pub fn find(name: &str) -> Result<Self> {
        Self::parse(Self::text(name)?)
    }

    /// The file of the built-in experiment of this name, with its comments.
    pub fn text(name: &str) -> Result<&'static str> {
        let own_name = |text: &str| -> Option<String> {
            let table: toml::Table = toml::from_str(text).ok()?;
            Some(table.get("name")?.as_str()?.to_owned())
        };
        let all: Vec<(String, &str)> =
            BUILT_IN.iter().filter_map(|text| Some((own_name(text)?, *text))).collect();
        if let Some((_, text)) = all.iter().find(|(own, _)| own == name) {
            return Ok(text);
        }
        let names = all.iter().map(|(name, _)| name.as_str());
        Err(DataError::Usage(format!(
            "no experiment is called `{name}`; {}. Try `fordway-lab list`, or name a file: {name}.toml",
            findings::nearest(name, names, "there are")
        )))
    }

    /// Reads a built-in experiment or a run's `spec.toml`.
    pub fn parse(text: &str) -> Result<Self> {
        Self::read("experiment file", text)
    }

    /// Reads an experiment from a text, and checks that it is of the right shape and fits together; the error
    /// names everything that is wrong, with its line.
    pub fn read(origin: &str, text: &str) -> Result<Self> {
        let refuse = |all| DataError::Experiment(Box::new(Findings::new(origin, text, all)));
        let mut document = document::Document::read(text).map_err(refuse)?;
        let run = document.take("run");
        let _known = Known::of_file(&document.value);
        let mut wrong = schema::refused(&document);
        wrong.extend(check::misfits(&document));
        if !wrong.is_empty() {
            return Err(refuse(wrong));
        }
        let at_once = |error: toml::de::Error| findings::Finding {
            span: error.span().unwrap_or(0..0),
            message: error.message().to_owned(),
            fix: None,
        };
        let spec: Self = toml::from_str(text).map_err(|error| refuse(vec![at_once(error)]))?;
        if let Some(message) = run.and_then(|_| check::run_misfits(&spec)) {
            let span = document.key_at("/run");
            return Err(refuse(vec![findings::Finding { span, message, fix: None }]));
        }
        Ok(spec)
    }

    /// The same with one of its mechanisms alone, so many times in each block: whatever differs then is noise.
    pub fn repeated(&self, name: &str, times: u32) -> Result<Self> {
        let first = MechanismSpec { base: None, same_as: None, ..self.mechanism(name)?.clone() };
        let mut mechanisms = vec![first.clone()];
        mechanisms.extend((2..=times).map(|number| MechanismSpec {
            name: format!("{name}-aa{number}"),
            label: format!("{} (A/A {number})", first.label),
            base: Some(name.to_owned()),
            same_as: Some(name.to_owned()),
            ..first.clone()
        }));
        Ok(Self {
            title: format!("{}: A/A of {}", self.title, first.label),
            question: format!("Does {} differ from itself?", first.label),
            metrics: if first.metrics.is_empty() { self.metrics.clone() } else { first.metrics },
            sentinel: name.to_owned(),
            published: None,
            goals: None,
            own_goals: Vec::new(),
            program_costs: false,
            requires: Vec::new(),
            differences: Vec::new(),
            mechanisms,
            ..self.clone()
        })
    }

    /// The mechanism of this name.
    pub fn mechanism(&self, name: &str) -> Result<&MechanismSpec> {
        self.mechanisms.iter().find(|m| m.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.mechanisms.iter().map(|m| m.name.as_str()).collect();
            DataError::Usage(format!(
                "experiment {} has no mechanism `{name}`; it has: {}",
                self.name,
                names.join(", ")
            ))
        })
    }

    /// The profile of this name.
    pub fn profile(&self, name: &str) -> Result<&Profile> {
        self.profile.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.profile.keys().map(String::as_str).collect();
            DataError::Usage(format!(
                "experiment {} has no profile `{name}`; it has: {}",
                self.name,
                names.join(", ")
            ))
        })
    }

    /// The choices of this run; an error when the file is a bare experiment.
    pub fn run(&self) -> Result<&RunSpec> {
        self.run.as_ref().ok_or_else(|| {
            DataError::Usage("spec.toml has no [run] table: it is not the file of a run".into())
        })
    }
}

#[cfg(test)]
mod tests;
