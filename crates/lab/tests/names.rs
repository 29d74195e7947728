//! Name servers, and networks whole, as their users run them: small real runs. What is not installed is said,
//! and the test passes.

mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{ALONE, LAB, can_run, has, lab, lines, namespaces, text};

/// The trial of a mechanism and a metric, where a busy machine has not spoilt it.
fn trial(
    all: &[serde_json::Value],
    mechanism: &str,
    metric: &str,
    spoilt: bool,
) -> Option<serde_json::Value> {
    let wanted = |t: &&serde_json::Value| {
        t["mechanism"] == mechanism && t["metric"] == metric && t["block"] == 1
    };
    let found = all.iter().find(wanted).expect("a trial").clone();
    assert!(found["valid"] == true || spoilt, "{mechanism}, {metric}: {found}");
    (found["valid"] == true).then_some(found)
}

fn passed(results: &serde_json::Value, mechanism: &str, check: &str) {
    let checks = results["gate"][mechanism].as_array().expect("checks");
    let found = checks.iter().find(|c| c["name"] == check);
    assert!(found.is_some_and(|c| c["ok"] == true), "{mechanism}, {check}: {checks:?}");
}

#[test]
fn dns64_servers_are_asked_and_everybody_counts_the_same() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let servers =
        ["unbound", "bind", "fordway"].map(|name| (name, can_run() && has(name, "dns64")));
    let servers: Vec<&str> = servers.iter().filter(|s| s.1).map(|s| s.0).collect();
    if servers.is_empty() {
        return;
    }
    let arms: Vec<String> = servers.iter().map(|name| format!("dns64-{name}")).collect();
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("run");
    let out_text = out.display().to_string();
    let only = arms.join(",");
    let args = ["run", "dns64", "--only", &only, "--blocks", "1", "--json", "--out", &out_text];
    let done = lab(&args);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let results: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let spoilt = results["discarded"].as_array().is_some_and(|d| !d.is_empty());
    let trials = lines(&out.join("trials.jsonl"));
    for arm in &arms {
        for check in ["dns synthesis", "dns native", "dns absence", "dns over tcp", "dns reverse"] {
            passed(&results, arm, check);
        }
        if let Some(rate) = trial(&trials, arm, "dns_rate", spoilt) {
            // The trial that counts has lost nothing, and each answer has its time.
            assert_eq!(rate["sent"], rate["arrived"], "{rate}");
            let times = rate["histogram"].as_array().expect("times");
            let answered: u64 = times.iter().filter_map(|bin| bin[1].as_u64()).sum();
            assert_eq!(Some(answered), rate["arrived"].as_u64());
            // The server's own counters were read, before and after.
            assert!(rate["counters"].as_array().is_some_and(|c| c.len() == 2), "{rate}");
        }
        for metric in ["dns_fresh", "dns_known"] {
            if let Some(flood) = trial(&trials, arm, metric, spoilt) {
                assert!(flood["value"].as_f64().is_some_and(|v| v > 0.05), "{flood}");
            }
        }
    }
    // The self-test of the tester: with nothing in between.
    let own = trials.iter().find(|t| t["mechanism"] == "calibration" && t["metric"] == "dns_rate");
    assert!(own.is_some_and(|t| t["valid"] == true || spoilt), "{own:?}");
    let page = std::fs::read_to_string(out.join("report.html")).expect("page");
    assert!(page.contains("DNS64 without loss") && page.contains("dns synthesis"));
}

#[test]
fn shares_of_names_are_a_factor_of_dns64_alone() {
    let args = ["plan", "dns64", "--only", "dns64-unbound", "--blocks", "1", "--json"];
    let shares = ["--cached", "0,50,100", "--native", "0,100"];
    let plan = lab(&[&args[..], &shares[..]].concat());
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).expect("JSON");
    // Where all names are known, it makes no difference which records they have.
    assert_eq!(plan["plan"]["conditions"].as_array().map(Vec::len), Some(5), "{plan}");
    assert!(plan["run"]["replay"].as_str().is_some_and(|r| r.contains("--cached 0,50,100")));
    let said = lab(&["plan", "nat64", "--cached", "20"]);
    assert_eq!(said.status.code(), Some(2));
    assert!(text(&said.stderr).contains("nat64 asks none"), "{}", text(&said.stderr));
}

#[test]
fn an_ipv6_only_network_whole_stands_against_dual_stack() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !(can_run() && has("unbound", "dns64") && has("tayga", "nat64")) {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("run");
    let out_text = out.display().to_string();
    let only = "native-v4,464xlat-tayga";
    let args = ["run", "clat-vs-dual-stack", "--only", only, "--blocks", "1", "--duration", "1"];
    let done = lab(&[&args[..], &["--json", "--out", &out_text]].concat());
    assert!(done.status.success(), "{}", text(&done.stderr));
    let results: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let spoilt = results["discarded"].as_array().is_some_and(|d| !d.is_empty());
    let gate = ["dns synthesis", "ping small", "tcp payload", "udp checksum", "udp fragments"];
    for check in gate {
        passed(&results, "464xlat-tayga", check);
    }
    let trials = lines(&out.join("trials.jsonl"));
    for mechanism in ["native-v4", "464xlat-tayga"] {
        for (metric, count) in [
            ("session_fresh", 100),
            ("session_known", 100),
            ("session_literal", 100),
            ("page_name", 20),
            ("page_literal", 20),
        ] {
            if let Some(timed) = trial(&trials, mechanism, metric, spoilt) {
                let all = timed["replies"].as_array().expect("times").len();
                assert!(all * 100 >= count * 99, "{timed}");
                assert!(timed["value"].as_f64().is_some_and(|ms| ms > 0.0), "{timed}");
            }
        }
        trial(&trials, mechanism, "tcp_throughput_up", spoilt);
    }
}

#[test]
fn no_name_server_outlives_a_killed_run() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !(can_run() && has("unbound", "dns64")) {
        return;
    }
    let before = namespaces();
    let dir = tempfile::tempdir().expect("a folder");
    let out_text = dir.path().join("run").display().to_string();
    let mut child = Command::new(LAB)
        .args(["run", "dns64", "--only", "dns64-unbound", "--blocks", "1", "--out", &out_text])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the lab starts");
    let deadline = Instant::now() + Duration::from_secs(120);
    // Processes in the namespace in the middle: the name server.
    let inside = || -> Vec<u32> {
        let mut own = namespaces().into_iter().filter(|n| !before.contains(n));
        let Some(name) = own.find(|name| name.ends_with("-host")) else { return Vec::new() };
        let said = Command::new("ip").args(["netns", "pids", &name]).output().expect("ip");
        text(&said.stdout).split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    };
    let is_unbound = |pid: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim() == "unbound"
    };
    let server = loop {
        if let Some(pid) = inside().into_iter().find(is_unbound) {
            break pid;
        }
        assert!(Instant::now() < deadline, "no name server within two minutes");
        assert!(child.try_wait().expect("wait").is_none(), "the run ended too early");
        std::thread::yield_now();
    };
    child.kill().expect("kill -9");
    child.wait().expect("wait");
    assert!(lab(&["doctor", "--clean"]).status.success());
    while is_unbound(&server) {
        assert!(Instant::now() < deadline, "the name server lives on");
        std::thread::yield_now();
    }
    let left: Vec<String> = namespaces()
        .into_iter()
        .filter(|n| n.starts_with("fwlab-") && !before.contains(n))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
