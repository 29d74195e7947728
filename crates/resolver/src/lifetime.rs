//! Lifetimes of answers.

use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{RData, RecordType};

/// The longest that a negative answer is kept (RFC 2308 section 5: one to three hours).
const MAX_NEGATIVE: u32 = 10_800;
/// How long the first failure is kept, and the longest that one is (RFC 9520 section 3.2: 1 s to 5 minutes). Users wait
/// for a recovery, and queries to upstream servers are cheap.
const FIRST_FAILURE: Duration = Duration::from_secs(1);
const LONGEST_FAILURE: Duration = Duration::from_secs(8);

/// How long a cleaned answer to a question of `record_type` may be used; zero: only for the current lookup.
pub(super) fn of_answer(message: &Message, record_type: RecordType) -> Duration {
    let sections = message.answers.iter().chain(&message.authorities);
    let least = sections.map(|record| record.ttl).min();
    let seconds = if is_negative(message, record_type) {
        // Without an SOA there is no lifetime (RFC 2308 section 5).
        negative(message).map_or(0, |negative| least.unwrap_or(negative).min(negative))
    } else {
        least.unwrap_or(0)
    };
    Duration::from_secs(seconds.into())
}

/// How long a failure is kept, after so many of the kind before it: each time twice as long.
pub(super) fn of_failure(earlier: u32) -> Duration {
    FIRST_FAILURE.saturating_mul(1 << earlier.min(10)).min(LONGEST_FAILURE)
}

/// Whether an answer says that there is nothing of the type asked for.
pub(super) fn is_negative(message: &Message, record_type: RecordType) -> bool {
    let is_wanted = |kind| kind == record_type || record_type == RecordType::ANY;
    message.response_code == ResponseCode::NXDomain
        || !message.answers.iter().any(|record| is_wanted(record.record_type()))
}

/// What the SOA in the authority section allows a negative answer (RFC 2308 section 5).
fn negative(message: &Message) -> Option<u32> {
    message.authorities.iter().find_map(|record| match &record.data {
        RData::SOA(soa) => Some(record.ttl.min(soa.minimum).min(MAX_NEGATIVE)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::rdata::{A, SOA};
    use hickory_proto::rr::{Name, Record};

    use super::*;

    fn name() -> Name {
        Name::from_ascii("example.net.").unwrap()
    }

    fn address(ttl: u32) -> Record {
        Record::from_rdata(name(), ttl, RData::A(A::new(192, 0, 2, 1)))
    }

    fn soa(ttl: u32, minimum: u32) -> Record {
        Record::from_rdata(name(), ttl, RData::SOA(SOA::new(name(), name(), 1, 2, 3, 4, minimum)))
    }

    fn seconds(answers: Vec<Record>, authorities: Vec<Record>, code: ResponseCode) -> u64 {
        let mut message = Message::query();
        message.metadata.response_code = code;
        message.answers = answers;
        message.authorities = authorities;
        of_answer(&message, RecordType::A).as_secs()
    }

    #[test]
    fn the_least_ttl_counts() {
        assert_eq!(seconds(vec![address(300), address(60)], vec![], ResponseCode::NoError), 60);
        assert_eq!(seconds(vec![address(300)], vec![soa(20, 5)], ResponseCode::NoError), 20);
        assert_eq!(seconds(vec![address(0)], vec![], ResponseCode::NoError), 0);
    }

    #[test]
    fn a_negative_answer_lives_as_its_soa_says() {
        for code in [ResponseCode::NoError, ResponseCode::NXDomain] {
            assert_eq!(seconds(vec![], vec![soa(600, 60)], code), 60, "minimum");
            assert_eq!(seconds(vec![], vec![soa(30, 60)], code), 30, "TTL");
            assert_eq!(seconds(vec![], vec![soa(80_000, 80_000)], code), 10_800, "bound");
            assert_eq!(seconds(vec![], vec![], code), 0, "no SOA");
        }
        let chain = vec![address(7)];
        assert_eq!(seconds(chain, vec![soa(600, 60)], ResponseCode::NXDomain), 7, "its aliases");
    }

    #[test]
    fn failures_are_kept_longer_each_time_but_not_for_long() {
        let kept: Vec<u64> = (0..8).map(|earlier| of_failure(earlier).as_secs()).collect();
        assert_eq!(kept, [1, 2, 4, 8, 8, 8, 8, 8]);
        assert_eq!(of_failure(u32::MAX).as_secs(), 8);
    }
}
