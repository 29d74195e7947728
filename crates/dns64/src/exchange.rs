//! Questions to upstream servers, and their outcomes.

use hickory_proto::op::Message;
use hickory_proto::rr::{DNSClass, Name, RecordType};

/// A question to the upstream servers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// QNAME; names compare without regard to case.
    pub name: Name,
    /// QTYPE.
    pub record_type: RecordType,
    /// QCLASS.
    pub class: DNSClass,
    /// The DO bit: the answer is to carry the DNSSEC records (RFC 4035 section 3.2.1).
    pub dnssec_ok: bool,
    /// The CD bit: the answer is wanted even if it does not validate (RFC 4035 section 3.2.2).
    pub checking_disabled: bool,
}

/// The outcome of a question.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// A server's answer, whatever its RCODE.
    Answer(Answer<'a>),
    /// No usable answer.
    Failed(Failure),
}

/// The answer of an upstream server.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The message as received, TTLs included.
    pub message: &'a Message,
    /// Seconds since it was received: its TTLs are lowered by so much.
    pub age: u32,
    /// The result of validation.
    pub security: Security,
}

/// What DNSSEC validation says of an answer (RFC 4033 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Security {
    /// It was not validated here.
    #[default]
    Unchecked,
    /// Every RRset in the answer and authority sections is authentic.
    Secure,
    /// The zone is provably unsigned.
    Insecure,
    /// It does not validate.
    Bogus,
}

/// Why a question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// No server answered in time (RFC 6147 section 5.1.3).
    Timeout,
    /// No server could be reached.
    Unreachable,
    /// The response could not be parsed.
    Malformed,
    /// It does not validate; the code says more (RFC 8914 sections 4.6 to 4.13), 6 if nothing is known.
    Bogus(u16),
    /// Too many questions are pending.
    Overload,
}
