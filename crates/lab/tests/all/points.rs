//! Loads that are run at several points of one deployment, as their users run them.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::common::{Bench, Folder, can_measure, can_run, programs, small};

/// Levels on an axis at which a metric of a mechanism was measured.
fn levels(run: &Folder, mechanism: &str, metric: &str, axis: &str) -> Vec<u64> {
    let trials = run.of(mechanism, metric);
    // They were run in an order of their own.
    let places: BTreeSet<u64> = trials.iter().filter_map(|trial| trial["place"].as_u64()).collect();
    assert_eq!(places.len(), trials.len(), "{trials:?}");
    let mut all: Vec<u64> =
        trials.iter().filter_map(|trial| trial["point"][axis].as_u64()).collect();
    all.sort_unstable();
    all
}

#[test]
fn round_trips_are_timed_at_every_number_of_connections() {
    if !can_run() || !programs(&["nginx"]) {
        return;
    }
    let bench = Bench::new();
    let (arms, requests) = (["native-v6", "native-v4"], 20);
    let metrics = ["http_rtt_small", "http_rtt_up", "http_rtt_down"];
    let sizes = format!("http_connections = [1, 5]\nhttp_requests = {requests}\n");
    let run = bench.run("run", &small("http-translators", &arms, &metrics, &sizes), &[]);
    for (metric, mechanism) in metrics.into_iter().flat_map(|m| arms.map(|arm| (m, arm))) {
        assert_eq!(levels(&run, mechanism, metric, "connections"), [1, 5], "{mechanism}, {metric}");
        for trial in run.of(mechanism, metric) {
            let due = requests * trial["point"]["connections"].as_u64().expect("a number");
            assert_eq!((trial["sent"].as_u64(), trial["arrived"].as_u64()), (Some(due), Some(due)));
            assert_eq!(trial["path_mtu"], 1500, "{trial}");
            assert!(trial["value"].as_f64().is_some_and(|us| us > 1.0), "{trial}");
        }
    }
    // A cell for each point, compared with the base at the same point.
    assert_eq!(run.results()["cells"].as_array().expect("cells").len(), 12);
    let page = run.page();
    assert!(page.contains("simultaneous connections") && page.contains("Path MTU"));
    // What is there is not measured again.
    let measured = run.trials().len();
    assert!(bench.lab(&["resume", &bench.shown("run")]).status.success());
    assert_eq!(run.trials().len(), measured);
}

#[test]
fn round_trips_are_timed_while_several_flows_run_both_ways() {
    if !can_run() {
        return;
    }
    let bench = Bench::new();
    let metrics = ["tcp_streams", "tcp_both_ways", "rtt_loaded"];
    let experiment = small("tcp-load", &["native-v6"], &metrics, "tcp_streams = [1, 3]\n");
    let run = bench.run("run", &experiment, &[]);
    for metric in metrics {
        assert_eq!(levels(&run, "native-v6", metric, "streams"), [1, 3], "{metric}");
    }
    for trial in run.of("native-v6", "rtt_loaded").iter().chain(&run.of("native-v6", "tcp_streams"))
    {
        let words: Vec<&str> =
            trial["argv"].as_array().expect("words").iter().filter_map(Value::as_str).collect();
        let flows = trial["point"]["streams"].to_string();
        assert!(words.windows(2).any(|two| two == ["-P", flows.as_str()]), "{words:?}");
        assert_eq!(words.contains(&"--bidir"), trial["metric"] == "rtt_loaded", "{words:?}");
        assert!(trial["value"].as_f64().is_some_and(|value| value > 0.0), "{trial}");
    }
    assert!(run.page().contains("TCP flows at once"));
}

#[test]
fn small_frames_run_between_many_pairs_of_hosts() {
    if !can_run() || !can_measure("pair_rate_up") {
        return;
    }
    let bench = Bench::new();
    let metrics = ["pair_rate_up", "pair_rate_down"];
    let sizes = "packets_s = 0.1\nhost_pairs = [1, 70000]\n";
    // Both families, and translation: every hop must know the way to all hosts.
    let arms = ["native-v6", "siit-fordway-interface"];
    let run = bench.run("run", &small("pairs", &arms, &metrics, sizes), &[]);
    for (arm, metric) in arms.iter().flat_map(|arm| metrics.map(|metric| (*arm, metric))) {
        let found = levels(&run, arm, metric, "pairs");
        assert_eq!(found, [1, 70_000], "{arm}, {metric}\n{}", run.errors);
        for trial in run.of(arm, metric) {
            let words: Vec<&str> =
                trial["argv"].as_array().expect("words").iter().filter_map(Value::as_str).collect();
            let pairs = trial["point"]["pairs"].to_string();
            assert!(words.windows(2).any(|two| two == ["--hosts", pairs.as_str()]), "{words:?}");
            assert_eq!(words.contains(&"--at-target"), metric == "pair_rate_down", "{words:?}");
            assert!(trial["arrived"].as_u64().is_some_and(|frames| frames > 0), "{trial}");
        }
    }
}

#[test]
fn gateways_are_measured_with_many_entries() {
    if !can_run() || !can_measure("pair_rate_up") {
        return;
    }
    let bench = Bench::new();
    let metrics = ["pair_rate_up", "pair_rate_down", "frame_rate_up"];
    let sizes = "packets_s = 0.1\nhost_pairs = [1000]\n";
    let arms = ["siit-xdp-1", "siit-xdp-1024", "siit-user-1024", "pool4-xdp-1024", "bib-xdp-1024"];
    let experiment = small("entries", &arms, &metrics, sizes);
    let mut experiment: toml::Table = toml::from_str(&experiment).expect("TOML");
    // They are about the other arms.
    experiment.remove("goal");
    let experiment = toml::to_string(&experiment).expect("TOML");
    let run = bench.run("run", &experiment, &[]);
    for arm in arms {
        let measured = if arm.starts_with("siit") { &metrics[..2] } else { &metrics[2..] };
        for metric in measured {
            let trials = run.of(arm, metric);
            assert_eq!(trials.len(), 1, "{arm}, {metric}\n{}", run.errors);
            let arrived = trials[0]["arrived"].as_u64();
            assert!(arrived.is_some_and(|frames| frames > 0), "{}", trials[0]);
            // These hosts are behind the server: they are what is varied there.
            let words = trials[0]["argv"].to_string();
            assert_eq!(words.contains("--at-target"), *metric == "pair_rate_up", "{words}");
        }
    }
}

#[test]
fn a_flow_is_measured_beside_background_traffic() {
    if !can_run() || !programs(&["nft", "tcpdump"]) {
        return;
    }
    let bench = Bench::new();
    let metrics = ["initiation", "simplex_throughput", "duplex_throughput"];
    // As few datagrams as no queue is too short for, however long their sender was kept waiting.
    let sizes = "begun = 10\nsimplex_rates = [0, 100]\nduplex_flows = [2, 5]\nflow_rate = 20\n";
    let experiment = small("interop-mechanisms", &["native-v6", "native-v4"], &metrics, sizes);
    let run = bench.run("run", &experiment, &[]);
    assert_eq!(levels(&run, "native-v4", "simplex_throughput", "background"), [0, 100]);
    assert_eq!(levels(&run, "native-v4", "duplex_throughput", "flows"), [2, 5]);
    // The ceiling of the generators is found at each of them.
    let all = run.trials();
    let ceiling = |t: &&Value| {
        t["mechanism"] == "calibration-v4"
            && t["metric"] == "simplex_throughput"
            && t["valid"] == true
    };
    let found = all.iter().filter(ceiling).filter_map(|t| t["point"]["background"].as_u64());
    assert_eq!(found.collect::<BTreeSet<u64>>(), BTreeSet::from([0, 100]));
    // The sentinel has other things to measure.
    assert!(run.of("native-v6", "simplex_throughput").is_empty());
    for trial in all.iter().filter(|t| t["point"].is_object()) {
        let (sent, arrived) = (trial["sent"].as_u64(), trial["arrived"].as_u64());
        let (sent, arrived) = (sent.expect("a number"), arrived.expect("a number"));
        let quiet = trial["point"]["background"] == 0;
        assert_eq!(sent == 0, quiet, "{trial}");
        assert!(arrived <= sent && 2 * arrived >= sent, "{trial}");
    }
}
