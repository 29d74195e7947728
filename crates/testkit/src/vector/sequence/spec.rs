//! The file format of sequences.

use std::collections::BTreeMap;

use fordway_xlat::Config;
use serde::Deserialize;

use super::flow::{Flow, FlowSpec};
use super::settings::{Nat64Spec, SettingsError};
use super::time::Time;
use crate::packet::{BuildError, Payload};
use crate::vector::case::CaseError;
use crate::vector::config::{ConfigSpec, ConfigSpecError};
use crate::vector::format::OffloadSpec;

/// A sequence, read and checked.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// Its path below the folder of vectors, without `.toml`.
    pub name: String,
    /// What is shown, in one line.
    pub title: String,
    /// The section that demands it.
    pub source: String,
    /// Subjects to which it does not apply, and why.
    pub skip: BTreeMap<String, String>,
    /// The first IPv4 identification of the translator's generator.
    pub identification: u16,
    /// The translator's configuration.
    pub config: Config,
    /// What the `nat64` table says.
    pub nat64: Nat64Spec,
    /// The steps in turn.
    pub steps: Vec<StepSpec>,
    flows: BTreeMap<String, Flow>,
}

/// The file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    source: String,
    /// More for people.
    #[serde(rename = "note")]
    _note: Option<String>,
    #[serde(default)]
    skip: BTreeMap<String, String>,
    #[serde(default = "first_identification")]
    identification: u16,
    #[serde(default)]
    config: ConfigSpec,
    nat64: Nat64Spec,
    flow: Option<FlowSpec>,
    #[serde(default)]
    flows: BTreeMap<String, FlowSpec>,
    step: Vec<StepSpec>,
}

/// One step: a packet that comes in, or only a moment; then what has come out, and what the tables hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepSpec {
    /// When; not before the step in front. Missing: at the same time.
    pub at: Option<Time>,
    /// For people.
    pub note: Option<String>,
    /// Which of the `flows`.
    pub flow: Option<String>,
    /// What the flow's IPv6 host sends: TCP flags as letters (`.` for none), `data` (UDP), `request` or
    /// `reply` (ICMP echo).
    pub v6: Option<String>,
    /// What the flow's IPv4 host sends.
    pub v4: Option<String>,
    /// Octets behind the flow's header.
    pub payload: Option<Payload>,
    /// Another packet: the keys of a packet in any vector, with variables.
    pub input: Option<toml::Table>,
    /// Its offload state.
    #[serde(default)]
    pub offload: OffloadSpec,
    /// Its mark.
    #[serde(default)]
    pub mark: u32,
    /// What comes of the packet: `"forward"`, `"hold"`, `"drop REASON"`, `"reply ERROR REASON"` with the
    /// packets that follow from the flow, or the table of any vector.
    pub expect: Option<toml::Value>,
    /// What the sweeper has sent since the step before; missing: nothing.
    #[serde(default)]
    pub sends: Vec<toml::Table>,
    /// The state of the flow's session: RFC 6146's in snake case, `open` of UDP and ICMP, `closed` if
    /// there is none.
    pub state: Option<String>,
    /// What is left of its lifetime.
    pub left: Option<Time>,
    /// The number of BIB entries in use, without those that rest.
    pub bibs: Option<usize>,
    /// The number of sessions.
    pub sessions: Option<usize>,
    /// The number of BIB entries that rest.
    pub resting: Option<usize>,
    /// Every BIB entry in use: protocol, IPv6 and IPv4 transport address.
    pub bib: Option<Vec<toml::Value>>,
    /// What subscribers have in use.
    #[serde(default)]
    pub subscriber: Vec<SubscriberSpec>,
    /// What the operator does, before the packet.
    pub operator: Option<Operator>,
}

/// What a subscriber has in use.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubscriberSpec {
    /// Its prefix, without length.
    pub prefix: std::net::Ipv6Addr,
    /// BIB entries of TCP, UDP, ICMP.
    pub ports: Option<[u32; 3]>,
    /// Sessions.
    pub sessions: Option<u32>,
    /// Blocks of ports.
    pub blocks: Option<usize>,
}

/// What an operator can do while packets flow.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Operator {
    /// Make a static BIB entry.
    Add(toml::Value),
    /// Take a BIB entry away: protocol, IPv4 transport address.
    Remove(toml::Value),
    /// No new sessions from now on (or, `false`, again).
    Drain(bool),
}

/// A file that is no sequence.
#[derive(Debug, thiserror::Error)]
pub enum SequenceError {
    /// Not the file format.
    #[error(transparent)]
    Format(#[from] toml::de::Error),
    /// The `config` table.
    #[error("config: {0}")]
    Config(#[from] ConfigSpecError),
    /// The `nat64` table.
    #[error("nat64: {0}")]
    Settings(#[from] SettingsError),
    /// A flow.
    #[error("flow: {0}")]
    Flow(&'static str),
    /// A step that is not understood.
    #[error("step {0}: {1}")]
    Step(usize, String),
    /// A packet.
    #[error("{0}: {1}")]
    Packet(&'static str, BuildError),
    /// What is expected.
    #[error(transparent)]
    Case(#[from] CaseError),
}

impl Sequence {
    /// Reads a sequence.
    pub fn parse(name: &str, text: &str) -> Result<Sequence, SequenceError> {
        let file: File = toml::from_str(text)?;
        let config = file.config.config()?;
        file.nat64.settings()?;
        let mut specs = file.flows;
        specs.extend(file.flow.map(|flow| (String::new(), flow)));
        let pool6 = file.config.pool6.first().map_or("", String::as_str);
        let flows = specs.into_iter().map(|(name, spec)| Ok((name, Flow::new(spec, pool6)?)));
        let flows = flows.collect::<Result<BTreeMap<_, _>, _>>().map_err(SequenceError::Flow)?;
        let sequence = Sequence {
            name: name.to_owned(),
            title: file.title,
            source: file.source,
            skip: file.skip,
            identification: file.identification,
            config,
            nat64: file.nat64,
            steps: file.step,
            flows,
        };
        for (index, step) in sequence.steps.iter().enumerate() {
            sequence.check(step).map_err(|text| SequenceError::Step(index, text))?;
        }
        Ok(sequence)
    }

    /// What can be told without running it.
    fn check(&self, step: &StepSpec) -> Result<(), String> {
        let inputs = [step.v6.is_some(), step.v4.is_some(), step.input.is_some()];
        let inputs = inputs.iter().filter(|&&given| given).count();
        if inputs > 1 {
            return Err("give at most one of v6, v4 and input".into());
        }
        if (inputs == 1) != step.expect.is_some() {
            return Err("a packet needs `expect`, and nothing else has it".into());
        }
        let needs_flow = step.v6.is_some()
            || step.v4.is_some()
            || step.state.is_some()
            || step.left.is_some()
            || step.flow.is_some();
        if needs_flow && self.flow(step).is_none() {
            return Err("no such flow".into());
        }
        Ok(())
    }

    /// The flow that a step is about.
    pub(super) fn flow(&self, step: &StepSpec) -> Option<&Flow> {
        match &step.flow {
            Some(name) => self.flows.get(name),
            None if self.flows.len() == 1 => self.flows.values().next(),
            None => self.flows.get(""),
        }
    }
}

fn first_identification() -> u16 {
    1
}
