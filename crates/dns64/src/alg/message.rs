//! Questions and answers that the ALG writes.

use fordway_xlat::dns::Exchange;
use fordway_xlat::nat64::Side;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};

use super::{other, other_name};

/// Octets of a header (RFC 1035 section 4.1.1).
const HEADER: usize = 12;

/// Octets that the ALG accepts over UDP, and writes at most: they fit into one packet, so none is fragmented.
const PAYLOAD: u16 = 1232;

/// Octets that every client accepts over UDP (RFC 1035 section 2.3.4).
const LEAST: u16 = 512;

/// How far a question has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The client's own question is at the server.
    Native,
    /// The ALG's question for the other family is at the server.
    Other,
    /// The question for the name of an address is at the server, under its translated name.
    Pointer,
}

/// A client's question.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The client's side.
    pub(crate) client: Side,
    pub(crate) id: u16,
    pub(crate) question: Query,
    pub(crate) recursion_desired: bool,
    pub(crate) checking_disabled: bool,
    /// Octets that it accepts over UDP; `None`: it has no EDNS.
    pub(crate) payload: Option<u16>,
    pub(crate) dnssec_ok: bool,
    pub(crate) stage: Stage,
}

/// Whether a message is a question or an answer. `None`: it is too short to be either.
pub(crate) fn kind(octets: &[u8]) -> Option<MessageType> {
    let (head, _) = octets.split_first_chunk::<HEADER>()?;
    Some(if head[2] & 0x80 == 0 { MessageType::Query } else { MessageType::Response })
}

/// The most octets of an answer over UDP.
pub(super) fn limit(payload: Option<u16>) -> usize {
    usize::from(payload.unwrap_or(LEAST).clamp(LEAST, PAYLOAD))
}

impl Asked {
    /// Whether this is the answer to what was last asked.
    pub(super) fn is_answered_by(&self, answer: &Message, exchange: &Exchange<'_>) -> bool {
        let [question] = answer.queries.as_slice() else { return false };
        let (name, record_type) = match self.stage {
            Stage::Native => (Some(self.question.name.clone()), self.question.query_type),
            Stage::Other => (Some(self.question.name.clone()), other(self.client)),
            Stage::Pointer => (other_name(exchange, self), RecordType::PTR),
        };
        answer.metadata.message_type == MessageType::Response
            && question.query_type == record_type
            && question.query_class == self.question.query_class
            && name.is_some_and(|name| question.name == name)
    }
}

/// The question that replaces or follows the client's, with the same ID. It does not ask for DNSSEC records, which
/// can't prove anything about a translated answer.
pub(crate) fn question(asked: &Asked, name: Name, record_type: RecordType) -> Option<Vec<u8>> {
    let mut message = Message::new(asked.id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = asked.recursion_desired;
    message.metadata.checking_disabled = asked.checking_disabled;
    let mut question = Query::query(name, record_type);
    question.query_class = asked.question.query_class;
    message.queries.push(question);
    if asked.payload.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(PAYLOAD);
        message.set_edns(edns);
    }
    message.to_vec().ok()
}

/// An answer in the making.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(super) message: Message,
}

impl Reply {
    /// Header and question for the client, with the server's RCODE, TC and RA.
    pub(super) fn new(asked: &Asked, answer: &Message) -> Reply {
        let mut message = Message::new(asked.id, MessageType::Response, OpCode::Query);
        let told = &answer.metadata;
        message.metadata.recursion_desired = asked.recursion_desired;
        message.metadata.checking_disabled = asked.checking_disabled;
        message.metadata.recursion_available = told.recursion_available;
        message.metadata.truncation = told.truncation;
        // AA and AD stay clear: no server vouches for what is made here.
        let code = told.response_code;
        let plain = u16::from(code) <= 15 || asked.payload.is_some();
        message.metadata.response_code = if plain { code } else { ResponseCode::ServFail };
        message.queries.push(asked.question.clone());
        if asked.payload.is_some() {
            let mut edns = Edns::new();
            edns.set_max_payload(PAYLOAD);
            edns.set_dnssec_ok(asked.dnssec_ok);
            message.set_edns(edns);
        }
        Reply { message }
    }

    pub(super) fn fail(&mut self, code: ResponseCode) {
        self.message.answers.clear();
        self.message.metadata.response_code = code;
    }

    /// All records get this TTL.
    pub(super) fn set_ttl(&mut self, ttl: u32) {
        self.message.answers.iter_mut().for_each(|record| record.ttl = ttl);
    }

    /// The message, at most `most` octets. If it does not fit, it has no answers and TC is set, so the client retries
    /// by TCP (RFC 2181 section 9).
    pub(crate) fn written(mut self, most: usize) -> Option<Vec<u8>> {
        let octets = self.message.to_vec().ok()?;
        if octets.len() <= most {
            return Some(octets);
        }
        self.message.answers.clear();
        self.message.metadata.truncation = true;
        self.message.to_vec().ok()
    }
}
