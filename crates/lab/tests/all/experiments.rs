//! Users' own experiment files: what is refused and how that is said, what is taken.

use crate::common::{Bench, LAB, can_run, lab, programs, text};

/// Every sample file with what `validate` says of it. With INSTA_UPDATE=always the snapshots take what it
/// says now.
#[test]
fn invalid_files_say_where_what_and_what_instead() {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        insta::glob!("experiments/invalid/*.toml", |path| {
            let folder = path.parent().unwrap();
            let name = path.file_name().unwrap().to_str().unwrap();
            let out = std::process::Command::new(LAB)
                .args(["validate", name])
                .env("NO_COLOR", "1")
                .current_dir(folder)
                .output()
                .unwrap();
            assert_eq!(out.status.code(), Some(2), "{name}: {}", text(&out.stdout));
            insta::assert_snapshot!(text(&out.stderr));
        });
    });
}

#[test]
fn a_built_in_experiment_is_printed_checked_and_planned_as_ones_own() {
    let dir = tempfile::tempdir().unwrap();
    let list: serde_json::Value = serde_json::from_slice(&lab(&["list", "--json"]).stdout).unwrap();
    for experiment in list.as_array().unwrap() {
        let name = experiment["name"].as_str().unwrap();
        let shown = lab(&["show", name]);
        assert!(shown.status.success());
        assert!(text(&shown.stdout).starts_with("#:schema "));
        let file = dir.path().join(format!("{name}.toml"));
        std::fs::write(&file, shown.stdout).unwrap();
        let out = lab(&["validate", file.to_str().unwrap()]);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    }
    let file = dir.path().join("small-packets.toml");
    let mine = std::fs::read_to_string(&file).unwrap().replace("native-v6", "plain-six");
    std::fs::write(&file, mine).unwrap();
    let plan = lab(&["plan", file.to_str().unwrap(), "--blocks", "2", "--json"]);
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).unwrap();
    let own = |d: &serde_json::Value| d["mechanism"] == "plain-six";
    assert_eq!(
        plan["plan"]["deployments"].as_array().unwrap().iter().filter(|d| own(d)).count(),
        2
    );
    let replay = plan["run"]["replay"].as_str().unwrap();
    assert!(replay.starts_with("fordway-lab run spec.toml --profile quick"), "{replay}");
}

#[test]
fn errors_are_json_for_machines_and_a_missing_file_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good.toml");
    std::fs::write(&good, lab(&["show", "nat64"]).stdout).unwrap();
    let bad = dir.path().join("bad.toml");
    let changed = std::fs::read_to_string(&good).unwrap().replacen("\nmargin", "\nmargn", 1);
    std::fs::write(&bad, &changed).unwrap();
    let none = dir.path().join("none.toml");
    let files = [&good, &bad, &none].map(|file| file.to_str().unwrap());
    let out = lab(&[&["validate", "--json"][..], &files].concat());
    assert_eq!(out.status.code(), Some(2));
    let all: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(all[0]["valid"], true);
    let line = changed.lines().position(|line| line.starts_with("margn")).unwrap() + 1;
    let errors = all[1]["errors"].as_array().unwrap();
    let unknown = errors.iter().find(|error| error["message"] == "unknown key `margn`").unwrap();
    assert_eq!((&unknown["line"], &unknown["column"]), (&line.into(), &1.into()));
    assert_eq!(unknown["fix"], "did you mean `margin`?");
    assert!(all[2]["errors"][0]["message"].as_str().unwrap().contains("fordway-lab show"));
    // `run` and `plan` refuse it in the same words, before anything is tried.
    for command in ["plan", "run"] {
        let out = lab(&[command, files[1]]);
        assert_eq!(out.status.code(), Some(2));
        assert!(text(&out.stderr).contains("did you mean `margin`?"), "{}", text(&out.stderr));
    }
}

/// The example of the manual.
const OWN: &str = include_str!("../../../../docs/experiments/own-loads.toml");

#[test]
fn the_example_of_own_loads_is_valid_and_planned() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("own.toml");
    std::fs::write(&file, OWN).unwrap();
    let file = file.to_str().unwrap();
    let out = lab(&["validate", file]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let plan = |more: &[&str]| -> serde_json::Value {
        let out = lab(&[&["plan", file, "--json"][..], more].concat());
        serde_json::from_slice(&out.stdout).unwrap()
    };
    // Three mechanisms, each with five metrics, one of them at three points; nothing that has a ceiling.
    let (one, two) = (plan(&["--blocks", "1"]), plan(&["--blocks", "2"]));
    assert_eq!([&one["plan"]["trials"], &two["plan"]["trials"]], [21, 42]);
    let names = one["plan"]["deployments"].as_array().unwrap().iter().map(|d| &d["mechanism"]);
    assert_eq!(names.filter(|name| *name == "calibration-v6").count(), 0);
    // A longer load takes longer.
    let seconds = |plan: &serde_json::Value| plan["plan"]["seconds"].as_f64().unwrap();
    assert!(seconds(&plan(&["--blocks", "1", "--duration", "60"])) > seconds(&one) + 170.0);
}

#[test]
fn own_loads_are_run_read_and_judged_like_built_in_ones() {
    if !can_run() || !programs(&["iperf3", "ping"]) {
        return;
    }
    let bench = Bench::new();
    // Besides, one metric finds no value anywhere, and one load always ends with a status that is no success.
    let small = OWN
        .replace("ceiling_factor = 0\n", "")
        .replace("durations_s = [2]", "durations_s = [1]")
        .replace("ping_count = 50", "ping_count = 5")
        .replace("blocks_min = 7\nblocks_max = 7", "blocks_min = 2\nblocks_max = 2")
        .replace("\"ping_mean\"]", "\"ping_mean\", \"none\", \"nothing\"]")
        .replace(
            "[[goal]]\nid = \"udp-second-hop\"",
            "[[metric]]\nname = \"none\"\nlabel = \"None\"\nunit = \"x\"\nbetter = \"lower\"\nload = \"ping\"\n\
             regex = 'no such (?<value>[0-9]+)'\n\n\
             [[load]]\nname = \"refused\"\nclient = [\"sh\", \"-c\", \"echo {target} refused >&2; exit 3\"]\ntakes_s = 0.1\n\n\
             [[metric]]\nname = \"nothing\"\nlabel = \"Nothing\"\nunit = \"x\"\nbetter = \"lower\"\nload = \"refused\"\n\
             json = \"/a\"\n\n[[goal]]\nid = \"udp-second-hop\"",
        )
        + "\n[[exclude]]\nwhen = \"steal > 1\"\nreason = \"a test\"\n";
    let run = bench.run("run", &small, &["--only", "native-v6,native-v6-2hop"]);
    for mechanism in ["native-v6", "native-v6-2hop"] {
        for (metric, unit) in
            [("udp_received", "Mbit/s"), ("udp_jitter", "ms"), ("ping_deviation", "ms")]
        {
            let trials = run.of(mechanism, metric);
            assert_eq!(trials.len(), 1, "{metric}, first block");
            for trial in trials {
                assert_eq!(
                    (&trial["unit"], &trial["valid"]),
                    (&unit.into(), &true.into()),
                    "{trial}"
                );
                assert!(trial["value"].as_f64().is_some_and(|value| value > 0.0), "{trial}");
            }
        }
        // 50 Mbit/s of datagrams were asked for, and no more arrives.
        for trial in run.of(mechanism, "udp_received") {
            assert!(trial["value"].as_f64().is_some_and(|v| (5.0..=55.0).contains(&v)), "{trial}");
            let words = trial["argv"].as_array().unwrap();
            assert!(!words.iter().any(|word| word.as_str().unwrap().contains('{')), "{words:?}");
        }
    }
    // A scan has a trial at each value, in an order of its own, and a figure.
    let scanned = run.of("native-v6", "ping_mean");
    let mut sizes: Vec<u64> =
        scanned.iter().filter_map(|trial| trial["point"]["octets"].as_u64()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [56, 512, 1400]);
    for trial in &scanned {
        let size = trial["point"]["octets"].to_string();
        assert!(trial["argv"].as_array().unwrap().iter().any(|word| *word == size), "{trial}");
    }
    assert!(run.path.join("figures/points-ping-mean-linear.svg").is_file());
    // What does not count is kept with its reason; what the path is blamed for counts, as a failure.
    let of = |metric: &str| -> Vec<serde_json::Value> {
        let all = run.trials();
        all.into_iter().filter(|t| t["metric"] == metric && t["mechanism"] == "native-v6").collect()
    };
    for trial in of("none") {
        assert_eq!(trial["valid"], false);
        assert!(trial["invalid"][0].as_str().unwrap().contains("no value for no such"), "{trial}");
    }
    for trial in of("nothing") {
        assert_eq!(trial["valid"], true);
        let why = trial["failed"][0].as_str().unwrap();
        assert!(why.contains("status 3") && why.contains("2001:db8:5::5 refused"), "{why}");
    }
    assert_eq!((of("none").len(), of("nothing").len()), (2, 2));
    let results = run.results();
    let cell = |metric: &str, mechanism: &str| {
        let cells = results["cells"].as_array().unwrap();
        cells.iter().find(|c| c["metric"] == metric && c["mechanism"] == mechanism).unwrap().clone()
    };
    let compared = cell("udp_received", "native-v6-2hop");
    assert_eq!((&compared["n"], &compared["unit"]), (&2.into(), &"Mbit/s".into()));
    let alone = results["calibration"].as_array().unwrap();
    let alone = alone.iter().find(|c| c["metric"] == "udp_received" && c["family"] == "v6");
    assert!(alone.is_some_and(|c| c["value"].as_f64().is_some_and(|v| v > 5.0)), "{alone:?}");
    assert_eq!(cell("nothing", "native-v6")["n"], 0);
    let goals = results["goals"].as_array().unwrap();
    let judged = |id: &str| goals.iter().find(|goal| goal["id"] == id).unwrap().clone();
    assert!(judged("rtt-second-hop")["measured"].as_f64().is_some(), "{goals:?}");
    assert_eq!(judged("rtt-second-hop")["unit"], "ms");
    assert!(judged("udp-second-hop")["measured"].as_f64().is_some_and(|x| x > 0.0), "{goals:?}");
    let page = run.page();
    for word in [
        "Loads of this experiment",
        "UDP jitter",
        "Over two hops, a round trip",
        "Load udp is the experiment",
    ] {
        assert!(page.contains(word), "{word}");
    }
    assert!(run.said.contains("Deviation of round trips"), "{}", run.said);
    let csv = std::fs::read_to_string(run.path.join("results.csv")).unwrap();
    assert!(
        csv.contains(",udp_jitter,")
            && run.path.join("figures/box-udp-jitter-linear.svg").is_file()
    );
    // Its own file is an experiment; what counts is not measured again.
    let folder = bench.shown("run");
    let before = run.trials().len();
    assert!(bench.lab(&["resume", &folder]).status.success());
    assert_eq!(run.trials().len() - before, 4, "trials without a value alone");
    let compared = bench.lab(&["compare", &folder, &folder]);
    assert!(text(&compared.stdout).contains("UDP jitter"), "{}", text(&compared.stdout));
    bench.assert_clean(&["run"]);
}
