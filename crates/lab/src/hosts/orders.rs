//! What the lab's end on another host is asked: one JSON object a line, and one for each answer.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fordway_data::spec::{Experiment, MechanismSpec, Pin, Processors};
use serde::{Deserialize, Serialize};

use crate::error::LabError;

/// How often the other end shows that it is there.
pub(crate) const BEAT: std::time::Duration = std::time::Duration::from_secs(2);

/// An order with its number, which its answer bears.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Numbered {
    /// From 1.
    pub(crate) number: u64,
    /// What is asked.
    pub(crate) order: Order,
}

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Whether it is there.
    Answer,
    /// Which of these mechanisms can run there, and what can't be measured: [`Surveyed`].
    Survey {
        /// The experiment.
        #[serde(deserialize_with = "fordway_data::spec::experiment")]
        experiment: Box<Experiment>,
        /// Mechanisms.
        wanted: Vec<String>,
        /// Whether each kernel engine is started once.
        rehearse: bool,
    },
    /// The environment record.
    Environment {
        /// Its programs are recorded.
        #[serde(deserialize_with = "fordway_data::spec::experiment")]
        experiment: Box<Experiment>,
    },
    /// A device: [`super::record::Nic`].
    Device {
        /// Its name.
        name: String,
    },
    /// Processors that programs may be bound to: [`fordway_data::spec::Cores`].
    Cores,
    /// On which processors work is done, and that of a device: [`fordway_data::environment::Affinity`].
    Affinity {
        /// Its name.
        device: String,
    },
    /// Bind a device's interrupts, and keep the frequency of these processors; the end puts all of it back.
    Bind {
        /// The device.
        device: String,
        /// Where its interrupts go; `None`: where they went.
        irq: Option<Processors>,
        /// Processors that keep their frequency.
        busy: Processors,
    },
    /// What of a mechanism left its processors, in words.
    Astray {
        /// The mechanism.
        handle: u64,
        /// What it was bound to.
        on: Processors,
    },
    /// Clock sources: the present one, then all on offer.
    Clocksources,
    /// Switch the clock source; the end puts it back.
    Clocksource {
        /// To this one.
        name: String,
    },
    /// Room for so many tracked connections, in place of earlier room: the limits then; the end puts them back.
    Conntrack {
        /// How many.
        connections: u64,
    },
    /// A file of the run: its path.
    Put {
        /// Name.
        name: String,
        /// Text.
        content: String,
    },
    /// Put a mechanism on a network that stands already: [`Placed`].
    Deploy(Box<Deploy>),
    /// What it runs, in words.
    Runs {
        /// The mechanism.
        handle: u64,
        /// The arm.
        spec: Box<MechanismSpec>,
    },
    /// Whether one of its processes has ended.
    Gone {
        /// The mechanism.
        handle: u64,
    },
    /// Its counters.
    Counters {
        /// The mechanism.
        handle: u64,
    },
    /// What it takes of the memory.
    Memory {
        /// The mechanism.
        handle: u64,
    },
    /// What it has written into its logs, by file.
    Logs {
        /// The name of its deployment.
        name: String,
    },
    /// End it.
    Stop {
        /// The mechanism.
        handle: u64,
    },
    /// Begin to count processor time of the machine, and of these mechanisms.
    Count {
        /// The mechanisms.
        handles: Vec<u64>,
    },
    /// End that: processor use.
    Counted {
        /// What [`Order::Count`] answered.
        handle: u64,
    },
    /// Remove a namespace of the run, and what runs in it.
    Remove {
        /// Its name.
        namespace: String,
    },
}

/// A mechanism for a network.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Deploy {
    /// What the names of the network's places begin with.
    pub(crate) prefix: String,
    /// Whether veth devices keep their offloads.
    pub(crate) offloads: bool,
    /// The arm that the network is for.
    pub(crate) arm: MechanismSpec,
    /// The part of it that is wanted.
    pub(crate) spec: MechanismSpec,
    /// Name of the deployment.
    pub(crate) name: String,
    /// Sessions that it must have room for.
    pub(crate) sessions: u32,
    /// What it is bound to.
    pub(crate) pin: Option<Pin>,
}

/// A mechanism in place.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Placed {
    /// By which it is called from now on.
    pub(crate) handle: u64,
    /// Its configuration.
    pub(crate) config: String,
    /// Its command line.
    pub(crate) argv: Vec<String>,
}

/// What can run on a host.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Surveyed {
    /// Versions of mechanisms that can run.
    pub(crate) versions: BTreeMap<String, String>,
    /// Why the others can't.
    pub(crate) skipped: BTreeMap<String, String>,
    /// Metrics that can't be measured, and why.
    pub(crate) unmeasured: BTreeMap<String, String>,
}

/// What an end says first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Folder of the run there.
    pub(crate) folder: PathBuf,
    /// What crashed runs had left there, and is gone now: namespaces.
    pub(crate) cleaned: Vec<String>,
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// Number of the order.
    pub(crate) number: u64,
    /// What was asked for, or why not.
    pub(crate) outcome: std::result::Result<serde_json::Value, Refusal>,
}

/// Why an order was not done.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Refusal {
    /// A mechanism does not come up.
    NotReady {
        /// Which.
        mechanism: String,
        /// Why.
        why: String,
    },
    /// Something is not installed.
    Missing(String),
    /// Anything else.
    Other(String),
}

impl From<LabError> for Refusal {
    fn from(error: LabError) -> Self {
        match error {
            LabError::NotReady { mechanism, why } => Self::NotReady { mechanism, why },
            LabError::Missing(what) => Self::Missing(what),
            other => Self::Other(other.to_string()),
        }
    }
}

impl Refusal {
    /// The error of this end.
    pub(crate) fn error(self, host: &str) -> LabError {
        match self {
            Self::NotReady { mechanism, why } => LabError::NotReady { mechanism, why },
            Self::Missing(what) => LabError::Missing(format!("host {host}: {what}")),
            Self::Other(why) => LabError::There { host: host.to_owned(), why },
        }
    }
}
