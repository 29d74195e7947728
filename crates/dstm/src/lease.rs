//! Leases, and their lines in the lease file.
//!
//! A lease file is text. Each line is a record and its checksum; a later record of an address and its ports replaces an
//! earlier one:
//!
//! ```text
//! lent 192.0.2.1 - 1767225600000 2001:db8::1 2001:db8:ff::1 name:laptop 5f3a09c1
//! ended 192.0.2.1 - 0b77e21d
//! ```
//!
//! Times are in ms since 1970, ports a port set as `offset/length/psid` or `-` for all.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use ring::digest;

use crate::message::ClientId;
use fordway_softwire::{Binding, PortSet};

/// What one client leases: an address, or ports of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// The address.
    pub v4: Ipv4Addr,
    /// The ports; `None`: all.
    pub ports: Option<PortSet>,
}

impl Slot {
    /// The ports, where the address is shared and they are in one piece, as those of a [`Pool`](crate::Pool) are.
    #[must_use]
    pub fn range(&self) -> Option<RangeInclusive<u16>> {
        let ports = self.ports.filter(|ports| ports.offset_bits() == 0)?;
        ports.ranges().next()
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.range(), self.ports) {
            (Some(range), _) => write!(f, "{}:{}-{}", self.v4, range.start(), range.end()),
            (None, Some(ports)) => write!(f, "{} ports {ports}", self.v4),
            (None, None) => self.v4.fmt(f),
        }
    }
}

/// The client of a lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// A client with a key of its own.
    Named(ClientId),
    /// A client of a prefix whose clients share a key, by its address.
    At(Ipv6Addr),
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Named(id) => id.fmt(f),
            Identity::At(address) => address.fmt(f),
        }
    }
}

/// A lease of an address, or of ports of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The client.
    pub identity: Identity,
    /// The address and its ports.
    pub slot: Slot,
    /// The client's end of the tunnel.
    pub remote: Ipv6Addr,
    /// The tunnel end point.
    pub local: Ipv6Addr,
    /// When it ends, in ms since 1970.
    pub until: u64,
}

impl Lease {
    /// The binding of its tunnel.
    #[must_use]
    pub fn binding(&self) -> Binding {
        let Slot { v4, ports } = self.slot;
        Binding { v4, ports, remote: self.remote, local: self.local }
    }
}

/// One line of a lease file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A lease was made or renewed.
    Lent(Lease),
    /// A lease has ended.
    Ended(Slot),
}

/// Why a line is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    /// The checksum is not the line's.
    #[error("it is damaged: the checksum is not the line's")]
    Checksum,
    /// The checksum is right, but the record is unknown.
    #[error("it is of another version")]
    Unknown,
}

impl fmt::Display for Record {
    /// The line, without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        write!(f, "{text} {:08x}", checksum(&text))
    }
}

impl Record {
    fn text(&self) -> String {
        let ports = |slot: &Slot| match slot.ports {
            None => "-".to_owned(),
            Some(it) => format!("{}/{}/{}", it.offset_bits(), it.psid_len(), it.psid()),
        };
        match self {
            Record::Lent(Lease { identity, slot, remote, local, until }) => {
                let identity = match identity {
                    Identity::Named(id) => format!("name:{id}"),
                    Identity::At(address) => format!("at:{address}"),
                };
                format!("lent {} {} {until} {remote} {local} {identity}", slot.v4, ports(slot))
            }
            Record::Ended(slot) => format!("ended {} {}", slot.v4, ports(slot)),
        }
    }

    /// Reads a line.
    pub fn parse(line: &str) -> Result<Record, BadLine> {
        let (text, sum) = line.rsplit_once(' ').ok_or(BadLine::Checksum)?;
        let is_hex = sum.len() == 8 && sum.bytes().all(|octet| octet.is_ascii_hexdigit());
        if !is_hex || u32::from_str_radix(sum, 16) != Ok(checksum(text)) {
            return Err(BadLine::Checksum);
        }
        read(text).ok_or(BadLine::Unknown)
    }

    /// The address and its ports.
    #[must_use]
    pub fn slot(&self) -> Slot {
        match self {
            Record::Lent(lease) => lease.slot,
            Record::Ended(slot) => *slot,
        }
    }
}

fn read(text: &str) -> Option<Record> {
    let words: Vec<&str> = text.split(' ').collect();
    match words.as_slice() {
        ["lent", v4, set, until, remote, local, identity] => Some(Record::Lent(Lease {
            slot: Slot { v4: v4.parse().ok()?, ports: ports(set)? },
            until: until.parse().ok()?,
            remote: remote.parse().ok()?,
            local: local.parse().ok()?,
            identity: match identity.split_once(':')? {
                ("name", name) => Identity::Named(ClientId::new(name).ok()?),
                ("at", address) => Identity::At(address.parse().ok()?),
                _ => return None,
            },
        })),
        ["ended", v4, set] => {
            Some(Record::Ended(Slot { v4: v4.parse().ok()?, ports: ports(set)? }))
        }
        _ => None,
    }
}

/// The outer `None`: these are no ports.
fn ports(word: &str) -> Option<Option<PortSet>> {
    if word == "-" {
        return Some(None);
    }
    let mut numbers = word.split('/');
    let offset_bits = numbers.next()?.parse().ok()?;
    let psid_len = numbers.next()?.parse().ok()?;
    let psid = numbers.next()?.parse().ok()?;
    let set = PortSet::new(offset_bits, psid_len, psid).ok()?;
    numbers.next().is_none().then_some(Some(set))
}

fn checksum(text: &str) -> u32 {
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    digest.as_ref().iter().take(4).fold(0, |sum, octet| sum << 8 | u32::from(*octet))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> impl Strategy<Value = Record> {
        let ports = proptest::option::of(
            (0u8..=15, 1u8..=16, any::<u16>())
                .prop_filter_map("no port set", |(a, k, psid)| PortSet::new(a, k, psid).ok()),
        );
        let slot = (any::<std::net::Ipv4Addr>(), ports).prop_map(|(v4, ports)| Slot { v4, ports });
        let identity = prop_oneof![
            "[!-~]{1,64}".prop_map(|name| Identity::Named(ClientId::new(&name).unwrap())),
            any::<Ipv6Addr>().prop_map(Identity::At),
        ];
        (slot, identity, any::<Ipv6Addr>(), any::<Ipv6Addr>(), any::<u64>(), any::<bool>())
            .prop_map(|(slot, identity, remote, local, until, lent)| match lent {
                true => Record::Lent(Lease { identity, slot, remote, local, until }),
                false => Record::Ended(slot),
            })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(record in record()) {
            prop_assert_eq!(Record::parse(&record.to_string()), Ok(record));
        }

        #[test]
        fn a_line_that_is_cut_or_changed_is_damaged(
            record in record(),
            at: prop::sample::Index,
            other in "[!-~]",
        ) {
            let line = record.to_string();
            let at = at.index(line.len());
            prop_assert_eq!(Record::parse(&line[..at]), Err(BadLine::Checksum));
            let changed = format!("{}{other}{}", &line[..at], &line[at + 1..]);
            let read = Record::parse(&changed);
            prop_assert!(changed == line || read.is_err() || changed.eq_ignore_ascii_case(&line));
        }
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let text = "lent 192.0.2.1 - soon";
        let line = format!("{text} {:08x}", checksum(text));
        assert_eq!(Record::parse(&line), Err(BadLine::Unknown));
        assert_eq!(Record::parse(""), Err(BadLine::Checksum));
    }
}
