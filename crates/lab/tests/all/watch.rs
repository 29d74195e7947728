//! `watch` over the folders of runs: without a terminal, on one, and interrupted.

use std::process::Command;

use fordway_data::fixture;
use fordway_data::trial::Ledger;
use fordway_testhost::has_programs;
use serde_json::Value;

use crate::common::{Bench, LAB, Started, lab, signal, text};

/// A run of one block that has ended, or goes on.
fn folder(bench: &Bench, ended: bool) -> (String, usize) {
    let dir = bench.path("run");
    let experiment = fixture::experiment("demo");
    fixture::folder_of(&dir, &experiment, 1, 1.0);
    let trials = Ledger::of(&dir).read(&experiment).expect("trials").len();
    if ended {
        std::fs::write(dir.join("results.json"), "{}").expect("a file");
        let ledger = std::fs::File::options().append(true).open(dir.join("trials.jsonl"));
        let an_hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        ledger.expect("the ledger").set_modified(an_hour_ago).expect("a time");
    }
    (bench.shown("run"), trials)
}

#[test]
fn without_a_terminal_each_trial_is_a_line_and_the_end_ends_it() {
    let bench = Bench::new();
    let (dir, trials) = folder(&bench, true);
    let said = text(&lab(&["watch", &dir]).stdout);
    assert_eq!(said.lines().count(), trials);
    assert!(said.contains("; remark: a remark") && !said.contains('\u{1b}'), "{said}");

    let said = text(&lab(&["watch", &dir, "--json"]).stdout);
    let lines: Vec<Value> =
        said.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!(lines.len(), trials);
    assert_eq!((&lines[0]["done"], &lines[trials - 1]["done"]), (&1.into(), &trials.into()));
    assert!(lines.iter().all(|line| line["valid"] == true && line["of"].is_u64()));

    let state: Value =
        serde_json::from_slice(&lab(&["watch", &dir, "--once", "--json"]).stdout).expect("JSON");
    assert_eq!((&state["ended"], &state["name"]), (&true.into(), &"demo".into()), "{state}");
    assert!(state["values"].as_array().is_some_and(|values| !values.is_empty()));
    let said = text(&lab(&["watch", &dir, "--once"]).stdout);
    assert!(said.contains("ended") && said.contains("median (n)"), "{said}");

    let refused = lab(&["watch", &bench.shown("nothing")]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("is not the folder of a run"));
}

#[test]
fn an_interruption_gives_the_terminal_back_and_leaves_the_run_alone() {
    if !has_programs(&["script"]) {
        return;
    }
    let bench = Bench::new();
    let (dir, _) = folder(&bench, false);
    let before = std::fs::read(bench.path("run/trials.jsonl")).expect("trials");
    let log = bench.shown("terminal");
    // Its pseudo-terminal is the view's; what is written to it goes into the file.
    let mut script = Command::new("script");
    script.args(["-qefc", &format!("exec {LAB} watch {dir}"), &log]).env("NO_COLOR", "1");
    let mut script = Started::new(script);
    let shown = || std::fs::read_to_string(&log).unwrap_or_default();
    script.until("the view", || shown().contains("median (n)"));
    assert!(shown().contains("\u{1b}[?1049h\u{1b}[?25l"), "another screen, without a cursor");
    assert!(!shown().contains("\u{1b}[1m"), "NO_COLOR");
    let children =
        Command::new("ps").args(["-o", "pid=", "--ppid", &script.id().to_string()]).output();
    let children = children.expect("ps");
    signal(text(&children.stdout).trim().parse().expect("the view"), "-INT");
    assert!(script.end().success());
    let last = shown();
    let last = last.split("Script done").next().unwrap_or_default();
    assert!(last.trim_end().ends_with("\u{1b}[?25h\u{1b}[?1049l"), "{last:?}");
    assert_eq!(std::fs::read(bench.path("run/trials.jsonl")).expect("trials"), before);
}
