//! Packets told live, and the programs measured.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use fordway_testhost::{PATIENCE, can_use_tun, poll};
use serde_json::Value;

use crate::common::daemon::{Daemon, RunDir};
use crate::common::netns::Netns;
use crate::common::process::Process;
use crate::common::threads::{assert_privileged_hear_nobody, threads};
use crate::common::topology::{Access, PREF64, SERVER, SERVER_V4};
use crate::common::{can_test_kernel, traffic};

/// A running `fordway trace`.
struct Tracer(Process);

impl Tracer {
    fn start(run: &RunDir, netns: &Netns, arguments: &str) -> Tracer {
        let mut command = run.command(netns, arguments);
        Tracer(Process::start(command.stdout(Stdio::piped())))
    }

    /// Its lines, as they come.
    fn lines(&mut self) -> Receiver<String> {
        let lines = BufReader::new(self.0.0.stdout.take().unwrap()).lines();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
        told
    }
}

/// The programs' numbers; they change whenever others are loaded.
fn programs(daemon: &Daemon<'_>) -> Vec<Value> {
    let status = daemon.status();
    let programs = status["translators"][0]["kernel"]["programs"].as_array().unwrap();
    programs.iter().map(|program| program["id"].clone()).collect()
}

#[test]
fn packets_are_told_while_somebody_listens() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    for arguments in ["", "--uplink c0"] {
        let arguments = format!("clat --pref64 {PREF64} --engine kernel {arguments}");
        let daemon = Daemon::start(&run, &net.client, &arguments);
        let before = programs(&daemon);
        let mut json =
            Tracer::start(&run, &net.client, "trace clat0 udp and host 198.51.100.1 --json");
        let mut text = Tracer::start(&run, &net.client, "trace clat0 icmp --count 2");
        poll("programs that trace are loaded", || (programs(&daemon) != before).then_some(()));
        let (json_lines, text_lines) = (json.lines(), text.lines());
        let mut told = Vec::new();
        poll("pings are told", || {
            net.client.run(&format!("ping -n -c 1 -W 30 {SERVER_V4}"));
            told.extend(text_lines.try_iter());
            (told.len() == 2).then_some(())
        });
        assert!(told[0].contains("ICMP") && told[0].contains(": translated to "), "{told:?}");
        assert!(text.0.wait().success());

        // It listens when it has told of one.
        poll("a datagram is told", || {
            traffic::udp_echo(&net.client, &net.server, SERVER, 10);
            json_lines.try_recv().ok()
        });
        let peer = traffic::udp_echo(&net.client, &net.server, SERVER, 10);
        let told = || -> Value {
            let line = json_lines.recv_timeout(PATIENCE).unwrap();
            serde_json::from_str(&line).unwrap()
        };
        let is_its = |line: &Value| line["translated"]["source_port"] == peer.port();
        let first = std::iter::repeat_with(told).find(is_its).unwrap();
        assert_eq!(first["outcome"], "translated");
        assert_eq!(first["direction"], "v4_to_v6");
        assert_eq!(first["packet"]["destination"], SERVER_V4);
        assert_eq!(first["translated"]["source_port"], peer.port());
        assert_eq!(first["translated"]["source"], peer.ip().to_string());
        let back = told();
        assert_eq!((&back["direction"], &back["octets"]), (&"v6_to_v4".into(), &58.into()));
        // What a program leaves is told with its cause.
        traffic::udp_echo(&net.client, &net.server, SERVER, 4000);
        let is_passed_on = |line: &Value| line.to_string().contains("passed_on");
        let passed = std::iter::repeat_with(told).find(is_passed_on).unwrap();
        assert!(passed["reason"].is_string() && passed["text"].is_string(), "{passed}");

        // Packets are looked into by a thread without privileges.
        assert_privileged_hear_nobody(daemon.pid());
        assert!(threads(daemon.pid()).iter().any(|thread| thread.name == "clat0-trace"));
        // A client that dies ends it too.
        let tracing = programs(&daemon);
        drop(json);
        poll("programs that don't trace are back", || (programs(&daemon) != tracing).then_some(()));
        poll("the thread has ended", || {
            threads(daemon.pid()).iter().all(|it| it.name != "clat0-trace").then_some(())
        });
        daemon.stop();
    }
}

#[test]
fn what_can_not_be_traced_is_said() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.client, &format!("clat --pref64 {PREF64} --engine user"));
    for (arguments, code, expected) in [
        ("trace clat0", 1, "trace needs the kernel engine"),
        ("trace clat0", 1, "fordway explain"),
        ("trace siit7", 1, "no translator is called siit7"),
        ("trace clat0 host nobody", 2, "\"nobody\" is no address"),
    ] {
        let output = run.output(&net.client, arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.contains(expected), "{expected}\n{error}");
    }
    daemon.stop();
}

#[test]
fn programs_are_measured_without_traffic() {
    if !can_test_kernel() {
        return;
    }
    let (netns, run) = (Netns::new("bench"), RunDir::new());
    let output = run.output(&netns, "bench --json");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let results: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(results.len(), 3 * 2 * 2 * 2);
    for result in &results {
        assert!(result["ns_per_packet"].as_u64().unwrap() > 0, "{result}");
        assert!(["interface", "uplink", "xdp"].contains(&result["program"].as_str().unwrap()));
    }
}

#[test]
fn the_way_through_the_kernel_is_observed() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let daemon =
        Daemon::start(&run, &net.client, &format!("clat --pref64 {PREF64} --engine kernel"));
    let mut command = run.command(&net.client, "bench --path --seconds 2 --json");
    let observer = thread::spawn(move || command.output().unwrap());
    let mut pings = 0;
    while !observer.is_finished() {
        net.client.run(&format!("ping -n -c 1 -W 30 {SERVER_V4}"));
        pings += 1;
    }
    let output = observer.join().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(seen["seconds"].as_f64().unwrap() >= 2.0, "{seen}");
    let processors = seen["processors"].as_array().unwrap();
    assert!(processors.iter().any(|it| it["busy"].as_f64().unwrap() > 0.0), "{seen}");
    let sum = |tracepoint: &str, what: &str| -> u64 {
        let steps = seen["steps"].as_array().unwrap();
        let found = steps.iter().find(|it| it["tracepoint"] == tracepoint).unwrap();
        assert_eq!(found["observed"], true, "{found}");
        found["processors"].as_array().unwrap().iter().map(|it| it[what].as_u64().unwrap()).sum()
    };
    // An echo request is sent as IPv4, translated, sent as IPv6, and received; its answer comes back the same way.
    for tracepoint in ["netif_receive_skb", "net_dev_queue", "net_dev_start_xmit"] {
        assert!(sum(tracepoint, "calls") >= 2, "{tracepoint}: {seen}");
        assert!(sum(tracepoint, "octets") >= 2 * 84, "{tracepoint}: {seen}");
    }
    assert!(sum("softirq_entry", "calls") >= 1 && sum("softirq_entry", "ns") > 0, "{seen}");
    let functions = seen["functions"].as_array().unwrap();
    let samples: u64 = functions.iter().map(|it| it["samples"].as_u64().unwrap()).sum();
    assert!(samples > 0 && functions.iter().any(|it| it["function"] == "user space"), "{seen}");
    // The program of this daemon ran for these pings alone.
    let own = programs(&daemon);
    let runs = seen["programs"].as_array().unwrap().iter().filter(|it| own.contains(&it["id"]));
    let runs: u64 = runs.map(|it| it["runs"].as_u64().unwrap()).sum();
    assert!(runs >= 1, "{own:?}, {pings} pings: {seen}");
    daemon.stop();
}
