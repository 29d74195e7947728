//! nftables messages as the kernel reads and writes them: a header, then attributes.

use std::convert::Infallible;

use libc::c_int;
use netlink_packet_core::{
    DefaultNla, Emitable, NLA_F_NESTED, NetlinkDeserializable, NetlinkHeader, NetlinkPayload,
    NetlinkSerializable, NlasIterator,
};

/// A message of nftables: `struct nfgenmsg`, then attributes.
#[derive(Clone, Debug)]
pub(super) struct Message {
    kind: u16,
    octets: Vec<u8>,
}

/// Octets of the header in front of the attributes (`struct nfgenmsg`).
const HEADER: usize = 4;

impl Message {
    /// A message of the type `kind` (`NFT_MSG_*`) about a family (`NFPROTO_*`).
    pub(super) fn new(family: c_int, kind: c_int, attributes: &[DefaultNla]) -> Self {
        let mut octets = vec![0; HEADER + attributes.buffer_len()];
        octets[0] = family as u8;
        attributes.emit(&mut octets[HEADER..]);
        Self { kind: (libc::NFNL_SUBSYS_NFTABLES << 8 | kind) as u16, octets }
    }

    /// Begin or end of a batch (`NFNL_MSG_BATCH_*`).
    pub(super) fn control(kind: c_int) -> Self {
        let [high, low] = (libc::NFNL_SUBSYS_NFTABLES as u16).to_be_bytes();
        Self { kind: kind as u16, octets: vec![0, 0, high, low] }
    }

    /// The family (`NFPROTO_*`).
    pub(super) fn family(&self) -> c_int {
        self.octets.first().copied().unwrap_or_default().into()
    }

    /// Type and value of each attribute.
    pub(super) fn attributes(&self) -> impl Iterator<Item = (u16, Vec<u8>)> {
        attributes_in(self.octets.get(HEADER..).unwrap_or_default())
    }

    /// The value of the attribute of this type.
    pub(super) fn attribute(&self, kind: u16) -> Option<Vec<u8>> {
        self.attributes().find(|(it, _)| *it == kind).map(|(_, value)| value)
    }
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        self.octets.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..self.octets.len()].copy_from_slice(&self.octets);
    }
}

impl NetlinkDeserializable for Message {
    type Error = Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Infallible> {
        Ok(Self { kind: header.message_type, octets: payload.to_vec() })
    }
}

impl From<Message> for NetlinkPayload<Message> {
    fn from(message: Message) -> Self {
        NetlinkPayload::InnerMessage(message)
    }
}

/// Type and value of each attribute, up to one that is cut.
pub(super) fn attributes_in(octets: &[u8]) -> impl Iterator<Item = (u16, Vec<u8>)> {
    let attributes = NlasIterator::new(octets).map_while(Result::ok);
    attributes.map(|attribute| (attribute.kind(), attribute.value().to_vec()))
}

/// A text up to its final zero.
pub(super) fn read_text(octets: &[u8]) -> Option<String> {
    String::from_utf8(octets.split(|octet| *octet == 0).next()?.to_vec()).ok()
}

/// An attribute with a number of 32 bits.
pub(super) fn number(kind: u16, number: u32) -> DefaultNla {
    DefaultNla::new(kind, number.to_be_bytes().to_vec())
}

/// An attribute with a number of 64 bits.
pub(super) fn long(kind: u16, number: u64) -> DefaultNla {
    DefaultNla::new(kind, number.to_be_bytes().to_vec())
}

/// An attribute with a text and its final zero.
pub(super) fn text(kind: u16, text: &str) -> DefaultNla {
    DefaultNla::new(kind, text.bytes().chain([0]).collect())
}

/// An attribute that holds others.
pub(super) fn nested(kind: u16, parts: &[DefaultNla]) -> DefaultNla {
    let mut octets = vec![0; parts.buffer_len()];
    parts.emit(&mut octets);
    DefaultNla::new(kind | NLA_F_NESTED, octets)
}
