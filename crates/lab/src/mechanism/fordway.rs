//! CLAT by Fordway: one command that makes its interface, addresses and routes itself.

use std::path::{Path, PathBuf};

use super::{Availability, Context, Deployed, Mechanism};
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
        let socket = socket(context).display().to_string();
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
            "--socket",
            &socket,
        ];
        Some(argv.iter().map(ToString::to_string).collect())
    }
}

fn socket(context: Context<'_>) -> PathBuf {
    PathBuf::from(format!("/run/fordway-lab/{}.sock", context.name))
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
            socket: Some(socket(context)),
            program: self.program.clone(),
        })
    }

    fn start_argv(&self, context: Context<'_>) -> Option<Vec<String>> {
        self.argv(context)
    }

    fn counters(&self, deployed: &Deployed) -> Option<serde_json::Value> {
        let program = deployed.program.as_ref()?.display().to_string();
        let socket = deployed.socket.as_ref()?.display().to_string();
        let out = run_str(&[&program, "stats", "--json", "--socket", &socket]).ok()?.ok().ok()?;
        serde_json::from_str(&out.stdout).ok()
    }
}
