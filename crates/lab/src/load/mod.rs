//! Load and its measurement: by tools that everybody knows, and by the lab's own tester where no
//! such tool measures what is asked.

pub(crate) mod ab;
pub(crate) mod background;
pub(crate) mod datagrams;
pub(crate) mod dns;
pub(crate) mod dnsperf;
pub(crate) mod echo;
pub(crate) mod exchange;
pub(crate) mod fetch;
pub(crate) mod flows;
pub(crate) mod frames;
pub(crate) mod initiation;
pub(crate) mod iperf;
pub(crate) mod perf;
pub(crate) mod ping;
pub(crate) mod sessions;
pub(crate) mod sink;
pub(crate) mod tester;
pub(crate) mod transactions;

use serde::de::DeserializeOwned;

use crate::error::{LabError, Result};
use crate::process::find_program;

/// Reads the JSON object that one of the lab's testers printed, after whatever else it said.
fn read_json<T: DeserializeOwned>(text: &str) -> Result<T> {
    let bad = |why: String| LabError::Parse { tool: "fordway-lab tester", why };
    let at = text.find('{').ok_or_else(|| bad(format!("no JSON in `{}`", text.trim())))?;
    serde_json::from_str(&text[at..]).map_err(|e| bad(e.to_string()))
}

/// The line that installs those of these programs that are missing; each stands with its package.
fn to_install(programs: &[(&str, &str)]) -> Option<String> {
    let lacks = programs.iter().filter(|(program, _)| find_program(program).is_none());
    let packages: Vec<&str> = lacks.map(|(_, package)| *package).collect();
    (!packages.is_empty()).then(|| format!("apt-get install {}", packages.join(" ")))
}
