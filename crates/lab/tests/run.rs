//! The program as its users run it: small real runs in namespaces, what they leave, and what becomes of
//! those that are interrupted.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{ALONE, LAB, can_run, lab, lines, namespaces, text, trials};

fn states() -> usize {
    std::fs::read_dir("/run/fordway-lab")
        .map(|d| {
            d.filter_map(Result::ok)
                .filter(|e| e.path().extension().is_some_and(|x| x == "json"))
                .count()
        })
        .unwrap_or(0)
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
    let (measured, spoilt) = (lines(&out.join("trials.jsonl")).len(), discarded(&out));
    assert!(lab(&["resume", &out_text]).status.success());
    let resumed = lines(&out.join("trials.jsonl")).len();
    assert!(
        (measured..=measured + spoilt).contains(&resumed),
        "{measured}, {spoilt} spoilt, {resumed}"
    );

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
    let expected = trials(SMALL[1], SMALL[3]);
    assert_eq!(cells.len(), expected, "three mechanisms with all that is measured on them");
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
    let all = lines(&out.join("trials.jsonl"));
    let of = |metric: &str| -> Vec<&serde_json::Value> {
        let wanted =
            |t: &&serde_json::Value| t["metric"] == metric && t["valid"] == true && t["block"] == 1;
        all.iter().filter(wanted).collect()
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
    // Three gates, four calibrations, three mechanisms with all that is measured on them.
    assert_eq!(distinct(&keys(false)), 3 + 4 + trials(SMALL[1], SMALL[3]));
}

/// What `doctor` says that the run into this folder has left.
fn left_by(out: &str) -> Option<serde_json::Value> {
    let doctor: serde_json::Value =
        serde_json::from_slice(&lab(&["doctor", "--json"]).stdout).expect("JSON");
    doctor["orphans"].as_array()?.iter().find(|orphan| orphan["out"] == out).cloned()
}

/// Mechanism, block, place in it, condition: what is deployed, from a plan or from trials.
fn places<'a>(
    all: impl IntoIterator<Item = &'a serde_json::Value>,
) -> std::collections::BTreeSet<String> {
    let place = |d: &serde_json::Value| {
        format!("{} {} {} {}", d["mechanism"], d["block"], d["order"], d["condition"])
    };
    all.into_iter().map(place).collect()
}

#[test]
fn a_killed_run_is_named_and_cleaned_and_resumes_to_the_set_that_was_planned() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !can_run() {
        return;
    }
    let plan = lab(&[&["plan"], &SMALL[1..], &["--json"]].concat());
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).expect("JSON");
    let planned = places(plan["plan"]["deployments"].as_array().expect("deployments"));

    let before = namespaces();
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("run");
    let out_text = out.display().to_string();
    let mut child = Command::new(LAB)
        .args([&SMALL[..], &["--out", &out_text]].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the lab starts");
    let ledger = out.join("trials.jsonl");
    let deadline = Instant::now() + Duration::from_secs(120);
    while !lines(&ledger).iter().any(|trial| trial["block"] == 1) {
        assert!(Instant::now() < deadline, "no trial within two minutes");
        assert!(child.try_wait().expect("wait").is_none(), "the run ended too early");
        std::thread::yield_now();
    }
    let pid = child.id();
    child.kill().expect("kill -9");
    child.wait().expect("wait");

    let left = left_by(&out_text).expect("doctor names the run");
    assert_eq!(left["pid"], pid);
    let own = format!("fwlab-{}-", left["id"].as_str().expect("an id"));
    let mut there: Vec<String> =
        namespaces().into_iter().filter(|name| name.starts_with(&own)).collect();
    there.sort();
    assert_eq!(left["namespaces"], serde_json::json!(there));
    assert!(lab(&["doctor", "--clean"]).status.success());
    assert_eq!(left_by(&out_text), None);
    let still: Vec<String> = namespaces()
        .into_iter()
        .filter(|n| n.starts_with("fwlab-") && !before.contains(n))
        .collect();
    assert!(still.is_empty(), "{still:?}");

    let kept = lines(&ledger);
    let resumed = lab(&["resume", &out_text]);
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    let all = lines(&ledger);
    assert_eq!(all[..kept.len()], kept[..], "what was measured is kept as it was");
    let timed: Vec<&serde_json::Value> = all.iter().filter(|t| t["block"] != 0).collect();
    assert_eq!(places(timed.iter().copied()), planned, "the same deployments in the same order");
    assert!(timed.iter().all(|trial| trial["seed"] == 5));
    // Each quantity of each deployment stands there once, but for what a busy machine has spoilt.
    let quantity = |t: &&serde_json::Value| {
        format!("{} {} {} {}", t["mechanism"], t["block"], t["condition"], t["metric"])
    };
    let distinct: std::collections::BTreeSet<String> = timed.iter().map(quantity).collect();
    assert_eq!(distinct.len(), trials(SMALL[1], SMALL[3]));
    let valid: Vec<String> = timed.iter().filter(|t| t["valid"] == true).map(quantity).collect();
    let once: std::collections::BTreeSet<&String> = valid.iter().collect();
    assert_eq!(once.len(), valid.len(), "no valid trial is repeated");
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
    let expected = [
        "aa",
        "clat-vs-dual-stack",
        "dns64",
        "goals",
        "http-translators",
        "interop-mechanisms",
        "mechanisms-goals",
        "nat64-vs-nat44",
        "nat64",
        "small-packets",
    ];
    assert_eq!(names, expected);
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
    let page = std::fs::read_to_string(dir.path().join("fordway-lab-run.1")).expect("a page");
    assert!(page.contains(".SH EXAMPLES\n.nf\n") && !page.contains(".SH EXTRA"), "{page}");
    let bash = lab(&["completions", "bash"]);
    assert!(
        text(&bash.stdout).contains("clat-vs-dual-stack") || text(&bash.stdout).contains("resume")
    );
}

#[test]
fn a_damaged_folder_is_told_with_the_file_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_str().unwrap();
    let told = |command: &str, words: &[&str]| {
        let out = lab(&[command, folder]);
        assert_eq!(out.status.code(), Some(1), "{command}: {}", text(&out.stderr));
        for word in words {
            assert!(text(&out.stderr).contains(word), "{command}: {}", text(&out.stderr));
        }
    };
    std::fs::write(dir.path().join("spec.toml"), "garbage").unwrap();
    for command in ["report", "resume"] {
        told(command, &["spec.toml: damaged", "neither continued nor reported", "spec.toml:1:"]);
    }
    let experiment = include_str!("../experiments/small-packets.toml");
    let run = "[run]\nprofile = \"quick\"\nseed = 1\nblocks = 1\ndurations_s = [1]\n\
               clocksources = []\noffloads = true\nmechanisms = [\"native-v6\"]\nreplay = \"\"\n\
               [run.skipped]\n[run.versions]\n";
    std::fs::write(dir.path().join("spec.toml"), experiment).unwrap();
    told("report", &["spec.toml: damaged", "no [run] table"]);
    std::fs::write(dir.path().join("spec.toml"), format!("{experiment}{run}")).unwrap();
    told("report", &["trials.jsonl: no trial yet", "fordway-lab resume"]);
    std::fs::write(dir.path().join("trials.jsonl"), "garbage\n").unwrap();
    told("report", &["trials.jsonl: line 1 is damaged", "without that line"]);
    std::fs::write(dir.path().join("environment.json"), "garbage").unwrap();
    told("resume", &["environment.json: damaged", "nobody knows"]);
}

#[test]
fn what_cannot_be_written_into_is_told_before_anything_is_tried() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    for out in [file.clone(), file.join("below")] {
        let said = lab(&["run", "goals", "--blocks", "1", "--out", out.to_str().unwrap()]);
        assert_eq!(said.status.code(), Some(2), "{}", text(&said.stderr));
        assert!(text(&said.stderr).contains("a file; name a new folder with --out"));
        assert_eq!(text(&said.stderr).lines().count(), 1, "{}", text(&said.stderr));
    }
}

#[test]
fn a_level_that_is_named_twice_is_one_and_a_missing_base_is_told() {
    let args = ["plan", "small-packets", "--only", "native-v4,native-v4", "--duration", "1,1,2"];
    let plan = lab(&[&args[..], &["--blocks", "1", "--json"]].concat());
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).unwrap();
    assert_eq!(plan["run"]["durations_s"], serde_json::json!([1, 2]));
    assert_eq!(plan["plan"]["deployments"].as_array().unwrap().len(), 2);
    let notes = plan["notes"].as_array().unwrap();
    let told = "native-v4: no ratio, as native-v6 does not run";
    assert!(notes.iter().any(|note| note == told), "{notes:?}");
}

#[test]
fn a_folder_of_other_files_is_not_written_into() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("letter"), "dear all").unwrap();
    let out = lab(&["run", "goals", "--blocks", "1", "--out", dir.path().to_str().unwrap()]);
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("holds other files"), "{said}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}
