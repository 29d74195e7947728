//! An entry of `pool4`: addresses, or the device that has them, and ports.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use fordway_xlat::addr::classify::illegal_v4;
use ipnet::{Ipv4Net, Ipv6Net};

use crate::name::InterfaceName;

/// Addresses with the same ports of each: `ADDR[/LEN|-ADDR][:LO-HI]` or `interface:DEV[:LO-HI]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool4 {
    /// The addresses.
    pub source: Pool4Source,
    /// Ports of each.
    pub ports: Ports,
}

/// Where a pool's addresses come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pool4Source {
    /// Addresses one behind the other.
    Addresses {
        /// The first.
        first: Ipv4Addr,
        /// The last.
        last: Ipv4Addr,
    },
    /// Whatever addresses a device has.
    Interface(InterfaceName),
}

/// Ports one behind the other; both ends belong to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The first, at least 1.
    pub low: u16,
    /// The last.
    pub high: u16,
}

impl Ports {
    /// Of an address that is the translator's own: all but the well-known ones (RFC 6335 section 6),
    /// which servers and firewalls treat as another's (RFC 4787 section 4.2.2 has source ports above
    /// 1023 stay there).
    pub const DEFAULT: Ports = Ports { low: 1024, high: 65_535 };

    /// Of an address that is the host's too: those above the kernel's own ephemeral ports, which end at
    /// 60999 by default.
    pub const DEFAULT_SHARED: Ports = Ports { low: 61_000, high: 65_535 };

    /// How many.
    #[must_use]
    pub fn count(self) -> u32 {
        u32::from(self.high.saturating_sub(self.low)) + 1
    }

    /// Whether the two have a port in common.
    #[must_use]
    pub fn overlaps(self, other: Ports) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    /// Whether a port is among them.
    #[must_use]
    pub fn contains(self, port: u16) -> bool {
        (self.low..=self.high).contains(&port)
    }
}

impl Pool4 {
    /// First and last address, where they are written down.
    #[must_use]
    pub fn addresses(&self) -> Option<(Ipv4Addr, Ipv4Addr)> {
        match self.source {
            Pool4Source::Addresses { first, last } => Some((first, last)),
            Pool4Source::Interface(_) => None,
        }
    }

    /// The networks that its addresses make up; none of a device, whose addresses are the host's.
    #[must_use]
    pub fn networks(&self) -> Vec<Ipv4Net> {
        match self.addresses() {
            Some((first, last)) => ipnet::Ipv4Subnets::new(first, last, 0).collect(),
            None => Vec::new(),
        }
    }

    /// Whether a transport address may be given by both.
    #[must_use]
    pub fn overlaps(&self, other: &Pool4) -> bool {
        let addresses = match (&self.source, &other.source) {
            (
                Pool4Source::Addresses { first, last },
                Pool4Source::Addresses { first: other_first, last: other_last },
            ) => first <= other_last && other_first <= last,
            (Pool4Source::Interface(one), Pool4Source::Interface(other)) => one == other,
            // What a device has is known at run time.
            _ => false,
        };
        addresses && self.ports.overlaps(other.ports)
    }
}

/// The error is a sentence.
impl FromStr for Pool4 {
    type Err = String;

    fn from_str(text: &str) -> Result<Pool4, String> {
        if text.parse::<Ipv6Addr>().is_ok() || text.parse::<Ipv6Net>().is_ok() {
            return Err(no_addresses(text));
        }
        let (is_interface, rest) = match text.strip_prefix("interface:") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (address, ports) = match rest.split_once(':') {
            Some((address, ports)) => (address, Some(ports)),
            None => (rest, None),
        };
        let ports = ports.map(Ports::from_str).transpose()?;
        if is_interface {
            let wrong = |error| format!("\"{address}\" is no interface name: {error}");
            let name = address.parse().map_err(wrong)?;
            let ports = ports.unwrap_or(Ports::DEFAULT_SHARED);
            return Ok(Pool4 { source: Pool4Source::Interface(name), ports });
        }
        let (first, last) = addresses(address)?;
        if let Some(illegal) = [first, last].into_iter().find(|it| illegal_v4(*it).is_some()) {
            return Err(format!("{illegal} can't be a host's address on a wire"));
        }
        let source = Pool4Source::Addresses { first, last };
        Ok(Pool4 { source, ports: ports.unwrap_or(Ports::DEFAULT) })
    }
}

fn no_addresses(text: &str) -> String {
    format!("\"{text}\" is no IPv4 address, prefix or range of addresses")
}

fn addresses(text: &str) -> Result<(Ipv4Addr, Ipv4Addr), String> {
    let wrong = || no_addresses(text);
    if let Some((first, last)) = text.split_once('-') {
        let parse = |text: &str| text.parse::<Ipv4Addr>().map_err(|_| wrong());
        let (first, last) = (parse(first)?, parse(last)?);
        return match first <= last {
            true => Ok((first, last)),
            false => Err("the range of addresses ends before it begins".to_owned()),
        };
    }
    if text.contains('/') {
        let net: Ipv4Net = text.parse().map_err(|_| wrong())?;
        return match net.trunc() == net {
            true => Ok((net.network(), net.broadcast())),
            false => Err(format!("in {net}, bits are set behind the length")),
        };
    }
    let address = text.parse().map_err(|_| wrong())?;
    Ok((address, address))
}

/// The error is a sentence.
impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Ports, String> {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let port =
            |port: &str| port.parse().map_err(|_| format!("\"{text}\" is no range of ports"));
        let ports = Ports { low: port(low)?, high: port(high)? };
        match ports {
            Ports { low: 0, .. } | Ports { high: 0, .. } => {
                Err("port 0 can't be assigned".to_owned())
            }
            Ports { low, high } if low > high => {
                Err("the range of ports ends before it begins".to_owned())
            }
            ports => Ok(ports),
        }
    }
}

impl fmt::Display for Pool4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Pool4Source::Interface(name) => write!(f, "interface:{name}")?,
            Pool4Source::Addresses { first, last } if first == last => write!(f, "{first}")?,
            Pool4Source::Addresses { first, last } => match prefix(*first, *last) {
                Some(net) => write!(f, "{net}")?,
                None => write!(f, "{first}-{last}")?,
            },
        }
        write!(f, ":{}", self.ports)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.low == self.high {
            write!(f, "{}", self.low)
        } else {
            write!(f, "{}-{}", self.low, self.high)
        }
    }
}

/// The prefix that holds exactly these addresses.
fn prefix(first: Ipv4Addr, last: Ipv4Addr) -> Option<Ipv4Net> {
    let differ = first.to_bits() ^ last.to_bits();
    let net = Ipv4Net::new(first, differ.leading_zeros() as u8).ok()?;
    (net.network() == first && net.broadcast() == last).then_some(net)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_what_they_mean() {
        for (text, written) in [
            ("192.0.2.1", "192.0.2.1:1024-65535"),
            ("192.0.2.1/32:5000-5999", "192.0.2.1:5000-5999"),
            ("192.0.2.0/24", "192.0.2.0/24:1024-65535"),
            ("192.0.2.1-192.0.2.6:7", "192.0.2.1-192.0.2.6:7"),
            ("192.0.2.8-192.0.2.15", "192.0.2.8/29:1024-65535"),
            ("interface:eth0", "interface:eth0:61000-65535"),
            ("interface:wan0.7:1-2", "interface:wan0.7:1-2"),
        ] {
            let parsed: Pool4 = text.parse().unwrap();
            assert_eq!(parsed.to_string(), written);
            assert_eq!(written.parse(), Ok(parsed));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let addresses = no_addresses;
        let ports = |text: &str| format!("\"{text}\" is no range of ports");
        for (text, error) in [
            ("", addresses("")),
            ("2001:db8::1", addresses("2001:db8::1")),
            ("192.0.2.1/33", addresses("192.0.2.1/33")),
            ("192.0.2.1/24", "in 192.0.2.1/24, bits are set behind the length".to_owned()),
            ("192.0.2.2-192.0.2.1", "the range of addresses ends before it begins".to_owned()),
            ("224.0.0.1", "224.0.0.1 can't be a host's address on a wire".to_owned()),
            ("192.0.2.1:", ports("")),
            ("192.0.2.1:1024-65536", ports("1024-65536")),
            ("192.0.2.1:1-2-3", ports("1-2-3")),
            ("192.0.2.1:0-1023", "port 0 can't be assigned".to_owned()),
            ("192.0.2.1:2000-1999", "the range of ports ends before it begins".to_owned()),
            (
                "interface:",
                "\"\" is no interface name: an interface name can't be empty".to_owned(),
            ),
        ] {
            assert_eq!(text.parse::<Pool4>(), Err(error), "{text}");
        }
    }

    #[test]
    fn overlaps_need_an_address_and_a_port_in_common() {
        let pool4 = |text: &str| text.parse::<Pool4>().unwrap();
        let overlap = |one, other| pool4(one).overlaps(&pool4(other));
        assert!(overlap("192.0.2.0/24", "192.0.2.255"));
        assert!(!overlap("192.0.2.0/24", "198.51.100.1"));
        assert!(!overlap("192.0.2.1:1024-2047", "192.0.2.1:2048"));
        assert!(overlap("192.0.2.1:1024-2048", "192.0.2.1:2048"));
        assert!(overlap("interface:eth0", "interface:eth0"));
        assert!(!overlap("interface:eth0", "interface:eth1"));
    }
}
