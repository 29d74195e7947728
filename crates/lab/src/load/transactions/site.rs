//! nginx at the server, with an object of each size and its counts.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use fordway_data::addresses::SITE_PORT;
use fordway_data::files::write_file;
use serde::Serialize;

use crate::backend::{Backend, Place, Served, must};
use crate::error::{LabError, Result};
use crate::load::fetch::host_of;
use crate::load::nginx::Nginx;
use crate::process::{Running, interrupted};
use crate::state;
use crate::topology::Network;

/// Counts are read at least so often (RFC 9411 section 4.3.4 allows two seconds).
const SAMPLE_S: f64 = 1.0;
/// The ramp-up phase of many connections may take so much longer on a busy machine.
pub(super) const RAMP_MORE_S: f64 = 5.0;
/// Samples of the shortest sustain phase.
const SAMPLES: f64 = 4.0;

/// What nginx has counted since it was started, and connections that are open; without those of who asked for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Count {
    /// When, in seconds of the server's clock.
    pub(crate) at_s: f64,
    /// Connections that are open.
    pub(crate) open: u64,
    /// Connections that were accepted.
    pub(crate) accepted: u64,
    /// Requests.
    pub(crate) requests: u64,
}

/// nginx at the server, with an object of each size.
pub(crate) struct Site<'a> {
    backend: &'a dyn Backend,
    place: &'a Place,
    address: IpAddr,
    _served: Served,
    /// How often it was asked for its counts.
    asked: u64,
}

impl<'a> Site<'a> {
    /// Starts it, until dropped; it closes a connection after so many transactions.
    pub(crate) fn open(
        backend: &'a dyn Backend,
        network: &'a Network,
        sizes: &[u64],
        kept: u32,
        log: &Path,
    ) -> Result<Self> {
        let place = &network.server;
        let folder = state::notes().join(format!("{}-site", place.0));
        for size in sizes {
            let octets = vec![b'x'; usize::try_from(*size).unwrap_or(0)];
            write_file(&folder.join(format!("root/o{size}")), &octets)?;
        }
        let file = folder.join("nginx.conf");
        let listen = " backlog=4096";
        let location = "/counts { stub_status; add_header X-Time $msec; }";
        let nginx = Nginx { connections: 65_536, kept, idle_s: 3600, listen, location };
        write_file(&file, nginx.config(&folder).as_bytes())?;
        let argv = ["nginx", "-c", &file.display().to_string()].map(str::to_owned);
        let served = Served::start(backend, place, &many_files(&argv), SITE_PORT, folder, log)?;
        // RFC 9411 section 4.3.1.1: source ports from 1024 on.
        let ports = ["sysctl", "-qw", "net.ipv4.ip_local_port_range=1024 65535"];
        must(backend, &network.app, &ports)?;
        Ok(Self { backend, place, address: network.server_address, _served: served, asked: 0 })
    }

    /// Reads its counts.
    pub(crate) fn count(&mut self) -> Result<Count> {
        let url = format!("http://{}/counts", host_of(self.address));
        let said = must(self.backend, self.place, &["curl", "-sSgi", "--noproxy", "*", &url])?;
        self.asked += 1;
        let bad = || LabError::Parse { tool: "nginx", why: said.stdout.clone() };
        let seen = parse_counts(&said.stdout).ok_or_else(bad)?;
        let less = |count: u64, own: u64| count.checked_sub(own).ok_or_else(bad);
        Ok(Count {
            open: less(seen.open, 1)?,
            accepted: less(seen.accepted, self.asked)?,
            requests: less(seen.requests, self.asked)?,
            ..seen
        })
    }

    /// Counts again and again, from the beginning of the sustain phase to its end. It begins after the ramp-up phase, as soon
    /// as `connections` are open, and at the latest [`RAMP_MORE_S`] later.
    pub(super) fn sustained(
        &mut self,
        load: &mut Running,
        (ramp_s, sustain_s): (f64, f64),
        connections: u64,
    ) -> Result<Vec<Count>> {
        let start = Instant::now();
        wait_until(start + Duration::from_secs_f64(ramp_s))?;
        let step_s = SAMPLE_S.min(sustain_s / SAMPLES);
        let mut first = self.count()?;
        while first.open < connections && start.elapsed().as_secs_f64() < ramp_s + RAMP_MORE_S {
            wait_until(Instant::now() + Duration::from_secs_f64(step_s))?;
            first = self.count()?;
        }
        let start = Instant::now();
        let mut counts = vec![first];
        for number in 1..=(sustain_s / step_s).round() as u32 {
            wait_until(start + Duration::from_secs_f64(f64::from(number) * step_s))?;
            if !load.alive() {
                break;
            }
            counts.push(self.count()?);
        }
        Ok(counts)
    }
}

/// Waits, unless the run is interrupted. The generators keep real time: a slow machine gets no more of it.
fn wait_until(then: Instant) -> Result<()> {
    loop {
        let left = then.saturating_duration_since(Instant::now());
        if interrupted() {
            return Err(LabError::Interrupted);
        }
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

/// `X-Time: 1700000000.123`, and the page of nginx's `stub_status`.
fn parse_counts(said: &str) -> Option<Count> {
    let after = |head: &str| said.lines().find_map(|line| line.strip_prefix(head));
    let three: Vec<u64> = said
        .lines()
        .skip_while(|line| !line.starts_with("server accepts"))
        .nth(1)?
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let [accepted, _, requests] = three[..] else { return None };
    Some(Count {
        at_s: after("X-Time:")?.trim().parse().ok()?,
        open: after("Active connections:")?.trim().parse().ok()?,
        accepted,
        requests,
    })
}

/// A command line with as many open files as the machine allows.
pub(super) fn many_files(argv: &[String]) -> Vec<String> {
    let script = "ulimit -Sn \"$(ulimit -Hn)\"; exec \"$@\"";
    ["sh", "-c", script, "sh"].map(str::to_owned).into_iter().chain(argv.to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nginx_counts_is_read_with_its_time() {
        let said = "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nX-Time: 1795799453.847\r\n\r\n\
                    Active connections: 33 \nserver accepts handled requests\n 45707 45707 88721 \n\
                    Reading: 0 Writing: 1 Waiting: 32 \n";
        let count = Count { at_s: 1_795_799_453.847, open: 33, accepted: 45_707, requests: 88_721 };
        assert_eq!(parse_counts(said), Some(count));
        assert_eq!(parse_counts("HTTP/1.1 404 Not Found\r\n\r\n"), None);
    }
}
