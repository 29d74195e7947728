//! How long a translator takes from nothing to its first packet.

use std::net::IpAddr;
use std::time::Duration;

use fordway_data::spec::Role;
use fordway_data::trial::Trial;

use super::now;
use crate::backend::{Backend, Place};
use crate::error::{LabError, Result};
use crate::mechanism::Start;
use crate::probe::start::Started;
use crate::process::Output;
use crate::process::own_program;

/// Measures from the start of the process to the first translated packet.
pub(crate) fn start_time(
    backend: &dyn Backend,
    place: &Place,
    target: IpAddr,
    start: &Start,
    trial: &mut Trial,
) -> Result<Started> {
    let mut argv: Vec<String> =
        [&own_program()?, "probe", "start", "--target", &target.to_string()]
            .map(str::to_owned)
            .into();
    // It is started where the mechanism's programs belong; the probe itself sends like a client.
    if let Some(on) = backend.pin().and_then(|pin| pin.of(Role::Client)) {
        argv.extend(["--on".to_owned(), on.to_string()]);
    }
    if let Some(socket) = &start.ask {
        argv.extend(["--ask".to_owned(), socket.display().to_string()]);
    }
    argv.push("--".into());
    argv.extend_from_slice(&start.argv);
    trial.started = now();
    let out = backend.run(Some(place), &argv, Output::Keep)?.wait(Duration::from_secs(15))?;
    trial.argv = argv;
    trial.exit_status = Some(out.code());
    let out = out.ok()?;
    let started: Started = serde_json::from_str(&out.stdout)
        .map_err(|e| LabError::Parse { tool: "fordway-lab probe start", why: e.to_string() })?;
    trial.value = Some(started.ms);
    Ok(started)
}
