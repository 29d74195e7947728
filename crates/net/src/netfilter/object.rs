//! Counters that have a name, so that they can be read without their rules.

use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED, NlasIterator};
use netlink_packet_netfilter::nftables::NfTablesMessage;

const NFTA_OBJ_TABLE: u16 = 1;
const NFTA_OBJ_NAME: u16 = 2;
const NFTA_OBJ_TYPE: u16 = 3;
const NFTA_OBJ_DATA: u16 = 4;

const NFTA_COUNTER_BYTES: u16 = 1;
const NFTA_COUNTER_PACKETS: u16 = 2;

/// `NFT_OBJECT_COUNTER`.
pub(super) const COUNTER: u32 = 1;

/// Octets of the header in front of an answer's attributes (`struct nfgenmsg`).
const HEADER: usize = 4;

/// What a counter has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) packets: u64,
    pub(crate) octets: u64,
}

pub(super) fn new_counter(table: &str, name: &str, earlier: Count) -> NfTablesMessage {
    let count = [
        DefaultNla::new(NFTA_COUNTER_BYTES, earlier.octets.to_be_bytes().to_vec()),
        DefaultNla::new(NFTA_COUNTER_PACKETS, earlier.packets.to_be_bytes().to_vec()),
    ];
    NfTablesMessage::NewObject(vec![
        DefaultNla::new(NFTA_OBJ_TABLE, text(table)),
        DefaultNla::new(NFTA_OBJ_NAME, text(name)),
        DefaultNla::new(NFTA_OBJ_TYPE, COUNTER.to_be_bytes().to_vec()),
        nested(NFTA_OBJ_DATA, &count),
    ])
}

pub(super) fn get_counters(table: &str) -> NfTablesMessage {
    NfTablesMessage::GetObject(vec![
        DefaultNla::new(NFTA_OBJ_TABLE, text(table)),
        DefaultNla::new(NFTA_OBJ_TYPE, COUNTER.to_be_bytes().to_vec()),
    ])
}

/// Name and count, if an answer tells of a counter.
pub(super) fn read_counter(answer: &[u8]) -> Option<(String, Count)> {
    let (mut name, mut count) = (None, Count::default());
    for attribute in NlasIterator::new(answer.get(HEADER..)?) {
        let attribute = attribute.ok()?;
        match attribute.kind() {
            NFTA_OBJ_NAME => {
                let octets = attribute.value().split(|octet| *octet == 0).next()?;
                name = Some(String::from_utf8(octets.to_vec()).ok()?);
            }
            NFTA_OBJ_DATA => {
                for part in NlasIterator::new(attribute.value()) {
                    let part = part.ok()?;
                    let number = u64::from_be_bytes(part.value().try_into().ok()?);
                    match part.kind() {
                        NFTA_COUNTER_BYTES => count.octets = number,
                        NFTA_COUNTER_PACKETS => count.packets = number,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Some((name?, count))
}

/// A text with its final zero.
pub(super) fn text(text: &str) -> Vec<u8> {
    text.bytes().chain([0]).collect()
}

/// An attribute that holds others.
pub(super) fn nested(kind: u16, parts: &[DefaultNla]) -> DefaultNla {
    let mut octets = vec![0; parts.buffer_len()];
    parts.emit(&mut octets);
    DefaultNla::new(kind | NLA_F_NESTED, octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_as_they_are_written() {
        let count = Count { packets: 7, octets: 1 << 40 };
        let NfTablesMessage::NewObject(attributes) = new_counter("t", "translated", count) else {
            panic!("no object")
        };
        let mut octets = vec![0; HEADER + attributes.as_slice().buffer_len()];
        attributes.as_slice().emit(&mut octets[HEADER..]);
        assert_eq!(read_counter(&octets), Some(("translated".to_owned(), count)));
        for length in 0..octets.len() {
            // No length makes it panic, and no name is made up.
            let read = read_counter(&octets[..length]);
            assert!(read.is_none_or(|(name, _)| name == "translated"));
        }
    }
}
