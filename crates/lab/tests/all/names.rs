//! Name servers, and networks whole, as their users run them: small real runs.

use std::process::Command;

use crate::common::{Bench, can_run, has, lab, namespaces, small, text};
use fordway_testhost::poll;

/// Sizes for questions. The search looks at rates that any machine answers, and an answer may take its time: what is tested
/// is who counts what.
const QUESTIONS: &str = "dns_trial_s = 0.2\ndns_search_s = 0.1\ndns_precision = 0.3\ndns_s = 0.5\ndns_known = 50\n\
                         dns_limit_s = 20.0\ndns_rate_max = 200\n";

#[test]
fn dns64_servers_are_asked_and_everybody_counts_the_same() {
    if !can_run() {
        return;
    }
    let servers = ["unbound", "bind", "fordway"].into_iter().filter(|name| has(name, "dns64"));
    let arms: Vec<String> = servers.map(|name| format!("dns64-{name}")).collect();
    let arms: Vec<&str> = arms.iter().map(String::as_str).collect();
    if arms.is_empty() {
        return;
    }
    let bench = Bench::new();
    let metrics = ["dns_rate", "dns_fresh", "dns_known"];
    let run = bench.run("run", &small("dns64", &arms, &metrics, QUESTIONS), &[]);
    for arm in &arms {
        for check in ["dns synthesis", "dns native", "dns absence", "dns over tcp", "dns reverse"] {
            run.assert_passed(arm, check);
        }
        let rate = run.trial(arm, "dns_rate");
        // The trial that counts has sent what its rate says and lost nothing, and each answer has its time. A busy machine
        // finds a lower rate than the highest.
        let sent = rate["sent"].as_u64().expect("questions");
        let value = rate["value"].as_f64().expect("thousand answers/s");
        assert!((0.0..=0.2).contains(&value) && sent > 0, "{rate}");
        assert_eq!(sent, (value * 1e3 * 0.2 - 1e-6).ceil() as u64, "{rate}");
        assert_eq!(rate["arrived"], sent, "{rate}");
        let times = rate["histogram"].as_array().expect("times");
        let answered: u64 = times.iter().filter_map(|bin| bin[1].as_u64()).sum();
        assert_eq!(answered, sent);
        // The server's own counters were read, before and after.
        assert!(rate["counters"].as_array().is_some_and(|c| c.len() == 2), "{rate}");
        for metric in ["dns_fresh", "dns_known"] {
            let flood = run.trial(arm, metric);
            assert!(flood["value"].as_f64().is_some_and(|v| v > 0.0), "{flood}");
        }
    }
    // The self-test of the tester: with nothing in between.
    let all = run.trials();
    let own = all.iter().find(|t| t["mechanism"] == "calibration-v6" && t["metric"] == "dns_rate");
    assert!(own.is_some_and(|t| t["valid"] == true), "{own:?}");
    let page = run.page();
    assert!(page.contains("DNS64 without loss") && page.contains("dns synthesis"));
}

#[test]
fn shares_of_names_are_a_factor_of_dns64_alone() {
    if !has("unbound", "dns64") {
        return;
    }
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
    if !(can_run() && has("unbound", "dns64") && has("tayga", "nat64")) {
        return;
    }
    let bench = Bench::new();
    let arms = ["native-v4", "464xlat-tayga"];
    let counts = [
        ("session_fresh", 10),
        ("session_known", 10),
        ("session_literal", 10),
        ("page_name", 3),
        ("page_literal", 3),
    ];
    let metrics: Vec<&str> = counts.iter().map(|(metric, _)| *metric).collect();
    let metrics = [&metrics[..], &["tcp_throughput_up"]].concat();
    let experiment = small("clat-vs-dual-stack", &arms, &metrics, "sessions = 10\npages = 3\n");
    let run = bench.run("run", &experiment, &[]);
    for check in ["dns synthesis", "ping small", "tcp payload", "udp checksum", "udp fragments"] {
        run.assert_passed("464xlat-tayga", check);
    }
    for mechanism in arms {
        for (metric, count) in counts {
            let timed = run.trial(mechanism, metric);
            assert_eq!(timed["replies"].as_array().expect("times").len(), count, "{timed}");
            assert!(timed["value"].as_f64().is_some_and(|ms| ms > 0.0), "{timed}");
        }
        let flow = run.trial(mechanism, "tcp_throughput_up");
        assert!(flow["value"].as_f64().is_some_and(|rate| rate > 0.0), "{flow}");
    }
}

#[test]
fn no_name_server_outlives_a_killed_run() {
    if !(can_run() && has("unbound", "dns64")) {
        return;
    }
    let bench = Bench::new();
    let file =
        bench.write("mine.toml", &small("dns64", &["dns64-unbound"], &["dns_fresh"], QUESTIONS));
    let mut lab = bench.start(&["run", &file, "--out", &bench.shown("run")]);
    // Processes in the namespace in the middle: the name server.
    let inside = || -> Vec<u32> {
        let Some(id) = note(&bench) else { return Vec::new() };
        let own = format!("fwlab-{id}-");
        let middle = |name: &String| name.starts_with(&own) && name.ends_with("-host");
        let Some(name) = namespaces().into_iter().find(middle) else { return Vec::new() };
        let said = Command::new("ip").args(["netns", "pids", &name]).output().expect("ip");
        text(&said.stdout).split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    };
    let is_unbound = |pid: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim() == "unbound"
    };
    let mut server = None;
    lab.until("the name server runs", || {
        server = inside().into_iter().find(is_unbound);
        server.is_some()
    });
    lab.signal("-KILL");
    lab.end();
    let server = server.expect("a process id");
    let id = note(&bench).expect("the killed run's note");
    assert!(bench.lab(&["doctor", "--clean"]).status.success());
    poll("the name server is gone", || (!is_unbound(&server)).then_some(()));
    let own = format!("fwlab-{id}-");
    let left: Vec<String> =
        namespaces().into_iter().filter(|name| name.starts_with(&own)).collect();
    assert!(left.is_empty(), "{left:?}");
    bench.assert_clean(&["run"]);
}

/// The id of the run that is noted, which begins the names of its namespaces.
fn note(bench: &Bench) -> Option<String> {
    let notes = std::fs::read_dir(bench.notes()).ok()?.flatten();
    let id = |name: String| name.strip_suffix(".json").map(str::to_owned);
    notes.filter_map(|entry| id(entry.file_name().into_string().ok()?)).next()
}
