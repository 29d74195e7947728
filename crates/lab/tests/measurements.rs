//! Measurements as their users run them: small real runs of the experiments.

mod common;

use common::{ALONE, can_run, lab, lines, text, trials};

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
    assert_eq!(goals.len(), 27);
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
            Some(attach @ ("interface" | "uplink" | "ingress" | "xdp")) => {
                format!("kernel engine at {attach}")
            }
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
    if trials("small-packets", only) < 6 {
        eprintln!("SKIPPED: {}", text(&done.stderr));
        return;
    }
    let measured = lines(&out.join("trials.jsonl"));
    for (metric, device) in
        [("frame_rate_up", "iperf/uplink"), ("frame_rate_down", "client/uplink")]
    {
        let found: Vec<&serde_json::Value> = measured
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
        // Beside other programs' work not all are opened in the time that there is.
        let flags = held["flags"].as_array().into_iter().flatten();
        let busy = flags.filter_map(|f| f.as_str()).any(|f| f.starts_with("other programs kept"));
        assert!(held["value"].as_f64() == Some(200.0) || busy, "{held}");
    }
    if let Some(memory) = of("nat44", "memory_per_session") {
        // An entry of connection tracking has 256 octets and more on every kernel.
        assert!(memory["value"].as_f64().is_some_and(|o| (200.0..2000.0).contains(&o)), "{memory}");
    }
    let gate = results["gate"]["nat44"].as_array().expect("checks");
    assert!(gate.iter().all(|check| check["ok"] == true), "{gate:?}");
}
