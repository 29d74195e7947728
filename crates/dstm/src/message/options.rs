//! Options: code, length, value.

use std::cell::Cell;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::Malformed;
use fordway_softwire::{Binding, PortSet};

pub(super) const AUTHENTICATOR: u8 = 0;
pub(super) const CLIENT_ID: u8 = 1;
pub(super) const COOKIE: u8 = 2;
pub(super) const ADDRESS: u8 = 3;
pub(super) const PORT_SET: u8 = 4;
pub(super) const LIFETIME: u8 = 5;
pub(super) const TEP: u8 = 6;
pub(super) const REASON: u8 = 7;
pub(super) const EXPECTED: u8 = 8;
pub(super) const SHARING: u8 = 9;
pub(super) const RETRY: u8 = 10;
pub(super) const TUNNEL: u8 = 11;
pub(super) const NONCE: u8 = 16;
pub(super) const SESSION: u8 = 17;
pub(super) const POSITION: u8 = 18;
pub(super) const BIND: u8 = 19;
pub(super) const UNBIND: u8 = 20;
pub(super) const WHOLE: u8 = 21;

/// From here on, options that are not known are skipped.
const SKIPPED: u8 = 128;

/// Octets of a port set: offset bits, bits of the PSID, PSID.
const PORTS: usize = 4;

/// The options of a message, in their order, each with whether it has been read.
pub(super) struct Options<'m>(Vec<(u8, &'m [u8], Cell<bool>)>);

impl<'m> Options<'m> {
    pub(super) fn parse(mut octets: &'m [u8]) -> Result<Options<'m>, Malformed> {
        let mut options: Vec<(u8, &[u8], Cell<bool>)> = Vec::new();
        while let [code, len, rest @ ..] = octets {
            let (value, next) =
                rest.split_at_checked(usize::from(*len)).ok_or(Malformed::Option(*code))?;
            octets = next;
            let known = matches!(code, CLIENT_ID..=TUNNEL | NONCE..=WHOLE);
            if !known && *code >= SKIPPED {
                continue;
            }
            let again = options.iter().any(|(other, ..)| other == code);
            if !known || (again && !matches!(*code, BIND | UNBIND)) {
                return Err(Malformed::Option(*code));
            }
            options.push((*code, value, Cell::new(false)));
        }
        if octets.is_empty() { Ok(Options(options)) } else { Err(Malformed::Length) }
    }

    /// Reads every option with one of these codes, in their order.
    pub(super) fn each(&self, codes: &[u8]) -> impl Iterator<Item = (u8, &'m [u8])> {
        let wanted = self.0.iter().filter(|(code, ..)| codes.contains(code));
        wanted.map(|(code, value, is_read)| {
            is_read.set(true);
            (*code, *value)
        })
    }

    /// Reads an option, if it is there.
    pub(super) fn read<T>(
        &self,
        code: u8,
        read: impl FnOnce(&'m [u8]) -> Option<T>,
    ) -> Result<Option<T>, Malformed> {
        let value = self.each(&[code]).next();
        value.map(|(_, value)| read(value).ok_or(Malformed::Option(code))).transpose()
    }

    /// Reads an option that must be there.
    pub(super) fn require<T>(
        &self,
        code: u8,
        read: impl FnOnce(&'m [u8]) -> Option<T>,
    ) -> Result<T, Malformed> {
        self.read(code, read)?.ok_or(Malformed::Missing(code))
    }

    /// Refuses options that the kind does not have: those that its reader has not read.
    pub(super) fn end(&self) -> Result<(), Malformed> {
        match self.0.iter().find(|(_, _, is_read)| !is_read.get()) {
            Some((code, ..)) => Err(Malformed::Option(*code)),
            None => Ok(()),
        }
    }
}

pub(super) fn array<const N: usize>(value: &[u8]) -> Option<[u8; N]> {
    value.try_into().ok()
}

pub(super) fn u8(value: &[u8]) -> Option<u8> {
    array::<1>(value).map(|[octet]| octet)
}

pub(super) fn u32(value: &[u8]) -> Option<u32> {
    array(value).map(u32::from_be_bytes)
}

pub(super) fn u64(value: &[u8]) -> Option<u64> {
    array(value).map(u64::from_be_bytes)
}

pub(super) fn v4(value: &[u8]) -> Option<Ipv4Addr> {
    array::<4>(value).map(Ipv4Addr::from)
}

pub(super) fn v6(value: &[u8]) -> Option<Ipv6Addr> {
    array::<16>(value).map(Ipv6Addr::from)
}

pub(super) fn ports(value: &[u8]) -> Option<PortSet> {
    let [offset_bits, psid_len, high, low] = array::<PORTS>(value)?;
    PortSet::new(offset_bits, psid_len, u16::from_be_bytes([high, low])).ok()
}

/// All ports are written as a port set of zeros.
fn any_ports(value: &[u8]) -> Option<Option<PortSet>> {
    if value == [0; PORTS] { Some(None) } else { ports(value).map(Some) }
}

/// A lifetime and a binding.
pub(super) fn bind(value: &[u8]) -> Option<(u32, Binding)> {
    let (lifetime, value) = value.split_at_checked(4)?;
    let (address, value) = value.split_at_checked(4)?;
    let (set, value) = value.split_at_checked(PORTS)?;
    let (remote, local) = value.split_at_checked(16)?;
    let binding = Binding {
        v4: v4(address)?,
        ports: any_ports(set)?,
        remote: v6(remote)?,
        local: v6(local)?,
    };
    Some((u32(lifetime)?, binding))
}

/// An address and its ports.
pub(super) fn unbind(value: &[u8]) -> Option<(Ipv4Addr, Option<PortSet>)> {
    let (address, set) = value.split_at_checked(4)?;
    Some((v4(address)?, any_ports(set)?))
}

/// Writes options.
pub(super) struct Writer<'o>(pub(super) &'o mut Vec<u8>);

impl Writer<'_> {
    /// Writes an option of at most 255 octets.
    pub(super) fn put(&mut self, code: u8, value: &[u8]) {
        // All values are shorter.
        self.0.extend([code, value.len() as u8]);
        self.0.extend(value);
    }

    /// Writes an option if there is one.
    pub(super) fn put_some(&mut self, code: u8, value: Option<impl AsRef<[u8]>>) {
        if let Some(value) = value {
            self.put(code, value.as_ref());
        }
    }

    pub(super) fn bind(&mut self, lifetime: u32, binding: &Binding) {
        let mut value = Vec::with_capacity(44);
        value.extend(lifetime.to_be_bytes());
        value.extend(binding.v4.octets());
        value.extend(octets_of_any(binding.ports));
        value.extend(binding.remote.octets());
        value.extend(binding.local.octets());
        self.put(BIND, &value);
    }

    pub(super) fn unbind(&mut self, v4: Ipv4Addr, ports: Option<PortSet>) {
        let [a, b, c, d] = v4.octets();
        let [e, f, g, h] = octets_of_any(ports);
        self.put(UNBIND, &[a, b, c, d, e, f, g, h]);
    }
}

pub(super) fn octets_of(ports: PortSet) -> [u8; PORTS] {
    let [high, low] = ports.psid().to_be_bytes();
    [ports.offset_bits(), ports.psid_len(), high, low]
}

fn octets_of_any(ports: Option<PortSet>) -> [u8; PORTS] {
    ports.map_or([0; PORTS], octets_of)
}
