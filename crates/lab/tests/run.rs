//! The program as its users run it: small real runs in namespaces.
//!
//! These need root, iperf3 and TAYGA; where one is missing the test says so and passes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const LAB: &str = env!("CARGO_BIN_EXE_fordway-lab");

/// Runs change the machine's namespaces and count what is left: one at a time.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn lab(args: &[&str]) -> Output {
    Command::new(LAB).args(args).env("NO_COLOR", "1").output().expect("the lab starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn can_run() -> bool {
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

/// Namespaces of the lab that exist now, whoever made them.
fn namespaces() -> Vec<String> {
    std::fs::read_dir("/run/netns")
        .map(|dir| dir.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect())
        .unwrap_or_default()
}

fn states() -> usize {
    std::fs::read_dir("/run/fordway-lab")
        .map(|d| {
            d.filter_map(Result::ok)
                .filter(|e| e.path().extension().is_some_and(|x| x == "json"))
                .count()
        })
        .unwrap_or(0)
}

fn lines(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect()
}

const SMALL: [&str; 10] = [
    "run",
    "clat-vs-dual-stack",
    "--only",
    "native-v6,native-v4,clat-tayga",
    "--blocks",
    "1",
    "--duration",
    "1",
    "--seed",
    "5",
];

/// Metrics that the experiment can measure here.
fn metrics(experiment: &str) -> usize {
    let json = |args: &[&str]| -> serde_json::Value {
        serde_json::from_slice(&lab(args).stdout).expect("JSON")
    };
    let all = json(&["list", "--json"]);
    let found = all.as_array().expect("list").iter().find(|e| e["name"] == experiment);
    let all = found.expect("the experiment")["metrics"].as_array().expect("metrics").len();
    let plan = json(&["plan", experiment, "--json"]);
    all - plan["run"]["unmeasured"].as_object().expect("unmeasured").len()
}

#[test]
fn a_small_run_leaves_every_artefact_and_nothing_else() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !can_run() {
        return;
    }
    let (before, states_before) = (namespaces(), states());
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("run");
    let out_text = out.display().to_string();
    let done = lab(&[&SMALL[..], &["--out", &out_text]].concat());
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("report.html"), "{}", text(&done.stdout));

    for file in [
        "spec.toml",
        "environment.json",
        "trials.jsonl",
        "results.json",
        "results.csv",
        "report.html",
    ] {
        let size = std::fs::metadata(out.join(file)).map(|m| m.len()).unwrap_or(0);
        assert!(size > 0, "{file}");
    }
    let figures = std::fs::read_dir(out.join("figures")).expect("figures").count();
    assert!(figures >= 10, "{figures} figures");

    check_results(&out);
    check_page(&out);

    let after = namespaces();
    let left: Vec<&String> =
        after.iter().filter(|n| n.starts_with("fwlab-") && !before.contains(n)).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(states() <= states_before, "a record of the run is left");

    // A second run must not overwrite the first one; a resumed whole run measures nothing again but what
    // a busy machine has spoilt.
    let again = lab(&[&SMALL[..], &["--out", &out_text]].concat());
    assert_eq!(again.status.code(), Some(2));
    let (trials, spoilt) = (lines(&out.join("trials.jsonl")).len(), discarded(&out));
    assert!(lab(&["resume", &out_text]).status.success());
    let resumed = lines(&out.join("trials.jsonl")).len();
    assert!((trials..=trials + spoilt).contains(&resumed), "{trials}, {spoilt} spoilt, {resumed}");

    // The report is a function of the artefacts.
    let page = std::fs::read(out.join("report.html")).expect("page");
    assert!(lab(&["report", &out_text]).status.success());
    assert_eq!(std::fs::read(out.join("report.html")).expect("page"), page);
}

/// How many trials of a run do not count.
fn discarded(out: &Path) -> usize {
    let bytes = std::fs::read(out.join("results.json")).expect("results");
    let results: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
    results["discarded"].as_array().map_or(0, Vec::len)
}

fn check_results(out: &Path) {
    let bytes = std::fs::read(out.join("results.json")).expect("results");
    let results: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
    for field in ["experiment", "started", "environment", "cells"] {
        assert!(!results[field].is_null(), "{field}");
    }
    let cells = results["cells"].as_array().expect("cells");
    let expected = 3 * metrics("clat-vs-dual-stack");
    assert_eq!(cells.len(), expected, "three mechanisms with every metric");
    let fields = [
        "mechanism",
        "implementation",
        "metric",
        "unit",
        "n",
        "min",
        "mean",
        "median",
        "max",
        "stddev",
        "p95",
        "ci95",
        "vs_baseline",
        "limiter",
        "valid",
    ];
    let mut counted = 0;
    for cell in cells {
        for field in fields {
            assert!(cell.get(field).is_some(), "{field} of {cell}");
        }
        // A busy machine may spoil a trial; then it is listed, and everything else still holds.
        let of = |field: &str| cell[field].as_u64().expect("a number");
        assert_eq!(of("n") + of("discarded"), 1, "{cell}");
        if of("n") == 1 {
            counted += 1;
            assert!(cell["median"].as_f64().is_some_and(|v| v > 0.0), "{cell}");
            assert_eq!(cell["valid"], true, "{cell}");
        }
    }
    let discarded = &results["discarded"];
    assert!(counted >= expected / 2, "{counted} of {expected} count; discarded: {discarded}");
    check_packets(out);
    let tayga = &results["gate"]["clat-tayga"];
    let passed = |name: &str| {
        tayga.as_array().expect("checks").iter().any(|c| c["name"] == name && c["ok"] == true)
    };
    for check in ["ping small", "tcp payload", "tcp checksum", "udp checksum", "udp fragments"] {
        assert!(passed(check), "{check}: {tayga}");
    }
}

/// What was sent, what arrived, and what the devices say must fit together.
fn check_packets(out: &Path) {
    let trials = lines(&out.join("trials.jsonl"));
    let of = |metric: &str| -> Vec<&serde_json::Value> {
        let wanted =
            |t: &&serde_json::Value| t["metric"] == metric && t["valid"] == true && t["block"] == 1;
        trials.iter().filter(wanted).collect()
    };
    let number = |t: &serde_json::Value, key: &str| t[key].as_u64().expect("a number");
    for trial in of("latency_p50") {
        let answered: u64 = trial["histogram"]
            .as_array()
            .expect("a histogram")
            .iter()
            .map(|bin| bin[1].as_u64().expect("a count"))
            .sum();
        assert_eq!(answered, number(trial, "arrived"));
        assert!(answered <= number(trial, "sent"));
    }
    for trial in of("udp_rate_up") {
        let arrived = number(trial, "arrived");
        let carried = trial["links"]["iperf/uplink"]["rx_packets"].as_u64().expect("a counter");
        assert!(0 < arrived && arrived <= number(trial, "sent"), "{trial}");
        // Neighbour discovery may pass as well, but little of it.
        assert!((arrived..arrived + 100).contains(&carried), "{carried} for {arrived}");
    }
    let value = |metric: &str| of(metric).iter().filter_map(|t| t["value"].as_f64()).count();
    assert!(value("latency_p99") <= value("latency_p50"), "P99 needs more than P50 does");
}

fn check_page(out: &Path) {
    let page = std::fs::read_to_string(out.join("report.html")).expect("page");
    assert!(page.contains("<svg"), "figures are inside");
    for outside in ["<script", "src=\"http", "href=\"http", "@import", "url(http"] {
        assert!(!page.contains(outside), "{outside}: the page must need nothing else");
    }
    assert!(page.contains("0.317"), "the study's Table 5.1 is shown");
    assert!(page.contains("--seed 5 --blocks 1 --duration 1"), "the replay command is shown");
}

#[test]
fn an_interrupted_run_leaves_nothing_and_is_resumed() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !can_run() {
        return;
    }
    let (before, states_before) = (namespaces(), states());
    let dir = tempfile::tempdir().expect("a folder");
    let out: PathBuf = dir.path().join("run");
    let out_text = out.display().to_string();
    let mut child = Command::new(LAB)
        .args([&SMALL[..], &["--out", &out_text]].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the lab starts");

    // In the middle of the blocks: calibration is done, the last trials are not.
    let ledger = out.join("trials.jsonl");
    let deadline = Instant::now() + Duration::from_secs(120);
    let timed = |t: &serde_json::Value| t["block"] == 1;
    while !lines(&ledger).iter().any(timed) {
        assert!(Instant::now() < deadline, "no trial within two minutes");
        assert!(child.try_wait().expect("wait").is_none(), "the run ended too early");
        std::thread::yield_now();
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
    let status = child.wait().expect("wait");
    assert_eq!(status.code(), Some(1), "an interrupted run has failed, not crashed");
    let after = namespaces();
    let left: Vec<&String> =
        after.iter().filter(|n| n.starts_with("fwlab-") && !before.contains(n)).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(states() <= states_before, "a record of the run is left");

    let kept = lines(&ledger);
    let resumed = lab(&["resume", &out_text]);
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    let all = lines(&ledger);
    assert_eq!(all[..kept.len()], kept[..], "what was measured is kept as it was");
    let keys = |only_valid: bool| {
        let counts = |t: &&serde_json::Value| !only_valid || t["valid"] == true;
        all.iter().filter(counts).map(|t| t["key"].to_string()).collect::<Vec<String>>()
    };
    let distinct =
        |keys: &[String]| keys.iter().collect::<std::collections::BTreeSet<&String>>().len();
    let valid = keys(true);
    assert_eq!(distinct(&valid), valid.len(), "no valid trial is repeated");
    // Three gates, four calibrations, three mechanisms with every metric.
    assert_eq!(distinct(&keys(false)), 3 + 4 + 3 * metrics("clat-vs-dual-stack"));
}

#[test]
fn what_a_killed_run_left_is_cleaned_by_the_next_command() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !can_run() {
        return;
    }
    let before = namespaces();
    let dir = tempfile::tempdir().expect("a folder");
    let out_text = dir.path().join("run").display().to_string();
    let mut child = Command::new(LAB)
        .args([&SMALL[..], &["--out", &out_text]].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the lab starts");
    let deadline = Instant::now() + Duration::from_secs(60);
    let fresh = || namespaces().into_iter().find(|n| n.ends_with("-iperf") && !before.contains(n));
    while fresh().is_none() {
        assert!(Instant::now() < deadline, "no namespace within a minute");
        std::thread::yield_now();
    }
    child.kill().expect("kill -9");
    child.wait().expect("wait");
    assert!(lab(&["doctor", "--clean"]).status.success());
    let left: Vec<String> = namespaces()
        .into_iter()
        .filter(|n| n.starts_with("fwlab-") && !before.contains(n))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn goals_are_judged_where_the_gateway_is_built() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !can_run() {
        return;
    }
    let doctor: serde_json::Value =
        serde_json::from_slice(&lab(&["doctor", "--json"]).stdout).expect("JSON");
    let found = doctor["mechanisms"].as_array().is_some_and(|all| {
        all.iter().any(|m| m["implementation"] == "fordway" && !m["version"].is_null())
    });
    if !found {
        eprintln!("SKIPPED: no fordway program; cargo build -p fordway makes one");
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("run");
    let out_text = out.display().to_string();
    let args = ["run", "goals", "--blocks", "1", "--duration", "1", "--json", "--out", &out_text];
    let done = lab(&args);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let results: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let goals = results["goals"].as_array().expect("goals");
    assert_eq!(goals.len(), 23);
    let why = || format!("{}\n{}", results["discarded"], text(&done.stderr));
    let spoilt = results["discarded"].as_array().is_some_and(|d| !d.is_empty());
    for goal in goals.iter().filter(|g| g["id"] != "user-rtt-added") {
        // Added round-trip time may be nothing, or less than nothing on a busy machine.
        let added = goal["id"].as_str().is_some_and(|id| id.ends_with("rtt-added"));
        let measured = goal["measured"].as_f64().is_some_and(|v| added || v > 0.0);
        let excused = goal["detail"]
            .as_str()
            .is_some_and(|d| d.contains("was skipped: ") || d.starts_with("not measured: "));
        assert!(measured || spoilt || excused, "{goal}\n{}", why());
    }
    let gates = results["gate"].as_object().expect("gates");
    assert!(gates.contains_key("clat-fordway"));
    for (name, checks) in gates.iter().filter(|(name, _)| name.contains("fordway")) {
        let checks = checks.as_array().expect("checks");
        let failed: Vec<&serde_json::Value> = checks.iter().filter(|c| c["ok"] == false).collect();
        assert!(failed.is_empty(), "{name}: {failed:?}");
    }
    // Costs per packet by the gateway itself: a table, or the reason why there is none.
    let costs = &results["program_costs"];
    let rows = costs["rows"].as_array().expect("rows");
    assert!(!rows.is_empty() || costs["missing"].is_string(), "{costs}");
    // Every arm ran what it is named after.
    let trials = lines(&out.join("trials.jsonl"));
    for trial in trials.iter().filter(|t| t["valid"] == true && t["engine"].is_string()) {
        let name = trial["mechanism"].as_str().expect("a name");
        let engine = trial["engine"].as_str().expect("an engine");
        let wanted = match name.rsplit('-').next() {
            Some(attach @ ("interface" | "uplink" | "xdp")) => format!("kernel engine at {attach}"),
            _ => "user engine at interface".to_owned(),
        };
        assert!(engine.starts_with(&wanted), "{name} ran the {engine}");
    }
    // The gateway's own account of each flow was read and agreed.
    let flows = lines(&out.join("trials.jsonl"));
    let counted = flows.iter().filter(|t| {
        t["mechanism"] == "clat-fordway" && t["counters"].is_array() && t["valid"] == true
    });
    assert!(counted.count() >= 1, "{}", why());
}

#[test]
fn small_frames_are_counted_at_both_ends() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !can_run() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("run");
    let out_text = out.display().to_string();
    let only = "native-v6,native-v4";
    let args = ["run", "small-packets", "--only", only, "--blocks", "1", "--json", "--out"];
    let done = lab(&[&args[..], &[&out_text]].concat());
    assert!(done.status.success(), "{}", text(&done.stderr));
    let results: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    if metrics("small-packets") < 3 {
        eprintln!("SKIPPED: {}", text(&done.stderr));
        return;
    }
    let trials = lines(&out.join("trials.jsonl"));
    for (metric, device) in
        [("frame_rate_up", "iperf/uplink"), ("frame_rate_down", "client/uplink")]
    {
        let found: Vec<&serde_json::Value> = trials
            .iter()
            .filter(|t| t["metric"] == metric && t["block"] == 1 && t["valid"] == true)
            .collect();
        let spoilt = results["discarded"].as_array().is_some_and(|d| !d.is_empty());
        assert!(found.len() == 2 || spoilt, "{metric}: {}", results["discarded"]);
        for trial in found {
            let arrived = trial["arrived"].as_u64().expect("a count");
            let carried = trial["links"][device]["rx_packets"].as_u64().expect("a counter");
            // The receiver counts during a part of the time, its device all the time.
            assert!(arrived > 1000 && carried > arrived, "{arrived} of {carried}");
            assert!(trial["value"].as_f64().is_some_and(|v| v > 1.0), "{trial}");
        }
    }
}

#[test]
fn new_flows_and_held_sessions_are_measured() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !can_run() {
        return;
    }
    let limits = || {
        ["/proc/sys/net/netfilter/nf_conntrack_max", "/sys/module/nf_conntrack/parameters/hashsize"]
            .map(|path| std::fs::read_to_string(path).unwrap_or_default())
    };
    let limits_before = limits();
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("run");
    let out_text = out.display().to_string();
    let only = "native-v6,nat44";
    let args = ["run", "nat64", "--only", only, "--blocks", "1", "--duration", "1", "--json"];
    let done = lab(&[&args[..], &["--out", &out_text]].concat());
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(limits(), limits_before, "the machine is as it was");
    let results: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let unmeasured = text(&std::fs::read(out.join("spec.toml")).expect("spec"));
    if unmeasured.contains("new_udp_flows = \"") {
        eprintln!("SKIPPED: {}", text(&done.stderr));
        return;
    }
    let spoilt = results["discarded"].as_array().is_some_and(|d| !d.is_empty());
    let trials = lines(&out.join("trials.jsonl"));
    let of = |mechanism: &str, metric: &str| {
        let wanted = |t: &&serde_json::Value| {
            t["mechanism"] == mechanism && t["metric"] == metric && t["block"] == 1
        };
        let trial = trials.iter().find(wanted).expect("a trial");
        assert!(trial["valid"] == true || spoilt, "{mechanism}, {metric}: {trial}");
        (trial["valid"] == true).then(|| trial.clone())
    };
    for metric in ["new_udp_flows", "new_tcp_connections"] {
        for mechanism in ["native-v6", "nat44"] {
            let Some(trial) = of(mechanism, metric) else { continue };
            assert_eq!((&trial["sent"], &trial["arrived"]), (&131_072.into(), &131_072.into()));
            assert!(trial["value"].as_f64().is_some_and(|rate| rate > 1.0), "{trial}");
        }
    }
    if let Some(held) = of("nat44", "sessions_held") {
        assert_eq!(held["value"].as_f64(), Some(200.0));
    }
    if let Some(memory) = of("nat44", "memory_per_session") {
        // An entry of connection tracking has 256 octets and more on every kernel.
        assert!(memory["value"].as_f64().is_some_and(|o| (200.0..2000.0).contains(&o)), "{memory}");
    }
    let gate = results["gate"]["nat44"].as_array().expect("checks");
    assert!(gate.iter().all(|check| check["ok"] == true), "{gate:?}");
}

#[test]
fn wrong_usage_is_told_and_has_its_own_exit_code() {
    let cases: [(&[&str], &str); 7] = [
        (&["report", "/nonexistent"], "is not the folder of a run"),
        (&["resume", "/nonexistent"], "is not the folder of a run"),
        (&["plan", "nothing"], "no experiment is called `nothing`"),
        (&["plan", "goals", "--only", "tundra"], "has no mechanism `tundra`"),
        (&["plan", "goals", "--clocksource", "sundial"], "no clock source `sundial`"),
        (&["plan", "goals", "--fordway", "/nonexistent"], "no such file"),
        (&["plan", "goals", "--blocks", "0"], "0"),
    ];
    for (args, words) in cases {
        let out = lab(args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(text(&out.stderr).contains(words), "{args:?}: {}", text(&out.stderr));
    }
}

#[test]
fn read_commands_print_json() {
    let list: serde_json::Value = serde_json::from_slice(&lab(&["list", "--json"]).stdout).unwrap();
    let names: Vec<&serde_json::Value> =
        list.as_array().unwrap().iter().map(|e| &e["name"]).collect();
    assert_eq!(names, ["clat-vs-dual-stack", "goals", "nat64", "small-packets"]);
    let plan = lab(&["plan", "clat-vs-dual-stack", "--seed", "1", "--blocks", "2", "--json"]);
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).unwrap();
    assert_eq!(plan["run"]["blocks"], 2);
    assert!(plan["plan"]["deployments"].as_array().is_some_and(|d| !d.is_empty()));
    assert!(plan["notes"][0].as_str().is_some_and(|n| n.contains("too few")));
}

#[test]
fn completions_and_man_pages_are_generated() {
    let dir = tempfile::tempdir().expect("a folder");
    assert!(lab(&["man", &dir.path().display().to_string()]).status.success());
    assert!(dir.path().join("fordway-lab.1").exists());
    assert!(dir.path().join("fordway-lab-run.1").exists());
    let bash = lab(&["completions", "bash"]);
    assert!(
        text(&bash.stdout).contains("clat-vs-dual-stack") || text(&bash.stdout).contains("resume")
    );
}

#[test]
fn a_folder_of_other_files_is_not_written_into() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("letter"), "dear all").unwrap();
    let out = lab(&["run", "goals", "--blocks", "1", "--out", dir.path().to_str().unwrap()]);
    let said = text(&out.stderr);
    // Without root the lab stops earlier, with its own code.
    if out.status.code() == Some(4) {
        assert!(said.contains("root"), "{said}");
    } else {
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains("holds other files"), "{said}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}
