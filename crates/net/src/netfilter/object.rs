//! Counters that have a name, so that they can be read without their rules.

use super::message::{Message, attributes_in, long, nested, number, read_text, text};

const NFTA_OBJ_TABLE: u16 = 1;
const NFTA_OBJ_NAME: u16 = 2;
const NFTA_OBJ_TYPE: u16 = 3;
const NFTA_OBJ_DATA: u16 = 4;

const NFTA_COUNTER_BYTES: u16 = 1;
const NFTA_COUNTER_PACKETS: u16 = 2;

/// `NFT_OBJECT_COUNTER`.
pub(super) const COUNTER: u32 = 1;

/// What a counter has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) packets: u64,
    pub(crate) octets: u64,
}

pub(super) fn new_counter(family: i32, table: &str, name: &str, earlier: Count) -> Message {
    let count =
        [long(NFTA_COUNTER_BYTES, earlier.octets), long(NFTA_COUNTER_PACKETS, earlier.packets)];
    let attributes = [
        text(NFTA_OBJ_TABLE, table),
        text(NFTA_OBJ_NAME, name),
        number(NFTA_OBJ_TYPE, COUNTER),
        nested(NFTA_OBJ_DATA, &count),
    ];
    Message::new(family, libc::NFT_MSG_NEWOBJ, &attributes)
}

pub(super) fn get_counters(family: i32, table: &str) -> Message {
    let attributes = [text(NFTA_OBJ_TABLE, table), number(NFTA_OBJ_TYPE, COUNTER)];
    Message::new(family, libc::NFT_MSG_GETOBJ, &attributes)
}

/// Name and count of a counter.
pub(super) fn read_counter(answer: &Message) -> Option<(String, Count)> {
    let mut count = Count::default();
    for (kind, value) in attributes_in(&answer.attribute(NFTA_OBJ_DATA).unwrap_or_default()) {
        let number = u64::from_be_bytes(value.try_into().ok()?);
        match kind {
            NFTA_COUNTER_BYTES => count.octets = number,
            NFTA_COUNTER_PACKETS => count.packets = number,
            _ => {}
        }
    }
    Some((read_text(&answer.attribute(NFTA_OBJ_NAME)?)?, count))
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{NetlinkDeserializable, NetlinkHeader, NetlinkSerializable};

    use super::*;

    #[test]
    fn counters_are_read_as_they_are_written() {
        let count = Count { packets: 7, octets: 1 << 40 };
        let message = new_counter(libc::NFPROTO_IPV4, "t", "translated", count);
        let mut octets = vec![0; message.buffer_len()];
        message.serialize(&mut octets);
        let read = |octets: &[u8]| {
            let message = Message::deserialize(&NetlinkHeader::default(), octets);
            read_counter(&message.unwrap())
        };
        assert_eq!(read(&octets), Some(("translated".to_owned(), count)));
        for length in 0..octets.len() {
            // No length makes it panic, and no name is made up.
            assert!(read(&octets[..length]).is_none_or(|(name, _)| name == "translated"));
        }
    }
}
