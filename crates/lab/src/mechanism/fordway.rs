//! CLAT by Fordway: one command that makes its interface, addresses and routes itself.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Availability, Context, Counted, Deployed, Mechanism};
use crate::error::{LabError, Result};
use crate::process::{Output, find_program, run_str};
use crate::topology::{CLAT_V4, CLAT_V6, PREF64};

/// The gateway's program.
pub(super) struct Fordway {
    /// Where it was found.
    pub(super) program: Option<PathBuf>,
}

/// Finds the gateway: as told, by FORDWAY_BIN, beside the lab itself, on PATH.
pub(crate) fn locate(told: Option<&Path>) -> Result<Option<PathBuf>> {
    if let Some(path) = told {
        if path.is_file() {
            return Ok(Some(path.to_path_buf()));
        }
        return Err(LabError::Usage(format!("--fordway {}: no such file", path.display())));
    }
    if let Some(path) = std::env::var_os("FORDWAY_BIN").map(PathBuf::from) {
        if path.is_file() {
            return Ok(Some(path));
        }
        return Err(LabError::Usage(format!("FORDWAY_BIN={}: no such file", path.display())));
    }
    let beside = std::env::current_exe().ok().and_then(|lab| Some(lab.parent()?.join("fordway")));
    Ok(beside.filter(|path| path.is_file()).or_else(|| find_program("fordway")))
}

impl Fordway {
    fn argv(&self, context: Context<'_>) -> Option<Vec<String>> {
        let program = self.program.as_ref()?.display().to_string();
        let engine = context.spec.engine.as_deref().unwrap_or("auto");
        let run_dir = run_dir(context).display().to_string();
        let argv = [
            program.as_str(),
            "clat",
            "--pref64",
            PREF64,
            "--allow-private",
            "--interface",
            "clat0",
            "--v4",
            CLAT_V4,
            "--v6",
            CLAT_V6,
            "--engine",
            engine,
            "--run-dir",
            &run_dir,
        ];
        Some(argv.iter().map(ToString::to_string).collect())
    }
}

/// A folder of its own: a gateway that serves this machine must not share locks with the lab's.
fn run_dir(context: Context<'_>) -> PathBuf {
    PathBuf::from(format!("/run/fordway-lab/{}", context.name))
}

impl Mechanism for Fordway {
    fn availability(&self) -> Availability {
        let Some(program) = &self.program else {
            return Availability::Missing {
                hint: "build the gateway: cargo build --release -p fordway (or say where it is: \
                       --fordway PATH)"
                    .into(),
            };
        };
        let said = run_str(&[&program.display().to_string(), "--version"]);
        let version = match said.and_then(crate::process::Finished::ok) {
            Ok(out) => out.stdout.trim().to_owned(),
            Err(error) => {
                return Availability::Missing {
                    hint: format!("{} does not run: {error}", program.display()),
                };
            }
        };
        Availability::Ready { version, program: Some(program.clone()) }
    }

    fn deploy(&self, context: Context<'_>) -> Result<Deployed> {
        let argv = self
            .argv(context)
            .ok_or_else(|| LabError::Missing("the gateway's program was not found".into()))?;
        let log = context.logs.join(format!("{}-fordway.log", context.name));
        let daemon =
            context.backend.run(Some(&context.network.client), &argv, Output::Log(&log))?;
        Ok(Deployed {
            config: argv[1..].join(" "),
            argv,
            daemon: Some(daemon),
            run_dir: Some(run_dir(context)),
            program: self.program.clone(),
        })
    }

    fn start_argv(&self, context: Context<'_>) -> Option<Vec<String>> {
        self.argv(context)
    }

    fn counters(&self, deployed: &Deployed) -> Option<Value> {
        let program = deployed.program.as_ref()?.display().to_string();
        let socket = deployed.run_dir.as_ref()?.join("control.sock").display().to_string();
        let out = run_str(&[&program, "stats", "--json", "--socket", &socket]).ok()?.ok().ok()?;
        serde_json::from_str(&out.stdout).ok()
    }

    fn read(&self, before: &Value, after: &Value, down: bool) -> Option<Counted> {
        let way = if down { "v6_to_v4" } else { "v4_to_v6" };
        let pointer = format!("/translators/0/{way}/octets");
        let octets = |v: &Value| v.pointer(&pointer)?.as_u64();
        let count = |v: &Value, reason: &str| {
            v.pointer("/translators/0/drops").and_then(|d| d[reason].as_u64()).unwrap_or(0)
        };
        let reasons = after.pointer("/translators/0/drops")?.as_object()?.keys();
        let drops = reasons
            .map(|r| (r.clone(), count(after, r).saturating_sub(count(before, r))))
            .filter(|(_, n)| *n > 0)
            .collect();
        Some(Counted { octets: octets(after)?.saturating_sub(octets(before)?), drops })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_and_drops_of_a_flow_are_differences() {
        let stats = |up, down, full| {
            serde_json::json!({"translators": [{
                "drops": {"queue_full": full, "martian": 3},
                "v4_to_v6": {"octets": up}, "v6_to_v4": {"octets": down}}]})
        };
        let (before, after) = (stats(10, 5, 1), stats(110, 7, 4));
        let read = |down| Fordway { program: None }.read(&before, &after, down).unwrap();
        assert_eq!(read(false), Counted { octets: 100, drops: vec![("queue_full".into(), 3)] });
        assert_eq!(read(true).octets, 2);
        assert_eq!(Fordway { program: None }.read(&before, &serde_json::json!({}), false), None);
    }
}
