//! Connections and datagrams through a gateway that dies.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use fordway_load::pulses::{Pulsed, monotonic_ms};
use rustix::process::Signal;

use super::read_json;
use crate::backend::{Backend, Place, Served};
use crate::error::{LabError, Result};
use crate::process::{Finished, Output, own_program, patience, poll, run_str, signal};
use crate::topology::Network;

/// Port of the echo, by TCP and UDP.
const PORT: u16 = 5303;
/// What a gateway loses when it dies.
const LINKS: [&str; 3] = ["to-client", "to-iperf", "to-standby"];
/// The group of these devices in their namespace.
const GROUP: &str = "64";
/// Until the death.
const BEFORE: Duration = Duration::from_secs(3);
/// After it, in which connections have to go on.
const AFTER: Duration = Duration::from_secs(10);

/// What became of connections.
pub(crate) struct Told {
    pub(crate) pulsed: Pulsed,
    /// When the gateway died, ms after they began.
    pub(crate) died_ms: f64,
    pub(crate) finished: Finished,
}

/// Keeps connections in use, and lets a gateway die under them.
pub(crate) fn measure(
    backend: &dyn Backend,
    network: &Network,
    gateway: &Place,
    connections: u32,
    log: &Path,
) -> Result<Told> {
    let program = own_program()?;
    let serve = [&program, "tester", "pulse-serve", "--port", &PORT.to_string()].map(str::to_owned);
    let _server = Served::start(backend, &network.server, &serve, PORT, None, log)?;
    let target = SocketAddr::new(network.target, PORT).to_string();
    let (many, seconds) =
        (connections.to_string(), patience(BEFORE + AFTER).as_secs_f64().to_string());
    let wanted = ["--target", &target, "--connections", &many, "--seconds", &seconds];
    let argv = [&[program.as_str(), "tester", "pulses"][..], &wanted].concat();
    let argv: Vec<String> = argv.into_iter().map(str::to_owned).collect();
    let client = backend.run(Some(&network.app), &argv, Output::Keep)?;
    poll(BEFORE, || None::<()>)?;
    let died = kill(gateway)?;
    let finished = client.wait(AFTER + Duration::from_secs(20))?.ok()?;
    let pulsed: Pulsed = read_json(&finished.stdout)?;
    Ok(Told { died_ms: died - pulsed.began_ms, pulsed, finished })
}

/// Takes the links of a box of this machine down, all at once, and kills its processes; when it did, in ms of CLOCK_MONOTONIC. If a process died before the
/// links were down, what its kernel translates would go on for a while without it.
fn kill(gateway: &Place) -> Result<f64> {
    let ip = |words: &[&str]| run_str(&[&["ip", "-n", &gateway.0], words].concat())?.ok();
    for device in LINKS {
        ip(&["link", "set", "dev", device, "group", GROUP])?;
    }
    let died = monotonic_ms();
    ip(&["link", "set", "group", GROUP, "down"])?;
    let said = run_str(&["ip", "netns", "pids", &gateway.0])?.ok()?;
    for pid in said.stdout.split_whitespace() {
        let pid = pid.parse().map_err(|_| LabError::Usage(format!("{pid} is no process")))?;
        signal(pid, Signal::KILL);
    }
    Ok(died)
}
