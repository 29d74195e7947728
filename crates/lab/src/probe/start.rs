//! From the start of a translator's process to the first packet that came through it.

use std::net::{IpAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::UDP_PORT;

/// Starts `argv`, sends a datagram every 100 µs, and returns ms until the first echo.
///
/// The translator is ended before this returns. The probe stops at the first echo, so what it
/// sends is bounded by the deadline: fifty thousand small datagrams.
pub(crate) fn measure(target: IpAddr, argv: &[String]) -> Result<f64, String> {
    let (program, rest) = argv.split_first().ok_or("no command")?;
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(|e| e.to_string())?;
    socket.set_nonblocking(true).map_err(|e| e.to_string())?;
    let started = Instant::now();
    let mut child = Command::new(program)
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{program}: {e}"))?;
    let mut buffer = [0; 64];
    let outcome = loop {
        // Before the route exists the kernel refuses to send; that is what is waited for.
        let _ = socket.send_to(b"first", (target, UDP_PORT));
        if socket.recv_from(&mut buffer).is_ok() {
            break Ok(started.elapsed().as_secs_f64() * 1e3);
        }
        if let Ok(Some(status)) = child.try_wait() {
            break Err(format!("{program} ended with {status}"));
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
