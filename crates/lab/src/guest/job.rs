//! The job disk: brings programs and arguments into the guest, and the run's folder back.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fordway_data::spec::{Accelerator, Guest};

use super::{JOB, Order, VARIABLE};
use crate::error::{EXIT_FAILED, LabError, Result};
use crate::process::{self, Output};

/// Megabytes for what a run writes.
const ROOM_MIB: u64 = 1024;
/// How much slower emulated instructions may be than limits of time are made for.
const EMULATED: &str = "10";
/// How long copying may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// Makes the job disk.
pub(super) fn pack(scratch: &Path, guest: &Guest, order: &Order<'_>) -> Result<PathBuf> {
    let folder = scratch.join("job");
    let bin = folder.join("bin");
    std::fs::create_dir_all(&bin).map_err(LabError::file(&bin))?;
    let own = std::env::current_exe().map_err(LabError::file("/proc/self/exe"))?;
    let mut size = copy(&own, &bin.join("fordway-lab"))?;
    if let Some(fordway) = order.fordway {
        size += copy(fordway, &bin.join("fordway"))?;
    }
    if let Some((name, file)) = order.file {
        size += copy(file, &folder.join(name))?;
    }
    if let Some(run) = order.continued {
        let to = folder.join("out");
        step(&["cp", "-r", "--", &run.display().to_string(), &to.display().to_string()])?;
    }
    let mut arguments = order.arguments.clone();
    if order.fordway.is_some() {
        arguments.extend(["--fordway".to_owned(), format!("{JOB}/bin/fordway")]);
    }
    let init = folder.join("init");
    let text = script(guest, &arguments, std::io::IsTerminal::is_terminal(&std::io::stderr()))?;
    std::fs::write(&init, text).map_err(LabError::file(&init))?;
    let disk = scratch.join("disk");
    let mib = size / (1 << 20) + ROOM_MIB;
    step(&[
        "mke2fs",
        "-q",
        "-t",
        "ext4",
        "-d",
        &folder.display().to_string(),
        &disk.display().to_string(),
        &format!("{mib}M"),
    ])?;
    Ok(disk)
}

/// What the guest runs. On a terminal the lab's standard error is the console, so that its bar is drawn; Ctrl-C reaches
/// the lab as the terminal's.
fn script(guest: &Guest, arguments: &[String], terminal: bool) -> Result<String> {
    let json = serde_json::to_string(guest).map_err(|e| LabError::Usage(e.to_string()))?;
    // A clock that counts instructions makes an emulated processor as fast as its own time.
    let slow = guest.accelerator == Accelerator::Tcg && !guest.icount;
    let factor = [process::PATIENCE, if slow { EMULATED } else { "1" }];
    let quoted: Vec<String> = arguments.iter().map(|word| quote(word)).collect();
    let environment =
        format!("export {VARIABLE}={} {} PATH={JOB}/bin:$PATH\n", quote(&json), factor.join("="));
    let lab = format!("fordway-lab {} >{JOB}/stdout", quoted.join(" "));
    let run = match terminal {
        true => format!("{lab}; echo $? >{JOB}/status"),
        false => format!("{{ {lab}; echo $? >{JOB}/status; }} 2>&1 | cat"),
    };
    Ok(format!(
        "{environment}cd {JOB}\nsetsid --ctty --wait sh -c {} </dev/ttyS0 >/dev/ttyS0 2>&1\nsync\n",
        quote(&run)
    ))
}

/// A word for a shell.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Puts the run's folder where it belongs; gives the exit status of the lab in the guest.
pub(super) fn fetch(disk: &Path, scratch: &Path, out: &Path) -> Result<u8> {
    let disk = disk.display().to_string();
    // A guest that was ended has not unmounted it. Status 1: it was mended.
    process::start(&["e2fsck", "-p", &disk].map(str::to_owned), Output::Keep)?
        .wait_out(PATIENCE)?;
    let from = scratch.join("fetched");
    std::fs::create_dir(&from).map_err(LabError::file(&from))?;
    step(&["debugfs", "-R", &format!("rdump / {}", from.display()), &disk])?;
    let status =
        std::fs::read_to_string(from.join("status")).ok().and_then(|text| text.trim().parse().ok());
    let ran = from.join("out");
    if ran.exists() {
        std::fs::create_dir_all(out).map_err(LabError::file(out))?;
        let inside = format!("{}/.", ran.display());
        step(&["cp", "-r", "--", &inside, &out.display().to_string()])?;
    }
    let Some(status) = status else {
        return Err(LabError::Guest(match ran.exists() {
            true => {
                format!(
                    "it ended before its run did; what it measured is kept, and `fordway-lab resume {}` continues",
                    out.display()
                )
            }
            false => "it ended before its run began".into(),
        }));
    };
    if !ran.exists() && status == 0 {
        return Ok(EXIT_FAILED);
    }
    Ok(status)
}

fn copy(from: &Path, to: &Path) -> Result<u64> {
    std::fs::copy(from, to).map_err(LabError::file(from))
}

fn step(argv: &[&str]) -> Result<()> {
    let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
    process::start(&argv, Output::Keep)?.wait_out(PATIENCE)?.ok().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest() -> Guest {
        Guest {
            suite: "trixie".into(),
            cpus: 1,
            memory_mib: 1024,
            accelerator: Accelerator::Tcg,
            icount: false,
            emulator: "it's QEMU".into(),
        }
    }

    /// Runs the script with stand-ins for the lab and for `setsid`, which a test's console is not there for.
    fn run(arguments: &[&str], ending: &str) -> (String, std::path::PathBuf, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        let put = |name: &str, text: &str| {
            use std::os::unix::fs::PermissionsExt;
            let path = bin.join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        };
        put(
            "fordway-lab",
            &format!("printf '%s|' \"$@\"; printf '%s' \"$FORDWAY_LAB_GUEST\"; {ending}"),
        );
        put("setsid", "shift 2; exec \"$@\"");
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let text = script(&guest(), &arguments, false).unwrap();
        let text = text.replace(JOB, &folder.path().display().to_string());
        let text = text.replace("/dev/ttyS0", "/dev/null");
        let done = std::process::Command::new("sh").args(["-c", &text]).status().unwrap();
        assert!(done.success());
        let said = std::fs::read_to_string(folder.path().join("stdout")).unwrap();
        (said, folder.path().join("status"), folder)
    }

    #[test]
    fn words_reach_the_lab_as_they_are_and_its_status_is_kept() {
        let (said, status, _folder) = run(&["run", "it's $HOME", "a b"], "exit 4");
        let json = said.rsplit('|').next().unwrap();
        assert_eq!(serde_json::from_str::<Guest>(json).unwrap(), guest());
        assert!(said.starts_with("run|it's $HOME|a b|{"), "{said}");
        assert_eq!(std::fs::read_to_string(status).unwrap().trim(), "4");
    }

    /// A disk made of a folder, as the guest leaves it.
    fn disk(folder: &Path, files: &[(&str, &str)]) -> PathBuf {
        let content = folder.join("content");
        for (name, text) in files {
            let path = content.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        std::fs::create_dir_all(&content).unwrap();
        let disk = folder.join("disk");
        let words = [content.display().to_string(), disk.display().to_string()];
        step(&["mke2fs", "-q", "-t", "ext4", "-d", &words[0], &words[1], "8M"]).unwrap();
        disk
    }

    #[test]
    fn a_runs_folder_comes_back_whether_the_lab_ended_or_not() {
        for (files, status) in [
            (
                &[("out/spec.toml", "spec"), ("out/figures/a.svg", "a"), ("status", "1\n")][..],
                Some(1),
            ),
            (&[("out/spec.toml", "spec"), ("out/figures/a.svg", "a")][..], None),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let out = folder.path().join("out");
            let found = fetch(&disk(folder.path(), files), folder.path(), &out);
            assert_eq!(found.as_ref().ok().copied(), status, "{found:?}");
            assert_eq!(std::fs::read_to_string(out.join("figures/a.svg")).unwrap(), "a");
        }
    }

    #[test]
    fn a_guest_that_did_nothing_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        assert!(fetch(&disk(folder.path(), &[]), folder.path(), &out).is_err());
        assert!(!out.exists());
    }
}
