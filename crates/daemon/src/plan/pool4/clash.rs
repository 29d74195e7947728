//! Ports that both the host and a pool use on an address of the host.
//!
//! The host has priority: packets to a port of one of its sockets are not translated. A host behind the translator that
//! is assigned such a port cannot use it.

use std::net::Ipv4Addr;

use fordway_control::Clash;
use fordway_net::{BoundSocket, SysctlKey, bound_sockets, sysctl};
use fordway_xlat::nat64::Settings;
use tracing::debug;

use super::Own;
use crate::plan::resolve::Facts;

/// Ports, first and last.
type Ports = (u16, u16);

/// Ports that connections of this host should have to choose from.
const ENOUGH: u32 = 4096;

/// Looks for clashes. `settings`: with the BIB entries that were added by hand.
pub(crate) fn clashes(facts: &Facts, settings: &Settings) -> Vec<Clash> {
    let own = Own::find(facts, settings);
    if own.is_empty() {
        return Vec::new();
    }
    let sockets = bound_sockets().unwrap_or_else(|error| {
        debug!("{error}");
        Vec::new()
    });
    let mut found = Vec::new();
    if let Some(local) = LocalPorts::read() {
        found.extend(ephemeral(&own, &local));
    }
    found.extend(waiting(&own, &sockets));
    found
}

/// The ports that the kernel chooses from for connections of this host.
#[derive(Debug)]
struct LocalPorts {
    range: Ports,
    /// In order, and apart from each other.
    reserved: Vec<Ports>,
}

impl LocalPorts {
    fn read() -> Option<LocalPorts> {
        let read = |name: &str| {
            let key: SysctlKey = format!("net/ipv4/{name}").parse().ok()?;
            sysctl::read(&key).ok()
        };
        let reserved = read("ip_local_reserved_ports").unwrap_or_default();
        LocalPorts::parse(&read("ip_local_port_range")?, &reserved)
    }

    fn parse(range: &str, reserved: &str) -> Option<LocalPorts> {
        let mut numbers = range.split_whitespace().filter_map(|number| number.parse().ok());
        let range = (numbers.next()?, numbers.next()?);
        let one = |text: &str| -> Option<Ports> {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
        };
        let reserved = joined(reserved.split(',').filter_map(one).collect());
        Some(LocalPorts { range, reserved })
    }

    /// Those that may be given.
    fn free(&self) -> Vec<Ports> {
        without(vec![self.range], &self.reserved)
    }
}

/// Where the kernel's choice and the pool meet.
fn ephemeral(own: &Own, local: &LocalPorts) -> Vec<Clash> {
    let pools: Vec<Ports> = own.ports.iter().map(|it| (it.first, it.last)).collect();
    let fix = fix(&pools, local);
    let both = |pool: Ports| {
        let parts = local.free().into_iter().filter_map(move |part| common(part, pool));
        // As one range, from the first to the last.
        parts.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    };
    let clash = |it: &fordway_net::DivertedPorts| {
        let (first, last) = both((it.first, it.last))?;
        Some(Clash::EphemeralPorts { address: it.address, first, last, fix: fix.clone() })
    };
    own.ports.iter().filter_map(clash).collect()
}

/// How host and pool come apart: by reserving the pool's ports; if that leaves the host too few, by another
/// range for it; else by another pool.
fn fix(pools: &[Ports], local: &LocalPorts) -> String {
    let widest = |parts: Vec<Ports>| parts.into_iter().max_by_key(|part| count(*part));
    let mut ways = Vec::new();
    let left: u32 = without(local.free(), pools).into_iter().map(count).sum();
    if left >= ENOUGH {
        let reserved = joined([local.reserved.as_slice(), pools].concat());
        ways.push(format!("sysctl -w net.ipv4.ip_local_reserved_ports={}", written(&reserved)));
    } else {
        let taken = [local.reserved.as_slice(), pools].concat();
        let other = widest(without(vec![(1024, u16::MAX)], &taken));
        if let Some((first, last)) = other.filter(|part| count(*part) >= ENOUGH) {
            ways.push(format!("sysctl -w net.ipv4.ip_local_port_range=\"{first} {last}\""));
        }
    }
    if let Some(other) = widest(without(vec![(1024, u16::MAX)], &local.free())) {
        ways.push(format!("give pool4 ports {} only", written(&[other])));
    }
    ways.join(", or ")
}

/// Sockets on ports of the pool.
fn waiting(own: &Own, sockets: &[BoundSocket]) -> Vec<Clash> {
    let mut found = Vec::new();
    for socket in sockets {
        let here = |address: Ipv4Addr| socket.address.is_unspecified() || socket.address == address;
        let forwards = own.forwards.iter().filter(|it| {
            it.port == socket.port && it.protocol == socket.transport.number() && here(it.address)
        });
        let forwards: Vec<Ipv4Addr> = forwards.map(|it| it.address).collect();
        let pools = own.ports.iter().filter(|it| {
            (it.first..=it.last).contains(&socket.port)
                && here(it.address)
                && !forwards.contains(&it.address)
        });
        let pools = pools.map(|it| (it.address, false));
        for (address, forwarded) in forwards.iter().map(|it| (*it, true)).chain(pools) {
            let protocol = socket.transport.label().to_owned();
            found.push(Clash::Socket { protocol, address, port: socket.port, forwarded });
        }
    }
    found.dedup();
    found
}

fn count((first, last): Ports) -> u32 {
    u32::from(last - first) + 1
}

fn common(one: Ports, other: Ports) -> Option<Ports> {
    let both = (one.0.max(other.0), one.1.min(other.1));
    (both.0 <= both.1).then_some(both)
}

/// What of `parts` is in none of `taken`.
fn without(mut parts: Vec<Ports>, taken: &[Ports]) -> Vec<Ports> {
    for (first, last) in taken {
        parts = parts
            .into_iter()
            .flat_map(|part| {
                let below = first.checked_sub(1).and_then(|end| common(part, (0, end)));
                let above = last.checked_add(1).and_then(|start| common(part, (start, u16::MAX)));
                below.into_iter().chain(above)
            })
            .collect();
    }
    parts
}

/// In order, with those that touch in one.
fn joined(mut parts: Vec<Ports>) -> Vec<Ports> {
    parts.sort_unstable();
    let mut joined: Vec<Ports> = Vec::new();
    for (first, last) in parts {
        match joined.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    joined
}

/// As the kernel writes them.
fn written(parts: &[Ports]) -> String {
    let one = |(first, last): &Ports| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.iter().map(one).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use fordway_net::{DivertedPort, DivertedPorts, Transport};

    use super::*;

    const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

    fn own(first: u16, last: u16) -> Own {
        let ports = vec![DivertedPorts { address: OWN, first, last }];
        Own { ports, forwards: vec![DivertedPort { address: OWN, protocol: 6, port: 443 }] }
    }

    fn local(range: &str, reserved: &str) -> LocalPorts {
        LocalPorts::parse(range, reserved).unwrap()
    }

    #[test]
    fn the_kernels_ports_and_the_pools_are_compared_and_the_fix_is_named() {
        let clash = |(first, last), range, reserved| {
            let found = ephemeral(&own(first, last), &local(range, reserved));
            found.first().map(|clash| format!("{clash}: {}", clash.hint()))
        };
        let usual = "32768\t60999";
        assert_eq!(clash((61_000, 65_535), usual, ""), None);
        assert_eq!(clash((20_000, 60_000), usual, "20000-60000"), None);
        let said = clash((20_000, 40_000), usual, "8080").unwrap();
        assert_eq!(
            said,
            "connections of this host may take ports 32768-40000 of pool4 192.0.2.1, for they are \
             within net.ipv4.ip_local_port_range: sysctl -w \
             net.ipv4.ip_local_reserved_ports=8080,20000-40000, or give pool4 ports 1024-32767 only"
        );
        // Too little would be left of the host's own range.
        let said = clash((20_000, 60_000), usual, "").unwrap();
        let other = "sysctl -w net.ipv4.ip_local_port_range=\"1024 19999\", or give pool4 ports";
        assert!(said.contains(other), "{said}");
        // Nothing is left for the host, whatever it does.
        let said = clash((1024, 65_535), usual, "").unwrap();
        assert!(said.ends_with("port_range: give pool4 ports 1024-32767 only"), "{said}");
    }

    #[test]
    fn sockets_on_ports_of_the_pool_are_named() {
        let socket = |transport, address: [u8; 4], port| BoundSocket {
            transport,
            address: address.into(),
            port,
        };
        let sockets = [
            socket(Transport::Tcp, [0, 0, 0, 0], 22),
            socket(Transport::Tcp, [0, 0, 0, 0], 443),
            socket(Transport::Udp, [0, 0, 0, 0], 443),
            socket(Transport::Tcp, [0, 0, 0, 0], 20_001),
            socket(Transport::Udp, [192, 0, 2, 1], 20_002),
            socket(Transport::Udp, [127, 0, 0, 1], 20_003),
        ];
        let found = waiting(&own(20_000, 30_000), &sockets);
        let ports: Vec<(String, u16, bool)> = found
            .iter()
            .map(|clash| match clash {
                Clash::Socket { protocol, port, forwarded, .. } => {
                    (protocol.clone(), *port, *forwarded)
                }
                Clash::EphemeralPorts { .. } => panic!("{clash}"),
            })
            .collect();
        let tcp = "tcp".to_owned();
        let wanted =
            [(tcp.clone(), 443, true), (tcp, 20_001, false), ("udp".to_owned(), 20_002, false)];
        assert_eq!(ports, wanted);
        let lines = Clash::sentences(&found);
        assert_eq!(
            lines[1],
            "a service of this host waits on tcp port 20001 of pool4 192.0.2.1, so no host behind the \
             translator can use that port: give pool4 other ports, or that service another one (ss \
             -lnp -A tcp sport = 20001 shows it)"
        );
        let many: Vec<Clash> = found.iter().cycle().take(7).cloned().collect();
        assert_eq!(Clash::sentences(&many).len(), 6);
        let range = ephemeral(&own(20_000, 40_000), &local("32768 60999", "")).remove(0);
        assert_eq!(Clash::sentences(&vec![range; 100]).len(), 6);
        let json = serde_json::to_value(&found[0]).unwrap();
        assert_eq!((&json["clash"], &json["port"]), (&"socket".into(), &443.into()));
        assert_eq!(serde_json::from_value::<Clash>(json).unwrap(), found[0]);
    }

    #[test]
    fn ranges_are_taken_apart_and_put_together() {
        assert_eq!(without(vec![(1, 10)], &[(3, 4), (8, 20)]), [(1, 2), (5, 7)]);
        assert_eq!(without(vec![(0, u16::MAX)], &[(0, 0), (u16::MAX, u16::MAX)]), [(1, 65_534)]);
        assert!(without(vec![(5, 6)], &[(1, 9)]).is_empty());
        assert_eq!(joined(vec![(5, 6), (1, 2), (3, 3), (6, 9)]), [(1, 3), (5, 9)]);
        let local = local("1024 2000", "1100,1200-1300,70000");
        assert_eq!(written(&local.reserved), "1100,1200-1300");
        assert_eq!(written(&local.free()), "1024-1099,1101-1199,1301-2000");
    }
}
