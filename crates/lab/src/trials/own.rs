//! Loads that the experiment brings: a command line at the client, and where it needs one, another at the server.

use std::path::Path;
use std::time::Duration;

use fordway_data::spec::{LoadSpec, Metric, Missing, OwnLoad, Point, filled};
use fordway_data::trial::Trial;

use super::{Before, Lack, Measured, Values, now};
use crate::backend::Place;
use crate::error::{LabError, Result};
use crate::host::cpu::processors;
use crate::process::{Finished, Output, Running, last_lines, poll};

/// How long a server may take until it is ready.
const READY: Duration = Duration::from_secs(10);
/// Seconds that a client's command may take beyond what it should.
const PATIENCE_S: f64 = 15.0;
/// From this status on, a command was ended by a signal.
const SIGNALLED: i32 = 128;

/// Runs the load at a point, where it has some, and reads the metrics that it yields.
pub(super) fn measure(
    at: &Measured<'_>,
    load: OwnLoad,
    point: Option<&Point>,
    seconds: u64,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let load = load.spec();
    let level = load.scan.as_ref().zip(point).and_then(|(scan, point)| {
        let level = point.at(scan.axis)?.to_string();
        Some((scan.axis.name(), level))
    });
    let of = |name: &str| match &level {
        Some((axis, level)) if *axis == name => Some(level.clone()),
        _ => placeholder(at, seconds, name),
    };
    let fill =
        |argv: &[String]| -> Vec<String> { argv.iter().map(|word| filled(word, of)).collect() };
    let suffix = level.as_ref().map(|(_, level)| format!("-{level}")).unwrap_or_default();
    let log = at.raw.join(format!("{}-own-{}{suffix}-server.log", at.name, load.name));
    let mut server = serve(at, load, &log, &fill)?;
    trial.started = now();
    trial.argv = fill(&load.client);
    let takes = load.takes_s.unwrap_or(seconds as f64);
    let limit = Duration::from_secs_f64(load.limit_s.unwrap_or(takes + PATIENCE_S));
    let before = Before::read(at)?;
    let ended = at.backend.run(Some(&at.network.app), &trial.argv, Output::Keep)?.wait(limit);
    before.finish(at, trial)?;
    // One that serves a single client may have ended by now, and must not have failed.
    let gone = server.as_mut().is_some_and(|server| !server.alive());
    drop(server);
    let finished = match ended {
        Err(error @ LabError::Timeout { .. }) => {
            trial.failed.push(error.to_string());
            return Ok(());
        }
        other => other?,
    };
    at.keep(&format!("own-{}{suffix}.txt", load.name), &finished.stdout)?;
    match outcome(load, finished.code()) {
        Outcome::Success => {}
        Outcome::Failed => trial.failed.push(said(&finished)),
        Outcome::Unusable => {
            let said_there = if gone { last_lines(&text_of(&log), 1) } else { String::new() };
            let server = if gone { "; the server's command had ended: " } else { "" };
            trial.invalid.push(format!("{}{server}{said_there}", said(&finished)));
        }
    }
    trial.exit_status = Some(finished.code());
    if trial.failed.is_empty() && trial.invalid.is_empty() {
        // What other statuses mean is decided: this one is a success.
        trial.exit_status = Some(0);
        let own = at.metrics.iter().filter_map(|metric| match metric {
            Metric::Own(own) if own.spec().load.spec() == load => Some((*metric, own.spec())),
            _ => None,
        });
        for (metric, own) in own {
            let value = own.metric.read(&finished.stdout);
            values.insert(metric, value.map_err(|why| blamed(own.metric.missing, why)));
        }
    }
    Ok(())
}

/// What a placeholder stands for in the commands of a load.
fn placeholder(at: &Measured<'_>, seconds: u64, name: &str) -> Option<String> {
    let network = at.network;
    Some(match name {
        "seconds" => seconds.to_string(),
        "target" => network.target.to_string(),
        "client" => network.app_address.to_string(),
        "server" => network.server_address.to_string(),
        "seen" => network.seen_address.to_string(),
        "name" => at.name.to_owned(),
        "threads" => processors().to_string(),
        _ => return None,
    })
}

/// Starts the command at the server, where there is one, and waits until it is ready.
fn serve(
    at: &Measured<'_>,
    load: &LoadSpec,
    log: &Path,
    fill: &dyn Fn(&[String]) -> Vec<String>,
) -> Result<Option<Running>> {
    if load.server.is_empty() {
        return Ok(None);
    }
    let place: &Place = &at.network.server;
    // What it said on an earlier deployment of the same name is not its word now.
    let _ = std::fs::remove_file(log);
    let argv = fill(&load.server);
    let mut server = at.backend.run(Some(place), &argv, Output::Log(log))?;
    if load.server_ready.is_empty() {
        return Ok(Some(server));
    }
    let ready = fill(&load.server_ready);
    let up = poll(READY, || {
        let asked = at.backend.run(Some(place), &ready, Output::Keep);
        let answered = asked.and_then(|run| run.wait(READY)).and_then(Finished::ok).is_ok();
        (answered || !server.alive()).then_some(answered)
    })?;
    if up == Some(true) {
        return Ok(Some(server));
    }
    let status = if up.is_none() { "not ready" } else { "ended" }.to_owned();
    let stderr = last_lines(&text_of(log), 2);
    Err(LabError::Command { argv: argv.join(" "), status, stderr })
}

fn text_of(log: &Path) -> String {
    std::fs::read_to_string(log).unwrap_or_default()
}

/// What an exit status of the client's command means.
#[derive(Debug, PartialEq)]
enum Outcome {
    Success,
    Failed,
    Unusable,
}

/// A status that is not declared is the mechanism's failure: the same command runs on every mechanism, and the path is
/// what differs. A signal is none of the path's doing.
fn outcome(load: &LoadSpec, status: i32) -> Outcome {
    if load.success.contains(&status) {
        Outcome::Success
    } else if load.unusable.contains(&status) || status >= SIGNALLED {
        Outcome::Unusable
    } else {
        Outcome::Failed
    }
}

fn said(finished: &Finished) -> String {
    let text = if finished.stderr.trim().is_empty() { &finished.stdout } else { &finished.stderr };
    format!("its command ended with status {}: {}", finished.code(), last_lines(text, 2))
}

fn blamed(missing: Missing, why: String) -> Lack {
    match missing {
        Missing::Tool => Lack::Unmeasured(why),
        Missing::Mechanism => Lack::Failed(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undeclared_status_is_the_paths_and_a_signal_is_not() {
        let load: LoadSpec =
            toml::from_str("name = \"l\"\nclient = [\"x\"]\nsuccess = [0, 3]\nunusable = [2]")
                .unwrap();
        let of = |status| outcome(&load, status);
        assert_eq!([of(0), of(3), of(1)], [Outcome::Success, Outcome::Success, Outcome::Failed]);
        assert_eq!([of(2), of(137)], [Outcome::Unusable, Outcome::Unusable]);
        let load: LoadSpec = toml::from_str("name = \"l\"\nclient = [\"x\"]").unwrap();
        assert_eq!(outcome(&load, 127), Outcome::Unusable);
        assert_eq!(outcome(&load, 2), Outcome::Failed);
    }

    #[test]
    fn a_missing_value_is_whose_the_metric_says() {
        assert_eq!(blamed(Missing::Tool, "x".into()), Lack::Unmeasured("x".into()));
        assert_eq!(blamed(Missing::Mechanism, "x".into()), Lack::Failed("x".into()));
    }
}
