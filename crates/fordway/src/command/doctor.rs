//! `fordway doctor`.

use fordway_config::load;
use fordway_daemon::failure::Failure;
use fordway_daemon::output;
use serde::Serialize;

use crate::cli::{DoctorArgs, Global};
use crate::doctor::{self, Finding, Question, State};

/// `--json`.
#[derive(Serialize)]
struct Examined<'a> {
    /// Nothing is bad.
    works: bool,
    findings: &'a [Finding],
}

pub(crate) fn run(global: &Global, args: &DoctorArgs) -> Result<(), Failure> {
    let config = match &args.config {
        None => None,
        Some(file) => {
            let loaded = load(file)?;
            super::check::print_warnings(&loaded.warnings);
            Some(loaded.config)
        }
    };
    let question = Question {
        config,
        socket: global.socket(),
        device: args.device.clone(),
        target: args.target.clone(),
        timeout: args.timeout,
    };
    let findings = doctor::examine(&question)?;
    let works = findings.count(State::Bad) == 0;
    if args.json {
        output::print_json(&Examined { works, findings: findings.all() })?;
    } else {
        output::print(&findings.render())?;
    }
    if works { Ok(()) } else { Err(Failure::Logged) }
}
