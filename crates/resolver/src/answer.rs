//! Answers of upstream servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fordway_dns64::{Question, Security};
use hickory_proto::op::{Message, ResponseCode};

use super::error::LookupError;

/// An upstream server's answer, cleaned of what does not belong to the question.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The message. TTLs are those at `fetched`, none above a day. The question, and owner names equal to it, are in
    /// lower case. Of EDNS options only extended errors (RFC 8914) are kept; AD says what the upstream server said.
    pub message: Message,
    /// When it came.
    pub fetched: Instant,
    /// Until when it may be used: the least TTL, or for a negative answer that of RFC 2308 section 5. At once, if it is
    /// for this once.
    pub expires: Instant,
    /// What validation by this host found.
    pub security: Security,
}

/// What became of a question.
pub(super) type Outcome = Result<Arc<Answer>, LookupError>;

/// Whether an answer is one that may be another in a moment.
pub(super) fn is_failure(answer: &Answer) -> bool {
    let code = answer.message.response_code;
    ![ResponseCode::NoError, ResponseCode::NXDomain, ResponseCode::YXDomain].contains(&code)
        || answer.security == Security::Bogus
}

/// What is kept of a question.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The question, its name in lower case.
    pub question: Question,
    /// The answer, or why there was none.
    pub outcome: Result<Arc<Answer>, LookupError>,
    /// Until when it holds.
    pub expires: Instant,
}

impl Answer {
    /// The whole seconds by which TTLs in the message are too high.
    pub fn age(&self, now: Instant) -> u32 {
        let age = now.saturating_duration_since(self.fetched).as_secs();
        u32::try_from(age).unwrap_or(u32::MAX)
    }

    /// How long it may still be used; zero if it may not.
    pub fn remaining(&self, now: Instant) -> Duration {
        self.expires.saturating_duration_since(now)
    }

    /// A copy of the message with the TTLs of this moment.
    pub fn message_at(&self, now: Instant) -> Message {
        let age = self.age(now);
        let mut message = self.message.clone();
        let sections = [&mut message.answers, &mut message.authorities, &mut message.additionals];
        for record in sections.into_iter().flatten() {
            record.ttl = record.ttl.saturating_sub(age);
        }
        message
    }
}
