//! Responses: header, sections, OPT (RFC 6147 section 5.4).

use hickory_proto::op::{Edns, Message, MessageType, ResponseCode};
use hickory_proto::rr::{RData, Record, RecordType};

use crate::ede::Ede;
use crate::exchange::{Answer, Failure, Security};

/// UDP payload size in responses: it fits into one packet, so none is fragmented.
const PAYLOAD: u16 = 1232;

/// Extended errors of an upstream server that are passed on at most.
const MAX_EDE: usize = 4;

/// A response, with the id, the question and the flags of its query.
#[derive(Clone, Debug)]
pub struct Response {
    /// The whole message; the sender truncates it if it does not fit.
    pub message: Message,
    /// Its origin.
    pub kind: Kind,
    /// For how many seconds it may be given to others whose query has the same question (whatever its case), the same
    /// bits RD, CD and DO, and an OPT record or none as this one, under the same policy; its TTLs have then to be
    /// lowered by the time that has passed. 0: not at all.
    pub lifetime: u32,
    /// Private addresses of a public name are missing ([`Rebinding`](crate::Rebinding)).
    pub blocked: bool,
}

/// The origin of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// From upstream.
    Upstream,
    /// With synthetic records.
    Synthetic,
    /// Made here: special names, reverse names.
    Local,
    /// An error that was found here: a query that is refused, no answer from upstream, one that does not validate.
    Error,
}

impl Response {
    pub(crate) fn new(message: Message, kind: Kind, lifetime: u32) -> Response {
        Response { message, kind, lifetime, blocked: false }
    }
}

/// A response with nothing but this RCODE and, if the client understands it, the reason.
pub(crate) fn refuse(query: &Message, code: ResponseCode, why: Option<&Ede>) -> Response {
    let mut message = header(query);
    message.metadata.response_code = code;
    add_edns(&mut message, query, why.map(std::slice::from_ref).unwrap_or_default());
    Response::new(message, Kind::Error, 0)
}

/// SERVFAIL, with the reason.
pub(crate) fn fail(query: &Message, failure: Failure) -> Response {
    let why = match failure {
        Failure::Timeout => Ede::new(Ede::NO_REACHABLE_AUTHORITY, "no answer in time"),
        Failure::Unreachable => Ede::new(Ede::NETWORK_ERROR, ""),
        Failure::Malformed => Ede::new(Ede::INVALID_DATA, ""),
        Failure::Bogus(code) => Ede::new(code, ""),
        Failure::Overload => Ede::new(Ede::OTHER, "too many queries"),
    };
    refuse(query, ResponseCode::ServFail, Some(&why))
}

/// Header and question of a response, by the rules for recursive servers.
pub(crate) fn header(query: &Message) -> Message {
    let asked = &query.metadata;
    let mut message = Message::new(asked.id, MessageType::Response, asked.op_code);
    message.metadata.recursion_desired = asked.recursion_desired;
    message.metadata.recursion_available = true;
    // RFC 4035 section 3.2.2.
    message.metadata.checking_disabled = asked.checking_disabled;
    message.queries.clone_from(&query.queries);
    message
}

/// An OPT record, if and only if the query has one (RFC 6891 section 7).
pub(crate) fn add_edns(message: &mut Message, query: &Message, errors: &[Ede]) {
    if query.edns.is_none() {
        // An RCODE above 15 can't be said without.
        if u16::from(message.metadata.response_code) > 15 {
            message.metadata.response_code = ResponseCode::ServFail;
        }
        return;
    }
    let mut edns = Edns::new();
    edns.set_max_payload(PAYLOAD);
    // RFC 3225 section 3: the bit is copied.
    edns.set_dnssec_ok(dnssec_ok(query));
    errors.iter().take(MAX_EDE).for_each(|error| error.insert(&mut edns));
    message.set_edns(edns);
}

/// The upstream's answer as the response: every record as it is, whatever its type (RFC 6147 section 5.3.3).
pub(crate) fn pass(query: &Message, answer: &Answer<'_>) -> Response {
    let mut message = header(query);
    message.metadata.response_code = answer.message.metadata.response_code;
    message.metadata.truncation = answer.message.metadata.truncation;
    message.metadata.authentic_data = authentic(query, &[answer.security]);
    message.answers = records(query, answer, &answer.message.answers);
    copy_rest(&mut message, query, answer);
    add_edns(&mut message, query, &Ede::of(answer.message));
    let lifetime = lifetime(&message);
    Response::new(message, Kind::Upstream, lifetime)
}

/// The authority and additional sections come from the last answer (RFC 6147 section 5.4), and nothing is synthesised
/// in them (section 5.3.2).
pub(crate) fn copy_rest(message: &mut Message, query: &Message, answer: &Answer<'_>) {
    message.authorities = records(query, answer, &answer.message.authorities);
    message.additionals = records(query, answer, &answer.message.additionals);
}

/// Whether the client wants DNSSEC records: the DO bit (RFC 3225).
pub(crate) fn dnssec_ok(query: &Message) -> bool {
    query.edns.as_ref().is_some_and(|edns: &Edns| edns.flags().dnssec_ok)
}

/// Whether AD is set: the client asks for it by DO, and does not do the checking itself, and all of it has been
/// validated here (RFC 6147 section 5.5, items 1 to 3). What an upstream server says of itself is not taken over (RFC
/// 4035 section 4.9.3).
pub(crate) fn authentic(query: &Message, security: &[Security]) -> bool {
    dnssec_ok(query)
        && !query.metadata.checking_disabled
        && security.iter().all(|security| *security == Security::Secure)
}

/// A section for the response: with lowered TTLs, and without DNSSEC records that were not asked for.
pub(crate) fn records(query: &Message, answer: &Answer<'_>, section: &[Record]) -> Vec<Record> {
    let keep_all = dnssec_ok(query);
    let asked = query.queries.first().map(|question| question.query_type);
    section
        .iter()
        .filter(|record| {
            let record_type = record.record_type();
            // Signatures and keys of a message are about the message it came in.
            !matches!(record_type, RecordType::OPT | RecordType::TSIG | RecordType::SIG)
                // RFC 4035 section 3.2.1.
                && (keep_all
                    || !matches!(record_type, RecordType::RRSIG | RecordType::NSEC | RecordType::NSEC3)
                    || asked.is_some_and(|asked| asked == record_type || asked.is_any()))
        })
        .map(|record| aged(record, answer.age))
        .collect()
}

/// A record with its remaining TTL.
pub(crate) fn aged(record: &Record, age: u32) -> Record {
    let mut record = record.clone();
    record.ttl = ttl(record.ttl, age);
    record
}

/// The remaining TTL; one with the highest bit set counts as 0 (RFC 2181 section 8).
pub(crate) fn ttl(ttl: u32, age: u32) -> u32 {
    if ttl > i32::MAX as u32 { 0 } else { ttl.saturating_sub(age) }
}

/// The SOA record of a negative answer, and how long the answer may be cached (RFC 2308 section 5), age apart.
pub(crate) fn soa(authorities: &[Record]) -> Option<(&Record, u32)> {
    authorities.iter().find_map(|record| match &record.data {
        RData::SOA(soa) => Some((record, record.ttl.min(soa.minimum))),
        _ => None,
    })
}

/// For how long the response may be given again: until the first of its records ends; a negative one as its SOA says,
/// and not at all without (RFC 2308 section 5); errors not at all.
pub(crate) fn lifetime(message: &Message) -> u32 {
    let code = message.metadata.response_code;
    let negative = match code {
        ResponseCode::NXDomain => true,
        ResponseCode::NoError => !message.queries.first().is_some_and(|question| {
            let asked = question.query_type;
            message.answers.iter().any(|record| asked.is_any() || record.record_type() == asked)
        }),
        _ => return 0,
    };
    if message.metadata.truncation {
        return 0;
    }
    let negative = match (negative, soa(&message.authorities)) {
        (false, _) => u32::MAX,
        (true, Some((_, lifetime))) => lifetime,
        (true, None) => 0,
    };
    let shortest = message.all_sections().map(|record| record.ttl).min().unwrap_or(0);
    shortest.min(negative)
}

#[cfg(test)]
mod tests;
