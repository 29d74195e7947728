//! Stale answers (RFC 8767): those that have expired, and that servers do not confirm because they fail.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fordway_dns64::{Ede, Security};
use hickory_proto::op::{Edns, ResponseCode};

use super::answer::{Answer, Outcome, is_failure};

/// TTL of stale records, seconds (RFC 8767 section 4 recommends 30).
const TTL: u32 = 30;
/// After a failure servers are not asked for so long (RFC 8767 section 5: the failure recheck timer, at least 30 s).
pub(super) const RECHECK: Duration = Duration::from_secs(30);
/// How long answers may be made of one stale answer, without a look at what there is by then.
const USED: Duration = Duration::from_secs(1);

/// Whether a stale answer may be given in the place of an outcome: a failure. Not where data does not validate, for a forger
/// would bring old data back.
pub(super) fn may_replace(outcome: &Outcome) -> bool {
    match outcome {
        Err(_) => true,
        Ok(answer) => {
            is_failure(answer)
                && answer.security != Security::Bogus
                && !Ede::of(&answer.message).iter().any(Ede::is_dnssec)
        }
    }
}

/// An answer that has expired, as it is given at `now`: with a short TTL and the reason (RFC 8914 sections 4.4, 4.20), and
/// not as validated.
pub(super) fn of(answer: &Answer, now: Instant) -> Arc<Answer> {
    let mut message = answer.message.clone();
    message.metadata.authentic_data = false;
    let sections = [&mut message.answers, &mut message.authorities, &mut message.additionals];
    sections.into_iter().flatten().for_each(|record| record.ttl = TTL);
    let code = match message.metadata.response_code {
        ResponseCode::NXDomain => Ede::STALE_NXDOMAIN,
        _ => Ede::STALE_ANSWER,
    };
    Ede::new(code, "").insert(message.edns.get_or_insert_with(Edns::new));
    Arc::new(Answer { message, fetched: now, expires: now + USED, security: Security::Unchecked })
}
