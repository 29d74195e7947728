//! `ipv4only.arpa`, the name by which hosts learn the prefix (RFC 7050, RFC 8880).

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, SOA};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

use crate::ede::Ede;
use crate::policy::Policy;
use crate::response::{Kind, Response, add_edns, header, lifetime};
use crate::well_known::{WELL_KNOWN_ADDRESSES, well_known_name};

/// TTL of what is fixed by the RFC, seconds: at least an hour (RFC 7050 section 4).
const FIXED_TTL: u32 = 3600;

/// TTL of what follows from configuration, seconds: how long hosts may keep a prefix that is no longer used. The limit
/// of RFC 6147 section 5.1.7 for synthetic records.
pub(crate) const LOCAL_TTL: u32 = 600;

/// The response to a question about the well-known name or a name below it.
///
/// Every type is answered here, except DS, which is resolved the usual way (RFC 8880 section 7.1 item 4). CD and DO
/// change nothing, because these answers are not validated (RFC 8880 section 5).
pub(crate) fn answer(policy: &Policy, query: &Message, question: &Query) -> Option<Response> {
    let zone = well_known_name();
    if question.query_class != DNSClass::IN || !zone.zone_of(&question.name) {
        return None;
    }
    let exists = zone == question.name;
    let mut message = local(query);
    let mut synthetic = false;
    match question.query_type {
        _ if !exists => message.metadata.response_code = ResponseCode::NXDomain,
        RecordType::DS => return None,
        RecordType::A => {
            let data = WELL_KNOWN_ADDRESSES.map(|v4| RData::A(A(v4)));
            message.answers.extend(records(question, FIXED_TTL, data));
        }
        RecordType::AAAA => {
            let pairs = policy.prefixes().iter().flat_map(|pool6| {
                // RFC 6052 section 3.1 forbids these two with the Well-Known Prefix; RFC 7050 wants them.
                WELL_KNOWN_ADDRESSES.map(|v4| RData::AAAA(AAAA(pool6.embed(v4))))
            });
            message.answers.extend(records(question, LOCAL_TTL, pairs));
            synthetic = !message.answers.is_empty();
        }
        _ => {}
    }
    if message.answers.is_empty() {
        message.authorities.push(soa(zone, LOCAL_TTL));
    }
    let synthetic = synthetic.then(|| Ede::new(Ede::SYNTHESIZED, ""));
    Some(explained(message, query, synthetic.as_slice()))
}

/// An authoritative response.
pub(crate) fn local(query: &Message) -> Message {
    let mut message = header(query);
    message.metadata.authoritative = true;
    message
}

/// Completes a local response.
pub(crate) fn done(message: Message, query: &Message) -> Response {
    explained(message, query, &[])
}

/// Completes a local response with its reasons.
fn explained(mut message: Message, query: &Message, why: &[Ede]) -> Response {
    add_edns(&mut message, query, why);
    let lifetime = lifetime(&message);
    Response::new(message, Kind::Local, lifetime)
}

/// Records of the name that was asked for.
pub(crate) fn records(
    question: &Query,
    ttl: u32,
    data: impl IntoIterator<Item = RData>,
) -> impl Iterator<Item = Record> {
    data.into_iter().map(move |data| Record::from_rdata(question.name.clone(), ttl, data))
}

/// The SOA record of a zone that is served here (its form is RFC 6303 section 3's).
pub(crate) fn soa(zone: Name, negative_ttl: u32) -> Record {
    let nobody = Name::from_labels(["nobody", "invalid"]).unwrap_or_default();
    let soa = SOA::new(zone.clone(), nobody, 1, 3600, 1200, 604_800, negative_ttl);
    Record::from_rdata(zone, negative_ttl, RData::SOA(soa))
}

#[cfg(test)]
mod tests;
