//! CNAME and DNAME chains (RFC 6147 section 5.1.5).

use hickory_proto::rr::rdata::CNAME;
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder, BinEncodable, BinEncoder};

/// The most aliases in a row.
const MAX_LINKS: usize = 16;

/// The aliases from a name to the one that has the data.
#[derive(Debug)]
pub(crate) struct Chain {
    /// The name at the end; the name itself if it is no alias.
    pub(crate) end: Name,
    /// The CNAME and DNAME records on the way, with their signatures, in order.
    pub(crate) links: Vec<Record>,
}

/// Follows the aliases of `name` through a section. `None`: the chain loops, is too long, or leads to a name that is
/// too long.
pub(crate) fn follow(name: &Name, answers: &[Record]) -> Option<Chain> {
    let mut chain = Chain { end: name.clone(), links: Vec::new() };
    for _ in 0..=MAX_LINKS {
        let alias = answers.iter().find_map(|record| match &record.data {
            RData::CNAME(CNAME(target)) if is(record, &chain.end) => Some((record, target)),
            _ => None,
        });
        // RFC 6672 section 3.1: the CNAME stands beside the DNAME that it was made from.
        let dname = answers.iter().find_map(|record| {
            let of_class = record.dns_class == DNSClass::IN;
            of_class.then(|| redirect(record, &chain.end).map(|target| (record, target))).flatten()
        });
        if alias.is_none() && dname.is_none() {
            return Some(chain);
        }
        if let Some((record, _)) = &dname {
            chain.take(record, RecordType::DNAME, answers);
        }
        chain.end = match (alias, dname) {
            (Some((record, target)), _) => {
                chain.take(record, RecordType::CNAME, answers);
                target.clone()
            }
            (None, Some((record, target))) => {
                let target = substitute(&chain.end, &record.name, &target)?;
                let cname = RData::CNAME(CNAME(target.clone()));
                chain.links.push(Record::from_rdata(chain.end, record.ttl, cname));
                target
            }
            (None, None) => return Some(chain),
        };
    }
    None
}

impl Chain {
    /// A link, once, and the signatures over it.
    fn take(&mut self, link: &Record, record_type: RecordType, answers: &[Record]) {
        if self.links.contains(link) {
            return;
        }
        self.links.push(link.clone());
        let signatures = answers
            .iter()
            .filter(|record| record.name == link.name && covered(record) == Some(record_type));
        self.links.extend(signatures.cloned());
    }
}

/// Whether this is a record of the name, of class IN.
pub(crate) fn is(record: &Record, name: &Name) -> bool {
    record.dns_class == DNSClass::IN && record.name == *name
}

/// The type of the records that an RRSIG record covers (RFC 4034 section 3.1.1).
pub fn covered(record: &Record) -> Option<RecordType> {
    if record.record_type() != RecordType::RRSIG {
        return None;
    }
    // Whether hickory parses the data depends on its features; the encoded octets do not.
    let mut octets = Vec::new();
    record.data.emit(&mut BinEncoder::new(&mut octets)).ok()?;
    octets.first_chunk().map(|covered| RecordType::from(u16::from_be_bytes(*covered)))
}

/// The name that a DNAME leads to from `name` (RFC 6672 section 2.2), if it is for that name and the result can be.
pub fn dname_target(record: &Record, name: &Name) -> Option<Name> {
    substitute(name, &record.name, &redirect(record, name)?)
}

/// The target of a DNAME record that redirects `name`. Hickory leaves its data as octets.
fn redirect(record: &Record, name: &Name) -> Option<Name> {
    if record.name == *name || !record.name.zone_of(name) {
        return None;
    }
    match &record.data {
        RData::Unknown { code: RecordType::DNAME, rdata } => {
            let mut decoder = BinDecoder::new(&rdata.anything);
            Name::read(&mut decoder).ok().filter(|_| decoder.is_empty())
        }
        _ => None,
    }
}

/// RFC 6672 section 2.2: `name` with its end `owner` replaced by `target`.
fn substitute(name: &Name, owner: &Name, target: &Name) -> Option<Name> {
    let kept = name.iter().len().checked_sub(owner.iter().len())?;
    let front = Name::from_labels(name.iter().take(kept)).ok()?;
    front.append_name(target).ok()
}

#[cfg(test)]
mod tests;
