//! A packet's first octets in readable form.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the first octets of a packet tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Glimpse {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Number of the transport protocol.
    pub protocol: u8,
    /// TCP, UDP and their like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Destination port of TCP, UDP and their like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// ICMP type and code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp: Option<(u8, u8)>,
    /// It is a fragment that does not begin at the packet's start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub later_fragment: bool,
}

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

/// Extension headers of IPv6.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// Extension headers that are looked behind.
const MAX_EXTENSIONS: usize = 8;

impl Glimpse {
    /// What `octets`, which begin with an IP header, tell; `None` if there is no whole header.
    pub fn of(octets: &[u8]) -> Option<Glimpse> {
        match octets.first()? >> 4 {
            4 => v4(octets),
            6 => v6(octets),
            _ => None,
        }
    }

    /// Whether it is ICMPv4 or ICMPv6.
    pub fn is_icmp(&self) -> bool {
        matches!(self.protocol, ICMP | ICMPV6)
    }

    /// Whether it is TCP.
    pub fn is_tcp(&self) -> bool {
        self.protocol == TCP
    }

    /// Whether it is UDP.
    pub fn is_udp(&self) -> bool {
        self.protocol == UDP
    }

    fn protocol_name(&self) -> String {
        match self.protocol {
            ICMP => "ICMP".to_owned(),
            TCP => "TCP".to_owned(),
            UDP => "UDP".to_owned(),
            DCCP => "DCCP".to_owned(),
            ICMPV6 => "ICMPv6".to_owned(),
            SCTP => "SCTP".to_owned(),
            UDP_LITE => "UDP-Lite".to_owned(),
            number => format!("protocol {number}"),
        }
    }

    fn with_transport(mut self, octets: Option<&[u8]>) -> Glimpse {
        let Some(octets) = octets else { return self };
        let word =
            |at: usize| octets.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
        match self.protocol {
            TCP | UDP | DCCP | SCTP | UDP_LITE => {
                (self.source_port, self.destination_port) = (word(0), word(2));
            }
            ICMP | ICMPV6 => {
                self.icmp = octets.get(..2).map(|pair| (pair[0], pair[1]));
            }
            _ => {}
        }
        self
    }
}

fn v4(octets: &[u8]) -> Option<Glimpse> {
    let header: &[u8; 20] = octets.first_chunk()?;
    let address = |at: usize| -> Option<IpAddr> {
        let octets: [u8; 4] = header.get(at..at + 4)?.try_into().ok()?;
        Some(Ipv4Addr::from(octets).into())
    };
    let offset = u16::from_be_bytes([header[6], header[7]]) & 0x1fff;
    let length = usize::from(header[0] & 0x0f) * 4;
    let glimpse = Glimpse {
        source: address(12)?,
        destination: address(16)?,
        protocol: header[9],
        source_port: None,
        destination_port: None,
        icmp: None,
        later_fragment: offset != 0,
    };
    Some(glimpse.with_transport(if offset == 0 { octets.get(length..) } else { None }))
}

fn v6(octets: &[u8]) -> Option<Glimpse> {
    let header: &[u8; 40] = octets.first_chunk()?;
    let address = |at: usize| -> Option<IpAddr> {
        let octets: [u8; 16] = header.get(at..at + 16)?.try_into().ok()?;
        Some(Ipv6Addr::from(octets).into())
    };
    let mut glimpse = Glimpse {
        source: address(8)?,
        destination: address(24)?,
        protocol: header[6],
        source_port: None,
        destination_port: None,
        icmp: None,
        later_fragment: false,
    };
    let mut at = 40;
    for _ in 0..MAX_EXTENSIONS {
        let length = match (glimpse.protocol, octets.get(at..at + 8)) {
            (HOP_BY_HOP | ROUTING | DESTINATION, Some(extension)) => {
                glimpse.protocol = extension[0];
                8 + usize::from(extension[1]) * 8
            }
            (FRAGMENT, Some(extension)) => {
                glimpse.protocol = extension[0];
                let offset = u16::from_be_bytes([extension[2], extension[3]]) & 0xfff8;
                if offset != 0 {
                    glimpse.later_fragment = true;
                    return Some(glimpse);
                }
                8
            }
            _ => break,
        };
        at += length;
    }
    Some(glimpse.with_transport(octets.get(at..)))
}

impl fmt::Display for Glimpse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |address: IpAddr, port: Option<u16>| match (address, port) {
            (address, None) => address.to_string(),
            (IpAddr::V4(address), Some(port)) => format!("{address}:{port}"),
            (IpAddr::V6(address), Some(port)) => format!("[{address}]:{port}"),
        };
        let source = end(self.source, self.source_port);
        let destination = end(self.destination, self.destination_port);
        write!(f, "{} {source} > {destination}", self.protocol_name())?;
        if let Some((kind, code)) = self.icmp {
            write!(f, " type {kind} code {code}")?;
        }
        if self.later_fragment { f.write_str(" (later fragment)") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp_v4() -> Vec<u8> {
        let mut octets = vec![0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0, 0];
        octets.extend([192, 0, 0, 1, 198, 51, 100, 1, 0x04, 0xd2, 0, 53, 0, 10, 0, 0, 1, 2]);
        octets
    }

    #[test]
    fn ports_and_addresses_are_found() {
        let glimpse = Glimpse::of(&udp_v4()).unwrap();
        assert_eq!(glimpse.to_string(), "UDP 192.0.0.1:1234 > 198.51.100.1:53");
        let mut later = udp_v4();
        later[7] = 9;
        let glimpse = Glimpse::of(&later).unwrap();
        assert_eq!(glimpse.to_string(), "UDP 192.0.0.1 > 198.51.100.1 (later fragment)");
    }

    #[test]
    fn extension_headers_are_walked() {
        let mut octets = vec![0x60, 0, 0, 0, 0, 24, 60, 64];
        let address: Ipv6Addr = "2001:db8::1".parse().unwrap();
        octets.extend(address.octets());
        octets.extend(address.octets());
        octets.extend([44, 0, 0, 0, 0, 0, 0, 0]);
        octets.extend([58, 0, 0, 1, 0, 0, 0, 7]);
        octets.extend([128, 0, 0, 0, 0, 0, 0, 0]);
        let glimpse = Glimpse::of(&octets).unwrap();
        assert_eq!(glimpse.to_string(), "ICMPv6 2001:db8::1 > 2001:db8::1 type 128 code 0");
        octets[51] = 8;
        assert!(Glimpse::of(&octets).unwrap().later_fragment);
    }

    #[test]
    fn whatever_is_cut_is_no_panic() {
        let octets = udp_v4();
        for len in 0..octets.len() {
            assert_eq!(Glimpse::of(&octets[..len]).is_some(), len >= 20);
        }
        for len in 0..70 {
            let octets = vec![0x60; len];
            assert_eq!(Glimpse::of(&octets).is_some(), len >= 40);
        }
    }
}
