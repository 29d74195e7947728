//! The program as its users run it: small real runs in namespaces, what they leave, and what becomes of
//! those that are interrupted.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::common::{Bench, Folder, can_measure, can_run, has, lab, namespaces, small, text};

const ARMS: [&str; 3] = ["native-v6", "native-v4", "clat-tayga"];

#[test]
fn a_small_run_leaves_every_artefact_and_nothing_else() {
    if !can_run() || !has("tayga", "clat") || !can_measure("udp_rate_up") {
        return;
    }
    let bench = Bench::new();
    let metrics = [
        "tcp_throughput_up",
        "tcp_throughput_down",
        "rtt",
        "latency_p50",
        "latency_p99",
        "udp_rate_up",
        "udp_rate_down",
        "cpu_per_gbit_up",
        "cpu_per_packet_up",
    ];
    // Enough octets and packets for processor time that is counted in steps of 10 ms.
    let sizes = "flow_octets = 100_000_000\nprobe_rate = 5000\nprobe_s = 0.22\npackets_s = 0.2\n";
    let experiment = small("clat-vs-dual-stack", &ARMS, &metrics, sizes);
    let run = bench.run("run", &experiment, &["--seed", "5", "--blocks", "1", "--duration", "1"]);
    bench.assert_clean(&["run"]);
    assert!(run.said.contains("report.html"), "{}", run.said);

    for file in [
        "spec.toml",
        "environment.json",
        "trials.jsonl",
        "results.json",
        "results.csv",
        "report.html",
    ] {
        let size = std::fs::metadata(run.path.join(file)).map(|m| m.len()).unwrap_or(0);
        assert!(size > 0, "{file}");
    }
    let figures = std::fs::read_dir(run.path.join("figures")).expect("figures").count();
    assert!(figures >= 10, "{figures} figures");

    let file = bench.shown("run.toml");
    check_results(&run, planned(&bench, &file)["trials"].as_u64().expect("a number") as usize);
    check_page(&run);

    // A second run must not overwrite the first one; a resumed whole run measures nothing again but what was lost.
    let out = bench.shown("run");
    let again = bench.lab(&["run", &file, "--out", &out]);
    assert_eq!(again.status.code(), Some(2));
    let (measured, lost) = (run.trials().len(), discarded(&run));
    assert!(bench.lab(&["resume", &out]).status.success());
    assert_eq!(run.trials().len(), measured + lost);

    // The report is a function of the artefacts.
    let page = run.page();
    assert!(bench.lab(&["report", &out]).status.success());
    assert_eq!(run.page(), page);
}

/// What a run of this experiment will do.
fn planned(bench: &Bench, file: &str) -> Value {
    let plan = bench.lab(&["plan", file, "--json"]);
    let plan: Value = serde_json::from_slice(&plan.stdout).expect("JSON");
    plan["plan"].clone()
}

/// How many trials of a run do not count.
fn discarded(run: &Folder) -> usize {
    run.results()["discarded"].as_array().map_or(0, Vec::len)
}

fn check_results(run: &Folder, expected: usize) {
    let results = run.results();
    for field in ["experiment", "started", "environment", "cells"] {
        assert!(!results[field].is_null(), "{field}");
    }
    assert!(results["environment"]["other_cores"].is_number(), "{}", results["environment"]);
    let cells = results["cells"].as_array().expect("cells");
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
        "interval",
        "vs_baseline",
        "limiter",
        "valid",
    ];
    for cell in cells {
        for field in fields {
            assert!(cell.get(field).is_some(), "{field} of {cell}");
        }
        let of = |field: &str| cell[field].as_u64().expect("a number");
        assert_eq!(of("of") + of("discarded"), 1, "{cell}");
        if of("n") == 1 {
            assert!(cell["median"].as_f64().is_some_and(|v| v > 0.0), "{cell}");
            assert_eq!(cell["valid"], true, "{cell}");
        } else {
            // Where one datagram in a hundred was lost, there is no P99, at a rate with loss no cost of one, and with an
            // answer that is a second late no time of the others: the mechanism has failed, which counts. Everything else
            // has a value.
            let said = results["failed"].to_string();
            let why = match cell["metric"].as_str() {
                Some("rtt") => "failed by `loss > 0.05`",
                Some("latency_p99") => "datagrams were lost: P99 has no value",
                Some("cpu_per_packet_up") => "datagrams per second were lost",
                other => panic!("{other:?} has no value: {cell}\n{said}"),
            };
            assert!(said.contains(why) && of("of") == 1, "{said}");
        }
    }
    check_packets(run);
    let passed = ["ping small", "tcp payload", "tcp checksum", "udp checksum", "udp fragments"];
    passed.into_iter().for_each(|check| run.assert_passed("clat-tayga", check));
}

/// What was sent, what arrived, and what the devices say must fit together.
fn check_packets(run: &Folder) {
    let number = |t: &Value, key: &str| t[key].as_u64().expect("a number");
    for arm in ARMS {
        let trial = run.trial(arm, "latency_p50");
        let bins = trial["histogram"].as_array().expect("a histogram").iter();
        let answered: u64 = bins.map(|bin| bin[1].as_u64().expect("a count")).sum();
        assert_eq!(answered, number(&trial, "arrived"));
        assert!(answered <= number(&trial, "sent"));
        let trial = run.trial(arm, "udp_rate_up");
        let arrived = number(&trial, "arrived");
        let carried = trial["links"]["iperf/uplink"]["rx_packets"].as_u64().expect("a counter");
        assert!(0 < arrived && arrived <= number(&trial, "sent"), "{trial}");
        // Neighbour discovery may pass as well, but little of it.
        assert!((arrived..arrived + 100).contains(&carried), "{carried} for {arrived}");
    }
}

fn check_page(run: &Folder) {
    let page = run.page();
    assert!(page.contains("<svg"), "figures are inside");
    for outside in ["<script", "src=\"http", "href=\"http", "@import", "url(http"] {
        assert!(!page.contains(outside), "{outside}: the page must need nothing else");
    }
    assert!(page.contains("0.317"), "the study's Table 5.1 is shown");
    assert!(page.contains("--seed 5 --blocks 1 --duration 1"), "the replay command is shown");
    assert!(page.contains("steal &gt; 1"), "the declared rule is shown");
}

fn words(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

/// An arm that waits in the block until the test lets it go on: there the run is stopped, for certain in the middle.
struct Held {
    bench: Bench,
    file: String,
    seed: u64,
}

impl Held {
    fn new() -> Self {
        let bench = Bench::new();
        let native = small(
            "clat-vs-dual-stack",
            &["native-v6", "native-v4"],
            &["rtt", "udp_rate_up"],
            "packets_s = 0.05\n",
        );
        let here = bench.shown("");
        // The first deployment is that of the gate.
        let arm = format!(
            r#"
            [[mechanism]]
            name = "waits"
            label = "NAT44 that waits"
            implementation = "command"
            kind = "nat44"
            family = "v4"
            hops = 1
            [mechanism.command]
            up = [
              ["nft", "-f", "{{dir}}/rules.nft"],
              ["sh", "-c", "echo come >>{here}came; [ $(wc -l <{here}came) = 1 ] || until [ -e {here}go ]; do sleep 0.02; done"],
            ]
            [mechanism.command.config]
            "rules.nft" = """
            table ip mine {{
              chain out {{
                type nat hook postrouting priority srcnat; policy accept;
                oifname "{{device_up}}" masquerade
              }}
            }}
            """
            "#
        );
        let file = bench.write("held.toml", &format!("{native}{arm}"));
        let mut held = Self { bench, file, seed: 0 };
        // Something has been measured when it comes to its turn.
        for seed in 1.. {
            held.seed = seed;
            if held.deployments()[0]["mechanism"] != "waits" {
                break;
            }
        }
        held
    }

    /// The command on this experiment, with its seed and these options.
    fn args(&self, command: &str, more: &[&str]) -> Vec<String> {
        let seed = self.seed.to_string();
        let own = [command, &self.file, "--seed", &seed];
        own.iter().chain(more).map(ToString::to_string).collect()
    }

    fn plan(&self) -> Value {
        let plan = self.bench.lab(&words(&self.args("plan", &["--json"])));
        let plan: Value = serde_json::from_slice(&plan.stdout).expect("JSON");
        plan["plan"].clone()
    }

    fn deployments(&self) -> Vec<Value> {
        self.plan()["deployments"].as_array().expect("deployments").clone()
    }

    /// Runs until the arm waits, and sends a signal to the lab there; its process and how it ended.
    fn stopped(&self, signal: &str) -> (u32, std::process::ExitStatus) {
        let out = self.bench.shown("run");
        let mut lab = self.bench.start(&words(&self.args("run", &["--out", &out])));
        let came = self.bench.path("came");
        let count = || std::fs::read_to_string(&came).unwrap_or_default().lines().count();
        lab.until("the arm waits in the block", || count() == 2);
        lab.signal(signal);
        (lab.id(), lab.end())
    }

    /// Lets the arm go on, resumes the run to its end, and gives the trials that were kept, and all.
    fn resumed(&self) -> (Vec<Value>, Vec<Value>) {
        std::fs::write(self.bench.path("go"), "").expect("a file");
        let run = Folder::at(self.bench.path("run"));
        let kept = run.trials();
        assert!(kept.iter().any(|trial| trial["block"] == 1), "{kept:?}");
        let resumed = self.bench.lab(&["resume", &self.bench.shown("run")]);
        assert!(resumed.status.success(), "{}", text(&resumed.stderr));
        let all = run.trials();
        assert_eq!(all[..kept.len()], kept[..], "what was measured is kept as it was");
        let valid: Vec<String> =
            all.iter().filter(|t| t["valid"] == true).map(|t| t["key"].to_string()).collect();
        let once: BTreeSet<&String> = valid.iter().collect();
        assert_eq!(once.len(), valid.len(), "no valid trial is repeated");
        (kept, all)
    }
}

#[test]
fn an_interrupted_run_leaves_nothing_and_is_resumed() {
    if !can_run() || !has("nftables", "nat44") {
        return;
    }
    let held = Held::new();
    let (_, status) = held.stopped("-INT");
    assert_eq!(status.code(), Some(1), "an interrupted run has failed, not crashed");
    held.bench.assert_clean(&["run"]);

    let (_, all) = held.resumed();
    let (own, measured): (Vec<&Value>, Vec<&Value>) = all.iter().partition(|t| calibrates(t));
    let keys =
        |of: &[&Value]| of.iter().map(|t| t["key"].to_string()).collect::<BTreeSet<_>>().len();
    // Three gates, three mechanisms with both quantities, and the ceiling of the datagrams over each family.
    assert_eq!(keys(&measured), 3 + held.plan()["trials"].as_u64().expect("a number") as usize);
    assert_eq!(keys(&own), 2, "{own:?}");
    assert!(all.iter().filter(|t| t["valid"] != true).all(|t| t["mechanism"] == "waits"));
    held.bench.assert_clean(&["run"]);
}

/// Whether a trial is one of the generator alone.
fn calibrates(trial: &Value) -> bool {
    trial["mechanism"].as_str().is_some_and(|name| name.starts_with("calibration-v"))
}

/// What `doctor` says that the run into this folder has left.
fn left_by(bench: &Bench, out: &str) -> Option<Value> {
    let doctor: Value =
        serde_json::from_slice(&bench.lab(&["doctor", "--json"]).stdout).expect("JSON");
    doctor["orphans"].as_array()?.iter().find(|orphan| orphan["out"] == out).cloned()
}

/// Mechanism, block, place in it, condition: what is deployed, from a plan or from trials.
fn places<'a>(all: impl IntoIterator<Item = &'a Value>) -> BTreeSet<String> {
    let place =
        |d: &Value| format!("{} {} {} {}", d["mechanism"], d["block"], d["order"], d["condition"]);
    all.into_iter().map(place).collect()
}

#[test]
fn a_killed_run_is_named_and_cleaned_and_resumes_to_the_set_that_was_planned() {
    if !can_run() || !has("nftables", "nat44") {
        return;
    }
    let held = Held::new();
    let (bench, out) = (&held.bench, held.bench.shown("run"));
    let (pid, _) = held.stopped("-KILL");

    let left = left_by(bench, &out).expect("doctor names the run");
    assert_eq!(left["pid"], pid);
    let own = format!("fwlab-{}-", left["id"].as_str().expect("an id"));
    let there = || -> Vec<String> {
        namespaces().into_iter().filter(|name| name.starts_with(&own)).collect()
    };
    assert!(!there().is_empty());
    assert_eq!(left["namespaces"], serde_json::json!(there()));
    // Another folder of notes is none of this one's business.
    assert!(Bench::new().lab(&["doctor", "--clean"]).status.success());
    assert!(!there().is_empty());
    assert!(bench.lab(&["doctor", "--clean"]).status.success());
    assert_eq!(left_by(bench, &out), None);
    assert_eq!(there(), Vec::<String>::new());
    bench.assert_clean(&["run"]);

    let (_, all) = held.resumed();
    let timed: Vec<&Value> = all.iter().filter(|t| t["block"] != 0).collect();
    let planned = held.deployments();
    assert_eq!(places(timed.iter().copied()), places(&planned), "the same, in the same order");
    assert!(timed.iter().all(|trial| trial["seed"] == held.seed));
    // Each quantity of each deployment stands there once.
    let quantity = |t: &&Value| {
        format!("{} {} {} {}", t["mechanism"], t["block"], t["condition"], t["metric"])
    };
    let distinct: BTreeSet<String> = timed.iter().map(quantity).collect();
    assert_eq!(distinct.len(), timed.len());
    let measured = timed.iter().filter(|t| !calibrates(t)).count() as u64;
    assert_eq!(measured, held.plan()["trials"].as_u64().expect("a number"));
    assert!(timed.iter().all(|trial| trial["valid"] == true), "{timed:?}");
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
    let list: Value = serde_json::from_slice(&lab(&["list", "--json"]).stdout).unwrap();
    let names: Vec<&Value> = list.as_array().unwrap().iter().map(|e| &e["name"]).collect();
    let expected = [
        "aa",
        "clat-vs-dual-stack",
        "control",
        "demo",
        "dns64",
        "entries",
        "failover",
        "goals",
        "http-translators",
        "interop-mechanisms",
        "kernel-translators",
        "mechanisms-goals",
        "nat64-vs-nat44",
        "nat64",
        "pairs",
        "imix",
        "replication",
        "rfc8219",
        "rfc9411",
        "rfc9693",
        "small-packets",
        "tables",
        "tcp-load",
    ];
    assert_eq!(names, expected);
    let plan = lab(&["plan", "clat-vs-dual-stack", "--seed", "1", "--blocks", "2", "--json"]);
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
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
    let experiment = include_str!("../../../data/experiments/small-packets.toml");
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
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    assert_eq!(plan["run"]["durations_s"], serde_json::json!([1, 2]));
    let deployments = plan["plan"]["deployments"].as_array().unwrap();
    let measured: Vec<&Value> =
        deployments.iter().filter(|d| d["mechanism"] == "native-v4").collect();
    assert_eq!(measured.len(), 2);
    // And the generator alone over the same family.
    let own = deployments.iter().filter(|d| d["mechanism"] == "calibration-v4").count();
    assert_eq!((own, deployments.len()), (2, 4));
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
