//! Queries to upstream servers as octets, and whether a response answers one.

use super::{key, random};

/// What this host takes by UDP: fits every path without fragments (RFC 9715 section 3).
const UDP_PAYLOAD: u16 = 1232;
/// Queries over TLS are padded to a multiple of this (RFC 8467 section 4.1).
const PADDING_BLOCK: usize = 128;
/// Where the name of the question begins.
const NAME: usize = 12;

const RECURSION_DESIRED: u8 = 0x01;
const AUTHENTIC_DATA: u8 = 0x20;
const CHECKING_DISABLED: u8 = 0x10;

/// How a query is made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Style {
    /// Draw the case of each letter of the name.
    pub(super) mixed_case: bool,
    /// With the OPT record of EDNS.
    pub(super) edns: bool,
    /// Pad, so that its length tells less.
    pub(super) padded: bool,
}

/// A query.
#[derive(Clone, Debug)]
pub(super) struct Query {
    octets: Vec<u8>,
    question_end: usize,
    /// Where the length of the options stands, if there may be more of them.
    options: Option<usize>,
}

/// What a response is to a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// An answer to it, from a sender that has seen it.
    Answers,
    /// An answer to it, but for the case of the name.
    OtherCase,
    /// An error without the question, with the identifier of the query.
    ErrorWithoutQuestion,
    /// Not an answer to it.
    Mismatch,
    /// No response of the DNS.
    Malformed,
}

impl Query {
    /// A query for what `key` says, with an identifier drawn at random.
    pub(super) fn new(key: &[u8], style: Style) -> std::io::Result<Self> {
        let name = key::name(key);
        let [high, low] = random::octets()?;
        let mut octets = Vec::with_capacity(NAME + name.len() + 4 + 11 + 4);
        // AD asks for AD in the answer (RFC 6840 section 5.7).
        let checking = if key::checking_disabled(key) { CHECKING_DISABLED } else { 0 };
        octets.extend([high, low, RECURSION_DESIRED, AUTHENTIC_DATA | checking]);
        octets.extend([0, 1, 0, 0, 0, 0, 0, u8::from(style.edns)]);
        octets.extend(name);
        if style.mixed_case {
            mix_case(&mut octets[NAME..])?;
        }
        octets.extend(key::type_and_class(key));
        let question_end = octets.len();
        if style.edns {
            push_opt(&mut octets, key::dnssec_ok(key), style.padded);
        }
        let options = (style.edns && !style.padded).then(|| octets.len() - 2);
        Ok(Self { octets, question_end, options })
    }

    /// The query with a cookie (RFC 7873 section 4), if it has an OPT record.
    pub(super) fn with_cookie(&self, cookie: &[u8]) -> Option<Self> {
        let at = self.options?;
        let mut query = self.clone();
        let len = u8::try_from(cookie.len()).ok()?;
        query.octets[at + 1] = len.checked_add(4)?;
        query.octets.extend([0, 10, 0, len]);
        query.octets.extend(cookie);
        query.options = None;
        Some(query)
    }

    /// As it is sent.
    pub(super) fn as_octets(&self) -> &[u8] {
        &self.octets
    }

    /// What a response is to this query.
    pub(super) fn matches(&self, response: &[u8]) -> Match {
        let Some(header) = response.first_chunk::<NAME>() else {
            return Match::Malformed;
        };
        // QR must be set and OPCODE be QUERY.
        if header[2] & 0xf8 != 0x80 || header[..2] != self.octets[..2] {
            return Match::Mismatch;
        }
        let questions = u16::from_be_bytes([header[4], header[5]]);
        if questions == 0 && header[3] & 0x0f != 0 {
            return Match::ErrorWithoutQuestion;
        }
        let Some(question) = response.get(NAME..self.question_end).filter(|_| questions == 1)
        else {
            return Match::Mismatch;
        };
        let own = &self.octets[NAME..self.question_end];
        if question == own {
            return Match::Answers;
        }
        let name = own.len() - 4;
        if question[name..] == own[name..] && question[..name].eq_ignore_ascii_case(&own[..name]) {
            return Match::OtherCase;
        }
        Match::Mismatch
    }

    /// Writes the question of a response in lower case; owner names that point to it follow.
    pub(super) fn lower_question(&self, response: &mut [u8]) {
        if let Some(name) = response.get_mut(NAME..self.question_end - 4) {
            name.make_ascii_lowercase();
        }
    }
}

/// The OPT record (RFC 6891 section 6.1.2).
fn push_opt(octets: &mut Vec<u8>, dnssec_ok: bool, padded: bool) {
    let [payload_high, payload_low] = UDP_PAYLOAD.to_be_bytes();
    let dnssec_ok = if dnssec_ok { 0x80 } else { 0 };
    octets.extend([0, 0, 41, payload_high, payload_low, 0, 0, dnssec_ok, 0]);
    if !padded {
        octets.extend([0, 0]);
        return;
    }
    // Length of the options, then code 12 and length of the padding itself (RFC 7830 section 3).
    let bare = octets.len() + 2 + 4;
    let padding = bare.next_multiple_of(PADDING_BLOCK) - bare;
    // Less than a block each, so both fit an octet.
    let [options, padding] = [padding + 4, padding].map(|length| u8::try_from(length).unwrap_or(0));
    octets.extend([0, options, 0, 12, 0, padding]);
    octets.resize(octets.len() + usize::from(padding), 0);
}

/// Draws the case of each letter: an off-path attacker has to guess it (draft-vixie-dnsext-dns0x20).
fn mix_case(name: &mut [u8]) -> std::io::Result<()> {
    let bits: [u8; 32] = random::octets()?;
    for (place, octet) in name.iter_mut().enumerate() {
        if octet.is_ascii_lowercase() && bits[place / 8] & (1 << (place % 8)) != 0 {
            octet.make_ascii_uppercase();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use fordway_dns64::Question;
    use hickory_proto::op::Message;
    use hickory_proto::rr::{Name, RecordType};

    use super::super::key::{KeyBuf, question};
    use super::*;

    fn query(style: Style) -> Query {
        let name = Name::from_ascii("a-name-with-many-letters.example.net.").unwrap();
        let question = Question { dnssec_ok: true, ..question(name, RecordType::AAAA) };
        Query::new(KeyBuf::new(&question, false).unwrap().as_octets(), style).unwrap()
    }

    fn response(query: &Query) -> Vec<u8> {
        let mut response = query.as_octets().to_vec();
        response[2] |= 0x80;
        response
    }

    #[test]
    fn a_query_is_what_the_library_reads() {
        let style = Style { mixed_case: true, edns: true, padded: false };
        let message = Message::from_vec(query(style).as_octets()).unwrap();
        assert!(message.metadata.recursion_desired && message.metadata.authentic_data);
        assert!(!message.metadata.checking_disabled);
        assert_eq!(message.queries[0].query_type(), RecordType::AAAA);
        assert_eq!(
            message.queries[0].name().to_lowercase().to_ascii(),
            "a-name-with-many-letters.example.net."
        );
        let edns = message.edns.unwrap();
        assert_eq!((edns.max_payload(), edns.version(), edns.flags().dnssec_ok), (1232, 0, true));
    }

    #[test]
    fn a_padded_query_has_the_length_of_blocks() {
        let padded = query(Style { mixed_case: false, edns: true, padded: true });
        assert_eq!(padded.as_octets().len() % 128, 0);
        assert!(Message::from_vec(padded.as_octets()).unwrap().edns.is_some());
    }

    #[test]
    fn the_case_differs_from_query_to_query() {
        let style = Style { mixed_case: true, ..Style::default() };
        let drawn: std::collections::HashSet<Vec<u8>> =
            (0..20).map(|_| query(style).as_octets()[NAME..].to_vec()).collect();
        assert!(drawn.len() > 15, "{} of 20 names differ", drawn.len());
    }

    #[test]
    fn only_the_same_question_under_the_same_identifier_answers() {
        let query = query(Style { mixed_case: true, edns: true, padded: false });
        let good = response(&query);
        assert_eq!(query.matches(&good), Match::Answers);

        let changed = |place: usize, mask: u8| {
            let mut response = good.clone();
            response[place] ^= mask;
            query.matches(&response)
        };
        assert_eq!(changed(0, 0x40), Match::Mismatch, "another identifier");
        assert_eq!(changed(2, 0x80), Match::Mismatch, "a query");
        assert_eq!(changed(2, 0x20), Match::Mismatch, "another operation");
        assert_eq!(changed(5, 0x02), Match::Mismatch, "three questions");
        assert_eq!(changed(NAME + 1, 0x20), Match::OtherCase);
        assert_eq!(changed(NAME + 1, 0x02), Match::Mismatch, "another name");
        assert_eq!(changed(query.question_end - 3, 0x01), Match::Mismatch, "another type");
        assert_eq!(query.matches(&good[..query.question_end - 1]), Match::Mismatch, "cut short");
        assert_eq!(query.matches(&good[..11]), Match::Malformed);
        assert_eq!(query.matches(&[]), Match::Malformed);
    }

    #[test]
    fn an_error_may_come_without_the_question_but_an_answer_may_not() {
        let query = query(Style::default());
        let mut bare = response(&query)[..NAME].to_vec();
        bare[5] = 0;
        assert_eq!(query.matches(&bare), Match::Mismatch);
        bare[3] |= 1;
        assert_eq!(query.matches(&bare), Match::ErrorWithoutQuestion);
    }
}
