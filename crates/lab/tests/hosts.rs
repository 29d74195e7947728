//! Runs over two hosts: namespaces of this machine, each with its own SSH server, network, mounts and processes. They need
//! root, openssh-server and iperf3; where one is missing the test says so and passes.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{ALONE, LAB, lab, lines, programs, text};

/// Two hosts; dropping them takes them down.
struct Two {
    script: Child,
    folder: PathBuf,
    left: String,
    right: String,
    desk: String,
    /// Devices of both hosts before anything ran.
    devices: [String; 2],
}

impl Two {
    /// `None` where they can't be made.
    fn make() -> Option<Self> {
        let root = text(&Command::new("id").arg("-u").output().expect("id").stdout).trim() == "0";
        let ssh = programs(&["iperf3"]) && Path::new("/usr/sbin/sshd").exists();
        if !root || !ssh {
            eprintln!("SKIPPED: needs root ({root}), openssh-server and iperf3 ({ssh})");
            return None;
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/two-hosts");
        let mut script = Command::new(script)
            .arg("--hold")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("scripts/two-hosts");
        let mut line = String::new();
        let out = script.stdout.take().expect("its output");
        BufReader::new(out).read_line(&mut line).expect("a line");
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["ready", folder, left, right, desk] = words[..] else {
            panic!("scripts/two-hosts says `{line}`");
        };
        let mut two = Self {
            folder: folder.into(),
            left: left.into(),
            right: right.into(),
            desk: desk.into(),
            script,
            devices: Default::default(),
        };
        two.devices = two.hosts().map(|host| two.on(host, "ip -br -o link | cut -d' ' -f1"));
        Some(two)
    }

    fn hosts(&self) -> [&str; 2] {
        [&self.left, &self.right]
    }

    fn file(&self) -> String {
        self.folder.join("hosts.toml").display().to_string()
    }

    /// Runs a line of shell on a host.
    fn on(&self, host: &str, line: &str) -> String {
        let enter = ["-t", host, "-m", "-n", "-p", "-u", "--", "sh", "-c", line];
        text(&Command::new("nsenter").args(enter).output().expect("nsenter").stdout)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.desk)).args(["--", LAB]).args(args);
        command.env("NO_COLOR", "1");
        command
    }

    /// Runs the lab beside the hosts.
    fn lab(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the lab starts")
    }

    /// Starts it.
    fn started(&self, args: &[&str]) -> Child {
        self.command(args)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the lab starts")
    }

    /// Waits until the run is at work on the server's host.
    fn at_work(&self, child: &mut Child) {
        until("a network on the server's host", || {
            let ended = child.try_wait().expect("wait").is_some();
            assert!(!ended, "the run ended too early: {}", rest(child));
            self.on(&self.right, "ls /run/netns").contains("-iperf")
        });
    }

    /// What is on a host that was not there before: namespaces, notes, processes, devices.
    fn left_on(&self, number: usize) -> String {
        let host = self.hosts()[number];
        let found = self.on(
            host,
            "ls /run/netns /run/fordway-lab 2>/dev/null | grep fwlab; ls /run/fordway-lab/*.json 2>/dev/null; \
             for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null | \
             grep -E '^[^ ]*(fordway|iperf3|tayga|ping|nsenter|setpriv)'; done",
        );
        let devices = self.on(host, "ip -br -o link | cut -d' ' -f1");
        let devices = if devices == self.devices[number] { String::new() } else { devices };
        format!("{found}{devices}")
    }

    fn is_clean(&self) {
        until("nothing left on either host", || {
            (0..2).all(|number| self.left_on(number).is_empty())
        });
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}

/// What a child that has ended wrote.
fn rest(child: &mut Child) -> String {
    let mut said = String::new();
    if let Some(stderr) = &mut child.stderr {
        let _ = stderr.read_to_string(&mut said);
    }
    said
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < deadline, "not within two minutes: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(pid: u32, signal: &str) {
    let pid = pid.to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().expect("kill").success());
}

const ARMS: &str = "native-v6,clat-tayga,clat-fordway-uplink";

fn run<'a>(hosts: &'a str, only: &'a str, out: &'a str) -> Vec<&'a str> {
    let what = ["run", "clat-vs-dual-stack", "--hosts", hosts, "--only", only];
    [&what[..], &["--blocks", "1", "--duration", "1", "--seed", "5", "--out", out]].concat()
}

#[test]
fn a_run_over_two_hosts_is_whole_and_leaves_nothing_on_either() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(two) = Two::make() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("run");
    let (file, shown) = (two.file(), out.display().to_string());
    let done = two.lab(&run(&file, ARMS, &shown));
    assert!(done.status.success(), "{}", text(&done.stderr));
    two.is_clean();

    let all = lines(&out.join("trials.jsonl"));
    let spec = std::fs::read_to_string(out.join("spec.toml")).expect("spec");
    let spec: toml::Value = toml::from_str(&spec).expect("TOML");
    let arms = spec["run"]["mechanisms"].as_array().expect("mechanisms").clone();
    assert!(arms.len() >= 2, "{arms:?}");
    for arm in arms.iter().filter_map(toml::Value::as_str) {
        let of = |t: &&serde_json::Value| t["mechanism"] == arm;
        let gate = all.iter().filter(of).find(|t| t["metric"] == "gate").expect("a gate");
        assert_eq!(gate["valid"], true, "{gate}");
        for check in ["tcp payload", "udp fragments", "path mtu"] {
            let checks = gate["checks"].as_array().expect("checks");
            assert!(checks.iter().any(|c| c["name"] == check && c["ok"] == true), "{arm}: {gate}");
        }
        // A busy machine may spoil a trial, but not most of them.
        let timed: Vec<_> = all.iter().filter(of).filter(|t| t["block"] == 1).collect();
        let valid = timed.iter().filter(|t| t["valid"] == true).count();
        assert!(2 * valid >= timed.len() && valid > 0, "{arm}: {valid} of {}", timed.len());
        let flow = timed.iter().find(|t| t["metric"] == "tcp_throughput_up").expect("a flow");
        assert_eq!((&flow["cap"], &flow["cpu"]["of_two"]), (&1.0.into(), &true.into()), "{flow}");
    }

    let environment: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("environment.json")).expect("a record"))
            .expect("JSON");
    let hosts = &environment["hosts"]["hosts"];
    assert_eq!(hosts["left"]["role"], "client");
    assert_eq!(hosts["right"]["uplink"]["device"], "wire0");
    assert!(hosts["right"]["environment"]["programs"].as_object().is_some_and(|p| p.len() > 1));
    assert!(environment["hosts"]["rtt_ms"]["mean"].as_f64().is_some_and(|ms| ms > 0.0));
    let page = std::fs::read_to_string(out.join("report.html")).expect("a page");
    assert!(page.contains("Host right, server") && page.contains("round trip over the wire"));
}

#[test]
fn hosts_that_are_not_marked_are_left_alone() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(two) = Two::make() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("run").display().to_string();
    let file = two.file();
    two.on(&two.right, "rm /etc/fordway-lab-host");
    two.on(&two.left, "rm /etc/fordway-lab-host");
    let refused = two.lab(&run(&file, "native-v6", &out));
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(said.contains("host left") && said.contains("/etc/fordway-lab-host"), "{said}");

    let bare = folder.path().join("bare.toml");
    let content = std::fs::read_to_string(&file).expect("hosts file");
    std::fs::write(&bare, content.replacen("lab_host = true\n", "", 1)).expect("a file");
    let bare = bare.display().to_string();
    let refused = two.lab(&run(&bare, "native-v6", &out));
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("lab_host = true"), "{}", text(&refused.stderr));
    for host in two.hosts() {
        assert_eq!(two.on(host, "ls /var/cache /run/fordway-lab 2>/dev/null"), "/var/cache:\n");
    }

    // `doctor` looks without changing anything, and says what is missing; `hosts --mark` makes the mark.
    let looked = two.lab(&["doctor", "--hosts", &file]);
    assert_eq!(looked.status.code(), Some(4));
    assert!(text(&looked.stdout).contains("hosts --mark"), "{}", text(&looked.stdout));
    assert!(two.lab(&["hosts", "--mark", &file]).status.success());
    let looked = two.lab(&["doctor", "--hosts", &file, "--json"]);
    let found: serde_json::Value = serde_json::from_slice(&looked.stdout).expect("JSON");
    assert_eq!((&found[0]["marked"], &found[1]["marked"]), (&true.into(), &true.into()), "{found}");

    // A key that nobody knows: the host and the fix are named.
    let strange = folder.path().join("strange.toml");
    let config = two.folder.join("ssh_config");
    let other = std::fs::read_to_string(&config).expect("a configuration");
    let other = other.replace(&two.folder.join("known_hosts").display().to_string(), "/dev/null");
    let other_config = folder.path().join("ssh_config");
    std::fs::write(&other_config, other).expect("a file");
    let (from, to) = (config.display().to_string(), other_config.display().to_string());
    std::fs::write(&strange, content.replace(&from, &to)).expect("a file");
    let refused = two.lab(&run(&strange.display().to_string(), "native-v6", &out));
    let said = text(&refused.stderr);
    assert!(said.contains("host left") && said.contains("connect once by hand"), "{said}");
    assert!(!Path::new(&out).exists(), "nothing is written for a run that did not begin");
}

#[test]
fn a_run_that_is_cut_off_leaves_nothing_and_is_resumed() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(two) = Two::make() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("run");
    let (file, shown) = (two.file(), out.display().to_string());
    let arms = "native-v6,clat-fordway-uplink";

    // Ctrl-C.
    let mut child = two.started(&run(&file, arms, &shown));
    two.at_work(&mut child);
    signal(child.id(), "-INT");
    assert_eq!(child.wait().expect("wait").code(), Some(1), "interrupted");
    two.is_clean();

    // The lab is killed.
    let mut child = two.started(&["resume", &shown]);
    two.at_work(&mut child);
    signal(child.id(), "-KILL");
    child.wait().expect("wait");
    two.is_clean();

    // The connection to the server's host is cut.
    let mut child = two.started(&["resume", &shown]);
    two.at_work(&mut child);
    let masters = text(&Command::new("ps").args(["-eo", "pid,args"]).output().expect("ps").stdout);
    let right = |line: &&str| line.contains("ssh -M -N") && line.ends_with("-- right");
    let master = masters.lines().find(right).expect("a connection").trim();
    let pid = master.split(' ').next().and_then(|pid| pid.parse().ok()).expect("a process id");
    signal(pid, "-KILL");
    assert_eq!(child.wait().expect("wait").code(), Some(1));
    let said = rest(&mut child);
    assert!(said.contains("host right") && said.contains("fordway-lab resume"), "{said}");
    two.is_clean();

    // The lab's end on that host is killed: what it left goes when asked for.
    let mut child = two.started(&["resume", &shown]);
    two.at_work(&mut child);
    two.on(
        &two.right,
        "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep -q '^[^ ]*fordway-lab far serve' \
         && kill -9 ${p#/proc/}; done",
    );
    assert_eq!(child.wait().expect("wait").code(), Some(1));
    let said = rest(&mut child);
    assert!(said.contains("host right"), "{said}");
    assert!(two.lab(&["doctor", "--clean", "--hosts", &file]).status.success());
    two.is_clean();

    // To its end: the same trials as of a run that nobody cut off.
    let done = two.lab(&["resume", &shown]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    two.is_clean();
    let plan = lab(&[
        "plan",
        "clat-vs-dual-stack",
        "--hosts",
        &file,
        "--only",
        arms,
        "--blocks",
        "1",
        "--json",
    ]);
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).expect("JSON");
    let timed = plan["plan"]["trials"].as_u64().expect("a number") as usize;
    let arms = plan["run"]["mechanisms"].as_array().expect("mechanisms").len();
    let all = lines(&out.join("trials.jsonl"));
    let keys: std::collections::BTreeSet<String> =
        all.iter().map(|t| t["key"].to_string()).collect();
    // A gate of each, four calibrations, and what is measured.
    assert_eq!(keys.len(), arms + 4 + timed);
    let valid: Vec<String> =
        all.iter().filter(|t| t["valid"] == true).map(|t| t["key"].to_string()).collect();
    let distinct: std::collections::BTreeSet<&String> = valid.iter().collect();
    assert_eq!(distinct.len(), valid.len(), "no valid trial is repeated");
}

#[test]
fn an_end_that_hears_nothing_any_more_tidies_up() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(two) = Two::make() else { return };
    let enter =
        ["-t", &two.right, "-m", "-n", "-p", "-u", "--", LAB, "far", "serve", "--id", "abc123"];
    let mut end = Command::new("nsenter")
        .args(enter)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("nsenter");
    let mut hello = String::new();
    BufReader::new(end.stdout.take().expect("output")).read_line(&mut hello).expect("a line");
    assert!(hello.contains("fwlab-abc123-files"), "{hello}");
    two.on(&two.right, "ip netns add fwlab-abc123-1-iperf");
    assert!(!two.left_on(1).is_empty());
    // Its input stays open, but nothing comes.
    until("its end", || end.try_wait().expect("wait").is_some());
    two.is_clean();
}
