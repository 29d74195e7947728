//! Frames through a gateway: sender and receiver are programs at XDP (see `fordway_load::frames`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use fordway_data::addresses::{ENTRIES_V4, ENTRIES_V6, FLOWS_V4, MANY_V6, SIIT_POOL6};
use fordway_data::spec::{Kind, Way};
use fordway_load::frames::{Endpoint, Received, Used, frame};
use fordway_load::{SINK_PORT, SMALL};

use super::read_json;
use crate::backend::{Backend, Place, must};
use crate::error::{LabError, Result};
use crate::process::own_program;
use crate::process::{Output, Running, last_lines, poll, signal};
use crate::topology::Network;

/// The sender's UDP port.
const PORT: u16 = 4000;
/// No gateway here is faster than this many frames per second; it bounds what is sent.
const FASTEST: f64 = 30e6;
/// Octets of a frame that carries IPv4 before its UDP payload and behind it: Ethernet, IPv4 and UDP headers, check sequence.
const AROUND: usize = 14 + 20 + 8 + 4;
/// Seconds for which the sender runs longer than the measurement.
const MARGIN_S: f64 = 2.0;

/// What one load did.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stream {
    /// What the receiver counted.
    pub(crate) received: Received,
    /// What the sender used.
    pub(crate) used: Used,
    /// The sender's command line, without the frame.
    pub(crate) argv: Vec<String>,
}

impl Stream {
    /// Thousands per second that arrived.
    pub(crate) fn rate(&self) -> f64 {
        self.received.packets as f64 / self.received.seconds / 1e3
    }

    /// Gbit/s of payload that arrived, where octets were counted.
    pub(crate) fn payload(&self) -> Option<f64> {
        Some(self.received.octets? as f64 * 8.0 / self.received.seconds / 1e9)
    }
}

/// Which frames are sent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Frames<'a> {
    /// The smallest, from one host to one.
    Small,
    /// The smallest; so many hosts send or are sent to, one after the other.
    Between {
        /// How many.
        hosts: u64,
        /// Whether they are behind the server, and have entries of the gateway's table, instead of behind the client.
        at_server: bool,
    },
    /// Of these sizes, one after the other: octets of an Ethernet frame that carries IPv4, with its check sequence.
    /// Octets are counted where they arrive.
    Imix(&'a [u64]),
}

/// Sends for `seconds` as fast as the kernel can, and counts what arrives. Neighbours on the way
/// must be known already: a burst does not wait for them.
pub(crate) fn measure(
    backend: &dyn Backend,
    network: &Network,
    way: Way,
    frames: Frames<'_>,
    seconds: f64,
    log: &Path,
) -> Result<Stream> {
    network.receive_offload_on(backend)?;
    let (from, to) = match way {
        Way::Up => (&network.client, &network.server),
        Way::Down => (&network.server, &network.client),
    };
    let (next, device) = match (&network.host, way) {
        (Some(host), Way::Up) => (host, "to-client"),
        (Some(host), Way::Down) => (host, "to-iperf"),
        (None, _) => (to, "uplink"),
    };
    let mut ends = match way {
        Way::Up => (network.app_address, network.target),
        Way::Down => (network.server_address, network.seen_address),
    };
    let mut at_target = false;
    if let Frames::Between { at_server, .. } = frames {
        at_target = at_server == (way == Way::Up);
        let changed = if at_target { &mut ends.1 } else { &mut ends.0 };
        *changed = match (at_server, changed.is_ipv4()) {
            (true, true) => ENTRIES_V4.into(),
            (true, false) => ENTRIES_V6.into(),
            (false, v4) => first_host(network.kind, v4)?,
        };
    }
    let source = Endpoint { mac: mac(backend, from, "uplink")?, ip: ends.0, port: PORT };
    let target = Endpoint { mac: mac(backend, next, device)?, ip: ends.1, port: SINK_PORT };
    let small = [(SMALL + AROUND) as u64];
    let sizes = if let Frames::Imix(sizes) = frames { sizes } else { &small };
    let all = sizes.iter().map(|size| {
        let octets = frame(source, target, (*size as usize).saturating_sub(AROUND))?;
        let hex = octets.iter().map(|octet| format!("{octet:02x}")).collect();
        Ok(["--frame".to_owned(), hex])
    });
    let all = all.collect::<Result<Vec<_>>>()?.concat();
    let arrives_v4 = match way {
        Way::Up => network.server_address.is_ipv4(),
        Way::Down => network.app_address.is_ipv4(),
    };
    let mut receiver = receive(backend, to, arrives_v4, sizes.len() > 1, seconds, log)?;
    let most = ((seconds + MARGIN_S) * FASTEST) as u32;
    let mut argv: Vec<String> =
        [&own_program()?, "tester", "send-frames", "--device", "uplink", "--limit"]
            .map(str::to_owned)
            .into();
    argv.push(most.to_string());
    if let Frames::Between { hosts, .. } = frames {
        argv.extend(["--hosts".to_owned(), hosts.to_string()]);
        argv.extend(at_target.then(|| "--at-target".to_owned()));
    }
    let all: Vec<String> = argv.iter().cloned().chain(all).collect();
    let mut sender = backend.run(Some(from), &all, Output::Keep)?;
    let limit = Duration::from_secs_f64(seconds + 15.0);
    let ended = poll(limit, || (!receiver.alive() || !sender.alive()).then_some(()))?;
    signal(sender.pid(), rustix::process::Signal::TERM);
    let sent = sender.wait(Duration::from_secs(5))?.ok()?;
    if ended.is_none() {
        return Err(LabError::Timeout {
            argv: receiver.argv().join(" "),
            seconds: limit.as_secs(),
        });
    }
    let done = receiver.wait(Duration::from_secs(15))?;
    let said = std::fs::read_to_string(log).map_err(LabError::file(log))?;
    if !done.status.success() {
        return Err(LabError::Command {
            argv: done.argv.join(" "),
            status: done.status.to_string(),
            stderr: last_lines(&said, 1),
        });
    }
    Ok(Stream { received: read_json(&said)?, used: read_json(&sent.stdout)?, argv })
}

/// The first of the hosts behind the client, as seen on a link.
fn first_host(kind: Kind, v4: bool) -> Result<IpAddr> {
    Ok(match (v4, kind) {
        (true, _) => FLOWS_V4.into(),
        (false, Kind::Siit) => shown(FLOWS_V4)?.into(),
        (false, _) => MANY_V6.into(),
    })
}

/// The address under which a stateless gateway shows an IPv4 host (RFC 6052 section 2.2).
fn shown(host: Ipv4Addr) -> Result<Ipv6Addr> {
    let prefix = SIIT_POOL6.trim_end_matches("/96");
    let prefix: Ipv6Addr =
        prefix.parse().map_err(|_| LabError::Usage(format!("{SIIT_POOL6} is no prefix")))?;
    Ok(Ipv6Addr::from_bits(prefix.to_bits() | u128::from(host.to_bits())))
}

/// Starts the receiver and waits until it counts.
fn receive(
    backend: &dyn Backend,
    place: &Place,
    v4: bool,
    sized: bool,
    seconds: f64,
    log: &Path,
) -> Result<Running> {
    let seconds = seconds.to_string();
    let mut argv: Vec<String> =
        [&own_program()?, "tester", "receive-frames", "--device", "uplink", "--seconds", &seconds]
            .map(str::to_owned)
            .into();
    argv.extend(v4.then(|| "--v4".to_owned()));
    argv.extend(sized.then(|| "--sized".to_owned()));
    let mut receiver = backend.run(Some(place), &argv, Output::Log(log))?;
    let said = || std::fs::read_to_string(log).unwrap_or_default();
    let ready = poll(Duration::from_secs(5), || {
        (said().contains("ready") || !receiver.alive()).then_some(())
    })?;
    if ready.is_none() || !receiver.alive() {
        return Err(LabError::Command {
            argv: argv.join(" "),
            status: "not ready".into(),
            stderr: last_lines(&said(), 2),
        });
    }
    Ok(receiver)
}

/// The link address of a device.
pub(super) fn mac(backend: &dyn Backend, place: &Place, device: &str) -> Result<[u8; 6]> {
    let text = must(backend, place, &["ip", "-j", "link", "show", "dev", device])?.stdout;
    parse_mac(&text).ok_or(LabError::Parse { tool: "ip -j link", why: text })
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let json: serde_json::Value = serde_json::from_str(text).ok()?;
    link_address(json[0]["address"].as_str()?)
}

/// Octets of a link address.
pub(super) fn link_address(text: &str) -> Option<[u8; 6]> {
    let octets = text.split(':').map(|octet| u8::from_str_radix(octet, 16).ok());
    octets.collect::<Option<Vec<u8>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_addresses_are_read_from_ip() {
        let text = r#"[{"ifname":"uplink","address":"02:00:00:00:ab:01"}]"#;
        assert_eq!(parse_mac(text), Some([2, 0, 0, 0, 0xab, 1]));
        assert_eq!(parse_mac(r#"[{"address":"none"}]"#), None);
        assert_eq!(parse_mac("[]"), None);
    }

    #[test]
    fn the_rate_is_that_of_the_measured_time() {
        let received = Received { packets: 1_500_000, octets: Some(250_000_000), seconds: 0.5 };
        let used = Used { seconds: 1.0, cpu_s: 0.9 };
        let stream = Stream { received, used, argv: vec![] };
        assert_eq!((stream.rate(), stream.payload()), (3000.0, Some(4.0)));
    }
}
