//! Removes from a response what does not belong to its question.
//!
//! Servers may add records, and forgers do. What is kept: in the answer section the chain of aliases from the name
//! asked for and the records at its end; in the authority section the SOA and the proofs of that chain; in the
//! additional section the addresses of names in the answer.

use hickory_proto::dnssec::rdata::DNSSECRData;
use hickory_proto::op::{Edns, Message};
use hickory_proto::rr::rdata::CNAME;
use hickory_proto::rr::{Name, RData, Record, RecordType};

use fordway_dns64::{Question, covered, dname_target};

/// The longest chain of aliases that is followed; resolvers give up sooner.
const MAX_ALIASES: usize = 16;
/// Nothing is kept for longer than a day (RFC 8767 section 4 speaks of days to weeks; an operator wants less).
const MAX_TTL: u32 = 86_400;

const EXTENDED_ERROR: u16 = 15;

/// Cleans a response to `question`, whose name is in lower case. What is left has TTLs of at most a day.
pub(super) fn clean(message: &mut Message, question: &Question) {
    message.signature = None;
    message.edns = message.edns.take().and_then(extended_errors);
    for section in [&mut message.answers, &mut message.authorities, &mut message.additionals] {
        section.retain(|record| record.dns_class == question.class);
        section.iter_mut().for_each(cap_ttl);
    }
    let chain = keep_chain(&mut message.answers, question);
    keep_proofs(&mut message.authorities, &chain, question);
    keep_addresses(&mut message.additionals, &message.answers, question);
}

/// Keeps the chain from the question's name, in its order; the names on it.
fn keep_chain(answers: &mut Vec<Record>, question: &Question) -> Vec<Name> {
    let mut name = question.name.clone();
    let plain = |record: &Record| record.record_type() == question.record_type;
    if answers.iter_mut().all(|record| plain(record) && adopt(&mut record.name, &name)) {
        return vec![name];
    }
    let rest = answers.drain(..).map(Some).collect();
    let mut kept = Kept { rest, answers, question };
    let mut chain = Vec::new();
    loop {
        let above = kept.take_dname(&name);
        let before = kept.answers.len();
        let mut alias = kept.take_at(&name);
        if let Some(dname) = above.filter(|_| kept.answers.len() == before) {
            alias = kept.write_cname(&dname, &name);
        }
        chain.push(name);
        match alias {
            Some(target) if chain.len() <= MAX_ALIASES && !chain.contains(&target) => name = target,
            _ => return chain,
        }
    }
}

/// The answer section while it is cleaned.
struct Kept<'a> {
    /// Records that are not kept yet.
    rest: Vec<Option<Record>>,
    answers: &'a mut Vec<Record>,
    question: &'a Question,
}

impl Kept<'_> {
    /// Takes the records at `name` that answer the question; where an alias there leads to.
    fn take_at(&mut self, name: &Name) -> Option<Name> {
        let mut alias = None;
        for place in &mut self.rest {
            let Some(record) = place else { continue };
            if record.name != *name || !answers_question(record, self.question) {
                continue;
            }
            if let RData::CNAME(CNAME(target)) = &record.data
                && ![RecordType::CNAME, RecordType::ANY].contains(&self.question.record_type)
            {
                if alias.is_some() {
                    // One name, one alias (RFC 1034 section 3.6.2).
                    continue;
                }
                alias = Some(target.clone());
            }
            adopt(&mut record.name, name);
            self.answers.extend(place.take());
        }
        alias
    }

    /// Takes a DNAME above `name`, with its signatures.
    fn take_dname(&mut self, name: &Name) -> Option<Record> {
        let is_above = |record: &Record| dname_target(record, name).is_some();
        if let Some(taken) = self.answers.iter().find(|record| is_above(record)) {
            return Some(taken.clone());
        }
        let place = self.rest.iter_mut().find(|place| place.as_ref().is_some_and(is_above))?;
        let dname = place.take()?;
        self.answers.push(dname.clone());
        let signs = |record: &Record| {
            record.name == dname.name && covered(record) == Some(RecordType::DNAME)
        };
        for place in &mut self.rest {
            if self.question.dnssec_ok && place.as_ref().is_some_and(signs) {
                self.answers.extend(place.take());
            }
        }
        Some(dname)
    }

    /// Writes the CNAME that the server of a DNAME has left out (RFC 6672 section 3.1).
    fn write_cname(&mut self, dname: &Record, name: &Name) -> Option<Name> {
        let target = dname_target(dname, name)?;
        let data = RData::CNAME(CNAME(target.clone()));
        let mut alias = Record::from_rdata(name.clone(), dname.ttl, data);
        alias.dns_class = dname.dns_class;
        self.answers.push(alias);
        Some(target)
    }
}

/// Whether a record with a name of the chain has its place in the answer section.
fn answers_question(record: &Record, question: &Question) -> bool {
    let wanted = |found: RecordType| {
        found == question.record_type
            || found == RecordType::CNAME
            || question.record_type == RecordType::ANY
    };
    match covered(record) {
        Some(_) if question.record_type == RecordType::RRSIG => true,
        Some(covered) => {
            wanted(covered) && (question.dnssec_ok || question.record_type == RecordType::ANY)
        }
        None => wanted(record.record_type()),
    }
}

/// Keeps the SOA of a zone on the chain and, if the question asks for signatures, the proofs of such a zone.
fn keep_proofs(authorities: &mut Vec<Record>, chain: &[Name], question: &Question) {
    if authorities.is_empty() {
        return;
    }
    let holds_chain = |zone: &Name| chain.iter().any(|name| zone.zone_of(name));
    // A signer for a name below a zone on the chain may prove something about that chain.
    let proven: Vec<Name> = authorities
        .iter()
        .filter_map(|record| match &record.data {
            RData::DNSSEC(DNSSECRData::RRSIG(signature)) => Some((record, signature.input())),
            _ => None,
        })
        .filter(|(record, input)| {
            input.signer_name.zone_of(&record.name) && holds_chain(&input.signer_name)
        })
        .map(|(record, _)| record.name.clone())
        .collect();
    authorities.retain(|record| match covered(record).unwrap_or(record.record_type()) {
        RecordType::SOA => {
            holds_chain(&record.name) && (question.dnssec_ok || covered(record).is_none())
        }
        RecordType::NSEC | RecordType::NSEC3 => question.dnssec_ok && proven.contains(&record.name),
        _ => false,
    });
}

/// Keeps the addresses of names that records in the answer section point to.
fn keep_addresses(additionals: &mut Vec<Record>, answers: &[Record], question: &Question) {
    if additionals.is_empty() {
        return;
    }
    let targets: Vec<&Name> = answers
        .iter()
        .filter_map(|record| match &record.data {
            RData::NS(ns) => Some(&ns.0),
            RData::MX(mx) => Some(&mx.exchange),
            RData::SRV(srv) => Some(&srv.target),
            RData::SVCB(svcb) if svcb.target_name.is_root() => Some(&record.name),
            RData::SVCB(svcb) => Some(&svcb.target_name),
            RData::HTTPS(https) if https.0.target_name.is_root() => Some(&record.name),
            RData::HTTPS(https) => Some(&https.0.target_name),
            _ => None,
        })
        .collect();
    let is_address = |kind| [RecordType::A, RecordType::AAAA].contains(&kind);
    additionals.retain(|record| {
        let kind = match covered(record) {
            Some(covered) if question.dnssec_ok => covered,
            Some(_) => return false,
            None => record.record_type(),
        };
        is_address(kind) && targets.contains(&&record.name)
    });
}

/// The OPT record with nothing but extended errors (RFC 8914), if it has any.
fn extended_errors(mut edns: Edns) -> Option<Edns> {
    let options = &mut edns.options_mut().options;
    options.retain(|(code, _)| u16::from(*code) == EXTENDED_ERROR);
    (!options.is_empty()).then_some(edns)
}

/// A TTL with the highest bit set counts as zero (RFC 2181 section 8).
fn cap_ttl(record: &mut Record) {
    record.ttl = if i32::try_from(record.ttl).is_ok() { record.ttl.min(MAX_TTL) } else { 0 };
}

/// Gives an owner name the case of `name` if they are equal.
fn adopt(owner: &mut Name, name: &Name) -> bool {
    if *owner != *name {
        return false;
    }
    if !owner.eq_case(name) {
        owner.clone_from(name);
    }
    true
}
