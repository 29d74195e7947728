//! Mechanisms by a user's own command lines, as good as any other: deployed, probed, measured, taken down.

mod common;

use std::path::Path;

use common::{ALONE, can_run, has, lab, lines, namespaces, text};

const HEAD: &str = r#"
name = "mine"
title = "Mine"
question = "Does what a user writes work?"
decision = "It passes the gate."
margin = 0.03
alpha = 0.05
metrics = ["rtt"]
sentinel = "native-v6"

[profile.quick]
about = "tiny"
durations_s = [1]
interval_s = 0.5
ping_count = 10
ping_interval_s = 0.01
blocks_min = 1
blocks_max = 1

[[mechanism]]
name = "native-v6"
label = "Native IPv6"
implementation = "native"
kind = "native"
family = "v6"
hops = 1
"#;

/// The example of the manual, which has to work as it stands there.
const TAYGA: &str = include_str!("../../../docs/lab-experiments.md");

const NAT44: &str = r#"
[[mechanism]]
name = "nat44-mine"
label = "NAT44 by hand"
implementation = "command"
kind = "nat44"
family = "v4"
hops = 1
base = "native-v6"

[mechanism.command]
requires = ["nft"]
install = "apt-get install nftables"
version = ["nft", "--version"]
up = [["nft", "-f", "{dir}/rules/nat44.nft"]]
counters = ["sh", "-c", """
n=$(nft -j list counter ip mine new | sed 's/.*"packets": \\([0-9]*\\).*/\\1/')
echo "{\\"sessions\\": $n}"
"""]

[mechanism.command.config]
"rules/nat44.nft" = """
table ip mine {
  counter new { }
  chain out {
    type nat hook postrouting priority srcnat; policy accept;
    oifname "{device_up}" counter name new masquerade
  }
}
"""
"#;

/// Runs one mechanism of an experiment; its gate and its trials.
fn run(dir: &Path, experiment: &str, only: &str) -> (serde_json::Value, Vec<serde_json::Value>) {
    let file = dir.join("mine.toml");
    std::fs::write(&file, experiment).unwrap();
    let out = dir.join("out");
    let args = ["run", file.to_str().unwrap(), "--only", only, "--blocks", "1", "--duration", "1"];
    let done = lab(&[&args[..], &["--out", out.to_str().unwrap()]].concat());
    assert!(done.status.success(), "{}", text(&done.stderr));
    let bytes = std::fs::read(out.join("results.json")).unwrap();
    let results: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    (results["gate"][only].clone(), lines(&out.join("trials.jsonl")))
}

/// Failed probes of a gate; a gate without probes has failed.
fn failed(gate: &serde_json::Value) -> Vec<String> {
    let checks = gate.as_array().filter(|all| all.len() > 5);
    let Some(checks) = checks else { return vec![format!("few probes: {gate}")] };
    checks.iter().filter(|check| check["ok"] != true).map(ToString::to_string).collect()
}

#[test]
fn tayga_by_the_manuals_example_passes_the_gate_and_is_measured() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !can_run() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let example = TAYGA.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let all = "\"tcp_throughput_up\", \"tcp_throughput_down\", \"rtt\"";
    assert!(example.contains(all), "{example}");
    let example = example.replace(all, "\"rtt\"");
    let newer = |path: &str| {
        let program = std::fs::read(path).unwrap_or_default();
        program.windows(11).any(|word| word == b"wkpf-strict")
    };
    let example = match ["/usr/sbin/tayga", "/usr/local/sbin/tayga"].into_iter().any(newer) {
        true => example.replace("prefix {pool6}", "prefix {pool6}\nwkpf-strict no"),
        false => example,
    };
    let (gate, trials) = run(dir.path(), &example, "clat-mine");
    // Some versions lose time-exceeded errors, also where the lab itself sets them up.
    let own = |check: &String| !check.contains("\"icmp time exceeded\"");
    let failed: Vec<String> = failed(&gate).into_iter().filter(own).collect();
    assert_eq!(failed, Vec::<String>::new());
    let trial = trials.iter().find(|t| t["block"] == 1 && t["metric"] == "rtt").unwrap();
    assert!(trial["value"].as_f64().is_some_and(|ms| ms > 0.0), "{trial}");
    assert!(trial["mechanism_argv"].as_array().unwrap().iter().any(|w| w == "tayga"), "{trial}");
    // It is a process like any other: its processor time is known.
    assert!(!trial["cpu"]["mechanism_s"].is_null(), "{trial}");
}

#[test]
fn nat44_by_nftables_rules_passes_the_gate_and_tells_its_counters() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !can_run() || !has("nftables", "nat44") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (gate, trials) = run(dir.path(), &format!("{HEAD}{NAT44}"), "nat44-mine");
    assert_eq!(failed(&gate), Vec::<String>::new());
    let trial = trials.iter().find(|t| t["block"] == 1 && t["metric"] == "rtt").unwrap();
    assert!(trial["version"].as_str().unwrap().contains("nftables"), "{trial}");
    let after = trial["counters"][1]["sessions"].as_u64().unwrap();
    assert!(after > 0, "{trial}");
}

#[test]
fn a_command_that_fails_is_told_in_its_words_and_leaves_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !can_run() {
        return;
    }
    let before = namespaces();
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("taken-down");
    let arm = |name: &str, commands: &str| {
        format!(
            "{HEAD}\n[[mechanism]]\nname = \"{name}\"\nlabel = \"Mine\"\nimplementation = \"command\"\n\
             kind = \"nat44\"\nfamily = \"v4\"\nhops = 1\n[mechanism.command]\n{commands}\n\
             down = [[\"sh\", \"-c\", \"echo {{name}} >> {}\"]]\n",
            mark.display()
        )
    };
    let why = |trials: &[serde_json::Value]| -> String {
        trials.iter().map(|t| t["invalid"].to_string()).collect()
    };
    let bad = arm("bad", "up = [[\"true\"], [\"sh\", \"-c\", \"echo no such luck >&2; exit 3\"]]");
    let (_, trials) = run(dir.path(), &bad, "bad");
    assert!(why(&trials).contains("no such luck"), "{trials:?}");
    // Gate and block: taken down as often as it was set up.
    let marks = || std::fs::read_to_string(&mark).unwrap_or_default().lines().count();
    assert_eq!(marks(), 2);

    std::fs::remove_dir_all(dir.path().join("out")).unwrap();
    let ends = arm(
        "ends",
        "run = [\"sh\", \"-c\", \"echo cannot stay >&2; exit 1\"]\nready = [\"false\"]",
    );
    let (_, trials) = run(dir.path(), &ends, "ends");
    let said = why(&trials);
    assert!(said.contains("its process has ended") && said.contains("cannot stay"), "{said}");
    assert_eq!(marks(), 4);

    let left: Vec<String> = namespaces()
        .into_iter()
        .filter(|name| name.starts_with("fwlab-") && !before.contains(name))
        .collect();
    assert!(left.is_empty(), "{left:?}");

    let skipped = arm(
        "lacks",
        "requires = [\"no-such-program\"]\ninstall = \"see the manual\"\nup = [[\"true\"]]",
    );
    let file = dir.path().join("mine.toml");
    std::fs::write(&file, skipped).unwrap();
    let out = lab(&["run", file.to_str().unwrap(), "--only", "lacks", "--blocks", "1"]);
    assert_eq!(out.status.code(), Some(4), "{}", text(&out.stderr));
    let said = text(&out.stderr);
    assert!(said.contains("not installed: no-such-program; see the manual"), "{said}");
}
