//! Runs over two hosts: namespaces of this machine, each with its own SSH server, network, mounts and processes.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use fordway_testhost::{has_programs, is_root, poll_or, require};
use serde_json::Value;

use crate::common::{Bench, Folder, LAB, Started, signal, small, text};

/// Two hosts; dropping them takes them down.
struct Two {
    /// What the lab that is typed here has; its notes have the same path on both hosts, which have their own `/run`.
    bench: Bench,
    /// The lab that is typed here, which copies itself to the hosts.
    lab: PathBuf,
    script: Child,
    folder: PathBuf,
    left: String,
    right: String,
    desk: String,
    /// Devices of both hosts before anything ran.
    devices: [String; 2],
}

impl Two {
    /// Two hosts for a lab with the gateway's program beside it or without. `None` where they can't be made: a skip.
    fn make(with_gateway: bool) -> Option<Self> {
        let sshd =
            || require(Path::new("/usr/sbin/sshd").exists(), "openssh-server is not installed");
        if !is_root() || !has_programs(&["iperf3", "ssh"]) || !sshd() {
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
        let bench = Bench::below_run();
        let programs: &[&str] =
            if with_gateway { &["fordway-lab", "fordway"] } else { &["fordway-lab"] };
        let lab = Path::new(LAB);
        std::fs::create_dir(bench.path("bin")).expect("a folder");
        for program in programs {
            bare_copy(&lab.with_file_name(program), &bench.path("bin").join(program));
        }
        let mut two = Self {
            lab: bench.path("bin/fordway-lab"),
            bench,
            folder: folder.into(),
            left: left.into(),
            right: right.into(),
            desk: desk.into(),
            script,
            devices: Default::default(),
        };
        for host in two.hosts() {
            // Every command over SSH would run what this machine's root has in the start-up files of its shell.
            two.on(host, "sed -i '/^root:/s#:[^:]*$#:/bin/sh#' /etc/passwd");
        }
        two.devices = two.hosts().map(devices);
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
        command.arg(format!("--net=/run/netns/{}", self.desk)).arg("--").arg(&self.lab);
        self.bench.of(command, args)
    }

    /// Runs the lab beside the hosts.
    fn lab(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the lab starts")
    }

    /// Starts it; what it complains of goes into the file `log`.
    fn started(&self, args: &[&str]) -> Started {
        let log = std::fs::File::create(self.bench.path("log")).expect("a file");
        let mut command = self.command(args);
        command.stderr(log);
        Started::new(command)
    }

    /// What the lab that was started last complained of.
    fn complaints(&self) -> String {
        std::fs::read_to_string(self.bench.path("log")).expect("a log")
    }

    /// Waits until the run is at work on the server's host.
    fn at_work(&self, lab: &mut Started) {
        let networks = inside(&self.right, "/run/netns");
        lab.until_or(
            || names(&networks).iter().any(|name| name.ends_with("-iperf")),
            || format!("a network on the server's host: {}", self.complaints()),
        );
    }

    /// What is on a host that was not there before: namespaces, notes, processes, devices. It is asked often, so it reads
    /// files of the host from outside and starts no process there.
    fn left_on(&self, number: usize) -> String {
        let host = self.hosts()[number];
        let notes = inside(host, &self.bench.notes().display().to_string());
        let mut left = names(&inside(host, "/run/netns"));
        left.retain(|name| name.contains("fwlab"));
        left.extend(names(&notes));
        let programs = ["fordway", "iperf3", "tayga", "ping", "nsenter", "setpriv"];
        for process in names(&inside(host, "/proc")) {
            if process.parse::<u32>().is_err() {
                continue;
            }
            let words = std::fs::read(inside(host, &format!("/proc/{process}/cmdline")));
            let words = text(&words.unwrap_or_default()).replace('\0', " ");
            let program = words.split(' ').next().unwrap_or_default();
            if programs.iter().any(|name| program.contains(name)) {
                left.push(words);
            }
        }
        let devices = devices(host);
        if devices != self.devices[number] {
            left.push(devices);
        }
        left.join("\n")
    }

    /// Waits until nothing is left on either host.
    fn is_clean(&self) {
        let left = || (0..2).map(|number| self.left_on(number)).collect::<String>();
        poll_or(
            || left().is_empty().then_some(()),
            || format!("nothing left on either host: {}", left()),
        );
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}

/// A path of a host as this machine sees it.
fn inside(host: &str, path: &str) -> PathBuf {
    format!("/proc/{host}/root{path}").into()
}

/// Names in a folder, none where there is no folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Names of a host's devices, in order.
fn devices(host: &str) -> String {
    let table = std::fs::read_to_string(format!("/proc/{host}/net/dev")).expect("a host's devices");
    let mut all: Vec<&str> =
        table.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    all.sort_unstable();
    all.join(" ")
}

/// Copies a program without its symbols, which would be most of it.
fn bare_copy(from: &Path, to: &Path) {
    let strip = Command::new("strip").arg("-o").arg(to).arg(from).status();
    if !strip.is_ok_and(|status| status.success()) {
        std::fs::copy(from, to).expect("a program");
    }
}

const EXPERIMENT: &str = "clat-vs-dual-stack";
const SIZES: &str = "packets_s = 0.1\n";

#[test]
fn a_run_over_two_hosts_is_whole_and_leaves_nothing_on_either() {
    let gateway = Path::new(LAB).with_file_name("fordway");
    if !require(gateway.exists(), "the gateway's program is not built") {
        return;
    }
    let Some(two) = Two::make(true) else { return };
    let arms = ["native-v6", "clat-tayga", "clat-fordway-uplink"];
    let metrics = ["tcp_throughput_up", "rtt", "udp_rate_up"];
    let experiment = two.bench.write("mine.toml", &small(EXPERIMENT, &arms, &metrics, SIZES));
    let out = two.bench.shown("run");
    let done = two.lab(&["run", &experiment, "--hosts", &two.file(), "--out", &out]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    two.is_clean();
    two.bench.assert_clean(&["run"]);

    let run = Folder::at(two.bench.path("run"));
    for arm in arms {
        if let Some(why) = run.skipped(arm) {
            fordway_testhost::skip(&format!("{arm}: {why}"));
            continue;
        }
        for check in ["tcp payload", "udp fragments", "path mtu"] {
            run.assert_passed(arm, check);
        }
        for metric in metrics {
            let trial = run.trial(arm, metric);
            assert!(trial["value"].as_f64().is_some_and(|value| value > 0.0), "{trial}");
        }
        let flow = run.trial(arm, "tcp_throughput_up");
        assert_eq!((&flow["cap"], &flow["cpu"]["of_two"]), (&1.0.into(), &true.into()), "{flow}");
    }

    let environment: Value = serde_json::from_slice(
        &std::fs::read(run.path.join("environment.json")).expect("a record"),
    )
    .expect("JSON");
    let hosts = &environment["hosts"]["hosts"];
    assert_eq!(hosts["left"]["role"], "client");
    assert_eq!(hosts["right"]["uplink"]["device"], "wire0");
    assert!(hosts["right"]["environment"]["programs"].as_object().is_some_and(|p| p.len() > 1));
    assert!(environment["hosts"]["rtt_ms"]["mean"].as_f64().is_some_and(|ms| ms > 0.0));
    let page = run.page();
    assert!(page.contains("Host right, server") && page.contains("round trip over the wire"));
}

#[test]
fn hosts_that_are_not_marked_are_left_alone() {
    let Some(two) = Two::make(false) else { return };
    let experiment =
        two.bench.write("mine.toml", &small(EXPERIMENT, &["native-v6"], &["rtt"], SIZES));
    let (file, out) = (two.file(), two.bench.shown("run"));
    let refused = |hosts: &str| two.lab(&["run", &experiment, "--hosts", hosts, "--out", &out]);
    two.on(&two.right, "rm /etc/fordway-lab-host");
    two.on(&two.left, "rm /etc/fordway-lab-host");
    let done = refused(&file);
    assert_eq!(done.status.code(), Some(2));
    let said = text(&done.stderr);
    assert!(said.contains("host left") && said.contains("/etc/fordway-lab-host"), "{said}");

    let content = std::fs::read_to_string(&file).expect("hosts file");
    let bare = two.bench.write("bare.toml", &content.replacen("lab_host = true\n", "", 1));
    let done = refused(&bare);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("lab_host = true"), "{}", text(&done.stderr));
    let look = format!("ls /var/cache {} 2>/dev/null", two.bench.notes().display());
    for host in two.hosts() {
        assert_eq!(two.on(host, &look), "/var/cache:\n");
    }

    // `doctor` looks without changing anything, and says what is missing; `hosts --mark` makes the mark.
    let looked = two.lab(&["doctor", "--hosts", &file]);
    assert_eq!(looked.status.code(), Some(4));
    assert!(text(&looked.stdout).contains("hosts --mark"), "{}", text(&looked.stdout));
    let marked = two.lab(&["hosts", "--mark", &file]);
    assert!(marked.status.success(), "{}", text(&marked.stderr));
    let looked = two.lab(&["doctor", "--hosts", &file, "--json"]);
    let found: Value = serde_json::from_slice(&looked.stdout).expect("JSON");
    assert_eq!((&found[0]["marked"], &found[1]["marked"]), (&true.into(), &true.into()), "{found}");

    // A key that nobody knows: the host and the fix are named.
    let config = two.folder.join("ssh_config");
    let other = std::fs::read_to_string(&config).expect("a configuration");
    let other = other.replace(&two.folder.join("known_hosts").display().to_string(), "/dev/null");
    let other = two.bench.write("ssh_config", &other);
    let strange = content.replace(&config.display().to_string(), &other);
    let done = refused(&two.bench.write("strange.toml", &strange));
    let said = text(&done.stderr);
    assert!(said.contains("host left") && said.contains("connect once by hand"), "{said}");
    assert!(!Path::new(&out).exists(), "nothing is written for a run that did not begin");
}

#[test]
fn a_run_that_is_cut_off_leaves_nothing_and_is_resumed() {
    let Some(two) = Two::make(false) else { return };
    let arms = ["native-v6", "native-v4"];
    let experiment = small(EXPERIMENT, &arms, &["rtt", "udp_rate_up"], SIZES);
    let experiment = two.bench.write("mine.toml", &experiment);
    let (file, out) = (two.file(), two.bench.shown("run"));

    // The device on the wire has no interrupts: its packets are handed on to the processor that is asked for.
    let handed = || {
        let of = |host| two.on(host, "cat /sys/class/net/wire0/queues/rx-0/rps_cpus");
        two.hosts().map(|host| u32::from_str_radix(of(host).trim(), 16).expect("a mask"))
    };
    let before = handed();
    assert_ne!(before, [1, 1]);
    let pin = "client=0,mechanism=0,server=0,client-irq=0,server-irq=0";

    // Ctrl-C.
    let mut lab = two.started(&["run", &experiment, "--hosts", &file, "--pin", pin, "--out", &out]);
    two.at_work(&mut lab);
    assert_eq!(handed(), [1, 1]);
    lab.signal("-INT");
    assert_eq!(lab.end().code(), Some(1), "interrupted");
    two.is_clean();
    assert_eq!(handed(), before);

    // The lab is killed.
    let mut lab = two.started(&["resume", &out]);
    two.at_work(&mut lab);
    assert_eq!(handed(), [1, 1], "resume binds again");
    lab.signal("-KILL");
    lab.end();
    two.is_clean();
    assert_eq!(handed(), before);

    // The connection to the server's host is cut.
    let mut lab = two.started(&["resume", &out]);
    two.at_work(&mut lab);
    signal(connection(lab.id(), "right"), "-KILL");
    assert_eq!(lab.end().code(), Some(1));
    let said = two.complaints();
    assert!(said.contains("host right") && said.contains("fordway-lab resume"), "{said}");
    two.is_clean();

    // The lab's end on that host is killed: what it left goes when asked for.
    let mut lab = two.started(&["resume", &out]);
    two.at_work(&mut lab);
    two.on(
        &two.right,
        "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep -q '^[^ ]*fordway-lab far serve' \
         && kill -9 ${p#/proc/}; done",
    );
    assert_eq!(lab.end().code(), Some(1));
    let said = two.complaints();
    assert!(said.contains("host right"), "{said}");
    assert_eq!(handed()[1], 1, "nobody is there to put it back");
    let cleaned = two.lab(&["doctor", "--clean", "--hosts", &file]);
    assert!(cleaned.status.success(), "{}", text(&cleaned.stderr));
    two.is_clean();
    assert_eq!(handed(), before);

    // To its end: the same trials as of a run that nobody cut off.
    let done = two.lab(&["resume", &out]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    two.is_clean();
    two.bench.assert_clean(&["run"]);
    assert_eq!(handed(), before);
    let record: Value = serde_json::from_slice(
        &std::fs::read(two.bench.path("run/environment.json")).expect("a record"),
    )
    .expect("JSON");
    let server = &record["hosts"]["hosts"]["right"]["environment"];
    assert_eq!(record["pinned"]["roles"]["client-irq"], "0");
    assert_eq!(server["pinned"]["roles"]["server"], "0");
    let rps = |of: &Value| u32::from_str_radix(of["rps"]["rx-0"].as_str().expect("a mask"), 16);
    assert_eq!(rps(&server["affinity"]), Ok(before[1]));
    assert_eq!(rps(&server["pinned"]["in_force"]), Ok(1));
    let page = Folder::at(two.bench.path("run")).page();
    assert!(page.contains("server&#x27;s host: RPS rx-0"), "the validity section");
    let plan = two.bench.lab(&["plan", &experiment, "--hosts", &file, "--json"]);
    let plan: Value = serde_json::from_slice(&plan.stdout).expect("JSON");
    let timed = plan["plan"]["trials"].as_u64().expect("a number") as usize;
    let arms = plan["run"]["mechanisms"].as_array().expect("mechanisms").len();
    let all = Folder::at(two.bench.path("run")).trials();
    let keys = |of: &dyn Fn(&&Value) -> bool| -> Vec<String> {
        all.iter().filter(of).map(|trial| trial["key"].to_string()).collect()
    };
    let distinct =
        |keys: &[String]| keys.iter().collect::<std::collections::BTreeSet<&String>>().len();
    // A gate of each, what is measured, and the ceiling of the datagrams over each family.
    let ceilings = plan["plan"]["deployments"].as_array().expect("deployments").iter();
    let ceilings = ceilings
        .filter(|d| d["mechanism"].as_str().is_some_and(|name| name.starts_with("calibration-v")))
        .count();
    assert!(ceilings > 0);
    assert_eq!(distinct(&keys(&|_| true)), arms + ceilings + timed);
    let valid = keys(&|trial| trial["valid"] == true);
    assert_eq!(distinct(&valid), valid.len(), "no valid trial is repeated");
    assert_eq!(valid.len(), arms + ceilings + timed, "nothing is missing at the end");
}

/// The process of the connection that a lab has opened to a host. Its commands over it name the same host.
fn connection(lab: u32, host: &str) -> u32 {
    let children =
        Command::new("ps").args(["-o", "pid=,args=", "--ppid", &lab.to_string()]).output();
    let children = text(&children.expect("ps").stdout);
    let is_master =
        |line: &&str| line.contains("ssh -M -N") && line.ends_with(&format!("-- {host}"));
    let master = children.lines().map(str::trim).find(is_master);
    let pid = master.and_then(|line| line.split(' ').next()?.parse().ok());
    pid.unwrap_or_else(|| panic!("no connection to {host}: {children}"))
}

#[test]
fn an_end_that_hears_nothing_any_more_tidies_up() {
    let Some(two) = Two::make(false) else { return };
    let notes = format!("FORDWAY_LAB_RUN={}", two.bench.notes().display());
    let mut end = Command::new("nsenter")
        .args(["-t", &two.right, "-m", "-n", "-p", "-u", "--", "env", &notes])
        .arg(&two.lab)
        .args(["far", "serve", "--id", "abc123", "--silence", "5"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("nsenter");
    let mut hello = String::new();
    BufReader::new(end.stdout.take().expect("output")).read_line(&mut hello).expect("a line");
    assert!(hello.contains("fwlab-abc123-files"), "{hello}");
    // Signs of life, as the other end sends them, until there is something to tidy up.
    let (prepared, is_prepared) = channel::<()>();
    let mut orders = end.stdin.take().expect("input");
    let beats = std::thread::spawn(move || {
        while is_prepared.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout)
        {
            writeln!(orders).expect("the end listens");
        }
        orders
    });
    two.on(&two.right, "ip netns add fwlab-abc123-1-iperf");
    assert!(two.left_on(1).contains("fwlab-abc123-1-iperf"));
    drop(prepared);
    // Its input stays open, but nothing comes.
    let _open = beats.join().expect("beats");
    assert!(fordway_testhost::wait(&mut end, "the end on the host").success());
    two.is_clean();
}
