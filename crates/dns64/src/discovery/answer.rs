//! What a DNS message says about a question.

use std::net::Ipv6Addr;
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

use crate::response::soa;

/// Longest chain of CNAME records that is followed.
const LONGEST_CHAIN: usize = 16;

/// Longest time to live that is believed, a week (RFC 8767 section 4).
const LONGEST_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Nothing came back in time.
    #[error("does not answer")]
    Timeout,
    /// It can't be reached.
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    /// What came back is no DNS message, or none to the question.
    #[error("answers something else than it was asked")]
    Malformed,
    /// It answers with an error.
    #[error("answers {0}")]
    Refused(ResponseCode),
}

/// What a message says about a name and a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There are records.
    Records {
        /// Their data, in the order of the message.
        records: Vec<RData>,
        /// The shortest time to live of them and of the CNAME records on the way.
        ttl: Duration,
        /// Whether the server says that it has validated them (AD).
        authenticated: bool,
    },
    /// There are none.
    None {
        /// Whether there is no such name at all (NXDOMAIN), or only none of that type (NODATA).
        name_exists: bool,
        /// How long that may be believed (RFC 2308 section 5), where the message says.
        ttl: Option<Duration>,
    },
    /// There is no answer.
    Failed(Failure),
}

impl Outcome {
    /// Reads the answer to the question for the records of `name` of a type.
    #[must_use]
    pub fn read(message: &Message, name: &Name, record_type: RecordType) -> Outcome {
        let exists = match message.metadata.response_code {
            ResponseCode::NoError => true,
            ResponseCode::NXDomain => false,
            code => return Outcome::Failed(Failure::Refused(code)),
        };
        let (mut name, mut ttl) = (name.clone(), LONGEST_TTL);
        let of = |record: &&Record, name: &Name, wanted: RecordType| {
            record.dns_class == DNSClass::IN
                && record.record_type() == wanted
                && record.name.eq_ignore_root(name)
        };
        for _ in 0..LONGEST_CHAIN {
            let records: Vec<&Record> =
                message.answers.iter().filter(|record| of(record, &name, record_type)).collect();
            if !records.is_empty() {
                let ttl = records.iter().map(|record| seconds(record.ttl)).fold(ttl, Duration::min);
                return Outcome::Records {
                    records: records.into_iter().map(|record| record.data.clone()).collect(),
                    ttl,
                    authenticated: message.metadata.authentic_data,
                };
            }
            let alias = message.answers.iter().find(|one| of(one, &name, RecordType::CNAME));
            let Some(RData::CNAME(target)) = alias.map(|record| &record.data) else { break };
            ttl = ttl.min(alias.map_or(ttl, |record| seconds(record.ttl)));
            name = target.0.clone();
        }
        let negative = soa(&message.authorities).map(|(_, ttl)| seconds(ttl));
        Outcome::None { name_exists: exists, ttl: negative }
    }

    /// The addresses of AAAA records; none for anything else.
    #[must_use]
    pub fn addresses(&self) -> Vec<Ipv6Addr> {
        let Outcome::Records { records, .. } = self else { return Vec::new() };
        let address = |data: &RData| match data {
            RData::AAAA(address) => Some(address.0),
            _ => None,
        };
        records.iter().filter_map(address).collect()
    }

    /// The names of PTR records; none for anything else.
    #[must_use]
    pub fn names(&self) -> Vec<Name> {
        let Outcome::Records { records, .. } = self else { return Vec::new() };
        let name = |data: &RData| match data {
            RData::PTR(name) => Some(name.0.clone()),
            _ => None,
        };
        records.iter().filter_map(name).collect()
    }
}

fn seconds(ttl: u32) -> Duration {
    Duration::from_secs(ttl.into()).min(LONGEST_TTL)
}

#[cfg(test)]
mod tests;
