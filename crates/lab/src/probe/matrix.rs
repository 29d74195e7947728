//! Which ways a mechanism opens: from the client to the server and back, addresses that applications write
//! themselves, FTP, and what the gate has probed already. A "no" is no fault: it belongs to what the mechanism is.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use fordway_data::spec::Kind;
use fordway_data::trial::{Check, WAYS};

use super::ftp;
use super::gate::{self, echo, listen, reach, reach_plainly};
use crate::backend::{Backend, Place};
use crate::error::Result;
use crate::process::Output;
use crate::topology::Network;

/// Time for a command that only reads.
const PATIENCE: Duration = Duration::from_secs(5);

/// Cells that the gate does not probe. Changes nothing, and comes before the gate, which does. The name server
/// `resolver` knows the server's name; its logs go into the folder `raw`, under this deployment's `name`.
pub(crate) fn own(
    backend: &dyn Backend,
    network: &Network,
    resolver: IpAddr,
    raw: &Path,
    name: &str,
) -> Result<Vec<Check>> {
    let mut cells = Vec::new();
    {
        let log = raw.join(format!("{name}ways.log"));
        let _client = listen(backend, &network.app, &[network.app_address], &log)?;
        let back = reach_plainly(backend, &network.server, network.seen_address)?;
        for (name, cell) in [("tcp payload", WAYS[3]), ("udp checksum", WAYS[4])] {
            cells.push(renamed(&back, name, cell));
        }
    }
    let (app, server) = (&network.app, &network.server);
    cells.push(Check::of(WAYS[2], pinged(backend, app, network.target, server)?));
    cells.push(Check::of(WAYS[5], pinged(backend, server, network.seen_address, app)?));
    cells.push(literal(backend, network)?);
    cells.push(gate::name(backend, network, resolver)?);
    cells.extend(files(backend, network, raw, name)?);
    Ok(cells)
}

/// Whether echo requests to an address get to a place, and answers back.
fn pinged(
    backend: &dyn Backend,
    from: &Place,
    to: IpAddr,
    place: &Place,
) -> Result<std::result::Result<String, String>> {
    let before = echoes(backend, place)?;
    let answered = echo(backend, from, to, 56)?;
    let reached = echoes(backend, place)? > before;
    Ok(answered.and_then(|seen| {
        if reached { Ok(seen) } else { Err("answered by the box in the middle itself".into()) }
    }))
}

/// A file by FTP in both modes.
fn files(backend: &dyn Backend, network: &Network, raw: &Path, name: &str) -> Result<Vec<Check>> {
    let modes = [(true, WAYS[8]), (false, WAYS[9])];
    if let Some(why) = ftp::missing() {
        let why = || Err(format!("not probed: {why}"));
        return Ok(modes.map(|(_, cell)| Check::of(cell, why())).into());
    }
    let _server = ftp::serve(backend, network, &raw.join(format!("{name}vsftpd.log")))?;
    let file = raw.join(format!("{name}ftp-file"));
    modes.into_iter().map(|(active, _)| ftp::fetch(backend, network, active, &file)).collect()
}

/// Echo requests that a place has got so far, of both families.
fn echoes(backend: &dyn Backend, place: &Place) -> Result<u64> {
    let argv = ["cat", "/proc/net/snmp", "/proc/net/snmp6"].map(str::to_owned);
    let out = backend.run(Some(place), &argv, Output::Keep)?.wait(PATIENCE)?.ok()?;
    Ok(in_echoes(&out.stdout))
}

/// The counters `IcmpInEchos` of a table whose names stand over its numbers, and `Icmp6InEchos` of a list.
fn in_echoes(text: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.starts_with("Icmp: "));
    let mut v4 = || {
        let (names, numbers) = (lines.next()?, lines.next()?);
        let place = names.split_whitespace().position(|name| name == "InEchos")?;
        numbers.split_whitespace().nth(place)?.parse::<u64>().ok()
    };
    let list = text.lines().filter_map(|line| line.strip_prefix("Icmp6InEchos "));
    let v6 = list.filter_map(|number| number.trim().parse::<u64>().ok()).sum::<u64>();
    v4().unwrap_or(0) + v6
}

/// The server by its IPv4 address, as an application that knows no other would ask for it.
fn literal(backend: &dyn Backend, network: &Network) -> Result<Check> {
    let address = match (network.target, network.server_address) {
        (target, _) if target.is_ipv4() => target,
        (_, own) if own.is_ipv4() => own,
        _ => return Ok(Check::of(WAYS[6], Err("the server has no IPv4 address".into()))),
    };
    let checks = if network.kind == Kind::Proxy {
        reach(backend, network, address)?
    } else {
        reach_plainly(backend, &network.app, address)?
    };
    Ok(renamed(&checks, "tcp payload", WAYS[6]))
}

/// All cells: the own ones, and those that the gate's probes tell.
pub(crate) fn cells(own: &[Check], gate: &[Check]) -> Vec<Check> {
    let told = [
        (WAYS[0], &["tcp payload"][..]),
        (WAYS[1], &["udp checksum"]),
        (WAYS[10], &["udp fragments"]),
        (WAYS[11], &["path mtu"]),
        (WAYS[12], &["icmp port unreachable", "icmp time exceeded"]),
    ];
    let cell = |name: &&str| {
        if let Some(check) = own.iter().find(|check| check.name == **name) {
            return check.clone();
        }
        let probes = told.iter().find(|(cell, _)| cell == name).map_or(&[][..], |(_, it)| it);
        let checks: Vec<Check> = probes.iter().map(|probe| renamed(gate, probe, name)).collect();
        let failed = checks.iter().find(|check| !check.ok).or(checks.first());
        failed.cloned().unwrap_or_else(|| Check::of(name, Err("not probed".into())))
    };
    WAYS.iter().map(cell).collect()
}

/// A probe's outcome as that of a cell.
fn renamed(checks: &[Check], probe: &str, cell: &str) -> Check {
    match checks.iter().find(|check| check.name == probe) {
        Some(check) => Check { name: cell.to_owned(), ..check.clone() },
        None => Check::of(cell, Err(format!("{probe}: not probed"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echo_requests_of_both_families_are_counted() {
        let text = "Ip: Forwarding\nIp: 1\nIcmp: InMsgs InErrors InEchos\nIcmp: 9 0 4\n\
                    Icmp6InMsgs \t7\nIcmp6InEchos                    \t3\n";
        assert_eq!(in_echoes(text), 7);
        assert_eq!(in_echoes(""), 0);
    }

    #[test]
    fn a_cell_says_no_when_one_of_its_probes_does() {
        let yes = |name: &str| Check::of(name, Ok("seen".into()));
        let no = |name: &str| Check::of(name, Err("silence".into()));
        let gate = [yes("tcp payload"), yes("icmp port unreachable"), no("icmp time exceeded")];
        let own = [no("FTP active")];
        let cells = cells(&own, &gate);
        let names: Vec<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(names, WAYS);
        let of = |name: &str| cells.iter().find(|cell| cell.name == name).unwrap();
        assert!(of("to server: TCP").ok);
        assert_eq!(of("ICMP errors").detail, "silence");
        assert_eq!(of("FTP active").detail, "silence");
        assert!(!of("path MTU").ok, "what was not probed is not said to work");
    }
}
