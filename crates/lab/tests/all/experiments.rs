//! Users' own experiment files: what is refused and how that is said, what is taken.

use crate::common::{LAB, lab, text};

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
