//! In which order the addresses of a server are tried: RFC 6724 section 6, then RFC 8305 section 4.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};

use fordway_xlat::addr::Pool6;

use super::address::forms;

/// An address of a server, and the source address towards it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) to: SocketAddr,
    /// `None`: there is no way.
    pub(super) source: Option<IpAddr>,
    /// The address, or the IPv4 address in it, is this host's own.
    pub(super) is_own: bool,
}

impl Candidate {
    /// Asks the kernel's routing; nothing is sent.
    pub(super) fn of(to: SocketAddr, translated: &[Pool6]) -> Candidate {
        let source = source(to);
        let is_own =
            forms(to.ip(), translated).into_iter().flatten().any(|form| match form == to.ip() {
                true => is_own(form, &source),
                false => is_own(form, &self::source((form, to.port()).into())),
            });
        Candidate { to, source: source.ok().flatten(), is_own }
    }
}

/// Whether an address is this host's own, by the source address towards it. If the kernel can't be asked, for want of a
/// socket for instance, it counts as own.
fn is_own(address: IpAddr, source: &std::io::Result<Option<IpAddr>>) -> bool {
    source.as_ref().map_or(true, |source| *source == Some(address))
}

/// The source address that the kernel selects towards `to`; towards an address of this host, that one. `None`: there is
/// no route.
fn source(to: SocketAddr) -> std::io::Result<Option<IpAddr>> {
    let unspecified: SocketAddr = match to {
        SocketAddr::V4(_) => ([0; 4], 0).into(),
        SocketAddr::V6(_) => ([0u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(unspecified)?;
    match socket.connect(to) {
        Ok(()) => Ok(Some(socket.local_addr()?.ip())),
        Err(_) => Ok(None),
    }
}

/// Sorts addresses as RFC 6724 has it, and lets families take turns (RFC 8305 section 4; the First Address Family Count
/// is 1).
pub(super) fn sort(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    candidates.sort_by_key(|it| {
        let to = mapped(it.to.ip());
        let source = it.source.map(mapped);
        (
            // Rule 1, 2, 5, 6, 8, 9; what remains is left in the order in which it came (rule 10).
            source.is_none(),
            source.map(scope) != Some(scope(to)),
            source.map(|source| policy(source).1) != Some(policy(to).1),
            Reverse(policy(to).0),
            scope(to),
            Reverse(source.map_or(0, |source| common(source, to))),
        )
    });
    let first_is_v6 = candidates.first().is_some_and(|it| it.to.is_ipv6());
    let (first, second): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|it| it.to.is_ipv6() == first_is_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut sorted = Vec::new();
    loop {
        let (one, other) = (first.next(), second.next());
        if one.is_none() && other.is_none() {
            return sorted;
        }
        sorted.extend(one.into_iter().chain(other));
    }
}

/// RFC 6724 section 3: IPv4 addresses as IPv4-mapped ones.
fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// RFC 6724 section 3.1 and 3.2.
fn scope(address: Ipv6Addr) -> u8 {
    const LINK: u8 = 2;
    const SITE: u8 = 5;
    const GLOBAL: u8 = 14;
    match address.to_ipv4_mapped() {
        Some(v4) if v4.is_loopback() || v4.is_link_local() => LINK,
        Some(_) => GLOBAL,
        None => match address.segments()[0] {
            _ if address.is_loopback() => LINK,
            0xfe80..=0xfebf => LINK,
            0xfec0..=0xfeff => SITE,
            _ => GLOBAL,
        },
    }
}

/// Precedence and label: the default table of RFC 6724 section 2.1.
fn policy(address: Ipv6Addr) -> (u8, u8) {
    let bits = address.to_bits();
    match address.segments()[0] {
        _ if bits == 1 => (50, 0),
        _ if bits >> 32 == 0xffff => (35, 4),
        _ if bits >> 32 == 0 => (1, 3),
        0x2002 => (30, 2),
        0x2001 if bits >> 96 == 0x2001_0000 => (5, 5),
        0xfc00..=0xfdff => (3, 13),
        0xfec0..=0xfeff => (1, 11),
        0x3ffe => (1, 12),
        _ => (40, 1),
    }
}

/// Leading bits that two IPv6 addresses share, of the first 64; IPv4 addresses are all alike: rule 9 says too much for
/// them.
fn common(source: Ipv6Addr, to: Ipv6Addr) -> u32 {
    if to.to_ipv4_mapped().is_some() {
        return 0;
    }
    (source.to_bits() ^ to.to_bits()).leading_zeros().min(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(pairs: &[(&str, &str)]) -> Vec<String> {
        let candidates = pairs.iter().map(|(to, source)| Candidate {
            to: SocketAddr::new(to.parse().unwrap(), 80),
            source: source.parse().ok(),
            is_own: false,
        });
        sort(candidates.collect()).iter().map(|it| it.to.ip().to_string()).collect()
    }

    #[test]
    fn ipv6_first_and_families_in_turn() {
        assert_eq!(
            sorted(&[
                ("192.0.2.1", "198.51.100.1"),
                ("192.0.2.2", "198.51.100.1"),
                ("2001:db8::1", "2001:db8:f::1"),
                ("2001:db8::2", "2001:db8:f::1"),
                ("2001:db8::3", "2001:db8:f::1"),
            ]),
            ["2001:db8::1", "192.0.2.1", "2001:db8::2", "192.0.2.2", "2001:db8::3"]
        );
    }

    #[test]
    fn without_a_way_last() {
        assert_eq!(
            sorted(&[("2001:db8::1", "none"), ("192.0.2.1", "198.51.100.1")]),
            ["192.0.2.1", "2001:db8::1"]
        );
    }

    #[test]
    fn labels_precedence_and_prefixes() {
        // Rule 5: 6to4 from a native address is worse than IPv4.
        assert_eq!(
            sorted(&[("2002:c000:201::1", "2001:db8:f::1"), ("192.0.2.1", "198.51.100.1")]),
            ["192.0.2.1", "2002:c000:201::1"]
        );
        // Rule 2: a link-local source towards a global address.
        assert_eq!(
            sorted(&[("2001:db8::1", "fe80::1"), ("192.0.2.1", "198.51.100.1")]),
            ["192.0.2.1", "2001:db8::1"]
        );
        // Rule 9.
        assert_eq!(
            sorted(&[("2001:db8:1::1", "2001:db8:2::1"), ("2001:db8:2::2", "2001:db8:2::1")]),
            ["2001:db8:2::2", "2001:db8:1::1"]
        );
    }

    #[test]
    fn where_nobody_can_be_asked_an_address_is_this_hosts() {
        let address = "192.0.2.1".parse().unwrap();
        let no_socket = || Err(std::io::Error::from(std::io::ErrorKind::Other));
        assert!(is_own(address, &no_socket()));
        assert!(is_own(address, &Ok(Some(address))));
        assert!(!is_own(address, &Ok(None)));
        assert!(!is_own(address, &Ok("192.0.2.2".parse().ok())));
    }

    #[test]
    fn an_address_of_this_host_is_known() {
        let pref64 = ["2001:db8:64::/96".parse().unwrap()];
        let is_own = |to: &str| Candidate::of(to.parse().unwrap(), &pref64).is_own;
        assert!(is_own("[::1]:80") && is_own("127.0.0.1:80"));
        // A translator would send them back to this host.
        assert!(is_own("[64:ff9b::127.0.0.1]:80") && is_own("[2001:db8:64::127.0.0.1]:80"));
        assert!(!is_own("[2001:db8:65::127.0.0.1]:80"));
    }
}
