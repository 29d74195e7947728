//! Mechanisms beside translation, each deployed, asked which ways it opens, and taken down. An arm whose program is missing
//! is a skip.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::common::{Bench, can_run, has, programs, small};

const BACK: [&str; 3] = ["from server: TCP", "from server: UDP", "from server: ICMP"];

/// Cells in which a mechanism says no because of what it is; all others have to say yes.
fn closed(arm: &str) -> Vec<&'static str> {
    let own: &[&str] = match arm.split('-').next().unwrap() {
        "dual" | "softwire" | "dstm" => return Vec::new(),
        // A bound address is reached by whoever knows it.
        "nat" => return vec!["IPv4 literal"],
        "trt" => &["to server: ICMP", "IPv4 literal", "FTP active", "ICMP errors"],
        "proxy" => &["to server: UDP", "to server: ICMP", "FTP active", "fragments", "ICMP errors"],
        _ => &[
            "to server: UDP",
            "to server: ICMP",
            "IPv4 literal",
            "FTP active",
            "FTP passive",
            "fragments",
            "ICMP errors",
        ],
    };
    own.iter().chain(&BACK).copied().collect()
}

/// Runs these arms; each opens the ways that it is for, and no other. Everything is taken down.
fn open_their_ways(arms: &[&str]) {
    if !can_run() || !programs(&["vsftpd", "curl", "tcpdump"]) {
        return;
    }
    let bench = Bench::new();
    let experiment = small("interop-mechanisms", arms, &["initiation"], "begun = 10\n");
    let run = bench.run("run", &experiment, &["--seed", "5"]);
    bench.assert_clean(&["run"]);

    let results = run.results();
    for arm in arms {
        let Some(cells) = results["matrix"][arm].as_array() else {
            let why =
                run.skipped(arm).unwrap_or_else(|| panic!("{arm} was left out without a word"));
            fordway_testhost::skip(&format!("{arm}: {why}"));
            continue;
        };
        let told: BTreeMap<&str, &Value> =
            cells.iter().map(|cell| (cell["name"].as_str().unwrap(), cell)).collect();
        assert_eq!(told.len(), 13, "{arm}");
        let closed = closed(arm);
        for (name, cell) in told {
            assert_eq!(cell["ok"] == true, !closed.contains(&name), "{arm}, {name}: {cell}");
            assert!(cell["detail"].as_str().is_some_and(|why| !why.is_empty()), "{arm}, {name}");
        }
        let all = results["cells"].as_array().expect("cells");
        let of = |cell: &&Value| cell["mechanism"] == *arm && cell["metric"] == "initiation";
        let initiation = all.iter().find(of).unwrap_or_else(|| panic!("{arm}: no initiation"));
        let seen = || format!("{arm}: {initiation}\n{}", run.errors);
        assert!(initiation["median"].as_f64().is_some_and(|us| us > 0.0), "{}", seen());
        assert_eq!(initiation["broken"], Value::Null, "{}", seen());
    }
}

#[test]
fn what_carries_packets_opens_every_way_that_its_addresses_allow() {
    open_their_ways(&["dual-stack-fordway", "nat-pt-fordway", "dstm-fordway-interface"]);
}

#[test]
fn softwires_open_every_way() {
    open_their_ways(&["softwire-fordway-interface", "softwire-fordway-uplink", "softwire-fordway"]);
}

#[test]
fn relays_open_the_ways_of_what_they_relay() {
    open_their_ways(&["trt-fordway", "proxy-fordway"]);
}

#[test]
fn proxies_for_clients_open_the_ways_of_http() {
    open_their_ways(&["proxy-apache", "proxy-squid"]);
}

#[test]
fn proxies_for_sites_open_the_ways_of_http_from_outside() {
    open_their_ways(&["site-fordway", "site-nginx", "site-apache"]);
}

#[test]
fn a_lab_that_is_killed_under_proxies_leaves_nothing_after_the_next_look() {
    if !can_run() || !has("nginx", "reverse-proxy") || !programs(&["vsftpd", "curl", "tcpdump"]) {
        return;
    }
    let bench = Bench::new();
    let experiment = small("interop-mechanisms", &["site-nginx"], &["initiation"], "begun = 10\n");
    let file = bench.write("mine.toml", &experiment);
    let mut lab = bench.start(&["run", &file, "--out", &bench.shown("run")]);
    lab.until("nginx is deployed", || {
        let files = std::fs::read_dir(bench.path("run/raw")).into_iter().flatten().flatten();
        let mut names = files.map(|file| file.file_name());
        names.any(|name| name.to_string_lossy().ends_with("-proxy.log"))
    });
    lab.signal("-KILL");
    lab.end();
    assert!(bench.lab(&["doctor", "--clean"]).status.success());
    // Also the folders of servers, which stand beside the notes.
    bench.assert_clean(&["run"]);
}
