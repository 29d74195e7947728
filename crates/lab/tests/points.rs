//! Loads that are run at several points of one deployment, as their users run them.

mod common;

use common::{ALONE, can_run, lab, lines, programs, text};
use serde_json::Value;

/// The points of a metric's trials of a mechanism, all of which count, or other work has spoilt one.
fn points(trials: &[Value], mechanism: &str, metric: &str) -> Vec<Value> {
    let wanted =
        |t: &&Value| t["mechanism"] == mechanism && t["metric"] == metric && t["block"] == 1;
    trials.iter().filter(wanted).map(|t| t["point"].clone()).collect()
}

#[test]
fn round_trips_are_timed_at_every_number_of_connections() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !can_run() || !programs(&["nginx"]) {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("run");
    let out_text = out.display().to_string();
    let args = ["run", "http-translators", "--only", "native-v6,native-v4", "--blocks", "1"];
    let done = lab(&[&args[..], &["--json", "--out", &out_text]].concat());
    assert!(done.status.success(), "{}", text(&done.stderr));
    let results: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let trials = lines(&out.join("trials.jsonl"));
    for metric in ["http_rtt_small", "http_rtt_up", "http_rtt_down"] {
        for mechanism in ["native-v6", "native-v4"] {
            let found = points(&trials, mechanism, metric);
            let levels: Vec<u64> =
                found.iter().filter_map(|point| point["connections"].as_u64()).collect();
            assert_eq!(levels, [1, 10, 100], "{mechanism}, {metric}");
        }
    }
    for trial in trials.iter().filter(|t| t["valid"] == true && t["point"].is_object()) {
        let due = 500 * trial["point"]["connections"].as_u64().expect("a number");
        assert_eq!((trial["sent"].as_u64(), trial["arrived"].as_u64()), (Some(due), Some(due)));
        assert_eq!(trial["path_mtu"], 1500, "{trial}");
        assert!(trial["value"].as_f64().is_some_and(|us| us > 1.0), "{trial}");
    }
    // A cell for each point, compared with the base at the same point.
    let cells = results["cells"].as_array().expect("cells");
    let spoilt = results["discarded"].as_array().is_some_and(|d| !d.is_empty());
    assert!(cells.len() == 18 || spoilt, "{}", cells.len());
    let page = text(&std::fs::read(out.join("report.html")).expect("a report"));
    assert!(page.contains("simultaneous connections") && page.contains("Path MTU"));
    // What is there is not measured again.
    if !spoilt {
        let again = lab(&["resume", &out_text]);
        assert!(again.status.success(), "{}", text(&again.stderr));
        assert_eq!(lines(&out.join("trials.jsonl")).len(), trials.len());
    }
}

#[test]
fn a_flow_is_measured_beside_background_traffic() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !can_run() || !programs(&["nft"]) {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("run");
    let out_text = out.display().to_string();
    let args = ["run", "interop-mechanisms", "--only", "native-v6,native-v4", "--blocks", "1"];
    let done = lab(&[&args[..], &["--duration", "1", "--json", "--out", &out_text]].concat());
    assert!(done.status.success(), "{}", text(&done.stderr));
    let trials = lines(&out.join("trials.jsonl"));
    let simplex = points(&trials, "native-v4", "simplex_throughput");
    let rates: Vec<u64> = simplex.iter().filter_map(|point| point["background"].as_u64()).collect();
    assert_eq!(rates, [0, 1000, 3000, 6000, 20_000]);
    // The ceiling of the generators is found at each of them.
    let ceilings = trials.iter().filter(|t| t["mechanism"] == "calibration" && t["valid"] == true);
    let ceilings = ceilings.filter(|t| t["metric"] == "simplex_throughput");
    let found: Vec<u64> = ceilings.filter_map(|t| t["point"]["background"].as_u64()).collect();
    assert_eq!(found, rates);
    let duplex = points(&trials, "native-v4", "duplex_throughput");
    let flows: Vec<u64> = duplex.iter().filter_map(|point| point["flows"].as_u64()).collect();
    assert_eq!(flows, [10, 40, 70, 100]);
    // The sentinel has other things to measure.
    assert!(points(&trials, "native-v6", "simplex_throughput").is_empty());
    for trial in trials.iter().filter(|t| t["valid"] == true && t["point"].is_object()) {
        let sent = trial["sent"].as_u64().expect("a number");
        let quiet = trial["point"]["background"] == 0;
        assert_eq!(sent == 0, quiet, "{trial}");
        assert!(trial["arrived"].as_u64().is_some_and(|arrived| arrived <= sent), "{trial}");
    }
}
