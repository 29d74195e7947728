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
mod nginx;
pub(crate) mod perf;
pub(crate) mod ping;
pub(crate) mod pulses;
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

/// Those of these programs that are missing, with the line that installs them; each stands with its package.
pub(crate) fn to_install(programs: &[(&str, &str)]) -> Option<String> {
    let lacks = programs.iter().filter(|(program, _)| find_program(program).is_none());
    let (programs, packages): (Vec<&str>, Vec<&str>) = lacks.copied().unzip();
    let are = if programs.len() == 1 { "is" } else { "are" };
    (!programs.is_empty()).then(|| {
        let (programs, packages) = (programs.join(", "), packages.join(" "));
        format!("{programs} {are} not installed: apt-get install {packages}")
    })
}
