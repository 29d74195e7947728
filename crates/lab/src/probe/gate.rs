//! The correctness gate: a mechanism that is fast and wrong must not look good.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use fordway_data::addresses::NAT64_POOL6;
use fordway_data::spec::{Carries, Kind};
use fordway_data::trial::Check;

use crate::backend::{Backend, Place};
use crate::error::{LabError, Result};
use crate::load::ping::{Single, single};
use crate::process::own_program;
use crate::process::{Finished, Output, Running, patience, poll};
use crate::topology::Network;

/// MTU of the narrowed link in the path MTU probe.
const NARROW: u32 = 1400;

/// Starts the far end of the probes.
pub(crate) fn serve(backend: &dyn Backend, network: &Network, log: &Path) -> Result<Running> {
    listen(backend, &network.server, &network.server_addresses, log)
}

/// Starts a far end in any place, for its own addresses.
pub(super) fn listen(
    backend: &dyn Backend,
    place: &Place,
    own: &[IpAddr],
    log: &Path,
) -> Result<Running> {
    let mut argv = vec![own_program()?, "probe".into(), "serve".into()];
    argv.extend(own.iter().map(ToString::to_string));
    let mut server = backend.run(Some(place), &argv, Output::Log(log))?;
    let ready = poll(Duration::from_secs(5), || {
        let said = std::fs::read_to_string(log).unwrap_or_default();
        (said.contains("listening") || !server.alive()).then_some(())
    })?;
    if ready.is_none() || !server.alive() {
        return Err(LabError::Command {
            argv: argv.join(" "),
            status: "not listening".into(),
            stderr: std::fs::read_to_string(log).unwrap_or_default(),
        });
    }
    Ok(server)
}

/// The probes of a name server in the box in the middle; `few`: those that every measured deployment must
/// pass.
pub(crate) fn names(backend: &dyn Backend, network: &Network, few: bool) -> Result<Vec<Check>> {
    let server = network.resolver()?.ip().to_string();
    let prefix = NAT64_POOL6.split('/').next().unwrap_or_default();
    let program = own_program()?;
    let mut argv =
        vec![program.as_str(), "probe", "names", "--server", &server, "--prefix", prefix];
    argv.extend(few.then_some("--few"));
    let argv: Vec<String> = argv.into_iter().map(str::to_owned).collect();
    read(backend, &network.app, &argv)
}

/// Whether a mechanism must pass this probe; what it does not carry is no fault of its.
pub(crate) fn demanded(kind: Kind, probe: &str) -> bool {
    let http = ["tcp payload", "tcp checksum", "path mtu"];
    let transport = ["udp checksum", "udp fragments", "icmp port unreachable"];
    match kind.carries() {
        Carries::Packets => true,
        Carries::Transport => http.contains(&probe) || transport.contains(&probe),
        Carries::Http => http.contains(&probe),
    }
}

/// All probes. The network is changed on the way and must not be measured afterwards.
pub(crate) fn full(backend: &dyn Backend, network: &Network) -> Result<Vec<Check>> {
    let (app, target) = (&network.app, network.target);
    let mut checks = Vec::new();
    // A fragmented echo is not asked for: translators drop it by rule (RFC 7915 section 4.2). Where there are
    // two in a row, the first makes fragments of what is longer than 1,280 octets as IPv6 and may be
    // fragmented, as the answers of the kernel may (section 4).
    let large = if network.translated_twice() { 1232 } else { 1372 };
    for (name, size) in [("ping small", 56), ("ping large", large)] {
        checks.push(Check::of(name, echo(backend, app, target, size)?));
    }
    checks.extend(client(backend, network, &["--tcp-bytes", "4194304"])?);
    network.complete_checksums(backend)?;
    let sizes = "1,2,3,512,1200,1400,1473,4000,16000,60000";
    let rest = ["--tcp-bytes", "1048576", "--udp-sizes", sizes, "--refused"];
    for mut check in client(backend, network, &rest)? {
        if check.name == "tcp payload" {
            "tcp checksum".clone_into(&mut check.name);
        }
        checks.push(check);
    }
    checks.push(Check::of("icmp time exceeded", time_exceeded(backend, app, target)?));
    // The lab can't narrow a link of another machine.
    if network.cables.is_none() {
        checks.push(Check::of("path mtu", path_mtu(backend, network)?));
    }
    Ok(checks)
}

/// The few probes that every measured deployment must pass; they leave no trace in the network.
pub(crate) fn short(backend: &dyn Backend, network: &Network) -> Result<Vec<Check>> {
    let mut checks = reach(backend, network, network.target)?;
    checks.retain(|check| demanded(network.kind, &check.name));
    Ok(checks)
}

/// Whether TCP and UDP get from the application to an address, TCP as the mechanism wants it.
pub(super) fn reach(backend: &dyn Backend, network: &Network, to: IpAddr) -> Result<Vec<Check>> {
    let way = way(network)?;
    let options: Vec<&str> = LITTLE.iter().copied().chain(way.iter().map(String::as_str)).collect();
    probe_client(backend, &network.app, &options, to)
}

/// Whether TCP and UDP get from a place to an address, without more ado.
pub(super) fn reach_plainly(
    backend: &dyn Backend,
    place: &Place,
    to: IpAddr,
) -> Result<Vec<Check>> {
    probe_client(backend, place, LITTLE, to)
}

/// Octets enough to see whether something passes.
const LITTLE: &[&str] = &["--tcp-bytes", "262144", "--udp-sizes", "512"];

/// Whether the application finds the server by its name, of this number, which `resolver` is asked for.
pub(super) fn name(backend: &dyn Backend, network: &Network, resolver: IpAddr) -> Result<Check> {
    let own = [&own_program()?, "probe", "name", "--resolver", &resolver.to_string()];
    let argv: Vec<String> = own.map(str::to_owned).into_iter().chain(way(network)?).collect();
    let checks = read(backend, &network.app, &argv)?;
    Ok(checks.into_iter().next().unwrap_or_else(|| Check::of("name", Err("not probed".into()))))
}

/// The command line that opens so many connections to the server, one after the other, with little in each.
pub(crate) fn begin(network: &Network, count: u32) -> Result<Vec<String>> {
    let (target, count) = (network.target.to_string(), count.to_string());
    let own = [&own_program()?, "probe", "begin", "--target", &target, "--count", &count];
    Ok(own.map(str::to_owned).into_iter().chain(way(network)?).collect())
}

/// Options that say how TCP gets through the mechanism.
fn way(network: &Network) -> Result<Vec<String>> {
    Ok(match (network.proxy()?, network.kind) {
        (Some(proxy), _) => vec!["--proxy".into(), proxy.to_string()],
        (None, Kind::ReverseProxy) => vec!["--site".into()],
        _ => Vec::new(),
    })
}

/// Probes from the application to the server.
fn client(backend: &dyn Backend, network: &Network, options: &[&str]) -> Result<Vec<Check>> {
    let way = way(network)?;
    let all: Vec<&str> = options.iter().copied().chain(way.iter().map(String::as_str)).collect();
    probe_client(backend, &network.app, &all, network.target)
}

fn probe_client(
    backend: &dyn Backend,
    place: &Place,
    options: &[&str],
    target: IpAddr,
) -> Result<Vec<Check>> {
    let target = target.to_string();
    let program = own_program()?;
    let mut argv = vec![program.as_str(), "probe", "client", "--target", &target];
    argv.extend(options);
    let argv: Vec<String> = argv.into_iter().map(str::to_owned).collect();
    read(backend, place, &argv)
}

/// What a probe in a place says.
fn read(backend: &dyn Backend, place: &Place, argv: &[String]) -> Result<Vec<Check>> {
    let out = backend.run(Some(place), argv, Output::Keep)?.wait(Duration::from_secs(40))?.ok()?;
    serde_json::from_str(&out.stdout)
        .map_err(|e| LabError::Parse { tool: "fordway-lab probe", why: e.to_string() })
}

pub(super) fn echo(
    backend: &dyn Backend,
    app: &Place,
    target: IpAddr,
    size: u32,
) -> Result<std::result::Result<String, String>> {
    let probe = Single { size, ttl: None, whole: false, count: "3" };
    let out = single(backend, app, target, probe)?;
    Ok(if out.status.success() {
        Ok(format!("{size} octets answered"))
    } else {
        Err(format!("{size} octets: {}", what_ping_said(&out)))
    })
}

fn what_ping_said(out: &Finished) -> String {
    let text = format!("{}\n{}", out.stdout, out.stderr);
    text.lines()
        .find(|l| {
            let told = ["From ", "packet loss", "error", "ping: connect:"];
            told.iter().any(|words| l.contains(words))
        })
        .unwrap_or("no answer")
        .trim()
        .to_owned()
}

/// Every hop count below the path's length must be answered with an error, the rest with a reply.
fn time_exceeded(
    backend: &dyn Backend,
    app: &Place,
    target: IpAddr,
) -> Result<std::result::Result<String, String>> {
    let mut hops = Vec::new();
    for ttl in 1..=8 {
        let probe = Single { size: 56, ttl: Some(ttl), whole: false, count: "1" };
        let out = single(backend, app, target, probe)?;
        if out.status.success() {
            return Ok(if hops.is_empty() {
                Err("no hop between the ends was seen".into())
            } else {
                Ok(format!("{} hops answered: {}", hops.len(), hops.join(", ")))
            });
        }
        let text = format!("{}\n{}", out.stdout, out.stderr);
        let line = text.lines().find(|l| {
            l.contains("Time to live exceeded") || l.contains("Time exceeded: Hop limit")
        });
        let Some(line) = line else {
            let said = what_ping_said(&out);
            return Ok(Err(format!("hop count {ttl}: no error of that kind came back: {said}")));
        };
        let from = line.split_whitespace().nth(1).unwrap_or("?");
        hops.push(from.trim_end_matches(':').to_owned());
    }
    Ok(Err("eight hops did not reach the server".into()))
}

/// A narrower link further on must be heard of, and TCP must get through it.
fn path_mtu(
    backend: &dyn Backend,
    network: &Network,
) -> Result<std::result::Result<String, String>> {
    network.narrow(backend, NARROW)?;
    if network.kind.carries() != Carries::Packets {
        // Each side of a relay has a path of its own; nobody is told of the other.
        let tcp = client(backend, network, &["--tcp-bytes", "1048576"])?;
        return Ok(match tcp.first() {
            Some(check) if check.ok => {
                Ok(format!("TCP passes a path of {NARROW}, which is the relay's own to find"))
            }
            Some(check) => Err(format!("TCP fails: {}", check.detail)),
            None => Err("TCP was not probed".into()),
        });
    }
    let probe = Single { size: 1420, ttl: None, whole: true, count: "3" };
    let out = single(backend, &network.app, network.target, probe)?;
    let text = format!("{}\n{}", out.stdout, out.stderr);
    let Some(mtu) = reported_mtu(&text) else {
        return Ok(Err(format!("no \"packet too big\" reached the sender: {}", {
            what_ping_said(&out)
        })));
    };
    // Twenty octets of the header go on the way from IPv6 to IPv4 (RFC 7915 section 4.2).
    let shorter = network.app_address.is_ipv6() && network.server_address.is_ipv4();
    if mtu > NARROW + if shorter { 20 } else { 0 } {
        return Ok(Err(format!("told an MTU of {mtu} on a path of {NARROW}")));
    }
    let tcp = client(backend, network, &["--tcp-bytes", "1048576"])?;
    Ok(match tcp.first() {
        Some(check) if check.ok => Ok(format!("told {mtu} on a path of {NARROW}; TCP passes")),
        Some(check) => Err(format!("told {mtu}, but TCP fails: {}", check.detail)),
        None => Err("TCP was not probed".into()),
    })
}

/// The smallest MTU in `ping`'s words: `mtu = 1380`, `mtu=1400`, `mtu: 1400`.
fn reported_mtu(text: &str) -> Option<u32> {
    text.match_indices("mtu")
        .filter_map(|(at, _)| {
            let rest = text[at + 3..].trim_start_matches([' ', '=', ':']);
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        })
        .min()
}

/// Asks until an echo request is answered, or where none is carried, a connection taken, the time is up, or `gone` says that it is in vain.
pub(crate) fn wait_ready(
    backend: &dyn Backend,
    network: &Network,
    limit: Duration,
    mut gone: impl FnMut() -> bool,
) -> Result<bool> {
    let deadline = std::time::Instant::now() + patience(limit);
    loop {
        let argv: Vec<String> = match network.door()? {
            Some(door) => {
                [&own_program()?, "probe", "knock", &door.to_string()].map(str::to_owned).into()
            }
            None => ["ping", "-n", "-q", "-c", "1", "-W", "0.2", &network.target.to_string()]
                .map(str::to_owned)
                .into(),
        };
        let out =
            backend.run(Some(&network.app), &argv, Output::Keep)?.wait(Duration::from_secs(5))?;
        if out.status.success() {
            return Ok(true);
        }
        if std::time::Instant::now() > deadline || gone() {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mtu_is_read_from_both_families_words() {
        let v4 = "From 192.0.2.1 icmp_seq=1 Frag needed and DF set (mtu = 1380)";
        let v6 = "From 2001:db8:f::1 icmp_seq=1 Packet too big: mtu=1400";
        let local = "ping: local error: message too long, mtu: 1480\nping: sendmsg, mtu=1380";
        assert_eq!(reported_mtu(v4), Some(1380));
        assert_eq!(reported_mtu(v6), Some(1400));
        assert_eq!(reported_mtu(local), Some(1380));
        assert_eq!(reported_mtu("100% packet loss"), None);
    }
}
