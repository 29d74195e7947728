use std::io::Write;

use super::*;
use fordway_data::fixture;

/// A run of the demo that has these of its trials.
fn folder(keep: impl Fn(&Trial) -> bool) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let experiment = fixture::experiment("demo");
    fixture::folder_of(dir.path(), &experiment, 2, 1.0);
    let all = Ledger::of(dir.path()).read(&fixture::experiment("demo")).unwrap();
    std::fs::remove_file(dir.path().join("trials.jsonl")).unwrap();
    for trial in all.iter().filter(|trial| keep(trial)) {
        Ledger::of(dir.path()).append(trial).unwrap();
    }
    dir
}

#[test]
fn trials_come_once_and_a_line_that_is_not_whole_comes_later() {
    let dir = folder(|trial| trial.block == 1);
    let mut watched = Watched::open(dir.path()).unwrap();
    let lines = watched.read().unwrap();
    assert!(lines.len() > 3 && lines.last().unwrap().done == lines.len());
    assert!(watched.read().unwrap().is_empty());
    let path = dir.path().join("trials.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let line = text.lines().next().unwrap().replace("\"block\":1", "\"block\":2");
    let (one, rest) = line.split_at(40);
    let append = |text: &str| {
        let mut file = std::fs::File::options().append(true).open(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    append(one);
    assert!(watched.read().unwrap().is_empty());
    append(&format!("{rest}\n"));
    let new = watched.read().unwrap();
    assert_eq!((new.len(), new[0].block, new[0].blocks), (1, 2, 1));
    // A copy that is made anew is read from its beginning.
    std::fs::write(&path, text.lines().next().unwrap().to_owned() + "\n").unwrap();
    assert_eq!(watched.read().unwrap().len(), 1);
    assert_eq!(watched.state().unwrap().done, 1);
}

#[test]
fn a_state_has_medians_reasons_and_what_comes_next() {
    let dir = folder(|trial| trial.block == 1 && trial.metric != Metric::Gate);
    let mut bad = Ledger::of(dir.path()).read(&fixture::experiment("demo")).unwrap().remove(0);
    let name = bad.mechanism.clone();
    bad.block = 2;
    bad.flags = vec!["other programs kept 0.7 cores busy".into()];
    Ledger::of(dir.path()).append(&bad).unwrap();
    bad.block = 3;
    (bad.valid, bad.invalid) = (false, vec!["stolen".into()]);
    Ledger::of(dir.path()).append(&bad).unwrap();
    bad.block = 4;
    (bad.valid, bad.invalid, bad.failed) = (true, Vec::new(), vec!["nothing".into()]);
    Ledger::of(dir.path()).append(&bad).unwrap();
    let mut watched = Watched::open(dir.path()).unwrap();
    watched.read().unwrap();
    let state = watched.state().unwrap();
    let values = state.values.iter().find(|v| v.quantity == bad.metric.label()).unwrap();
    let value = values.of.iter().find(|value| value.mechanism == name).unwrap();
    assert_eq!((value.n, value.failed), (2, 1));
    assert_eq!((state.discarded[0].block, state.discarded[0].why.as_str()), (3, "stolen"));
    assert_eq!((state.failed[0].block, state.failed.len()), (4, 1));
    assert_eq!(state.noise["other programs kept cores busy"], 2);
    // No gate was recorded: the first one is what comes.
    assert!(state.now.unwrap().label.starts_with("correctness gate: "));
    assert!(!state.ended && state.left_s > 0.0);
}

#[test]
fn a_run_has_ended_when_its_report_is_newer_than_its_trials() {
    let dir = folder(|_| true);
    let ended = || {
        let mut watched = Watched::open(dir.path()).unwrap();
        watched.read().unwrap();
        watched.state().unwrap().ended
    };
    assert!(!ended());
    std::fs::write(dir.path().join("results.json"), "{}").unwrap();
    let an_hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let set = |name: &str| {
        let file = std::fs::File::options().append(true).open(dir.path().join(name)).unwrap();
        file.set_modified(an_hour_ago).unwrap();
    };
    set("trials.jsonl");
    assert!(ended());
    // `resume` goes on.
    let all = Ledger::of(dir.path()).read(&fixture::experiment("demo")).unwrap();
    set("results.json");
    Ledger::of(dir.path()).append(&all[0]).unwrap();
    assert!(!ended());
}
