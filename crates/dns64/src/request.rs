//! What comes from a client.

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::RecordType;
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};

use crate::ede::Ede;
use crate::response::{add_edns, header};

/// Octets of a header (RFC 1035 section 4.1.1).
const HEADER: usize = 12;

/// The pseudo type that says that a name does not exist (RFC 9824 section 3).
const NXNAME: RecordType = RecordType::Unknown(128);
const TKEY: RecordType = RecordType::Unknown(249);
const MAILB: RecordType = RecordType::Unknown(253);
const MAILA: RecordType = RecordType::Unknown(254);

/// Why octets are no query that can be resolved.
#[derive(Clone, Debug)]
pub enum Rejected {
    /// Not to be answered: it has no header, or is a response. Two servers that answer each other's responses would
    /// never stop (RFC 5625 section 6.2).
    Ignore,
    /// To be answered with this.
    Answer(Box<Message>),
}

/// A query with exactly one question, of opcode QUERY and EDNS version 0, that a resolver can answer.
pub fn parse(octets: &[u8]) -> Result<Message, Rejected> {
    let Some((head, _)) = octets.split_first_chunk::<HEADER>() else {
        return Err(Rejected::Ignore);
    };
    if head[2] & 0x80 != 0 {
        return Err(Rejected::Ignore);
    }
    if head[2] & 0x78 != 0 {
        return Err(bare(octets, ResponseCode::NotImp));
    }
    // RFC 9619: exactly one question; and a query answers nothing. This is looked at before the records, so that a
    // count of 65,535 reserves no memory for them.
    if head[4..10] != [0, 1, 0, 0, 0, 0] {
        return Err(bare(octets, ResponseCode::FormErr));
    }
    let Ok(query) = Message::from_vec(octets) else {
        return Err(bare(octets, ResponseCode::FormErr));
    };
    match objection(&query) {
        None => Ok(query),
        Some((code, why)) => {
            let mut message = header(&query);
            message.metadata.response_code = code;
            add_edns(&mut message, &query, why.as_slice());
            Err(Rejected::Answer(Box::new(message)))
        }
    }
}

/// The most octets that a response over UDP may have: what the client says (RFC 6891 section 6.2.3), at most what the
/// server allows, at least 512.
pub fn udp_limit(query: &Message, server: u16) -> usize {
    usize::from(query.max_payload().min(server).max(512))
}

/// Why a query that can be read can't be resolved.
fn objection(query: &Message) -> Option<(ResponseCode, Option<Ede>)> {
    // RFC 6891 section 6.1.3.
    if query.edns.as_ref().is_some_and(|edns| edns.version() != 0) {
        return Some((ResponseCode::BADVERS, None));
    }
    // RFC 8945 section 5.2.1: this server has no TSIG key.
    let signed = |record: &hickory_proto::rr::Record| record.record_type() == RecordType::TSIG;
    if query.signature.is_some() || query.additionals.iter().any(signed) {
        return Some((ResponseCode::NotAuth, None));
    }
    let unsupported = Ede::new(Ede::NOT_SUPPORTED, "");
    match query.queries.first()?.query_type {
        // Not types of records.
        RecordType::ZERO | RecordType::OPT | RecordType::TSIG | NXNAME | TKEY => {
            Some((ResponseCode::FormErr, Some(Ede::new(Ede::INVALID_QUERY_TYPE, ""))))
        }
        // There is no zone to be transferred.
        RecordType::AXFR | RecordType::IXFR => Some((ResponseCode::Refused, Some(unsupported))),
        // Obsolete (RFC 1035 section 3.2.3).
        MAILA | MAILB => Some((ResponseCode::NotImp, Some(unsupported))),
        _ => None,
    }
}

/// A response to a message that can't be parsed: with its question, if at least that can be parsed.
fn bare(octets: &[u8], code: ResponseCode) -> Rejected {
    let id = u16::from_be_bytes([octets[0], octets[1]]);
    let mut message = Message::new(id, MessageType::Response, OpCode::from_u8(octets[2] >> 3 & 15));
    message.metadata.recursion_desired = octets[2] & 1 != 0;
    message.metadata.response_code = code;
    if octets[4..6] == [0, 1] && message.metadata.op_code == OpCode::Query {
        let mut decoder = BinDecoder::new(octets);
        let question = decoder.read_slice(HEADER).ok().and_then(|_| Query::read(&mut decoder).ok());
        message.queries.extend(question);
    }
    Rejected::Answer(Box::new(message))
}

#[cfg(test)]
mod tests;
