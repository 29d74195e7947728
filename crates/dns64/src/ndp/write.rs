//! Builds router solicitations and advertisements.

use core::net::Ipv6Addr;

use super::name::{MAX_LABEL, MAX_NAME};
use super::option::{UNIT, kind, mask};
use super::{
    Advertisement, Pref64, PrefixInformation, ROUTER_SOLICITATION, RouteInformation,
    SOLICITATION_LEN, checksum,
};
use fordway_wire::{icmp, put_u8, put_u16};

/// The option does not fit into the buffer, or can't be written as an option; the message is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// A message in the making, at the start of a buffer whose length bounds it.
#[derive(Debug)]
pub struct Writer<'b> {
    buffer: &'b mut [u8],
    len: usize,
}

impl<'b> Writer<'b> {
    /// Begins a router solicitation.
    pub fn solicitation(buffer: &'b mut [u8]) -> Result<Writer<'b>, NoRoom> {
        let mut fixed = [0u8; SOLICITATION_LEN];
        fixed[0] = ROUTER_SOLICITATION;
        Writer { buffer, len: 0 }.begin(&fixed)
    }

    /// Begins a router advertisement.
    pub fn advertisement(
        buffer: &'b mut [u8],
        advertisement: &Advertisement,
    ) -> Result<Writer<'b>, NoRoom> {
        Writer { buffer, len: 0 }.begin(&advertisement.to_bytes())
    }

    /// Source Link-Layer Address; an address that does not fill the option is padded with zeros.
    pub fn source_link_layer(&mut self, address: &[u8]) -> Result<(), NoRoom> {
        self.option(kind::SOURCE_LINK_LAYER, [address])
    }

    /// Target Link-Layer Address; padded as the source's.
    pub fn target_link_layer(&mut self, address: &[u8]) -> Result<(), NoRoom> {
        self.option(kind::TARGET_LINK_LAYER, [address])
    }

    /// Prefix Information. A preferred lifetime longer than the valid one is cut down to it.
    pub fn prefix(&mut self, info: &PrefixInformation) -> Result<(), NoRoom> {
        let mut body = [0u8; 4 * UNIT - 2];
        body[0] = info.prefix_len.min(128);
        body[1] = u8::from(info.on_link) << 7 | u8::from(info.autonomous) << 6;
        body[2..6].copy_from_slice(&info.valid_lifetime.to_be_bytes());
        let preferred = info.preferred_lifetime.min(info.valid_lifetime);
        body[6..10].copy_from_slice(&preferred.to_be_bytes());
        body[14..30].copy_from_slice(&mask(info.prefix, info.prefix_len).octets());
        self.option(kind::PREFIX_INFORMATION, [&body[..]])
    }

    /// MTU, in octets.
    pub fn mtu(&mut self, mtu: u32) -> Result<(), NoRoom> {
        self.option(kind::MTU, [&[0, 0][..], &mtu.to_be_bytes()[..]])
    }

    /// Route Information, in the shortest form that holds the prefix.
    pub fn route(&mut self, route: &RouteInformation) -> Result<(), NoRoom> {
        let prefix_len = route.prefix_len.min(128);
        let prefix = mask(route.prefix, prefix_len).octets();
        let front = [prefix_len, route.preference.bits() << 3];
        let (prefix, _) = prefix.split_at((RouteInformation::units(prefix_len) - 1) * UNIT);
        self.option(
            kind::ROUTE_INFORMATION,
            [&front[..], &route.lifetime.to_be_bytes()[..], prefix],
        )
    }

    /// Recursive DNS servers, the preferred one first. Nothing is written for an empty list.
    pub fn rdnss(&mut self, lifetime: u32, addresses: &[Ipv6Addr]) -> Result<(), NoRoom> {
        if addresses.is_empty() {
            return Ok(());
        }
        self.whole(|writer| {
            writer.list(kind::RDNSS, lifetime)?;
            addresses.iter().try_for_each(|address| writer.put(&address.octets()))
        })
    }

    /// DNS search list: names as their labels, from the left, without the empty one of the root. An
    /// empty or too long label or name can't be written. Nothing is written for an empty list.
    pub fn dnssl<'n, N>(
        &mut self,
        lifetime: u32,
        names: impl IntoIterator<Item = N>,
    ) -> Result<(), NoRoom>
    where
        N: IntoIterator<Item = &'n [u8]>,
    {
        let mut names = names.into_iter().peekable();
        if names.peek().is_none() {
            return Ok(());
        }
        self.whole(|writer| {
            writer.list(kind::DNSSL, lifetime)?;
            names.try_for_each(|name| writer.name(name))
        })
    }

    /// PREF64.
    pub fn pref64(&mut self, pref64: &Pref64) -> Result<(), NoRoom> {
        let prefix = pref64.prefix().octets();
        self.option(kind::PREF64, [&pref64.lifetime_and_plc().to_be_bytes()[..], &prefix[..12]])
    }

    /// Captive portal: a URI, without its padding.
    pub fn captive_portal(&mut self, uri: &str) -> Result<(), NoRoom> {
        self.option(kind::CAPTIVE_PORTAL, [uri.as_bytes()])
    }

    /// Encrypted DNS resolver: its name as labels, from the left; addresses, and service parameters in wire format. Both
    /// are empty in ADN-only mode.
    pub fn encrypted_dns<'n>(
        &mut self,
        priority: u16,
        lifetime: u32,
        name: impl IntoIterator<Item = &'n [u8]>,
        addresses: &[Ipv6Addr],
        params: &[u8],
    ) -> Result<(), NoRoom> {
        self.whole(|writer| {
            writer.put(&[kind::ENCRYPTED_DNS, 0])?;
            writer.put(&priority.to_be_bytes())?;
            writer.put(&lifetime.to_be_bytes())?;
            writer.behind_length(|writer| writer.name(name))?;
            writer.behind_length(|writer| {
                addresses.iter().try_for_each(|address| writer.put(&address.octets()))
            })?;
            writer.behind_length(|writer| writer.put(params))
        })
    }

    /// Octets so far; never none, as a message has a fixed part.
    #[expect(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The whole ICMPv6 message, with its checksum for these addresses.
    pub fn finish(self, src: Ipv6Addr, dst: Ipv6Addr) -> &'b [u8] {
        let message = self.buffer.get_mut(..self.len).unwrap_or_default();
        let sum = checksum(src, dst, message);
        put_u16(message, icmp::CHECKSUM_AT, sum);
        message
    }

    fn begin(mut self, fixed: &[u8]) -> Result<Writer<'b>, NoRoom> {
        self.put(fixed)?;
        Ok(self)
    }

    fn option<const N: usize>(&mut self, kind: u8, parts: [&[u8]; N]) -> Result<(), NoRoom> {
        self.whole(|writer| {
            writer.put(&[kind, 0])?;
            parts.iter().try_for_each(|part| writer.put(part))
        })
    }

    /// The front of an option that has a lifetime and a list behind it.
    fn list(&mut self, kind: u8, lifetime: u32) -> Result<(), NoRoom> {
        self.put(&[kind, 0, 0, 0])?;
        self.put(&lifetime.to_be_bytes())
    }

    fn name<'n>(&mut self, labels: impl IntoIterator<Item = &'n [u8]>) -> Result<(), NoRoom> {
        let begin = self.len;
        for label in labels {
            if label.is_empty() || label.len() > MAX_LABEL {
                return Err(NoRoom);
            }
            self.put(&[label.len() as u8])?;
            self.put(label)?;
        }
        if self.len == begin || self.len + 1 - begin > MAX_NAME {
            return Err(NoRoom);
        }
        self.put(&[0])
    }

    /// Writes by `build`, with two octets in front that say how much.
    fn behind_length(
        &mut self,
        build: impl FnOnce(&mut Self) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        let front = self.len;
        self.put(&[0, 0])?;
        build(self)?;
        let len = u16::try_from(self.len - front - 2).map_err(|_| NoRoom)?;
        put_u16(self.buffer, front, len);
        Ok(())
    }

    /// Writes one option by `build`, pads it with zeros and fills its length in; or leaves the message
    /// as it was.
    fn whole(&mut self, build: impl FnOnce(&mut Self) -> Result<(), NoRoom>) -> Result<(), NoRoom> {
        let front = self.len;
        let written = build(self).and_then(|()| self.close(front));
        if written.is_err() {
            self.len = front;
        }
        written
    }

    fn close(&mut self, front: usize) -> Result<(), NoRoom> {
        let padding = (self.len - front).next_multiple_of(UNIT) - (self.len - front);
        self.put(&[0; UNIT][..padding])?;
        let units = u8::try_from((self.len - front) / UNIT).map_err(|_| NoRoom)?;
        put_u8(self.buffer, front + 1, units);
        Ok(())
    }

    fn put(&mut self, octets: &[u8]) -> Result<(), NoRoom> {
        let room = self.buffer.get_mut(self.len..).and_then(|b| b.get_mut(..octets.len()));
        room.ok_or(NoRoom)?.copy_from_slice(octets);
        self.len += octets.len();
        Ok(())
    }
}
