//! A client's query, parsed in place without an allocation: header, question, and the OPT record.
//!
//! Only plain queries are parsed, which nearly all are. Other messages are left to `fordway_dns64::parse`.
//!
//! ```text
//!  0      2      4        6        8        10       12
//!  | id   | flags| QDCOUNT| ANCOUNT| NSCOUNT| ARCOUNT| question | OPT (RFC 6891 section 6.1.2)
//! ```

use hickory_proto::op::{Message, MessageType, OpCode};
use hickory_proto::rr::Name;
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};

/// Longest message (RFC 1035 section 4.2.2).
pub(super) const MAX_MESSAGE: usize = 65_535;
/// Length of the header (RFC 1035 section 4.1.1).
pub(super) const HEADER: usize = 12;
/// Longest name, in octets (RFC 1035 section 3.1).
pub(super) const MAX_NAME: usize = 255;
const MAX_LABEL: u8 = 63;

const QR: u16 = 0x8000;
const OPCODE: u16 = 0x7800;
const RD: u16 = 0x0100;
const AD: u16 = 0x0020;
const CD: u16 = 0x0010;

const TYPE_SOA: u16 = 6;
const TYPE_OPT: u16 = 41;
const CLASS_IN: u16 = 1;
pub(super) const OPTION_COOKIE: u16 = 10;
pub(super) const OPTION_KEEPALIVE: u16 = 11;
pub(super) const OPTION_PADDING: u16 = 12;
/// Flag DO in the TTL of an OPT record (RFC 6891 section 6.1.4).
const DNSSEC_OK: u32 = 0x8000;
const EDNS_VERSION: u32 = 0x00ff_0000;
/// Least size of answer by UDP that a client has to take (RFC 1035 section 4.2.1; RFC 6891 section 6.2.5).
pub(super) const MIN_UDP_SIZE: u16 = 512;

/// A query, read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Query<'a> {
    /// The client's number for it.
    pub(super) id: u16,
    /// Header flags as they came.
    pub(super) flags: u16,
    /// The question as it came: name, type and class.
    pub(super) question: &'a [u8],
    pub(super) record_type: u16,
    pub(super) edns: Option<Edns<'a>>,
}

/// What the OPT record of a query says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edns<'a> {
    /// Longest answer by UDP that the client takes, at least [`MIN_UDP_SIZE`].
    pub(super) size: u16,
    pub(super) dnssec_ok: bool,
    /// The client asks how long a connection may be silent (RFC 7828 section 3.2.1).
    pub(super) keepalive: bool,
    /// The client hides the lengths of its messages (RFC 7830).
    pub(super) padded: bool,
    /// The first COOKIE option (RFC 7873 section 4), of any length.
    pub(super) cookie: Option<&'a [u8]>,
}

impl<'a> Query<'a> {
    /// Reads a plain query: opcode QUERY, one question of class IN for a type that data can have, at most one OPT
    /// record of version 0, and nothing else.
    pub(super) fn read(message: &'a [u8]) -> Option<Query<'a>> {
        let header = message.first_chunk::<HEADER>()?;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let flags = word(2);
        // One question (RFC 9619 section 4), and nothing in the sections of an answer.
        let [1, 0, 0, additional] = [word(4), word(6), word(8), word(10)] else { return None };
        if flags & (QR | OPCODE) != 0 {
            return None;
        }
        let mut cursor = Cursor { message, at: HEADER };
        cursor.question_name()?;
        let (record_type, class) = (cursor.u16()?, cursor.u16()?);
        if class != CLASS_IN || is_meta(record_type) {
            return None;
        }
        let question = &message[HEADER..cursor.at];
        let edns = match additional {
            0 => None,
            1 => Some(Edns::read(&mut cursor)?),
            _ => return None,
        };
        (cursor.at == message.len()).then_some(Query {
            id: word(0),
            flags,
            question,
            record_type,
            edns,
        })
    }

    /// Reads a query without a question, which asks for a server cookie (RFC 7873 section 5.4).
    pub(super) fn read_bare(message: &'a [u8]) -> Option<Query<'a>> {
        let header = message.first_chunk::<HEADER>()?;
        let [id, flags] = [0, 2].map(|at| u16::from_be_bytes([header[at], header[at + 1]]));
        if header[4..] != [0, 0, 0, 0, 0, 0, 0, 1] || flags & (QR | OPCODE) != 0 {
            return None;
        }
        let mut cursor = Cursor { message, at: HEADER };
        let edns = Edns::read(&mut cursor).filter(|edns| edns.cookie.is_some())?;
        let is_whole = cursor.at == message.len();
        is_whole.then_some(Query { id, flags, question: &[], record_type: 0, edns: Some(edns) })
    }

    /// The name asked for, in its form on the wire, in the client's case.
    pub(super) fn name(&self) -> &'a [u8] {
        &self.question[..self.question.len().saturating_sub(4)]
    }

    /// The query as a message of the library, with its name in the case of `name`.
    pub(super) fn to_message(self, name: &[u8]) -> Option<Message> {
        let mut message = Message::new(self.id, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = self.recursion_desired();
        message.metadata.authentic_data = self.authentic_data();
        message.metadata.checking_disabled = self.checking_disabled();
        let name = Name::read(&mut BinDecoder::new(name)).ok()?;
        message.add_query(hickory_proto::op::Query::query(name, self.record_type.into()));
        if let Some(edns) = self.edns {
            let mut opt = hickory_proto::op::Edns::new();
            opt.set_max_payload(edns.size).set_dnssec_ok(edns.dnssec_ok);
            message.set_edns(opt);
        }
        Some(message)
    }

    /// The client wants an answer that a server looks for (RD).
    pub(super) fn recursion_desired(&self) -> bool {
        self.flags & RD != 0
    }

    /// The client knows what AD means (RFC 6840 section 5.7).
    pub(super) fn authentic_data(&self) -> bool {
        self.flags & AD != 0
    }

    /// The client checks signatures itself (CD).
    pub(super) fn checking_disabled(&self) -> bool {
        self.flags & CD != 0
    }

    /// The client takes DNSSEC records (DO).
    pub(super) fn dnssec_ok(&self) -> bool {
        self.edns.is_some_and(|edns| edns.dnssec_ok)
    }

    /// Those flags of the query that every answer repeats: RD and CD (RFC 1035 section 4.1.1, RFC 4035 section 3.2.2).
    pub(super) fn repeated_flags(&self) -> u16 {
        self.flags & (RD | CD)
    }
}

impl<'a> Edns<'a> {
    /// Reads an OPT record of version 0, whose name is the root (RFC 6891 section 6.1.2).
    fn read(cursor: &mut Cursor<'a>) -> Option<Self> {
        let (0, TYPE_OPT) = (cursor.take(1)?[0], cursor.u16()?) else { return None };
        let (size, ttl, data) = (cursor.u16()?, cursor.u32()?, cursor.data()?);
        if ttl & EDNS_VERSION != 0 {
            return None;
        }
        let (mut keepalive, mut padded, mut cookie) = (false, false, None);
        let mut options = Cursor { message: data, at: 0 };
        while options.at < data.len() {
            let code = options.u16()?;
            let value = options.data()?;
            match code {
                OPTION_COOKIE => cookie = cookie.or(Some(value)),
                OPTION_KEEPALIVE => keepalive = true,
                OPTION_PADDING => padded = true,
                _ => {}
            }
        }
        let dnssec_ok = ttl & DNSSEC_OK != 0;
        Some(Edns { size: size.max(MIN_UDP_SIZE), dnssec_ok, keepalive, padded, cookie })
    }
}

/// Types that no data has: 0, OPT, and those from TKEY (249) on that ask for an operation. ANY (255) asks for data.
fn is_meta(record_type: u16) -> bool {
    matches!(record_type, 0 | TYPE_OPT | 249..=254)
}

/// For how many seconds an answer holds: the least TTL of its records, and of an SOA record what it says of negative answers
/// (RFC 2308 section 5). None: it has no records, or is no message.
pub(super) fn least_ttl(message: &[u8]) -> Option<u32> {
    let header = message.first_chunk::<HEADER>()?;
    let count = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let mut cursor = Cursor { message, at: HEADER };
    for _ in 0..count(4) {
        cursor.any_name()?;
        cursor.take(4)?;
    }
    let mut least = None::<u32>;
    for _ in 0..u32::from(count(6)) + u32::from(count(8)) {
        cursor.any_name()?;
        let (record_type, _class, mut ttl) = (cursor.u16()?, cursor.u16()?, cursor.u32()?);
        let data = cursor.data()?;
        if record_type == TYPE_SOA {
            let minimum = data.last_chunk().map_or(0, |octets| u32::from_be_bytes(*octets));
            ttl = ttl.min(minimum);
        }
        least = Some(least.map_or(ttl, |least| least.min(ttl)));
    }
    least
}

/// A place in a message; every step checks that what it takes is there.
struct Cursor<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let taken = self.message.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    /// Octets after their length.
    fn data(&mut self) -> Option<&'a [u8]> {
        let len = self.u16()?;
        self.take(len.into())
    }

    /// A name, which may end with a pointer (RFC 1035 section 4.1.4).
    fn any_name(&mut self) -> Option<()> {
        loop {
            match self.take(1)?[0] {
                0 => return Some(()),
                len if len <= MAX_LABEL => {
                    self.take(len.into())?;
                }
                _ => return self.take(1).map(|_| ()),
            }
        }
    }

    /// A name without pointers: in a question there is nothing yet to point to.
    fn question_name(&mut self) -> Option<()> {
        let start = self.at;
        loop {
            match self.take(1)?[0] {
                0 => break,
                len if len <= MAX_LABEL => {
                    self.take(len.into())?;
                }
                _ => return None,
            }
        }
        (self.at - start <= MAX_NAME).then_some(())
    }
}

#[cfg(test)]
mod tests;
