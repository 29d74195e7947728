//! What the tests of whole runs share. They need root, iperf3 and TAYGA; where one is missing the test says
//! so and passes.

use std::path::Path;
use std::process::{Command, Output};

pub(crate) const LAB: &str = env!("CARGO_BIN_EXE_fordway-lab");

/// Runs change the machine's namespaces and count what is left: one at a time.
pub(crate) static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Runs the lab.
pub(crate) fn lab(args: &[&str]) -> Output {
    Command::new(LAB).args(args).env("NO_COLOR", "1").output().expect("the lab starts")
}

/// Octets as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether whole runs are possible here.
pub(crate) fn can_run() -> bool {
    let root = text(&Command::new("id").arg("-u").output().expect("id").stdout).trim() == "0";
    let doctor: serde_json::Value =
        serde_json::from_slice(&lab(&["doctor", "--json"]).stdout).expect("doctor prints JSON");
    let tools = doctor["ready"].as_bool().unwrap_or(false);
    let tayga = doctor["mechanisms"].as_array().is_some_and(|all| {
        all.iter().any(|m| m["implementation"] == "tayga" && !m["version"].is_null())
    });
    let tun = doctor["tun"].as_bool().unwrap_or(false);
    if root && tools && tayga && tun {
        return true;
    }
    eprintln!(
        "SKIPPED: needs root ({root}), tools ({tools}), TAYGA ({tayga}), /dev/net/tun ({tun})"
    );
    false
}

/// The objects of a file with one a line.
pub(crate) fn lines(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect()
}

/// Metrics that the experiment can measure here.
pub(crate) fn metrics(experiment: &str) -> usize {
    let json = |args: &[&str]| -> serde_json::Value {
        serde_json::from_slice(&lab(args).stdout).expect("JSON")
    };
    let all = json(&["list", "--json"]);
    let found = all.as_array().expect("list").iter().find(|e| e["name"] == experiment);
    let all = found.expect("the experiment")["metrics"].as_array().expect("metrics").len();
    let plan = json(&["plan", experiment, "--json"]);
    all - plan["run"]["unmeasured"].as_object().expect("unmeasured").len()
}
