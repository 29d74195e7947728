//! Ports that the host uses itself on an address that is the translator's, too.
//!
//! What comes for such a port is either the host's or the translator's; one of both loses it.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use fordway_net::SysctlKey;
use fordway_net::sysctl;
use fordway_xlat::nat64::{Range, Settings};
use tracing::warn;

use super::resolve::Facts;

/// Sockets that are named at most.
const NAMED: usize = 5;

/// Looks for clashes and tells of them, each in a sentence with what to do.
pub(super) fn look(name: &str, facts: &Facts, settings: &Settings) -> Vec<String> {
    let own: Vec<(Ipv4Addr, Range)> = shared(facts, settings).collect();
    if own.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    found.extend(ephemeral(&own));
    found.extend(sockets(&own));
    for sentence in &found {
        warn!("{name}: {sentence}");
    }
    found
}

/// Addresses of the host that are in a pool, with the ports there.
fn shared<'a>(
    facts: &'a Facts,
    settings: &'a Settings,
) -> impl Iterator<Item = (Ipv4Addr, Range)> + 'a {
    let ranges = settings.pools.iter().flat_map(|pool| &pool.ranges);
    ranges.flat_map(|range| {
        let here = facts.own_v4.iter().filter(|address| range.contains(**address));
        here.map(|address| (*address, *range))
    })
}

/// Ports that the kernel gives to the host's own connections.
fn ephemeral(own: &[(Ipv4Addr, Range)]) -> Option<String> {
    let read = |name: &str| {
        let key: SysctlKey = format!("net/ipv4/{name}").parse().ok()?;
        sysctl::read(&key).ok()
    };
    let range = read("ip_local_port_range")?;
    let mut bounds = range.split_whitespace().filter_map(|word| word.parse::<u16>().ok());
    let (low, high) = (bounds.next()?, bounds.next()?);
    let reserved = parse_reserved(&read("ip_local_reserved_ports").unwrap_or_default());
    let is_free = |port: &u16| !reserved.iter().any(|(low, high)| (low..=high).contains(&port));
    let (address, range) = own.iter().find(|(_, range)| {
        let (low, high) = (low.max(range.low), high.min(range.high));
        low <= high && (low..=high).any(|port| is_free(&port))
    })?;
    let keep = merged(&reserved, range);
    Some(format!(
        "the kernel may give ports of pool4 ({address}:{}-{}) to connections of this host, since its \
         own are {low}-{high}: sysctl -w net.ipv4.ip_local_reserved_ports={keep}",
        range.low, range.high
    ))
}

/// `8080,61000-61999`.
fn parse_reserved(text: &str) -> Vec<(u16, u16)> {
    let range = |word: &str| {
        let (low, high) = word.split_once('-').unwrap_or((word, word));
        Some((low.trim().parse().ok()?, high.trim().parse().ok()?))
    };
    text.split(',').filter_map(range).collect()
}

/// What was reserved and the pool's ports, as the kernel writes it.
fn merged(reserved: &[(u16, u16)], range: &Range) -> String {
    let mut all: Vec<(u16, u16)> =
        reserved.iter().copied().chain([(range.low, range.high)]).collect();
    all.sort_unstable();
    let mut joined: Vec<(u16, u16)> = Vec::new();
    for (low, high) in all {
        match joined.last_mut() {
            Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
            _ => joined.push((low, high)),
        }
    }
    let write = |(low, high): &(u16, u16)| match low == high {
        true => low.to_string(),
        false => format!("{low}-{high}"),
    };
    joined.iter().map(write).collect::<Vec<_>>().join(",")
}

/// Sockets of the host that are bound to a port of the pool.
fn sockets(own: &[(Ipv4Addr, Range)]) -> Option<String> {
    let mut found = BTreeSet::new();
    for (protocol, file) in [("tcp", "tcp"), ("udp", "udp"), ("tcp", "tcp6"), ("udp", "udp6")] {
        let path = format!("/proc/thread-self/net/{file}");
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        for (address, port) in text.lines().skip(1).filter_map(local) {
            let hit = own.iter().find(|(own, range)| {
                address.is_none_or(|address| address == *own)
                    && (range.low..=range.high).contains(&port)
            });
            if let Some((own, _)) = hit {
                found.insert(format!("{protocol} {own}:{port}"));
            }
        }
    }
    if found.is_empty() {
        return None;
    }
    let more = found.len().saturating_sub(NAMED);
    let named = found.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!(
        "sockets of this host use ports of pool4: {named}{more}; give pool4 other ports, or these \
         services"
    ))
}

/// Address and port of a line of `/proc/net/tcp` and its like; `None` for the address: all of them. Lines of
/// IPv6 sockets that are not bound to every address or to an IPv4 one are left out.
fn local(line: &str) -> Option<(Option<Ipv4Addr>, u16)> {
    let (address, port) = line.split_whitespace().nth(1)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok().filter(|port| *port != 0)?;
    let v4 = match address.len() {
        8 => address,
        32 if address.bytes().all(|digit| digit == b'0') => return Some((None, port)),
        // IPv4-mapped; words are in the host's byte order.
        32 if address[..24] == mapped_prefix() => &address[24..],
        _ => return None,
    };
    let word = u32::from_str_radix(v4, 16).ok()?;
    let address = Ipv4Addr::from(word.to_ne_bytes());
    Some(((!address.is_unspecified()).then_some(address), port))
}

fn mapped_prefix() -> String {
    format!("{:08X}{:08X}{:08X}", 0, 0, u32::from_ne_bytes([0, 0, 0xff, 0xff]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(low: u16, high: u16) -> Range {
        let address = Ipv4Addr::new(192, 0, 2, 1);
        Range { first: address, last: address, low, high }
    }

    #[test]
    fn lines_of_the_kernel() {
        let v4 = u32::from_ne_bytes([192, 0, 2, 1]);
        let line = |address: String| format!("   0: {address}:0016 00000000:0000 0A");
        let address = Some(Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(local(&line(format!("{v4:08X}"))), Some((address, 22)));
        assert_eq!(local(&line("00000000".to_owned())), Some((None, 22)));
        assert_eq!(local(&line("0".repeat(32))), Some((None, 22)));
        assert_eq!(local(&line(format!("{}{v4:08X}", mapped_prefix()))), Some((address, 22)));
        let v6 = "B80D0120000000000000000001000000".to_owned();
        assert_eq!(local(&line(v6)), None);
        assert_eq!(local("   0: 00000000:0000 00000000:0000"), None);
        assert_eq!(local("sl  local_address rem_address"), None);
    }

    #[test]
    fn reserved_ports_are_kept() {
        assert_eq!(parse_reserved("8080,61000-61999\n"), [(8080, 8080), (61_000, 61_999)]);
        assert!(parse_reserved("").is_empty());
        let merged = |text, low, high| merged(&parse_reserved(text), &range(low, high));
        assert_eq!(merged("", 1024, 65_535), "1024-65535");
        assert_eq!(merged("8080", 61_000, 61_999), "8080,61000-61999");
        assert_eq!(merged("8080,62000", 61_000, 61_999), "8080,61000-62000");
    }

    #[test]
    fn a_socket_on_a_port_of_the_pool_is_found() {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let own = [(Ipv4Addr::new(192, 0, 2, 1), range(port, port))];
        let sentence = sockets(&own).unwrap();
        assert!(sentence.contains(&format!("udp 192.0.2.1:{port}")), "{sentence}");
        drop(socket);
    }
}
