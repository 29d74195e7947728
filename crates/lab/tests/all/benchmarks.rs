//! The tests of RFC 8219, RFC 9693 and RFC 9411, as their users run them, as short as they can be. The machine may be busy: what is held is
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

/// Those of all files with such an end.
fn asked_of(run: &Folder, end: &str) -> Vec<(Value, Value)> {
    let raw = std::fs::read_dir(run.path.join("raw")).expect("raw outputs").flatten();
    let files = raw.filter_map(|entry| entry.file_name().into_string().ok());
    files.filter(|name| name.ends_with(end)).flat_map(|name| asked(run, &name)).collect()
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
        "rfc8219_degradation_incremental",
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
    // One pair of addresses starts after the other.
    let trials = asked_of(&run, "-incremental-pairs2.jsonl");
    let flows = |order: &Value| (order["networks"].as_u64(), order["start_s"].as_f64());
    assert!(trials.iter().any(|(order, _)| flows(order) == (Some(2), Some(0.01))));
    assert!(trials.iter().any(|(order, _)| flows(order) == (Some(1), Some(0.0))));
    let through = explained(&run, "siit-fordway-interface", "rfc8219_throughput");
    let sizes: Vec<&Value> = through.iter().map(|trial| &trial["point"]["octets"]).collect();
    assert!(sizes.len() == 2 && sizes.contains(&&64.into()) && sizes.contains(&&512.into()));
    // Frames of both ways arrived, translated, with right tags and checksums.
    let trials = asked_of(&run, "-forwarding-octets512.jsonl");
    assert!(trials.iter().any(|(_, outcome)| counts(outcome).iter().all(|arrived| *arrived > 0)));
    for (order, outcome) in &trials {
        assert_eq!(order["frame_size"], 512);
        for side in ["forward", "reverse"] {
            assert_eq!(outcome[side]["wrong"]["checksum"], 0, "{outcome}");
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
        }
    }
    assert!(run.page().contains("RFC 9693"));
}

#[test]
fn rfc9411_measures_transactions_and_connections() {
    if !can_run()
        || !has("fordway", "nat64")
        || !programs(&["wrk", "hey", "h2load", "nginx", "curl"])
    {
        return;
    }
    let bench = Bench::new();
    let arms = ["native-v6", "nat64-fordway-interface", "proxy-fordway"];
    let metrics = [
        "rfc9411_connections_per_s",
        "rfc9411_ttfb",
        "rfc9411_ttlb",
        "rfc9411_throughput",
        "rfc9411_transactions_per_s",
        "rfc9411_ttlb_kept",
        "rfc9411_throughput_mixed",
        "rfc9411_concurrent_connections",
    ];
    let sizes = "single_objects = [2048]\nkept_objects = [16384]\nramp_s = 0.2\nsustain_s = 0.8\nweb_connections = 100\n";
    let run = bench.run("run", &small("rfc9411", &arms, &metrics, sizes), &[]);
    bench.assert_clean(&["run"]);
    for (arm, metric) in arms.iter().flat_map(|arm| metrics.map(|metric| (*arm, metric))) {
        // The generator of many connections asks no proxy.
        if (arm, metric) != ("proxy-fordway", "rfc9411_concurrent_connections") {
            explained(&run, arm, metric);
        }
    }
    for arm in arms {
        let rates = explained(&run, arm, "rfc9411_connections_per_s");
        assert!(rates.iter().all(|trial| trial["point"]["octets"] == 2048), "{rates:?}");
        // What wrk received agrees with nginx's own counts, or the trial says that they disagree.
        for trial in rates.iter().chain(&explained(&run, arm, "rfc9411_throughput_mixed")) {
            assert!(trial["value"].as_f64().is_some_and(|value| value > 0.0), "{trial}");
            assert!(trial["invalid"].as_array().is_none_or(Vec::is_empty), "{trial}");
            assert!(trial["arrived"].as_u64() > Some(0), "{trial}");
        }
        let both = [
            explained(&run, arm, "rfc9411_throughput"),
            explained(&run, arm, "rfc9411_transactions_per_s"),
        ];
        let [octets, transactions] = both.map(|all| all[0]["value"].as_f64().expect("a number"));
        assert!((octets * 1e6 / (transactions * 16384.0 * 8.0) - 1.0).abs() < 1e-6);
    }
    // A connection carries one transaction, or up to ten.
    let counts = |label: &str| -> Vec<(u64, u64)> {
        let raw = std::fs::read_dir(run.path.join("raw")).expect("raw outputs").flatten();
        let suffix = format!("-transactions-{label}-counts.jsonl");
        let of_label = raw.filter(|entry| entry.file_name().to_string_lossy().ends_with(&suffix));
        let texts = of_label.map(|entry| std::fs::read_to_string(entry.path()).expect("counts"));
        let number = |line: &Value, key: &str| line[key].as_u64().expect("a number");
        let pair = |line: &str| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            (number(&line, "accepted"), number(&line, "requests"))
        };
        texts.flat_map(|text| text.lines().map(pair).collect::<Vec<_>>()).collect()
    };
    let (single, kept) = (counts("single-octets2048"), counts("kept-octets16384"));
    // Three arms and two calibrations, each with several samples.
    assert!(single.len() >= 10 && kept.len() >= 10, "{single:?}, {kept:?}");
    assert!(single.iter().all(|(accepted, requests)| requests <= accepted), "{single:?}");
    assert!(kept.iter().all(|(accepted, requests)| *requests <= 10 * accepted), "{kept:?}");
    assert!(kept.iter().any(|(accepted, requests)| requests > accepted), "{kept:?}");
    for trial in explained(&run, "nat64-fordway-interface", "rfc9411_concurrent_connections") {
        assert_eq!((trial["sent"].as_u64(), trial["cap"].as_f64()), (Some(1000), Some(0.1)));
    }
    assert!(run.page().contains("RFC 9411"));
}
