//! A question as octets: what answers and questions under way are found by.
//!
//! ```text
//! | bits: DO, CD, validated here | type (2) | class (2) | name in lower case, as on the wire (1 to 255) |
//! ```

use std::sync::Arc;

use fordway_dns64::Question;
use hickory_proto::op::Query;
use hickory_proto::rr::{DNSClass, Name, RecordType};
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};

/// The longest name on the wire (RFC 1035 section 2.3.4).
const MAX_NAME: usize = 255;
/// What stands before the name.
const PREFIX: usize = 5;

const DNSSEC_OK: u8 = 1;
const CHECKING_DISABLED: u8 = 2;
const VALIDATED: u8 = 4;

/// A question of class IN with neither DO nor CD.
pub(super) fn question(name: Name, record_type: RecordType) -> Question {
    Question { name, record_type, class: DNSClass::IN, dnssec_ok: false, checking_disabled: false }
}

/// The question section for a question, with the name in lower case.
pub(super) fn query_of(question: &Question) -> Query {
    let mut name = question.name.to_lowercase();
    name.set_fqdn(true);
    let mut query = Query::query(name, question.record_type);
    query.set_query_class(question.class);
    query
}

/// A key that the tables own.
pub(super) type Key = Arc<[u8]>;

/// A key that has just been made, on the stack.
pub(super) struct KeyBuf {
    octets: [u8; PREFIX + MAX_NAME],
    len: usize,
}

impl KeyBuf {
    /// The key of a question; `validated` tells answers that this host has validated from those that came so.
    ///
    /// `None` if the name is too long for the wire.
    pub(super) fn new(question: &Question, validated: bool) -> Option<Self> {
        let mut octets = [0; PREFIX + MAX_NAME];
        octets[0] = (u8::from(question.dnssec_ok) * DNSSEC_OK)
            | (u8::from(question.checking_disabled) * CHECKING_DISABLED)
            | (u8::from(validated) * VALIDATED);
        octets[1..3].copy_from_slice(&u16::from(question.record_type).to_be_bytes());
        octets[3..5].copy_from_slice(&u16::from(question.class).to_be_bytes());
        let mut len = PREFIX;
        for label in &question.name {
            let end = len + 1 + label.len();
            // The root's octet must still fit.
            let place = octets.get_mut(len..end)?;
            place[0] = u8::try_from(label.len()).ok().filter(|length| *length <= 63)?;
            place[1..].copy_from_slice(label);
            place[1..].make_ascii_lowercase();
            len = end;
        }
        octets.get(len)?;
        Some(Self { octets, len: len + 1 })
    }

    /// The key for the tables.
    pub(super) fn to_key(&self) -> Key {
        Arc::from(self.as_octets())
    }

    /// The key to look things up by.
    pub(super) fn as_octets(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

/// The question of a key.
pub(super) fn to_question(key: &[u8]) -> Option<Question> {
    let (kind, class) = type_and_class(key).split_first_chunk()?;
    let name = Name::read(&mut BinDecoder::new(name(key))).ok()?;
    Some(Question {
        name,
        record_type: u16::from_be_bytes(*kind).into(),
        class: u16::from_be_bytes(class.try_into().ok()?).into(),
        dnssec_ok: dnssec_ok(key),
        checking_disabled: checking_disabled(key),
    })
}

/// Whether signatures are wanted.
pub(super) fn dnssec_ok(key: &[u8]) -> bool {
    key[0] & DNSSEC_OK != 0
}

/// Whether the server is to leave checking to this side.
pub(super) fn checking_disabled(key: &[u8]) -> bool {
    key[0] & CHECKING_DISABLED != 0
}

/// The name as on the wire, in lower case.
pub(super) fn name(key: &[u8]) -> &[u8] {
    &key[PREFIX..]
}

/// The name without its first label; none of the root.
pub(super) fn parent(name: &[u8]) -> Option<&[u8]> {
    let len = usize::from(*name.first()?);
    if len == 0 { None } else { name.get(1 + len..) }
}

/// Type and class as on the wire.
pub(super) fn type_and_class(key: &[u8]) -> &[u8] {
    &key[1..PREFIX]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_of_a_name_makes_no_other_key() {
        let lower = question(Name::from_ascii("www.example.net.").unwrap(), RecordType::AAAA);
        let upper = question(Name::from_ascii("WWW.Example.NET.").unwrap(), RecordType::AAAA);
        let relative = question(Name::from_ascii("www.example.net").unwrap(), RecordType::AAAA);
        let [lower, upper, relative] =
            [lower, upper, relative].map(|question| KeyBuf::new(&question, false).unwrap());
        assert_eq!(lower.as_octets(), upper.as_octets());
        assert_eq!(lower.as_octets(), relative.as_octets());
        assert_eq!(name(lower.as_octets()), b"\x03www\x07example\x03net\x00");
        assert_eq!(type_and_class(lower.as_octets()), [0, 28, 0, 1]);
    }

    #[test]
    fn bits_and_types_make_other_keys() {
        let plain = question(Name::from_ascii("example.net.").unwrap(), RecordType::A);
        let keys = [
            KeyBuf::new(&plain, false),
            KeyBuf::new(&plain, true),
            KeyBuf::new(&Question { dnssec_ok: true, ..plain.clone() }, false),
            KeyBuf::new(&Question { checking_disabled: true, ..plain.clone() }, false),
            KeyBuf::new(&Question { record_type: RecordType::AAAA, ..plain.clone() }, false),
        ];
        let distinct: std::collections::HashSet<Vec<u8>> =
            keys.iter().map(|key| key.as_ref().unwrap().as_octets().to_vec()).collect();
        assert_eq!(distinct.len(), keys.len());
    }

    #[test]
    fn the_longest_name_and_the_root_have_keys() {
        let root = KeyBuf::new(&question(Name::root(), RecordType::NS), false).unwrap();
        assert_eq!(name(root.as_octets()), b"\x00");
        let label = "a".repeat(61);
        let longest = format!("{label}.{label}.{label}.{label}.abcd.");
        let longest = Name::from_ascii(longest).unwrap();
        let key = KeyBuf::new(&question(longest, RecordType::A), false).unwrap();
        assert_eq!(name(key.as_octets()).len(), 254);
    }
}
