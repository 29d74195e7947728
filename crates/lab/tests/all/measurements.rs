//! Measurements as their users run them: small real runs of the experiments.

use std::collections::BTreeSet;
use std::process::Command;

use fordway_testhost::{poll, require};
use serde_json::Value;

use crate::common::{Bench, Folder, can_measure, can_run, has, programs, signal, small, text};

/// The goals as they are written.
fn goals() -> Vec<toml::Value> {
    let table: toml::Table =
        toml::from_str(include_str!("../../../data/experiments/goals-table.toml")).expect("TOML");
    table["goal"].as_array().expect("goals").clone()
}

/// Goals that these arms and metrics are enough for, by name.
fn goals_of(arms: &[&str], metrics: &[&str]) -> BTreeSet<String> {
    let is_there = |goal: &toml::Value| {
        let named = |key: &str| goal.get(key).and_then(toml::Value::as_str);
        let all = ["mechanism", "base", "zero"].into_iter().filter_map(named);
        metrics.contains(&named("metric").expect("a metric"))
            && all.clone().all(|a| arms.contains(&a))
    };
    let name = |goal: toml::Value| goal["id"].as_str().expect("a name").to_owned();
    goals().into_iter().filter(is_there).map(name).collect()
}

/// Runs an experiment with goals of these arms. Each has a number or the reason why it has none, and each arm runs what it is
/// named after.
fn judged(experiment: &str, arms: &[&str], metrics: &[&str]) -> Option<(Bench, Folder)> {
    if !can_run() || !has("fordway", "clat") {
        return None;
    }
    let bench = Bench::new();
    let run = bench.run("run", experiment, &[]);
    let results = run.results();
    let judged = results["goals"].as_array().expect("goals");
    assert_eq!(judged.len(), goals().len());
    let wanted = goals_of(arms, metrics);
    let is_wanted = |goal: &&Value| wanted.contains(goal["id"].as_str().expect("a name"));
    assert_eq!(judged.iter().filter(is_wanted).count(), wanted.len());
    // What the user engine adds to round trips may be nothing: then there is no share of it.
    for goal in judged.iter().filter(is_wanted).filter(|goal| goal["id"] != "user-rtt-added") {
        let added = goal["id"].as_str().is_some_and(|id| id.ends_with("rtt-added"));
        let measured = goal["measured"].as_f64().is_some_and(|v| added || v > 0.0);
        let excused = goal["detail"]
            .as_str()
            .is_some_and(|d| d.contains("was skipped: ") || d.starts_with("not measured: "));
        assert!(measured || excused, "{goal}\n{}\n{}", results["discarded"], run.errors);
        if !measured {
            fordway_testhost::skip(&format!("{}: {}", goal["id"], goal["detail"]));
        }
    }
    let gates = results["gate"].as_object().expect("gates");
    for (name, checks) in gates.iter().filter(|(name, _)| name.contains("fordway")) {
        let checks = checks.as_array().expect("checks");
        let failed: Vec<&Value> = checks.iter().filter(|c| c["ok"] == false).collect();
        assert!(failed.is_empty(), "{name}: {failed:?}");
    }
    for trial in run.trials().iter().filter(|t| t["valid"] == true && t["engine"].is_string()) {
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
    Some((bench, run))
}

#[test]
fn goals_of_the_clat_are_judged_where_the_gateway_is_built() {
    let arms = [
        "native-v6",
        "clat-fordway-uplink",
        "clat-fordway-interface",
        "clat-fordway",
        "clat-tayga",
    ];
    let metrics = ["tcp_throughput_up", "tcp_throughput_down", "rtt", "start_time"];
    let experiment = format!("program_costs = true\n{}", small("goals", &arms, &metrics, ""));
    let Some((_bench, run)) = judged(&experiment, &arms, &metrics) else { return };
    let results = run.results();
    assert!(results["gate"].as_object().expect("gates").contains_key("clat-fordway"));
    // Costs per packet by the gateway itself: a table, or the reason why there is none.
    let costs = &results["program_costs"];
    let rows = costs["rows"].as_array().expect("rows");
    assert!(!rows.is_empty() || costs["missing"].is_string(), "{costs}");
    // The gateway's own account of each flow was read and agreed.
    for metric in ["tcp_throughput_up", "tcp_throughput_down"] {
        assert!(run.trial("clat-fordway", metric)["counters"].is_array());
    }
}

#[test]
fn goals_of_nat64_and_small_packets_are_judged() {
    let arms =
        ["native-v6", "siit-fordway-xdp", "nat44", "nat64-fordway-ingress", "nat64-fordway-xdp"];
    let metrics = [
        "tcp_throughput_up",
        "tcp_throughput_down",
        "frame_rate_up",
        "frame_rate_down",
        "new_udp_flows",
        "new_tcp_connections",
        "sessions_held",
        "memory_per_session",
    ];
    let sizes = "packets_s = 0.1\nnew_flows = 1000\nheld_sessions = 2000\nflow_patience_s = 10.0\n";
    judged(&small("goals", &arms, &metrics, sizes), &arms, &metrics);
}

#[test]
fn goals_of_dns64_are_judged() {
    if !has("unbound", "dns64") || !programs(&["dnsperf"]) {
        return;
    }
    let arms = ["dns64-unbound", "dns64-unbound-all", "dns64-fordway", "dns64-fordway-all"];
    let metrics = ["dnsperf_fresh", "dnsperf_known"];
    // A busy machine answers late, but it does answer.
    let sizes = "dns_s = 0.5\ndns_known = 50\ndns_limit_s = 10.0\n";
    judged(&small("goals", &arms, &metrics, sizes), &arms, &metrics);
}

#[test]
fn small_frames_are_counted_at_both_ends() {
    if !can_run() || !can_measure("frame_rate_up") {
        return;
    }
    let arms = ["native-v6", "native-v4"];
    let experiment =
        small("small-packets", &arms, &["frame_rate_up", "frame_rate_down"], "packets_s = 0.2\n");
    let bench = Bench::new();
    let run = bench.run("run", &experiment, &[]);
    let ways = [("frame_rate_up", "iperf/uplink"), ("frame_rate_down", "client/uplink")];
    for ((metric, device), arm) in ways.into_iter().flat_map(|way| arms.map(|arm| (way, arm))) {
        let trial = run.trial(arm, metric);
        let arrived = trial["arrived"].as_u64().expect("a count");
        let carried = trial["links"][device]["rx_packets"].as_u64().expect("a counter");
        // The receiver counts during a part of the time, its device all the time.
        assert!(arrived > 0 && carried > arrived, "{arrived} of {carried}");
        assert!(trial["value"].as_f64().is_some_and(|v| v > 0.0), "{trial}");
    }
}

#[test]
fn frames_of_several_sizes_arrive_whole() {
    if !can_run() || !can_measure("imix_rate_up") {
        return;
    }
    let metrics = ["imix_rate_up", "imix_rate_down", "imix_throughput_up", "imix_throughput_down"];
    // 18, 53 and 1,452 octets of payload: the largest that IPv6 has room for.
    let sizes = "packets_s = 0.2\nimix = [64, 99, 1498]\n";
    let arms = ["native-v6", "siit-fordway-interface"];
    let bench = Bench::new();
    let run = bench.run("run", &small("imix", &arms, &metrics, sizes), &[]);
    for (arm, way) in arms.iter().flat_map(|arm| ["up", "down"].map(|way| (arm, way))) {
        let value = |kind: &str| {
            let trial = run.trial(arm, &format!("imix_{kind}_{way}"));
            trial["value"].as_f64().expect("a value")
        };
        // Gbit/s by thousand packets/s are Mbit. Where a queue overflows, the sizes need not be lost alike.
        let mean = value("throughput") * 1e6 / value("rate") / 8.0;
        assert!((18.0..1452.0).contains(&mean), "{arm} {way}: {mean} octets");
    }
}

/// Files that stand in the place of the kernel's limits of connection tracking, for a lab with mounts of its own: the
/// limits hold for the whole machine, which other tests use as well.
struct Limits<'a> {
    bench: &'a Bench,
}

impl Limits<'_> {
    const KERNEL: [(&'static str, &'static str); 2] = [
        ("max", "/proc/sys/net/netfilter/nf_conntrack_max"),
        ("buckets", "/sys/module/nf_conntrack/parameters/hashsize"),
    ];

    /// The lab with these limits instead of the machine's.
    fn command(&self, max: u64, buckets: u64, args: &[&str]) -> Command {
        for ((name, _), limit) in Self::KERNEL.iter().zip([max, buckets]) {
            self.bench.write(name, &format!("{limit}\n"));
        }
        let mounts = Self::KERNEL
            .map(|(name, file)| format!("mount --bind {} {file} && ", self.bench.shown(name)));
        let mut command = Command::new("unshare");
        let script = format!("{}exec \"$0\" \"$@\"", mounts.concat());
        command.args(["--mount", "sh", "-c", &script, crate::common::LAB]);
        self.bench.of(command, args)
    }

    /// What is set now: limit and buckets. `None` while one is being written.
    fn read(&self) -> Option<[u64; 2]> {
        let [max, buckets] = Self::KERNEL.map(|(name, _)| {
            std::fs::read_to_string(self.bench.path(name)).ok()?.trim().parse().ok()
        });
        Some([max?, buckets?])
    }

    /// Whether this kernel tracks connections; its module comes with the first rule that needs it.
    fn are_there(&self) -> bool {
        let name = format!("labtest-{:x}-{:x}", std::process::id(), rand::random::<u32>());
        let ip = |args: &[&str]| Command::new("ip").args(args).status().expect("ip").success();
        assert!(ip(&["netns", "add", &name]));
        let rule = "add table ip t; add chain ip t c { type filter hook input priority 0; }; \
                    add rule ip t c ct state new";
        let tracked = ip(&["netns", "exec", &name, "nft", rule]);
        assert!(ip(&["netns", "del", &name]));
        let there = Self::KERNEL.iter().all(|(_, file)| std::path::Path::new(file).exists());
        require(tracked && there, "the kernel tracks no connections")
    }
}

#[test]
fn new_flows_and_held_sessions_are_measured_and_the_machine_is_as_it_was() {
    if !can_run() || !has("nftables", "nat44") || !can_measure("new_udp_flows") {
        return;
    }
    let bench = Bench::new();
    let limits = Limits { bench: &bench };
    if !limits.are_there() {
        return;
    }
    let arms = ["native-v6", "nat44"];
    let metrics = ["new_udp_flows", "new_tcp_connections", "sessions_held"];
    let sizes = "new_flows = 1000\nheld_sessions = 2000\nflow_patience_s = 10.0\n";
    let file = bench.write("mine.toml", &small("nat64", &arms, &metrics, sizes));
    let out = bench.shown("run");
    let mut lab = limits.command(1000, 900, &["run", &file, "--out", &out]);
    let mut lab = lab.spawn().expect("unshare");
    // Room for both loads of new flows with their subscribers, and for the gate's own; of the sessions alone there are fewer.
    poll("limits that are raised", || (limits.read() == Some([8192, 8192])).then_some(()));
    assert!(fordway_testhost::wait(&mut lab, "the lab").success());
    assert_eq!(limits.read(), Some([1000, 900]), "the limits are as they were");
    bench.assert_clean(&["run"]);

    let run = Folder::at(bench.path("run"));
    for (metric, arm) in metrics[..2].iter().flat_map(|m| arms.map(|arm| (m, arm))) {
        let trial = run.trial(arm, metric);
        assert_eq!((&trial["sent"], &trial["arrived"]), (&1000.into(), &1000.into()), "{trial}");
        assert!(trial["value"].as_f64().is_some_and(|rate| rate > 0.0), "{trial}");
    }
    // In thousands.
    assert_eq!(run.trial("nat44", "sessions_held")["value"], 2.0);
    let results = run.results();
    let gate = results["gate"]["nat44"].as_array().expect("checks");
    assert!(!gate.is_empty() && gate.iter().all(|check| check["ok"] == true), "{gate:?}");
}

#[test]
fn tables_are_recycled_and_held() {
    let has_both = has("nftables", "nat44") && has("fordway", "nat64");
    if !can_run() || !has_both || !can_measure("new_udp_flows_recycled") {
        return;
    }
    let metrics = [
        "new_udp_flows_recycled",
        "new_udp_flows_held_50",
        "new_udp_flows_held_90",
        "new_tcp_connections_recycled",
        "new_tcp_connections_held_50",
        "new_tcp_connections_held_90",
    ];
    let arms = ["nat44", "nat64-fordway-xdp"];
    let sizes = "table_entries = 8192\nflow_patience_s = 10.0\n";
    let bench = Bench::new();
    let run = bench.run("run", &small("tables", &arms, &metrics, sizes), &[]);
    for (metric, arm) in metrics.iter().flat_map(|metric| arms.map(|arm| (metric, arm))) {
        let trial = run.trial(arm, metric);
        assert!(trial["value"].as_f64().is_some_and(|rate| rate > 0.0), "{trial}\n{}", run.errors);
    }
    let results = run.results();
    let goals = results["goals"].as_array().expect("goals");
    assert_eq!(goals.len(), metrics.len());
    assert!(goals.iter().all(|goal| goal["measured"].is_number()), "{goals:?}");
}

#[test]
fn limits_that_a_killed_run_has_raised_are_put_back() {
    if !can_run() || !has("nftables", "nat44") || !can_measure("new_udp_flows") {
        return;
    }
    let bench = Bench::new();
    let limits = Limits { bench: &bench };
    if !limits.are_there() {
        return;
    }
    let file = bench
        .write("mine.toml", &small("nat64", &["nat44"], &["new_udp_flows"], "new_flows = 1000\n"));
    let out = bench.shown("run");
    let mut lab = limits.command(1000, 900, &["run", &file, "--out", &out]);
    let mut lab = lab.spawn().expect("unshare");
    poll("limits that are raised", || limits.read().filter(|now| *now != [1000, 900]));
    signal(lab.id(), "-KILL");
    fordway_testhost::wait(&mut lab, "the lab");
    let raised = limits.read().expect("limits");
    let [max, buckets] = raised;
    assert_ne!(raised, [1000, 900]);
    let cleaned = limits.command(max, buckets, &["doctor", "--clean"]).output().expect("unshare");
    assert!(cleaned.status.success(), "{}", text(&cleaned.stderr));
    assert_eq!(limits.read(), Some([1000, 900]));
    bench.assert_clean(&["run"]);
}
