//! Round-trip times under a steady load: runs the tester.

use std::net::SocketAddr;
use std::time::Duration;

use fordway_load::echo::Echoes;

use super::read_json;
use crate::backend::Backend;
use crate::error::Result;
use crate::process::own_program;
use crate::process::{Finished, Output};
use crate::topology::Network;
use fordway_data::addresses::ECHO_PORT;

/// Sends `rate` datagrams per second for `seconds`. The echo must be served already.
pub(crate) fn measure(
    backend: &dyn Backend,
    network: &Network,
    rate: u32,
    seconds: f64,
) -> Result<(Finished, Echoes)> {
    let count = (f64::from(rate) * seconds).round() as u64;
    let argv: Vec<String> = [
        &own_program()?,
        "tester",
        "echo",
        "--target",
        &SocketAddr::new(network.target, ECHO_PORT).to_string(),
        "--rate",
        &rate.to_string(),
        "--count",
        &count.to_string(),
    ]
    .map(str::to_owned)
    .into();
    let limit = Duration::from_secs_f64(seconds + 10.0);
    let finished = backend.run(Some(&network.app), &argv, Output::Keep)?.wait(limit)?.ok()?;
    let echoes = read_json(&finished.stdout)?;
    Ok((finished, echoes))
}
