//! The tests of RFC 8219 and RFC 9693, as their users run them, as short as they can be. The machine may be busy: what is held is
//! that each value is there, or its reason, and that counts agree.

use serde_json::Value;

use crate::common::{Bench, Folder, can_run, has, programs, small};

/// Trials of a mechanism and a metric, each of which has a value or says why not.
fn explained(run: &Folder, mechanism: &str, metric: &str) -> Vec<Value> {
    let this = |t: &Value| t["mechanism"] == mechanism && t["metric"] == metric;
    let found: Vec<Value> = run.trials().into_iter().filter(this).collect();
    assert!(!found.is_empty(), "{mechanism}, {metric}\n{}", run.errors);
    for trial in &found {
        let said = |key: &str| trial[key].as_array().is_some_and(|all| !all.is_empty());
        let has_value = trial["value"].as_f64().is_some_and(f64::is_finite);
        assert!(has_value || said("invalid") || said("failed"), "{trial}");
    }
    found
}

/// The lines that a tester was asked, each with its answer.
fn asked(run: &Folder, file: &str) -> Vec<(Value, Value)> {
    let said =
        std::fs::read_to_string(run.path.join("raw").join(file)).expect("a tester's answers");
    let lines: Vec<Value> =
        said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    lines.chunks(2).map(|two| (two[0].clone(), two[1].clone())).collect()
}

/// What arrived of what was sent, which each counter of a trial must bear out.
fn counts(outcome: &Value) -> [u64; 2] {
    let number =
        |side: &str, key: &str| outcome[side]["translated"][key].as_u64().expect("a number");
    for side in ["forward", "reverse"] {
        assert_eq!(number(side, "sent"), number(side, "received") + number(side, "lost"));
    }
    ["forward", "reverse"].map(|side| number(side, "received"))
}

/// The program sent, unless the kernel or a device refuses it: then sockets did, and a trial of the mechanism says so.
fn sent_by_the_best(run: &Folder, outcome: &Value) {
    match outcome["refusal"].as_str() {
        None => assert_eq!(outcome["sending"], serde_json::json!(["program", "program"])),
        Some(why) => {
            assert_eq!(outcome["sending"], serde_json::json!(["sockets", "sockets"]));
            let said =
                |trial: &Value| trial["flags"].to_string().contains("sockets send the frames");
            assert!(run.trials().iter().any(said), "{why}");
        }
    }
}

#[test]
fn rfc8219_measures_what_is_forwarded_and_translated() {
    if !can_run() || !has("fordway", "clat") {
        return;
    }
    let bench = Bench::new();
    let arms = ["native-v6", "siit-fordway-interface"];
    let metrics = [
        "rfc8219_throughput",
        "rfc8219_typical_latency_up",
        "rfc8219_pdv_down",
        "rfc8219_frame_loss",
        "rfc8219_recovery",
        "rfc8219_reset",
        "rfc8219_degradation",
    ];
    let sizes =
        "length_share = 0.05\nframe_sizes = [64, 512]\nloss_shares = [50]\noverload_flows = [2]\n";
    let run = bench.run("run", &small("rfc8219", &arms, &metrics, sizes), &[]);
    bench.assert_clean(&["run"]);
    for (arm, metric) in arms.iter().flat_map(|arm| metrics.map(|metric| (*arm, metric))) {
        // Nothing of native forwarding can be started again.
        if (arm, metric) != ("native-v6", "rfc8219_reset") {
            explained(&run, arm, metric);
        }
    }
    let through = explained(&run, "siit-fordway-interface", "rfc8219_throughput");
    let sizes: Vec<&Value> = through.iter().map(|trial| &trial["point"]["octets"]).collect();
    assert!(sizes.len() == 2 && sizes.contains(&&64.into()) && sizes.contains(&&512.into()));
    // Frames of both ways arrived, translated, with right tags and checksums.
    let raw = std::fs::read_dir(run.path.join("raw")).expect("raw outputs").flatten();
    let files = raw.filter_map(|entry| entry.file_name().into_string().ok());
    let trials: Vec<(Value, Value)> = files
        .filter(|name| name.ends_with("-forwarding-octets512.jsonl"))
        .flat_map(|name| asked(&run, &name))
        .collect();
    assert!(trials.iter().any(|(_, outcome)| counts(outcome).iter().all(|arrived| *arrived > 0)));
    for (order, outcome) in &trials {
        assert_eq!(order["frame_size"], 512);
        sent_by_the_best(&run, outcome);
        for side in ["forward", "reverse"] {
            assert_eq!(outcome[side]["wrong"]["checksum"], 0, "{outcome}");
        }
    }
    // A mechanism that is ended may take receive offload with it, without which a veth takes nothing from the program.
    for arm in arms.into_iter().skip(1) {
        for (_, outcome) in asked(&run, &format!("block1-{arm}-reset-octets64.jsonl")) {
            assert_eq!(outcome["sending"], serde_json::json!(["sockets", "sockets"]));
        }
    }
    assert!(run.page().contains("RFC 8219"));
}

#[test]
fn rfc9693_measures_a_nat_and_a_translator() {
    if !can_run()
        || !has("fordway", "nat64")
        || !has("nftables", "nat44")
        || !programs(&["conntrack"])
    {
        return;
    }
    let bench = Bench::new();
    let arms = ["nat44", "nat64-fordway-interface"];
    let metrics = ["rfc9693_establishment_rate", "rfc9693_tear_down_rate"];
    let sizes = "length_share = 0.05\ntable_connections = [2000]\nsafe_connections = 1000\n";
    let run = bench.run("run", &small("rfc9693", &arms, &metrics, sizes), &[]);
    bench.assert_clean(&["run"]);
    for arm in arms {
        metrics.iter().for_each(|metric| drop(explained(&run, arm, metric)));
        let trials = asked(&run, &format!("block1-{arm}-connections-connections2000.jsonl"));
        // Phase 1: each frame is a connection, which the Responder notes when it arrives, under a source of its own.
        let filled: Vec<&(Value, Value)> =
            trials.iter().filter(|(order, _)| order["reverse"] == "silent").collect();
        assert!(!filled.is_empty());
        for (order, outcome) in filled {
            assert_eq!(order["tuples"]["enumerated"]["flows"], 2000, "{order}");
            let late = outcome["forward"]["translated"]["late"].as_u64().expect("a number");
            assert_eq!(counts(outcome)[0] + late, outcome["noted"], "{outcome}");
            sent_by_the_best(&run, outcome);
        }
    }
    assert!(run.page().contains("RFC 9693"));
}

#[test]
fn a_profile_chooses_what_sends() {
    if !can_run() || !has("fordway", "clat") {
        return;
    }
    let bench = Bench::new();
    let arms = ["native-v6", "siit-fordway-interface"];
    let sizes =
        "length_share = 0.05\nframe_sizes = [64]\nloss_shares = [10]\nsender = \"socket\"\n";
    let metrics = ["rfc8219_frame_loss", "rfc8219_reset"];
    let run = bench.run("run", &small("rfc8219", &arms, &metrics, sizes), &[]);
    bench.assert_clean(&["run"]);
    explained(&run, "native-v6", "rfc8219_frame_loss");
    explained(&run, "siit-fordway-interface", "rfc8219_reset");
    let raw = std::fs::read_dir(run.path.join("raw")).expect("raw outputs").flatten();
    let files: Vec<String> = raw.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    // Frames over IPv6 are larger than the smallest size: there were some where a mechanism is started anew, too.
    for load in ["-loss-", "-reset-"] {
        let of_load = files.iter().filter(|name| name.contains(load));
        let trials: Vec<(Value, Value)> = of_load.flat_map(|name| asked(&run, name)).collect();
        assert!(!trials.is_empty(), "{files:?}");
        for (order, outcome) in trials {
            assert_eq!(order["frame_size"], 84);
            assert_eq!(outcome["sending"], serde_json::json!(["sockets", "sockets"]));
            assert_eq!(outcome["refusal"], Value::Null);
        }
    }
}
