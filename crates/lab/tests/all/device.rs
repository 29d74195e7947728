//! Another machine as the device under test: a namespace that the lab knows nothing of, on the other ends of two cables.

use std::process::Command;

use serde_json::Value;

use crate::common::{Bench, Folder, can_run, has, programs, small, text};

/// A router on two cables of its own.
struct Router {
    name: String,
}

impl Router {
    /// Connected, and nothing else.
    fn connected(name: &str) -> Self {
        let router = Self { name: format!("dut{name}{}", std::process::id()) };
        run(&["ip", "netns", "add", &router.name]);
        for (own, far) in router.cables().iter().zip(["ge-0", "ge-1"]) {
            run(&[
                "ip",
                "link",
                "add",
                own,
                "type",
                "veth",
                "peer",
                "name",
                far,
                "netns",
                &router.name,
            ]);
            run(&["ip", "link", "set", own, "up"]);
            run(&["ip", "-n", &router.name, "link", "set", far, "up"]);
        }
        router
    }

    /// The devices of this machine that lead to it.
    fn cables(&self) -> [String; 2] {
        ["a", "b"].map(|side| format!("{}{side}", self.name))
    }

    /// An arm of it, with these further keys.
    fn arm(&self, kind: &str, family: &str, keys: &str) -> String {
        let [client, server] = self.cables();
        format!(
            r#"
[[mechanism]]
name = "router"
label = "A router"
implementation = "device"
kind = "{kind}"
family = "{family}"
hops = 1

[mechanism.device]
client = "{client}"
server = "{server}"
version = "a namespace"
counters = {{ client = "ge-0", server = "ge-1", via = ["ip", "netns", "exec", "{name}"] }}
{keys}
"#,
            name = self.name
        )
    }

    /// Packets that one of its devices has sent.
    fn sent(&self, device: &str) -> u64 {
        let argv = [
            "netns",
            "exec",
            &self.name,
            "cat",
            &format!("/sys/class/net/{device}/statistics/tx_packets"),
        ];
        let done = Command::new("ip").args(argv).output().expect("ip");
        text(&done.stdout).trim().parse().expect("a number")
    }

    /// Gives it what a plan of this file says that it needs.
    fn configure(&self, bench: &Bench, file: &str) {
        let plan = text(&bench.lab(&["plan", file]).stdout);
        let lines: Vec<&str> = plan.lines().map(str::trim).collect();
        let (first, rest) = lines
            .iter()
            .position(|line| line.starts_with("device    router: "))
            .map(|at| (lines[at], &lines[at + 1..]))
            .unwrap_or_else(|| panic!("{plan}"));
        assert!(first.ends_with("on Linux:"), "{first}");
        let commands = rest.iter().take_while(|l| l.starts_with("ip ") || l.starts_with("sysctl "));
        let script: Vec<&str> = commands.copied().collect();
        assert!(script.len() > 8, "{plan}");
        run(&["ip", "netns", "exec", &self.name, "sh", "-ec", &script.join("\n")]);
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let [one, other] = self.cables();
        let name = &*self.name;
        for argv in [
            ["ip", "netns", "del", name],
            ["ip", "link", "del", &one],
            ["ip", "link", "del", &other],
        ] {
            // The cables may be gone with the namespace.
            let _ = Command::new(argv[0]).args(&argv[1..]).output();
        }
    }
}

/// Runs a command to its good end.
fn run(argv: &[&str]) {
    let done = Command::new(argv[0]).args(&argv[1..]).output().expect("a command");
    assert!(done.status.success(), "{argv:?}: {}", text(&done.stderr));
}

/// Whether a trial has a value, or says why not, which on a busy machine may be: the tester could not send in time, or frames were
/// lost at every rate.
fn is_explained(trial: &Value) -> bool {
    let has_value = trial["value"].as_f64().is_some_and(|value| value > 0.0);
    let why = format!("{}{}", trial["invalid"], trial["failed"]);
    has_value || why.contains('"') && !why.contains("does not come up")
}

/// Whether this machine has the device, up.
fn is_here(device: &str) -> bool {
    std::fs::read_to_string(format!("/sys/class/net/{device}/carrier")).is_ok_and(|up| up == "1\n")
}

#[test]
fn a_nat_elsewhere_is_filled_emptied_and_counted() {
    if !can_run() || !has("nftables", "nat44") || !programs(&["conntrack", "nft"]) {
        return;
    }
    let (bench, router) = (Bench::new(), Router::connected("n"));
    let metrics = ["rfc9693_establishment_rate", "rfc9693_tear_down_rate"];
    let sizes = "length_share = 0.05\ntable_connections = [2000]\nsafe_connections = 1000\n";
    let emptied = bench.shown("emptied");
    let flush = format!("ip netns exec {} conntrack -F && echo emptied >> {emptied}", router.name);
    let flush = format!(r#"["sh", "-c", "{flush}"]"#);
    let mine = small("rfc9693", &["nat44"], &metrics, sizes)
        + &router.arm("nat44", "v4", &format!("down = [{flush}]"));
    let file = bench.write("mine.toml", &mine);
    router.configure(&bench, &file);
    let hide = "add table ip n; add chain ip n c { type nat hook postrouting priority 100; }; \
                add rule ip n c oif ge-1 masquerade";
    run(&["ip", "netns", "exec", &router.name, "nft", hide]);
    let folder = bench.run("run", &mine, &[]);
    bench.assert_clean(&["run"]);
    for metric in metrics {
        let of = |t: &Value| t["mechanism"] == "router" && t["metric"] == metric;
        let trials = folder.trials();
        let found = trials.iter().find(|trial| of(trial)).expect("a trial of the router");
        assert!(is_explained(found), "{found}");
    }
    // Whatever came of it: connections were opened through the router, and its table was emptied by its own means.
    let emptied = std::fs::read_to_string(emptied).expect("it was emptied");
    assert!(emptied.lines().count() >= 2, "{emptied}");
    assert!(router.sent("ge-1") > 1000, "connections of UDP");
    assert!(router.cables().iter().all(|cable| is_here(cable)));
    assert!(folder.page().contains("a namespace"));
}

#[test]
fn devices_are_taken_for_a_router_elsewhere_and_put_back() {
    if !can_run() {
        return;
    }
    let (bench, router) = (Bench::new(), Router::connected("t"));
    let metrics = ["rfc8219_throughput", "rfc8219_typical_latency_up"];
    let sizes = "length_share = 0.05\nframe_sizes = [512]\n";
    let mine = small("rfc8219", &["native-v6"], &metrics, sizes)
        + &router.arm("native", "v6", "take = true");
    let file = bench.write("mine.toml", &mine);
    router.configure(&bench, &file);
    let folder = bench.run("run", &mine, &[]);
    bench.assert_clean(&["run"]);
    for metric in metrics {
        let of = |t: &&Value| t["mechanism"] == "router" && t["metric"] == metric;
        let trials = folder.trials();
        let found = trials.iter().find(of).expect("a trial of the router");
        assert!(is_explained(found), "{found}");
    }
    assert!(router.sent("ge-0") > 100 && router.sent("ge-1") > 100, "frames passed both ways");
    assert!(router.cables().iter().all(|cable| is_here(cable)), "they came back, up");
    // A device with an address would lose it: the arm is skipped, with what to do.
    run(&["ip", "addr", "add", "192.0.2.77/32", "dev", &router.cables()[0]]);
    let plan = text(&bench.lab(&["plan", &file]).stderr);
    assert!(plan.contains("has addresses, which it would lose (`take`)"), "{plan}");
}

#[test]
fn a_router_that_does_not_answer_is_told_with_what_it_needs() {
    if !can_run() {
        return;
    }
    let (bench, router) = (Bench::new(), Router::connected("s"));
    let metrics = ["rfc8219_throughput"];
    let mine =
        small("rfc8219", &["native-v6"], &metrics, "length_share = 0.05\nframe_sizes = [512]\n")
            + &router.arm("native", "v6", "up = [[\"true\"]]");
    let file = bench.write("mine.toml", &mine);
    // It never comes up, however long one waits.
    let args = ["run", &file, "--only", "router", "--out", &bench.shown("run")];
    let done = bench.command(&args).env("FORDWAY_LAB_PATIENCE", "1").output().expect("the lab");
    assert!(done.status.success(), "{}", text(&done.stderr));
    let folder = Folder::at(bench.path("run"));
    let trials = folder.trials();
    assert!(!trials.is_empty());
    for trial in trials {
        let why = trial["failed"].to_string();
        assert!(why.contains("no ping passes") && why.contains("fordway-lab plan"), "{trial}");
    }
    bench.assert_clean(&["run"]);
}
