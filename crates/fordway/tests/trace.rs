//! Packets told live, and the programs measured.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use common::daemon::{Daemon, RunDir};
use common::netns::Netns;
use common::topology::{Access, PREF64, SERVER, SERVER_V4};
use common::{can_test, poll, traffic};
use serde_json::Value;

fn can_test_kernel() -> bool {
    let able = can_test() && fordway_bpf::probe().is_ok();
    if !able {
        eprintln!("SKIPPED: this test needs a kernel that allows the kernel engine");
    }
    able
}

/// A running `fordway trace`.
struct Tracer(Child);

impl Tracer {
    fn start(run: &RunDir, netns: &Netns, arguments: &str) -> Tracer {
        let mut command = run.command(netns, arguments);
        Tracer(command.stdout(Stdio::piped()).spawn().unwrap())
    }

    fn lines(&mut self) -> impl Iterator<Item = String> + use<> {
        BufReader::new(self.0.stdout.take().unwrap()).lines().map(Result::unwrap)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
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
        // Both have to listen before what they wait for goes by.
        let (mut json_lines, mut text_lines) = (json.lines(), text.lines());
        let told = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| text_lines.by_ref().take(2).collect::<Vec<String>>());
            poll("pings are told", || {
                net.client.run(&format!("ping -n -c 1 -W 5 {SERVER_V4}"));
                waiting.is_finished().then_some(())
            });
            waiting.join().unwrap()
        });
        assert!(told[0].contains("ICMP") && told[0].contains(": translated to "), "{told:?}");
        assert!(poll("it ends by itself", || text.0.try_wait().unwrap()).success());

        let peer = traffic::udp_echo(&net.client, &net.server, SERVER, 10);
        let first: Value = serde_json::from_str(&json_lines.next().unwrap()).unwrap();
        assert_eq!(first["outcome"], "translated");
        assert_eq!(first["direction"], "v4_to_v6");
        assert_eq!(first["packet"]["destination"], SERVER_V4);
        assert_eq!(first["translated"]["source_port"], peer.port());
        assert_eq!(first["translated"]["source"], peer.ip().to_string());
        let back: Value = serde_json::from_str(&json_lines.next().unwrap()).unwrap();
        assert_eq!((&back["direction"], &back["octets"]), (&"v6_to_v4".into(), &58.into()));
        // What a program leaves is told with its cause.
        traffic::udp_echo(&net.client, &net.server, SERVER, 4000);
        let passed = json_lines.find(|line| line.contains("passed_on")).unwrap();
        let passed: Value = serde_json::from_str(&passed).unwrap();
        assert!(passed["reason"].is_string() && passed["text"].is_string(), "{passed}");

        // A client that dies ends it too.
        let tracing = programs(&daemon);
        drop(json);
        poll("programs that don't trace are back", || (programs(&daemon) != tracing).then_some(()));
        daemon.stop();
    }
}

#[test]
fn what_can_not_be_traced_is_said() {
    if !can_test() {
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
