//! From the start of a translator's process to the first packet that came through it.

use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fordway_data::spec::Processors;
use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use fordway_data::addresses::ECHO_PORT;

/// A start that worked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Started {
    /// ms from the start of the process to the first echo.
    pub(crate) ms: f64,
    /// What the gateway then said of itself, when it was asked.
    pub(crate) status: Option<serde_json::Value>,
}

/// Starts `argv`, sends a datagram every 100 µs, and measures until the first echo. Then the gateway
/// is asked for its status at the control socket `ask`. The probe itself keeps to the processors `on`.
///
/// The translator is ended before this returns. The probe stops at the first echo, so what it
/// sends is bounded by the deadline: fifty thousand small datagrams.
pub(crate) fn measure(
    target: IpAddr,
    argv: &[String],
    ask: Option<&Path>,
    on: Option<&Processors>,
) -> Result<Started, String> {
    let (program, rest) = argv.split_first().ok_or("no command")?;
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(|e| e.to_string())?;
    socket.set_nonblocking(true).map_err(|e| e.to_string())?;
    // Whoever ends this probe means the translator, too, which must have time to take itself down.
    crate::process::catch_signals();
    let started = Instant::now();
    let mut child = Command::new(program)
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|e| format!("{program}: {e}"))?;
    if let Some(on) = on {
        let mut set = CpuSet::new();
        on.iter().filter(|cpu| *cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(cpu));
        sched_setaffinity(None, &set).map_err(|e| format!("processors {on}: {e}"))?;
    }
    let mut buffer = [0; 64];
    let outcome = loop {
        // Before the route exists the kernel refuses to send; that is what is waited for.
        let _ = socket.send_to(b"first", (target, ECHO_PORT));
        if socket.recv_from(&mut buffer).is_ok() {
            let ms = started.elapsed().as_secs_f64() * 1e3;
            break Ok(Started { ms, status: ask.and_then(|at| status(program, at)) });
        }
        if let Ok(Some(status)) = child.try_wait() {
            break Err(format!("{program} ended with {status}"));
        }
        if crate::process::interrupted() {
            break Err("interrupted".into());
        }
        if started.elapsed() > Duration::from_secs(5) {
            break Err("no packet came through within 5 s".into());
        }
        std::thread::sleep(Duration::from_micros(100));
    };
    crate::process::signal(child.id(), Signal::TERM);
    let deadline = Instant::now() + Duration::from_secs(2);
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > deadline {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    outcome
}

/// The daemon may answer its control socket a moment after it carries packets.
fn status(program: &str, socket: &Path) -> Option<serde_json::Value> {
    let argv = [program, "status", "--json", "--socket", socket.to_str()?];
    crate::process::poll(Duration::from_secs(2), || {
        let out = crate::process::run_str(&argv).ok()?.ok().ok()?;
        serde_json::from_str(&out.stdout).ok()
    })
    .ok()
    .flatten()
}
