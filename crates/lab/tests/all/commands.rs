//! Mechanisms by a user's own command lines, as good as any other: deployed, probed, measured, taken down.

use std::path::Path;

use serde_json::Value;

use crate::common::{Bench, LAB, can_run, has, programs, text};

const HEAD: &str = r#"
name = "mine"
title = "Mine"
question = "Does what a user writes work?"
decision = "It passes the gate."
margin = 0.03
alpha = 0.05
metrics = ["rtt"]
sentinel = "native-v6"

[[exclude]]
when = "steal > 1"
reason = "every trial counts"

[profile.quick]
about = "tiny"
durations_s = [1]
interval_s = 0.5
ping_count = 10
ping_interval_s = 0.01
blocks_min = 1
blocks_max = 1

[[mechanism]]
name = "native-v6"
label = "Native IPv6"
implementation = "native"
kind = "native"
family = "v6"
hops = 1
"#;

/// The example of the manual, which has to work as it stands there.
const TAYGA: &str = include_str!("../../../../docs/lab-experiments.md");

const NAT44: &str = r#"
[[mechanism]]
name = "nat44-mine"
label = "NAT44 by hand"
implementation = "command"
kind = "nat44"
family = "v4"
hops = 1
base = "native-v6"

[mechanism.command]
requires = ["nft"]
install = "apt-get install nftables"
version = ["nft", "--version"]
up = [["nft", "-f", "{dir}/rules/nat44.nft"]]
counters = ["sh", "-c", """
n=$(nft -j list counter ip mine new | sed 's/.*"packets": \\([0-9]*\\).*/\\1/')
echo "{\\"sessions\\": $n}"
"""]

[mechanism.command.config]
"rules/nat44.nft" = """
table ip mine {
  counter new { }
  chain out {
    type nat hook postrouting priority srcnat; policy accept;
    oifname "{device_up}" counter name new masquerade
  }
}
"""
"#;

/// Runs one mechanism of an experiment into the folder `out`; its gate and its trials.
fn run(bench: &Bench, out: &str, experiment: &str, only: &str) -> (Value, Vec<Value>) {
    let options = ["--only", only, "--blocks", "1", "--duration", "1"];
    let folder = bench.run(out, experiment, &options);
    (folder.results()["gate"][only].clone(), folder.trials())
}

/// Failed probes of a gate; a gate without probes has failed.
fn failed(gate: &Value) -> Vec<String> {
    let checks = gate.as_array().filter(|all| all.len() > 5);
    let Some(checks) = checks else { return vec![format!("few probes: {gate}")] };
    checks.iter().filter(|check| check["ok"] != true).map(ToString::to_string).collect()
}

#[test]
fn tayga_by_the_manuals_example_passes_the_gate_and_is_measured() {
    if !can_run() || !has("tayga", "clat") {
        return;
    }
    let bench = Bench::new();
    let example = TAYGA.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let all = "\"tcp_throughput_up\", \"tcp_throughput_down\", \"rtt\"";
    assert!(example.contains(all), "{example}");
    let example = example.replace(all, "\"rtt\"");
    // What the example's own rule discards is no matter of this test: beside others, no trial would be left.
    assert!(example.contains("other > 0.5"), "{example}");
    let example = example.replace("other > 0.5", "steal > 1");
    let newer = |path: &str| {
        let program = std::fs::read(path).unwrap_or_default();
        program.windows(11).any(|word| word == b"wkpf-strict")
    };
    let example = match ["/usr/sbin/tayga", "/usr/local/sbin/tayga"].into_iter().any(newer) {
        true => example.replace("prefix {pool6}", "prefix {pool6}\nwkpf-strict no"),
        false => example,
    };
    let (gate, trials) = run(&bench, "mine", &example, "clat-mine");
    // Some versions lose time-exceeded errors, also where the lab itself sets them up.
    let own = |check: &String| !check.contains("\"icmp time exceeded\"");
    let failed: Vec<String> = failed(&gate).into_iter().filter(own).collect();
    assert_eq!(failed, Vec::<String>::new());
    let trial = trials.iter().find(|t| t["block"] == 1 && t["metric"] == "rtt").unwrap();
    assert!(trial["value"].as_f64().is_some_and(|ms| ms > 0.0), "{trial}");
    assert!(trial["mechanism_argv"].as_array().unwrap().iter().any(|w| w == "tayga"), "{trial}");
    // It is a process like any other: its processor time is known.
    assert!(!trial["cpu"]["mechanism_s"].is_null(), "{trial}");
}

#[test]
fn tayga_at_both_ends_by_the_manuals_example_passes_the_gate() {
    if !can_run() || !has("tayga", "nat64") {
        return;
    }
    let bench = Bench::new();
    let example = TAYGA.split("```toml\n").nth(2).unwrap().split("```").next().unwrap();
    // The prefix is none of the well-known ones: no version asks for more.
    let experiment = format!("{HEAD}{example}");
    let options = ["--only", "464xlat-mine", "--blocks", "1", "--duration", "1"];
    let folder = bench.run("mine", &experiment, &options);
    let gate = folder.results()["gate"]["464xlat-mine"].clone();
    let own = |check: &String| !check.contains("\"icmp time exceeded\"");
    assert_eq!(
        failed(&gate).into_iter().filter(own).collect::<Vec<String>>(),
        Vec::<String>::new()
    );
    let trial = folder.trial("464xlat-mine", "rtt");
    assert!(trial["value"].as_f64().is_some_and(|ms| ms > 0.0), "{trial}");
    // Two processes, each with a thread at least; both command lines; a log of each.
    assert!(
        trial["cpu"]["mechanism_threads"].as_u64().is_some_and(|threads| threads >= 2),
        "{trial}"
    );
    let argv = trial["mechanism_argv"].as_array().expect("words");
    assert_eq!(argv.iter().filter(|word| *word == "-n").count(), 2, "{trial}");
    let raw = std::fs::read_dir(folder.path.join("raw")).expect("raw").flatten();
    let logs: Vec<String> = raw.filter_map(|file| file.file_name().into_string().ok()).collect();
    for end in ["-client-run.log", "-middle-run.log"] {
        assert!(logs.iter().any(|name| name.ends_with(end)), "{end}: {logs:?}");
    }
}

#[test]
fn a_softwire_of_two_programs_passes_the_gate() {
    let gateway = Path::new(LAB).with_file_name("fordway");
    let built =
        || fordway_testhost::require(gateway.exists(), "the gateway's program is not built");
    if !can_run() || !built() {
        return;
    }
    let bench = Bench::new();
    let run = |options: &str| {
        let words = options.split(' ').map(|word| format!("\"{word}\"")).collect::<Vec<_>>();
        let own = "\"softwire\", \"--engine\", \"user\", \"--run-dir\", \"{dir}\"";
        format!("run = [\"{}\", {own}, {}]", gateway.display(), words.join(", "))
    };
    let middle = run("--local {tunnel_v6} --binding {client_v4}={client_v6}");
    let client = run("--local {client_v6} --v4 {client_v4} --remote {tunnel_v6}");
    let experiment = format!(
        "{HEAD}\n[[mechanism]]\nname = \"mine\"\nlabel = \"Mine\"\nimplementation = \"command\"\nkind = \"softwire\"\n\
         family = \"v4\"\nhops = 1\n[mechanism.command]\n{middle}\n[mechanism.command.client]\n{client}\n"
    );
    let options = ["--only", "mine", "--blocks", "1", "--duration", "1"];
    let folder = bench.run("out", &experiment, &options);
    assert_eq!(failed(&folder.results()["gate"]["mine"]), Vec::<String>::new());
    let trial = folder.trial("mine", "rtt");
    assert!(trial["value"].as_f64().is_some_and(|ms| ms > 0.0), "{trial}");
}

#[test]
fn nat44_by_nftables_rules_passes_the_gate_and_tells_its_counters() {
    if !can_run() || !has("nftables", "nat44") {
        return;
    }
    let bench = Bench::new();
    let (gate, trials) = run(&bench, "mine", &format!("{HEAD}{NAT44}"), "nat44-mine");
    assert_eq!(failed(&gate), Vec::<String>::new());
    let trial = trials.iter().find(|t| t["block"] == 1 && t["metric"] == "rtt").unwrap();
    assert!(trial["version"].as_str().unwrap().contains("nftables"), "{trial}");
    let after = trial["counters"][1]["sessions"].as_u64().unwrap();
    assert!(after > 0, "{trial}");
}

#[test]
fn a_command_that_fails_is_told_in_its_words_and_leaves_nothing() {
    if !can_run() || !programs(&["nft"]) {
        return;
    }
    let bench = Bench::new();
    let mark = bench.path("taken-down");
    let arm = |name: &str, commands: &str| {
        format!(
            "{HEAD}\n[[mechanism]]\nname = \"{name}\"\nlabel = \"Mine\"\nimplementation = \"command\"\n\
             kind = \"nat44\"\nfamily = \"v4\"\nhops = 1\n[mechanism.command]\n{commands}\n\
             down = [[\"sh\", \"-c\", \"echo {{name}} >> {}\"]]\n",
            mark.display()
        )
    };
    let why = |trials: &[Value]| -> String {
        trials.iter().map(|t| format!("{} {}", t["invalid"], t["failed"])).collect()
    };
    let bad = arm("bad", "up = [[\"true\"], [\"sh\", \"-c\", \"echo no such luck >&2; exit 3\"]]");
    let (_, trials) = run(&bench, "one", &bad, "bad");
    assert!(why(&trials).contains("no such luck"), "{trials:?}");
    // Gate and block: taken down as often as it was set up.
    let marks = || std::fs::read_to_string(&mark).unwrap_or_default().lines().count();
    assert_eq!(marks(), 2);

    let ends = arm(
        "ends",
        "run = [\"sh\", \"-c\", \"echo cannot stay >&2; exit 1\"]\nready = [\"false\"]",
    );
    let (_, trials) = run(&bench, "two", &ends, "ends");
    let said = why(&trials);
    assert!(said.contains("its process has ended") && said.contains("cannot stay"), "{said}");
    assert_eq!(marks(), 4);
    bench.assert_clean(&["one", "two"]);

    let skipped = arm(
        "lacks",
        "requires = [\"no-such-program\"]\ninstall = \"see the manual\"\nup = [[\"true\"]]",
    );
    let file = bench.write("mine.toml", &skipped);
    let out = bench.lab(&["run", &file, "--only", "lacks", "--blocks", "1"]);
    assert_eq!(out.status.code(), Some(4), "{}", text(&out.stderr));
    let said = text(&out.stderr);
    assert!(said.contains("not installed: no-such-program; see the manual"), "{said}");
}

/// Its counter of sessions is the processor that it may use.
const COUNTS_PROCESSORS: &str = r#"counters = ["sh", "-c", """
n=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
echo "{\\"sessions\\": \\"on $n\\"}"
"""]
"#;

#[test]
fn programs_run_on_the_processors_that_are_asked_for() {
    let two = std::thread::available_parallelism().is_ok_and(|n| n.get() >= 2);
    if !can_run() || !programs(&["nft"]) || !fordway_testhost::require(two, "one processor") {
        return;
    }
    let bench = Bench::new();
    let (before, _) = NAT44.split_once("counters = ").expect("counters");
    let (_, config) = NAT44.split_once("[mechanism.command.config]").expect("files");
    let experiment =
        format!("{HEAD}{before}{COUNTS_PROCESSORS}\n[mechanism.command.config]{config}");
    let pin = "client=0,mechanism=1,server=0";
    let options = ["--only", "nat44-mine", "--blocks", "1", "--duration", "1", "--pin", pin];
    let folder = bench.run("out", &experiment, &options);
    let trial = folder.trial("nat44-mine", "rtt");
    assert_eq!(trial["counters"][1]["sessions"], "on 1", "{trial}");

    let record = std::fs::read(folder.path.join("environment.json")).expect("a record");
    let record: Value = serde_json::from_slice(&record).expect("JSON");
    assert_eq!(
        (&record["pinned"]["asked"], &record["pinned"]["roles"]["mechanism"]),
        (&pin.into(), &"1".into())
    );
    assert!(record["affinity"]["allowed"].as_str().is_some_and(|all| !all.is_empty()));
    let page = folder.page();
    assert!(page.contains("programs of the mechanism") && page.contains(&format!("--pin {pin}")));
    // What was bound is asked for again by the line that repeats the run.
    let spec = std::fs::read_to_string(folder.path.join("spec.toml")).expect("a spec");
    assert!(spec.contains(&format!("--pin {pin}")), "{spec}");

    for (wrong, why) in [("client=0,server=9000", "no processor"), ("client-irq=0", "--hosts")] {
        let file = bench.write("mine.toml", &experiment);
        let refused = bench.lab(&["run", &file, "--pin", wrong, "--out", &bench.shown("none")]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains(why), "{}", text(&refused.stderr));
    }
}
