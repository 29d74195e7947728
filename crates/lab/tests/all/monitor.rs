//! Recordings as their users make them: by SNMP from net-snmp's agent in a namespace, and of the lab's own networks.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use fordway_testhost::poll;
use serde_json::Value;

use crate::common::{Bench, LAB, Started, can_run, has, lines, programs, small, text};

const AGENT: &str = "127.0.0.1:16161";

const CONFIG: &str = "agentAddress udp:127.0.0.1:16161\n\
    rocommunity right default\n\
    view narrow included .1.3.6.1.2.1.1\n\
    rocommunity narrow default -V narrow\n\
    view host included .1.3.6.1.2.1.1\n\
    view host included .1.3.6.1.2.1.25\n\
    rocommunity host default -V host\n\
    createUser reader SHA-256 \"open sesame 1\" AES \"open sesame 2\"\n\
    rouser reader priv\n";

/// net-snmp's agent in a namespace of its own; both go when this is dropped.
struct Agent {
    name: String,
    child: Option<Child>,
    dir: tempfile::TempDir,
}

impl Agent {
    fn start() -> Self {
        // Its own number alone is not enough: namespaces of processes may repeat it.
        let name = format!("labtest-{:x}-{:x}", std::process::id(), rand::random::<u32>());
        let dir = tempfile::tempdir().expect("a folder");
        let mut agent = Self { name, child: None, dir };
        let ip = |args: &[&str]| {
            assert!(Command::new("ip").args(args).status().expect("ip").success(), "{args:?}");
        };
        ip(&["netns", "add", &agent.name]);
        ip(&["-n", &agent.name, "link", "set", "lo", "up"]);
        std::fs::write(agent.dir.path().join("snmpd.conf"), CONFIG).expect("a file");
        let path = |file: &str| agent.dir.path().join(file);
        let child = agent
            .inside("setpriv")
            .args(["--pdeathsig", "KILL", "--", "snmpd", "-f", "-Lf"])
            .arg(path("log"))
            .args(["-C", "-c"])
            .arg(path("snmpd.conf"))
            .args(["-I", "-smux"])
            .env("SNMP_PERSISTENT_DIR", path("state"))
            .env("SNMPCONFPATH", agent.dir.path())
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        agent.child = Some(child.expect("snmpd starts"));
        agent
    }

    /// A command inside the namespace.
    fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name)).arg("--").arg(program);
        command
    }

    fn monitor(&self, args: &[&str]) -> Command {
        let mut command = self.inside(LAB);
        command.args(["monitor", "--snmp", AGENT]).args(args);
        command
    }

    fn out(&self, name: &str) -> (PathBuf, String) {
        let out = self.dir.path().join(name);
        let shown = out.display().to_string();
        (out, shown)
    }

    /// One sample, as soon as the agent answers.
    fn once(&self, name: &str, args: &[&str], env: &[(&str, &str)]) -> (PathBuf, Output) {
        let mut turn = 0;
        poll("the agent answers", || {
            turn += 1;
            let (out, shown) = self.out(&format!("{name}-{turn}"));
            let all = [args, &["--every", "100ms", "--for", "100ms", "--out", &shown]].concat();
            let done = self.monitor(&all).envs(env.iter().copied()).output().expect("the lab");
            let silent = text(&done.stderr).contains("no answer within");
            (!silent).then_some((out, done))
        })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

fn ready() -> bool {
    can_run() && programs(&["snmpd"])
}

#[test]
fn an_agent_is_recorded_until_somebody_stops_it() {
    if !ready() {
        return;
    }
    let agent = Agent::start();
    let (_, first) = agent.once("first", &["--community", "right"], &[]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let (out, shown) = agent.out("long");
    let args = ["--community", "right", "--interface", "lo", "--target", "self=127.0.0.1"];
    let mut lab =
        Started::new(agent.monitor(&[&args[..], &["--every", "300ms", "--out", &shown]].concat()));
    // The agent itself looks at the processors every few seconds alone.
    let samples = || lines(&out.join("samples.jsonl"));
    lab.until("a sample with the processors' time", || {
        samples().iter().any(|sample| sample["values"]["cpu_busy"].is_number())
    });
    lab.signal("-INT");
    assert!(lab.end().success());
    let kept = samples();
    let has = |series: &str| kept.iter().any(|sample| sample["values"][series].is_number());
    for series in ["memory_free", "memory_available", "in", "out", "rtt self"] {
        assert!(has(series), "{series}: {:?}", kept.last());
    }
    let page = std::fs::read_to_string(out.join("report.html")).expect("a report");
    assert!(page.contains("Processors busy") && page.contains("<svg"));
    let spec = std::fs::read_to_string(out.join("spec.toml")).expect("a spec");
    assert!(spec.contains("by SNMP (Linux") && !spec.contains("right"), "{spec}");
}

#[test]
fn what_an_agent_does_not_have_or_refuses_is_told() {
    if !ready() {
        return;
    }
    let agent = Agent::start();
    // Another account of memory.
    let (out, done) = agent.once("host", &["--community", "host"], &[]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let spec = std::fs::read_to_string(out.join("spec.toml")).expect("a spec");
    assert!(spec.contains("UCD-SNMP-MIB memTotalReal"), "{spec}");
    let samples = lines(&out.join("samples.jsonl"));
    assert!(samples[0]["values"]["memory_free"].is_number(), "{samples:?}");
    // None at all.
    let (_, done) = agent.once("narrow", &["--community", "narrow"], &[]);
    assert_eq!(done.status.code(), Some(1));
    let said = text(&done.stderr);
    assert!(said.contains("hrStorageRam") && said.contains("ssCpuRawIdle"), "{said}");
    // Version 3, encrypted.
    let passwords =
        [("FORDWAY_SNMP_PASSWORD", "open sesame 1"), ("FORDWAY_SNMP_PRIVACY", "open sesame 2")];
    let (out, done) = agent.once("user", &["--snmp-user", "reader"], &passwords);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(lines(&out.join("samples.jsonl"))[0]["values"]["memory_free"].is_number());
    let wrong = [("FORDWAY_SNMP_PASSWORD", "open barley 1"), passwords[1]];
    let (_, done) = agent.once("wrong", &["--snmp-user", "reader"], &wrong);
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    // A name that is no interface.
    let (_, done) = agent.once("no", &["--community", "right", "--interface", "eth9"], &[]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("no interface eth9: it has lo"), "{}", text(&done.stderr));
    // Silence.
    let (_, shown) = agent.out("silence");
    let done = agent.monitor(&["--community", "hush", "--out", &shown]).output().expect("the lab");
    assert_eq!(done.status.code(), Some(1));
    let said = text(&done.stderr);
    assert!(said.contains("community") && !said.contains("hush"), "{said}");
}

#[test]
fn the_labs_own_networks_are_recorded_and_compared() {
    if !can_run() || !has("nftables", "nat44") || !programs(&["ab", "nginx"]) {
        return;
    }
    let bench = Bench::new();
    let record = |arm: &str| -> String {
        let out = bench.shown(arm);
        let length = ["--every", "250ms", "--for", "3s", "--pages", "5", "--out", &out];
        let done = bench.lab(&[&["monitor", "--lab", arm][..], &length].concat());
        assert!(done.status.success(), "{}", text(&done.stderr));
        out
    };
    let (first, second) = (record("native-v4"), record("nat44-nftables"));
    bench.assert_clean(&[]);
    let samples = lines(&Path::new(&second).join("samples.jsonl"));
    for series in ["cpu_busy", "memory_free", "out", "rtt server", "pages"] {
        let has = samples.iter().any(|sample| sample["values"][series].is_number());
        assert!(has, "{series}: {samples:?}");
    }
    let came = samples.iter().filter_map(|s| s["values"]["pages"].as_f64());
    assert!(came.fold(0.0, f64::max) > 0.0, "{samples:?}");
    let out = bench.shown("both");
    let done = bench.lab(&["monitor", "--compare", &first, &second, "--out", &out, "--json"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let all: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let all = all.as_array().expect("a list");
    assert!(all.iter().any(|one| one["series"] == "rtt server"), "{all:?}");
    let page = std::fs::read_to_string(bench.path("both/comparison.html")).expect("a page");
    assert!(page.contains("box and whiskers") && page.contains("p as in 2012"));
    // A folder of something else is refused.
    let done = bench.lab(&["monitor", "--report", &bench.shown("")]);
    assert_eq!(done.status.code(), Some(2));
}

#[test]
fn the_studys_page_is_fetched_over_its_grid() {
    if !can_run() || !has("nftables", "nat44") || !programs(&["ab", "nginx"]) {
        return;
    }
    let bench = Bench::new();
    let arms = ["native-v6", "nat44-nftables"];
    let metrics = ["ab_total_time", "ab_bytes", "ab_transfer_rate", "ab_keepalive"];
    let sizes = "ab_requests = [20, 40]\nab_connections = [2, 5]\n";
    let run = bench.run("run", &small("nat64-vs-nat44", &arms, &metrics, sizes), &[]);
    for arm in arms {
        for metric in metrics {
            let at =
                |t: &Value| (t["point"]["requests"].as_u64(), t["point"]["connections"].as_u64());
            // They are measured in a random order.
            let mut points: Vec<_> = run.of(arm, metric).iter().map(at).collect();
            points.sort_unstable();
            let of = |requests, connections| (Some(requests), Some(connections));
            assert_eq!(points, [of(20, 2), of(20, 5), of(40, 2), of(40, 5)], "{arm}, {metric}");
        }
        for trial in run.of(arm, "ab_bytes") {
            let requests = trial["point"]["requests"].as_f64().expect("a number");
            let octets = trial["value"].as_f64().expect("a value");
            assert!(octets >= requests * 173_225.0, "{trial}");
        }
        let kept = run.of(arm, "ab_keepalive");
        assert!(kept.iter().all(|t| t["value"].as_f64() > Some(0.0)), "{kept:?}");
    }
    assert!(run.page().contains("ab, total time"));
}
