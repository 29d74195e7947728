//! What the tests of whole runs share, each a part of it. They need root, iperf3 and TAYGA; where one is missing the test says
//! so and passes.

#![allow(dead_code)]

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

/// Whether a mechanism can run here, for what it is asked about.
pub(crate) fn has(implementation: &str, kind: &str) -> bool {
    let doctor: serde_json::Value =
        serde_json::from_slice(&lab(&["doctor", "--json"]).stdout).expect("doctor prints JSON");
    let found = doctor["mechanisms"].as_array().is_some_and(|all| {
        all.iter().any(|m| {
            m["implementation"] == implementation && m["kind"] == kind && !m["version"].is_null()
        })
    });
    if !found {
        eprintln!("SKIPPED: no {implementation} for {kind}");
    }
    found
}

/// Whether these programs are installed.
pub(crate) fn programs(names: &[&str]) -> bool {
    let lacks = |name: &&&str| Command::new(name).arg("--version").output().is_err();
    let missing: Vec<&&str> = names.iter().filter(lacks).collect();
    if !missing.is_empty() {
        eprintln!("SKIPPED: needs {missing:?}");
    }
    missing.is_empty()
}

/// Namespaces that exist now, whoever made them.
pub(crate) fn namespaces() -> Vec<String> {
    std::fs::read_dir("/run/netns")
        .map(|dir| dir.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect())
        .unwrap_or_default()
}

/// The objects of a file with one a line.
pub(crate) fn lines(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect()
}

/// Trials of one block of these mechanisms, as far as they can be measured here.
pub(crate) fn trials(experiment: &str, only: &str) -> usize {
    let args = ["plan", experiment, "--only", only, "--blocks", "1", "--json"];
    let plan: serde_json::Value = serde_json::from_slice(&lab(&args).stdout).expect("JSON");
    plan["plan"]["trials"].as_u64().expect("a number") as usize
}
