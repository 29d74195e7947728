//! Answers without records, made from the query alone.

use fordway_dns64::Ede;
use hickory_proto::op::ResponseCode;

use super::extras::Extras;
use super::query::{HEADER, Query};

const QR: u16 = 0x8000;
const TC: u16 = 0x0200;
const RA: u16 = 0x0080;
const DNSSEC_OK: u16 = 0x8000;
const TYPE_OPT: u16 = 41;
const OPTION_EDE: u16 = 15;
/// The part of the RCODE that the header has (RFC 6891 section 6.1.3).
const LOW_RCODE: u16 = 0x000f;

/// Why an answer has no records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Brief {
    /// The client may not ask: REFUSED.
    Prohibited,
    /// Too much is under way: SERVFAIL.
    Overload,
    /// The client is to retry by TCP: TC.
    Truncated,
    /// The client is to retry with the server's cookie: BADCOOKIE.
    BadCookie,
    /// The query's cookie has a length that no cookie has: FORMERR.
    MalformedCookie,
    /// The cookie is all that was asked for.
    Cookie,
}

impl Brief {
    /// RCODE.
    pub(super) fn rcode(self) -> u16 {
        let code = match self {
            Brief::Prohibited => ResponseCode::Refused,
            Brief::Overload => ResponseCode::ServFail,
            Brief::Truncated | Brief::Cookie => ResponseCode::NoError,
            Brief::BadCookie => ResponseCode::BADCOOKIE,
            Brief::MalformedCookie => ResponseCode::FormErr,
        };
        code.into()
    }

    /// Appends the answer; `size` is the size of datagrams that this server takes.
    pub(super) fn write(self, query: &Query<'_>, extras: Extras, size: u16, out: &mut Vec<u8>) {
        let ede: Option<(u16, &str)> = match self {
            Brief::Prohibited => Some((Ede::PROHIBITED, "")),
            Brief::Overload => Some((Ede::OTHER, "too many queries under way")),
            Brief::Truncated | Brief::BadCookie | Brief::MalformedCookie | Brief::Cookie => None,
        };
        let cut = if self == Brief::Truncated { TC } else { 0 };
        let flags = QR | cut | RA | query.repeated_flags() | (self.rcode() & LOW_RCODE);
        let additional = u16::from(query.edns.is_some());
        let start = out.len();
        let questions = u16::from(!query.question.is_empty());
        out.reserve(HEADER + query.question.len() + 80);
        for word in [query.id, flags, questions, 0, 0, additional] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend_from_slice(query.question);
        let Some(edns) = query.edns else { return };
        out.push(0);
        let high = self.rcode() >> 4 << 8;
        for word in [TYPE_OPT, size, high, if edns.dnssec_ok { DNSSEC_OK } else { 0 }] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        let opt = out.len();
        match ede {
            None => out.extend_from_slice(&[0, 0]),
            Some((code, text)) => {
                let len = 2 + text.len() as u16;
                for word in [len + 4, OPTION_EDE, len, code] {
                    out.extend_from_slice(&word.to_be_bytes());
                }
                out.extend_from_slice(text.as_bytes());
            }
        }
        extras.write(start, opt, out);
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query as HickoryQuery};
    use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
    use hickory_proto::rr::{Name, RecordType};

    use super::super::cookie::COOKIE;
    use super::*;

    fn answer(brief: Brief, edns: bool) -> Message {
        let mut query = Message::new(77, MessageType::Query, OpCode::Query);
        query.metadata.recursion_desired = true;
        query.metadata.checking_disabled = true;
        query.add_query(HickoryQuery::query(
            Name::from_ascii("Example.com.").unwrap(),
            RecordType::A,
        ));
        if edns {
            let mut edns = Edns::new();
            edns.set_dnssec_ok(true);
            query.set_edns(edns);
        }
        let query = query.to_vec().unwrap();
        let mut out = Vec::new();
        let extras = Extras { cookie: Some([7; COOKIE]), pads: false };
        brief.write(&Query::read(&query).unwrap(), extras, 1232, &mut out);
        Message::from_vec(&out).unwrap()
    }

    #[test]
    fn a_code_that_takes_the_opt_record() {
        let answer = answer(Brief::BadCookie, true);
        assert_eq!(answer.metadata.response_code, ResponseCode::BADCOOKIE);
        assert!(answer.edns.unwrap().options().get(EdnsCode::Cookie).is_some());
    }

    #[test]
    fn each_of_them() {
        for (brief, code, cut) in [
            (Brief::Prohibited, ResponseCode::Refused, false),
            (Brief::Overload, ResponseCode::ServFail, false),
            (Brief::Truncated, ResponseCode::NoError, true),
            (Brief::MalformedCookie, ResponseCode::FormErr, false),
        ] {
            for edns in [false, true] {
                let answer = answer(brief, edns);
                let metadata = &answer.metadata;
                assert_eq!((metadata.id, metadata.message_type), (77, MessageType::Response));
                assert_eq!((metadata.response_code, metadata.truncation), (code, cut));
                assert!(metadata.recursion_desired && metadata.recursion_available);
                assert!(metadata.checking_disabled && !metadata.authentic_data);
                assert_eq!(answer.queries[0].name().to_string(), "Example.com.");
                assert_eq!(answer.all_sections().count(), 0);
                assert_eq!(answer.edns.is_some(), edns);
                let Some(edns) = &answer.edns else { continue };
                let cookie = edns.options().get(EdnsCode::Cookie);
                assert_eq!(cookie, Some(&EdnsOption::Unknown(10, vec![7; COOKIE])));
                assert_eq!((edns.max_payload(), edns.flags().dnssec_ok), (1232, true));
                let codes: Vec<u16> = Ede::of(&answer).iter().map(|ede| ede.code).collect();
                match brief {
                    Brief::Prohibited => assert_eq!(codes, [18]),
                    Brief::Overload => assert_eq!(codes, [0]),
                    _ => assert_eq!(codes, [0; 0]),
                }
            }
        }
    }
}
