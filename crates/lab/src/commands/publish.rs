//! `publish`: a run's folder made fit for an archive.

use std::path::{Path, PathBuf};

use fordway_data::artefacts;
use fordway_data::publish::{MANIFEST, Scrub, check, copy, describe, keep, write_manifest};

use super::report::make;
use super::run::free;
use crate::cli::PublishArgs;
use crate::error::{EXIT_DONE, EXIT_FAILED, LabError, Result};
use crate::pdf;

/// Makes or checks such a folder.
pub(super) fn publish(args: &PublishArgs) -> Result<u8> {
    if args.check {
        return checked(&args.dir, args.json);
    }
    let out = args.out.clone().unwrap_or_else(|| beside(&args.dir));
    artefacts::read(&args.dir)?;
    free(&out)?;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let users =
        ["USER", "LOGNAME", "SUDO_USER"].map(|name| std::env::var(name).unwrap_or_default());
    let mut scrub = Scrub::of_run(&args.dir, host.trim(), &users)?;
    if args.small {
        keep(&args.dir, &out, &mut scrub)?;
        artefacts::read(&out)?;
        return told(&out, &scrub, write_manifest(&out)?, args.json);
    }
    copy(&args.dir, &out, &mut scrub)?;
    let run = artefacts::read(&out)?;
    let page = make(&run, &out)?;
    match pdf::print(&page, &out.join("report.pdf")) {
        Err(LabError::Missing(hint)) => crate::note!("  note      without report.pdf: {hint}"),
        other => other?,
    }
    describe(&run, &out, &args.author, &scrub)?;
    if args.author.is_empty() {
        crate::note!("  note      CITATION.cff names no person; --author NAME does");
    }
    told(&out, &scrub, write_manifest(&out)?, args.json)
}

/// Says what was written.
fn told(out: &Path, scrub: &Scrub, count: usize, json: bool) -> Result<u8> {
    if json {
        return super::print_json(&serde_json::json!({
            "folder": out, "files": count, "replaced": scrub.replaced(), "kept": scrub.kept(),
        }));
    }
    for line in scrub.replaced() {
        anstream::println!("replaced  {line}");
    }
    for line in scrub.kept() {
        anstream::println!("kept      {line}");
    }
    anstream::println!("{count} files and {MANIFEST} in {}", out.display());
    Ok(EXIT_DONE)
}

/// `DIR-published` beside the run's folder.
fn beside(dir: &Path) -> PathBuf {
    let name = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let name = if name.is_empty() { "run" } else { &name };
    dir.with_file_name(format!("{name}-published"))
}

fn checked(dir: &Path, json: bool) -> Result<u8> {
    let found = check(dir)?;
    if json {
        super::print_json(&found)?;
    } else {
        for wrong in &found.wrong {
            anstream::println!("wrong     {wrong}");
        }
        anstream::println!("{} files are as they were published", found.good);
    }
    Ok(if found.wrong.is_empty() { EXIT_DONE } else { EXIT_FAILED })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fordway_data::fixture;

    #[test]
    fn a_published_run_is_whole_and_names_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let (run, out) = (dir.path().join("run"), dir.path().join("out"));
        fixture::folder(&run, "small-packets", 2, 1.0);
        let args = |dir: &Path, out: Option<&Path>, check| PublishArgs {
            dir: dir.to_owned(),
            out: out.map(Path::to_owned),
            author: vec!["A. \"Q\" Author".into()],
            check,
            small: false,
            json: false,
        };
        assert_eq!(publish(&args(&run, Some(&out), false)).unwrap(), EXIT_DONE);
        for name in [
            "spec.toml",
            "raw.tar.gz",
            "report.html",
            "results.csv",
            "results.schema.json",
            "README.md",
        ] {
            assert!(out.join(name).is_file(), "{name}");
        }
        let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
        assert!(
            !read("trials.jsonl").contains("somebody") && read("trials.jsonl").contains("lab-user")
        );
        assert!(read("README.md").contains("sudo fordway-lab run small-packets --seed 1"));
        assert!(read("CITATION.cff").contains(r#"- name: "A. \"Q\" Author""#));
        assert_eq!(publish(&args(&out, None, true)).unwrap(), EXIT_DONE);
        // What it published it does not write over, and a change is noticed.
        assert!(matches!(publish(&args(&run, Some(&out), false)), Err(LabError::Usage(_))));
        std::fs::write(out.join("results.csv"), "other").unwrap();
        assert_eq!(publish(&args(&out, None, true)).unwrap(), EXIT_FAILED);
    }

    #[test]
    fn a_small_result_is_read_like_a_run_and_names_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let (run, out) = (dir.path().join("run"), dir.path().join("out"));
        fixture::folder(&run, "small-packets", 7, 1.0);
        let args = |dir: &Path, small: bool| PublishArgs {
            dir: dir.to_owned(),
            out: small.then(|| out.clone()),
            author: Vec::new(),
            check: !small,
            small,
            json: false,
        };
        assert_eq!(publish(&args(&run, true)).unwrap(), EXIT_DONE);
        let mut names: Vec<String> = std::fs::read_dir(&out)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        assert_eq!(names, [MANIFEST, "environment.json", "spec.toml", "trials.jsonl.gz"]);
        assert_eq!(publish(&args(&out, false)).unwrap(), EXIT_DONE);
        assert!(artefacts::read(&out).unwrap().results.cells.iter().any(|cell| cell.n == 7));
    }

    #[test]
    fn the_folder_lies_beside_the_run() {
        assert_eq!(beside(Path::new("results/monday")), Path::new("results/monday-published"));
    }
}
