//! The tests of RFC 8219, RFC 9693 and RFC 9411, as their users run them, as short as they can be. The machine may be busy: what is
//! held is that each value is there, or its reason, and that counts agree.

use serde_json::{Value, json};

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
    let trials = all_asked(&run, "-incremental-pairs2.jsonl");
    let flows = |order: &Value| (order["networks"].as_u64(), order["start_s"].as_f64());
    assert!(trials.iter().any(|(order, _)| flows(order) == (Some(2), Some(0.01))));
    assert!(trials.iter().any(|(order, _)| flows(order) == (Some(1), Some(0.0))));
    // What is compared was sent by the same.
    let by_sockets = serde_json::json!(["sockets", "sockets"]);
    assert!(trials.iter().all(|(_, outcome)| outcome["sending"] == by_sockets));
    let through = explained(&run, "siit-fordway-interface", "rfc8219_throughput");
    let sizes: Vec<&Value> = through.iter().map(|trial| &trial["point"]["octets"]).collect();
    assert!(sizes.len() == 2 && sizes.contains(&&64.into()) && sizes.contains(&&512.into()));
    // Frames of both ways arrived, translated, with right tags and checksums.
    let trials = all_asked(&run, "-forwarding-octets512.jsonl");
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
    let metrics = ["rfc9693_establishment_rate", "rfc9693_throughput", "rfc9693_tear_down_rate"];
    let sizes = "length_share = 0.05\ntable_connections = [2000]\nsafe_connections = 1000\n";
    let run = bench.run("run", &small("rfc9693", &arms, &metrics, sizes), &[]);
    bench.assert_clean(&["run"]);
    for (arm, octets) in arms.into_iter().zip([64, 84]) {
        let taken: Vec<Value> =
            metrics.iter().flat_map(|metric| explained(&run, arm, metric)).collect();
        for trial in &taken {
            let stateful = &trial["stateful"];
            let ports = [&stateful["source_ports"], &stateful["destination_ports"]];
            assert_eq!(ports, [&json!([1024, 3023]), &json!([1, 1])], "{trial}");
            assert_eq!(stateful["connections"], 2000);
            assert_eq!(stateful["frame_octets"], json!([octets, 64]));
            assert!(["alpha", "beta", "gamma"].iter().all(|key| stateful[key].is_f64()));
            assert!(stateful["table_limit"].as_u64().is_some_and(|limit| limit >= 4000));
            assert_eq!(stateful["table_buckets"].is_u64(), arm == "nat44", "{trial}");
            // What ran is known, too.
            let length = |key: &str| trial[key].as_str().map_or(0, str::len);
            assert!(length("config_hash") == 64 && trial["mechanism_argv"].is_array(), "{trial}");
            assert_eq!(length("engine") > 0, arm != "nat44", "{trial}");
        }
        let trials = asked(&run, &format!("block1-{arm}-connections-connections2000.jsonl"));
        // Test phase 2 has another order than phase 1 and its validation.
        for (order, _) in &trials {
            let is_phase_2 = order["forward"] != "silent" && order["reverse"] != "silent";
            assert_eq!(order["order"], u64::from(is_phase_2), "{order}");
            assert_eq!(order["frame_size"], octets, "{order}");
        }
        if taken.iter().any(|it| it["metric"] == metrics[1] && it["value"].is_f64()) {
            assert!(trials.iter().any(|(order, _)| order["order"] == 1));
        }
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
fn rfc9693_looks_for_the_capacity_of_a_table() {
    if !can_run() || !has("nftables", "nat44") {
        return;
    }
    let bench = Bench::new();
    let sizes = "length_share = 0.05\nsafe_connections = 1000\n";
    let experiment = small("rfc9693", &["nat44"], &["rfc9693_capacity"], sizes);
    let run = bench.run("run", &experiment, &[]);
    bench.assert_clean(&["run"]);
    let trial = &explained(&run, "nat44", "rfc9693_capacity")[0];
    let stateful = &trial["stateful"];
    assert_eq!([&stateful["connections"], &stateful["most_connections"]], [1000, 16_000]);
    assert_eq!(stateful["source_ports"], json!([1024, 17_023]));
    // The table has room for more than is looked for.
    if let Some(thousand) = trial["value"].as_f64().filter(|it| *it >= 16.0) {
        assert_eq!(thousand, 16.0);
        assert!(trial["flags"].to_string().contains("not looked for beyond 16000"), "{trial}");
    }
    let flows: Vec<u64> = all_asked(&run, "block1-nat44-capacity.jsonl")
        .iter()
        .filter_map(|(order, _)| order["tuples"]["enumerated"]["flows"].as_u64())
        .collect();
    assert_eq!(flows.first(), Some(&1000));
}

/// An arm by command lines: TAYGA at both ends of a 464XLAT, which hides the hosts behind the client's box from its CLAT.
const BY_COMMANDS: &str = r#"
[[mechanism]]
name = "464xlat-mine"
label = "464XLAT by command lines"
implementation = "command"
kind = "464xlat"
family = "v4"
hops = 2
metrics = ["rfc9693_tear_down_rate"]

[mechanism.command]
requires = ["tayga", "nft"]
up = [
  ["tayga", "-c", "{dir}/tayga.conf", "--mktun"],
  ["ip", "link", "set", "nat64", "up"],
  ["ip", "route", "add", "{pool6}", "dev", "nat64"],
  ["ip", "route", "add", "{between_v4}", "dev", "nat64"],
  ["nft", "-f", "{dir}/hide.nft"],
]
run = ["tayga", "-n", "-c", "{dir}/tayga.conf"]
forget = ["sh", "-c", "conntrack -F && echo {name} >> {mark}"]

[mechanism.command.config]
"tayga.conf" = """
tun-device nat64
ipv4-addr {router_v4}
ipv6-addr {router_v6}
prefix {pool6}
dynamic-pool {between_v4}
"""
"hide.nft" = """
table ip hide {
  chain out {
    type nat hook postrouting priority srcnat; policy accept;
    oifname "{device_up}" snat to {pool4_first}
  }
}
"""

[mechanism.command.client]
up = [
  ["tayga", "-c", "{dir}/tayga.conf", "--mktun"],
  ["ip", "link", "set", "clat0", "up"],
  ["ip", "addr", "add", "{client_v4}/32", "dev", "clat0"],
  ["ip", "route", "add", "default", "dev", "clat0", "mtu", "1480", "advmss", "1440"],
  ["ip", "route", "add", "{client_v6}/128", "dev", "clat0"],
  ["nft", "-f", "{dir}/hide.nft"],
]
run = ["tayga", "-n", "-c", "{dir}/tayga.conf"]

[mechanism.command.client.config]
"tayga.conf" = """
tun-device clat0
ipv4-addr {router_v4}
ipv6-addr {router_v6}
prefix {pool6}
map {client_v4} {client_v6}
"""
"hide.nft" = """
table ip hide {
  chain out {
    type nat hook postrouting priority srcnat; policy accept;
    iifname "{device_down}" masquerade
  }
}
"""
"#;

/// What was asked and answered in raw files whose names end so.
fn all_asked(run: &Folder, end: &str) -> Vec<(Value, Value)> {
    let raw = std::fs::read_dir(run.path.join("raw")).expect("raw outputs").flatten();
    let files = raw.filter_map(|entry| entry.file_name().into_string().ok());
    files.filter(|name| name.ends_with(end)).flat_map(|name| asked(run, &name)).collect()
}

#[test]
fn rfc8219_measures_two_devices_in_a_row_and_a_peer() {
    if !can_run() || !has("fordway", "softwire") || !has("tayga", "nat64") || !programs(&["nft"]) {
        return;
    }
    let bench = Bench::new();
    let arms = ["464xlat-fordway-interface", "softwire-fordway-interface", "siit-tayga"];
    // As short as a trial may be whose frames are not all late on a busy machine.
    let sizes =
        "length_share = 0.2\nframe_sizes = [64, 1518, 1522]\nnetworks = [8]\nloss_shares = [5]\n";
    let run = bench.run("run", &small("rfc8219", &arms, &["rfc8219_frame_loss"], sizes), &[]);
    bench.assert_clean(&["run"]);
    for arm in arms {
        let trials = explained(&run, arm, "rfc8219_frame_loss");
        // The counts of the mechanism and of the devices agree with the tester's.
        assert!(trials.iter().all(|t| !t.to_string().contains("counters disagree")), "{trials:?}");
        let wide = trials.iter().find(|trial| trial["point"]["octets"] == 1522).expect("a trial");
        assert!(wide["invalid"][0].as_str().is_some_and(|why| why.contains("MTU")), "{wide}");
    }
    // Under these addresses the server sees what each of them has made, and its frames arrive at the hosts behind.
    for (seen, stateful) in
        [("203.0.113.64", true), ("203.0.113.65", true), ("2001:db8:64::c612:0", false)]
    {
        for octets in [64, 1518] {
            let asked = all_asked(&run, &format!("-loss-octets{octets}-share5-networks8.jsonl"));
            let of = |(order, _): &&(Value, Value)| {
                order["translated"]["reverse"]["target"]["first"] == seen
            };
            let trials: Vec<_> = asked.iter().filter(of).collect();
            assert!(!trials.is_empty(), "{seen}, {octets}");
            // All of a trial may come late.
            let arrived = |outcome: &Value| {
                let late = |side: &str| outcome[side]["translated"]["late"].as_u64().unwrap_or(0);
                let [forward, reverse] = counts(outcome);
                forward + late("forward") > 0 && reverse + late("reverse") > 0
            };
            assert!(trials.iter().any(|(_, it)| arrived(it)), "{seen}, {octets}: {trials:?}");
            for (order, outcome) in trials {
                // An IPv6 side needs 84 octets.
                assert_eq!(order["frame_size"], if stateful { octets } else { octets.max(84) });
                // Connections are between all networks, each of which has hosts of its own.
                assert_eq!(order["networks"], 8);
                let flows = order["tuples"]["enumerated"]["flows"].as_u64();
                assert_eq!(flows, stateful.then_some(10_008), "{order}");
                for side in ["forward", "reverse"] {
                    let wrong = outcome[side]["wrong"]["checksum"].as_u64().expect("a count");
                    // TAYGA leaves a UDP checksum of 0 as it is, which RFC 768 forbids: one frame in 65,536.
                    assert!(wrong == 0 || !stateful && wrong < 5, "{outcome}");
                }
            }
        }
    }
}

#[test]
fn tables_are_emptied_by_each_mechanism_s_own_means() {
    if !can_run()
        || !has("fordway", "softwire")
        || !has("tayga", "nat64")
        || !programs(&["nft", "conntrack"])
    {
        return;
    }
    let bench = Bench::new();
    let arms = ["nat64-tayga", "464xlat-fordway-interface", "softwire-fordway-interface"];
    let metrics = ["rfc9693_establishment_rate", "rfc9693_tear_down_rate"];
    let sizes = "length_share = 0.1\ntable_connections = [1000]\nsafe_connections = 1000\n";
    let experiment = small("rfc9693", &arms, &metrics, sizes);
    let mark = bench.shown("forgotten");
    let commands = BY_COMMANDS.replace("{mark}", &mark);
    let run = bench.run("run", &(experiment + &commands), &[]);
    bench.assert_clean(&["run"]);
    for arm in arms.into_iter().chain(["464xlat-mine"]) {
        let torn = explained(&run, arm, "rfc9693_tear_down_rate");
        // Nothing that empties a table was missing, whatever a busy machine did to rates.
        let said = torn[0].to_string();
        assert!(
            !said.contains("no process that could end") && !said.contains("ended with"),
            "{said}"
        );
        let trials = asked(&run, &format!("block1-{arm}-connections-connections1000.jsonl"));
        let noted = |(order, outcome): &(Value, Value)| {
            order["tuples"]["enumerated"]["flows"] == 1000 && outcome["noted"] == 1000
        };
        assert!(trials.iter().any(noted), "{arm}: {trials:?}");
        // Its own command was run where a table was torn down.
        let was_torn = torn[0]["value"].as_f64().is_some();
        assert!(arm != "464xlat-mine" || !was_torn || std::fs::exists(&mark).unwrap_or(false));
    }
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
        // What counts was received.
        let mixed = explained(&run, arm, "rfc9411_throughput_mixed");
        for trial in rates.iter().chain(&mixed).filter(|trial| trial["valid"] == true) {
            let failed = trial["failed"].as_array().is_some_and(|all| !all.is_empty());
            assert!(failed || trial["value"].as_f64().is_some_and(|value| value > 0.0), "{trial}");
            assert!(failed || trial["arrived"].as_u64() > Some(0), "{trial}");
        }
        let both = [
            explained(&run, arm, "rfc9411_throughput"),
            explained(&run, arm, "rfc9411_transactions_per_s"),
        ];
        if let [Some(octets), Some(transactions)] = both.map(|all| all[0]["value"].as_f64()) {
            assert!((octets * 1e6 - transactions * 16384.0 * 8.0).abs() <= 1.0 + octets);
        }
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
