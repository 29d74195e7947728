//! The names of synthetic addresses (RFC 6147 section 5.3.1, RFC 8880 section 7.2.1).

use std::net::{Ipv4Addr, Ipv6Addr};

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::rdata::{CNAME, PTR};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

use crate::chain::{covered, follow, is};
use crate::ede::Ede;
use crate::exchange::Answer;
use crate::policy::{Policy, Reverse};
use crate::response::{Kind, Response, add_edns, aged, copy_rest, lifetime, pass, soa, ttl};
use crate::special::{self, LOCAL_TTL};
use crate::synthesis::may_carry;
use crate::well_known::{WELL_KNOWN_ADDRESSES, well_known_name};

/// What becomes of a question for the name of an address.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// It is answered here.
    Local(Box<Response>),
    /// The second way: this name in IN-ADDR.ARPA has the answer.
    Cname(Name),
}

/// Whether the question is about an address that begins with one of the site's prefixes, or the Well-Known Prefix;
/// `None` leaves it to the servers upstream, like any other.
pub(crate) fn lookup(policy: &Policy, query: &Message, question: &Query) -> Option<Lookup> {
    if question.query_class != DNSClass::IN {
        return None;
    }
    if let Some(response) = above(policy, query, question) {
        return Some(Lookup::Local(Box::new(response)));
    }
    if question.query_type != RecordType::PTR {
        return None;
    }
    let v6 = address(&question.name)?;
    let pool6 = policy.covering(v6)?;
    // An address that embeds nothing is not synthetic: a host's own, perhaps.
    let v4 = pool6.extract(v6)?;
    let names: Vec<Name> = if WELL_KNOWN_ADDRESSES.contains(&v4) {
        match policy.nat64_names.as_slice() {
            [] => vec![well_known_name()],
            names => names.to_vec(),
        }
    } else if !may_carry(policy, pool6, v4) {
        // No such address is ever synthesised, and the question must not leak the IPv4 address.
        let mut message = special::local(query);
        message.metadata.response_code = ResponseCode::NXDomain;
        message.authorities.push(special::soa(zone(question, pool6.len()), LOCAL_TTL));
        return Some(Lookup::Local(Box::new(special::done(message, query))));
    } else {
        match policy.reverse {
            Reverse::Local => vec![local_name(v4, &policy.reverse_domain)],
            Reverse::Cname => return Some(Lookup::Cname(Name::from(v4))),
        }
    };
    let mut message = special::local(query);
    let data = names.into_iter().map(|name| RData::PTR(PTR(name)));
    message.answers.extend(special::records(question, LOCAL_TTL, data));
    Some(Lookup::Local(Box::new(special::done(message, query))))
}

/// The response at the top of a prefix's zone, and between it and the names of addresses.
///
/// Those names exist because names below them do (RFC 8020 section 2): a client that gets NXDOMAIN may take all below
/// for absent. DS belongs to the zone above, and is asked there.
fn above(policy: &Policy, query: &Message, question: &Query) -> Option<Response> {
    let (first, nibbles) = nibbles(&question.name).filter(|(_, nibbles)| *nibbles < 32)?;
    let len = policy.covering(first)?.len();
    if nibbles < usize::from(len / 4) || question.query_type == RecordType::DS {
        return None;
    }
    let apex = zone(question, len);
    let soa = special::soa(apex.clone(), LOCAL_TTL);
    let mut message = special::local(query);
    let is_soa = question.query_type == RecordType::SOA && apex == question.name;
    let section = if is_soa { &mut message.answers } else { &mut message.authorities };
    section.push(soa);
    Some(special::done(message, query))
}

/// The response from what was found at the name in IN-ADDR.ARPA.
///
/// There is a CNAME only if there is a PTR for it to point at; and where IN-ADDR.ARPA has an alias of its own (RFC
/// 2317), the CNAME points at the end of it, so that no chain is made longer.
pub(crate) fn respond(
    policy: &Policy,
    query: &Message,
    question: &Query,
    v4: &Name,
    answer: &Answer<'_>,
) -> Response {
    let code = answer.message.metadata.response_code;
    if !matches!(code, ResponseCode::NoError | ResponseCode::NXDomain) {
        return pass(query, answer);
    }
    let found = follow(v4, &answer.message.answers).map(|chain| chain.end);
    let data: Vec<&Record> = match &found {
        Some(end) => (answer.message.answers.iter())
            .filter(|record| {
                let signature = query.edns.as_ref().is_some_and(|edns| edns.flags().dnssec_ok)
                    && covered(record) == Some(RecordType::PTR);
                is(record, end) && (record.record_type() == RecordType::PTR || signature)
            })
            .collect(),
        None => Vec::new(),
    };
    let mut message = crate::response::header(query);
    let Some(target) = found.filter(|_| data.iter().any(|r| r.record_type() == RecordType::PTR))
    else {
        message.metadata.response_code = code;
        message.authorities.extend(negative(policy, question, answer));
        add_edns(&mut message, query, &Ede::of(answer.message));
        let lifetime = lifetime(&message);
        return Response::new(message, Kind::Upstream, lifetime);
    };
    let shortest = data.iter().map(|record| ttl(record.ttl, answer.age)).min().unwrap_or(0);
    let cname = RData::CNAME(CNAME(target));
    message.answers.push(Record::from_rdata(question.name.clone(), shortest.min(LOCAL_TTL), cname));
    message.answers.extend(data.into_iter().map(|record| aged(record, answer.age)));
    copy_rest(&mut message, query, answer);
    add_edns(&mut message, query, &[Ede::new(Ede::SYNTHESIZED, "")]);
    let lifetime = lifetime(&message);
    Response::new(message, Kind::Synthetic, lifetime)
}

/// The SOA of a negative response. The upstream's is that of a zone in IN-ADDR.ARPA, above which the name that was
/// asked for does not lie; its lifetime is taken over.
fn negative(policy: &Policy, question: &Query, answer: &Answer<'_>) -> Option<Record> {
    let (_, lifetime) = soa(&answer.message.authorities)?;
    let pool6 = policy.covering(address(&question.name)?)?;
    Some(special::soa(zone(question, pool6.len()), ttl(lifetime, answer.age).min(LOCAL_TTL)))
}

/// The zone of a prefix that the name lies in.
fn zone(question: &Query, len: u8) -> Name {
    question.name.trim_to(usize::from(len / 4) + 2)
}

/// The address that a name below IP6.ARPA stands for (RFC 3596 section 2.5): 32 nibbles, the lowest first.
pub(crate) fn address(name: &Name) -> Option<Ipv6Addr> {
    nibbles(name).filter(|(_, nibbles)| *nibbles == 32).map(|(address, _)| address)
}

/// The first of the addresses whose names are below a name in IP6.ARPA, and how many nibbles of theirs it has.
fn nibbles(name: &Name) -> Option<(Ipv6Addr, usize)> {
    let labels: Vec<&[u8]> = name.iter().collect();
    let (nibbles, [ip6, arpa]) = labels.split_last_chunk::<2>()?;
    if !ip6.eq_ignore_ascii_case(b"ip6") || !arpa.eq_ignore_ascii_case(b"arpa") {
        return None;
    }
    let mut bits = 0;
    for (label, shift) in nibbles.iter().rev().zip((0..32).rev()) {
        let [digit] = label else {
            return None;
        };
        bits |= u128::from(char::from(*digit).to_digit(16)?) << (4 * shift);
    }
    (nibbles.len() <= 32).then_some((Ipv6Addr::from_bits(bits), nibbles.len()))
}

/// `192-0-2-1` in a domain.
fn local_name(v4: Ipv4Addr, domain: &Name) -> Name {
    let label = v4.to_string().replace('.', "-");
    // A domain that leaves no room for the label stands for itself.
    domain.prepend_label(label.as_bytes()).unwrap_or_else(|_| domain.clone())
}

#[cfg(test)]
mod tests;
