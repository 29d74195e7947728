//! Messages (RFC 1035 section 4) of the tester: questions for numbered names, the answers of their zone,
//! and what a reply says.
//!
//! ```text
//! name      n000100000a3f.lab.example.
//!           |└┬─┘└──┬───┘
//!           | |     number, 8 hexadecimal digits
//!           | series, 4 hexadecimal digits
//!           sort: which records there are
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

/// Octets of a question message for a numbered name.
pub const QUESTION: usize = HEADER + NAME + 4;
/// Octets that no answer of the tester's zone exceeds.
pub const LONGEST: usize = 512;

/// Type A.
pub const A: u16 = 1;
/// Type SOA.
const SOA: u16 = 6;
/// Type PTR.
pub const PTR: u16 = 12;
/// Type AAAA.
pub const AAAA: u16 = 28;
/// Type OPT (RFC 6891).
const OPT: u16 = 41;

const HEADER: usize = 12;
/// Octets of the first label, with its length.
const LABEL: usize = 14;
const ZONE: &[u8] = b"\x03lab\x07example\x00";
const NAME: usize = LABEL + ZONE.len();
/// Seconds that every record may be kept, and every absence (RFC 2308).
const TTL: u32 = 3600;
/// Names that compress to where the question's name, or its zone, begins.
const AT_NAME: [u8; 2] = [0xc0, HEADER as u8];
const AT_ZONE: [u8; 2] = [0xc0, (HEADER + LABEL) as u8];

/// Which records a name has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// One A record, and no AAAA record: what DNS64 is for.
    OnlyA,
    /// One of both.
    Both,
    /// The addresses of the network's server.
    Server,
}

impl Sort {
    fn letter(self) -> u8 {
        match self {
            Self::OnlyA => b'n',
            Self::Both => b'b',
            Self::Server => b's',
        }
    }

    fn of(letter: u8) -> Option<Self> {
        [Self::OnlyA, Self::Both, Self::Server]
            .into_iter()
            .find(|sort| sort.letter() == letter.to_ascii_lowercase())
    }
}

/// A numbered name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name {
    /// Its records.
    pub sort: Sort,
    /// What tells the names of one load from those of another.
    pub series: u16,
    /// Number within the series.
    pub number: u32,
}

impl Name {
    /// Its IPv4 address: of the network for benchmarks (RFC 2544, 198.18.0.0/15).
    pub fn v4(self) -> Ipv4Addr {
        Ipv4Addr::from(0xc612_0000 | self.number & 0x1_ffff)
    }

    /// Its IPv6 address, where it has one of its own (RFC 5180, 2001:2::/48).
    pub fn v6(self) -> Ipv6Addr {
        Ipv6Addr::from(0x2001_0002_u128 << 96 | u128::from(self.number))
    }

    /// As people write it.
    pub fn text(self) -> String {
        let letter = char::from(self.sort.letter());
        format!("{letter}{:04x}{:08x}.lab.example", self.series, self.number)
    }

    /// The name at the beginning of these octets, in either case (RFC 4343).
    fn parse(octets: &[u8]) -> Option<Self> {
        let (label, zone) = octets.get(..NAME)?.split_at(LABEL);
        if usize::from(label[0]) != LABEL - 1 || !zone.eq_ignore_ascii_case(ZONE) {
            return None;
        }
        let digits = std::str::from_utf8(&label[2..]).ok()?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        Some(Self {
            sort: Sort::of(label[1])?,
            series: u16::from_str_radix(&digits[..4], 16).ok()?,
            number: u32::from_str_radix(&digits[4..], 16).ok()?,
        })
    }

    fn write(self, to: &mut [u8]) {
        to[0] = LABEL as u8 - 1;
        to[1] = self.sort.letter();
        let value = u64::from(self.series) << 32 | u64::from(self.number);
        for (place, digit) in to[2..LABEL].iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(value >> (44 - 4 * place)) as usize & 15];
        }
        to[LABEL..NAME].copy_from_slice(ZONE);
    }
}

/// A question with recursion desired.
pub fn question(id: u16, name: Name, record_type: u16) -> [u8; QUESTION] {
    let mut message = [0; QUESTION];
    message[..2].copy_from_slice(&id.to_be_bytes());
    message[2] = 0x01;
    message[5] = 1;
    name.write(&mut message[HEADER..]);
    message[HEADER + NAME..HEADER + NAME + 2].copy_from_slice(&record_type.to_be_bytes());
    message[QUESTION - 1] = 1;
    message
}

/// A question for any name in its text form; `None` when it has none.
pub fn question_for(id: u16, name: &str, record_type: u16) -> Option<Vec<u8>> {
    let mut message = Vec::from(id.to_be_bytes());
    message.extend([0x01, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.').filter(|label| !label.is_empty()) {
        message.push(u8::try_from(label.len()).ok().filter(|length| *length < 64)?);
        message.extend(label.as_bytes());
    }
    message.push(0);
    message.extend(record_type.to_be_bytes());
    message.extend([0, 1]);
    Some(message)
}

/// Addresses of the network's server, in its zone.
#[derive(Debug, Clone, Copy, Default)]
pub struct Server {
    /// The A record of names of its sort.
    pub v4: Option<Ipv4Addr>,
    /// The AAAA record.
    pub v6: Option<Ipv6Addr>,
}

/// Writes the zone's answer to a question and returns its length and the type that was asked for; nothing
/// for what is no question.
pub fn answer(question: &[u8], server: Server, to: &mut [u8; LONGEST]) -> Option<(usize, u16)> {
    if question.len() < HEADER || question[2] & 0xf8 != 0 || question[4..6] != [0, 1] {
        return None;
    }
    let end = HEADER + name_length(question, HEADER)?;
    let record_type = u16::from_be_bytes(question.get(end..end + 2)?.try_into().ok()?);
    let asked = end + 4;
    if question.len() < asked || asked > LONGEST / 2 {
        return None;
    }
    let edns = question[10..12] != [0, 0] && question[6..10] == [0; 4] && {
        let rest = &question[asked..];
        rest.len() >= 11 && rest[0] == 0 && rest[1..3] == OPT.to_be_bytes()
    };
    to[..asked].copy_from_slice(&question[..asked]);
    // Authoritative; available recursion is what a forwarder expects of whom it asks.
    to[2] = 0x84 | question[2] & 1;
    to[3] = 0x80;
    to[6..12].fill(0);
    let mut at = asked;
    let mut put = |octets: &[u8]| {
        to[at..at + octets.len()].copy_from_slice(octets);
        at += octets.len();
    };
    let name = Name::parse(&question[HEADER..end]);
    let (mut answers, mut authorities, mut code) = (0, 0, 0);
    match record(name, &question[HEADER..end], record_type, server) {
        Record::Data(data) => {
            put(&AT_NAME);
            put(&fixed(record_type, data.len()));
            put(&data);
            answers = 1;
        }
        absent => {
            // The owner must be at or above the name, or a resolver does not believe the absence.
            if name.is_some() {
                put(&AT_ZONE);
            } else {
                put(&[0]);
            }
            put(&fixed(SOA, 22));
            put(&[0, 0]);
            for number in [1, TTL, TTL, TTL, TTL] {
                put(&number.to_be_bytes());
            }
            authorities = 1;
            code = if matches!(absent, Record::NoName) { 3 } else { 0 };
        }
    }
    if edns {
        put(&[0, 0, OPT as u8, 0x04, 0xd0, 0, 0, 0, 0, 0, 0]);
    }
    let length = at;
    to[3] |= code;
    (to[7], to[9], to[11]) = (answers, authorities, u8::from(edns));
    Some((length, record_type))
}

enum Record {
    Data(Vec<u8>),
    NoData,
    NoName,
}

fn record(name: Option<Name>, octets: &[u8], record_type: u16, server: Server) -> Record {
    let v4 = |address: Ipv4Addr| Record::Data(address.octets().into());
    let v6 = |address: Ipv6Addr| Record::Data(address.octets().into());
    let Some(name) = name else {
        let reverse = octets.to_ascii_lowercase().ends_with(b"\x07in-addr\x04arpa\x00");
        return match (reverse, record_type) {
            (true, PTR) => Record::Data([b"\x04host".as_slice(), ZONE].concat()),
            (true, _) => Record::NoData,
            (false, _) => Record::NoName,
        };
    };
    match (name.sort, record_type) {
        (Sort::OnlyA | Sort::Both, A) => v4(name.v4()),
        (Sort::Both, AAAA) => v6(name.v6()),
        (Sort::Server, A) => server.v4.map_or(Record::NoData, v4),
        (Sort::Server, AAAA) => server.v6.map_or(Record::NoData, v6),
        _ => Record::NoData,
    }
}

/// Type, class, time to live and length of data.
fn fixed(record_type: u16, length: usize) -> [u8; 10] {
    let mut octets = [0; 10];
    octets[..2].copy_from_slice(&record_type.to_be_bytes());
    octets[3] = 1;
    octets[4..8].copy_from_slice(&TTL.to_be_bytes());
    octets[8..].copy_from_slice(&(length as u16).to_be_bytes());
    octets
}

/// Octets of the name that begins here, up to its end or to a pointer (RFC 1035 section 4.1.4).
fn name_length(message: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1 - start),
            length @ 1..64 => at += 1 + usize::from(length),
            0xc0.. => return Some(at + 2 - start),
            _ => return None,
        }
    }
}

/// A record of a reply's answer section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found<'a> {
    /// Its type.
    pub record_type: u16,
    /// Its time to live.
    pub ttl: u32,
    /// Its data.
    pub data: &'a [u8],
}

/// A reply, as far as the tester looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply<'a> {
    /// Response code.
    pub code: u8,
    /// Whether it was cut short.
    pub truncated: bool,
    /// Records of the answer section.
    pub answers: Vec<Found<'a>>,
}

/// Reads a reply; nothing for what is none.
pub fn reply(message: &[u8]) -> Option<Reply<'_>> {
    if message.len() < HEADER || message[2] & 0x80 == 0 {
        return None;
    }
    let word = |at: usize| Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?));
    let mut at = HEADER;
    for _ in 0..word(4)? {
        at += name_length(message, at)? + 4;
    }
    let mut answers = Vec::new();
    for _ in 0..word(6)? {
        at += name_length(message, at)?;
        let length = usize::from(word(at + 8)?);
        let ttl = u32::from_be_bytes(message.get(at + 4..at + 8)?.try_into().ok()?);
        let data = message.get(at + 10..at + 10 + length)?;
        answers.push(Found { record_type: word(at)?, ttl, data });
        at += 10 + length;
    }
    Some(Reply { code: message[3] & 15, truncated: message[2] & 2 != 0, answers })
}

/// The number and the identifier of a reply.
pub fn id(message: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(message.get(..2)?.try_into().ok()?))
}

/// Whether this is the right answer to the question for the name's AAAA record: valid as RFC 8219 section
/// 9.2 has it, and of the one address that it must be. `prefix` are the first 96 bits of what is
/// synthesised.
pub fn is_right(message: &[u8], name: Name, prefix: [u8; 12]) -> bool {
    if message.len() < QUESTION || message[2] & 0x82 != 0x80 || message[3] & 15 != 0 {
        return false;
    }
    if Name::parse(&message[HEADER..]) != Some(name) {
        return false;
    }
    let wanted = match name.sort {
        Sort::Both | Sort::Server => name.v6().octets(),
        Sort::OnlyA => embedded(prefix, name.v4()),
    };
    // The usual reply has one record behind the question, and its name is a pointer.
    let direct = message.get(QUESTION..QUESTION + 28).filter(|record| {
        record[..4] == [0xc0, HEADER as u8, 0, AAAA as u8] && record[10..12] == [0, 16]
    });
    if let Some(record) = direct {
        return record[12..] == wanted;
    }
    let of = |found: &Found<'_>| found.record_type == AAAA && found.data == wanted;
    reply(message).is_some_and(|reply| reply.answers.iter().any(of))
}

/// The address that stands for an IPv4 address in a prefix of 96 bits (RFC 6052 section 2.2).
pub fn embedded(prefix: [u8; 12], v4: Ipv4Addr) -> [u8; 16] {
    let mut octets = [0; 16];
    octets[..12].copy_from_slice(&prefix);
    octets[12..].copy_from_slice(&v4.octets());
    octets
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: [u8; 12] = [0x20, 1, 0xd, 0xb8, 0, 0x64, 0, 0, 0, 0, 0, 0];

    fn answered(question: &[u8], server: Server) -> Vec<u8> {
        let mut to = [0; LONGEST];
        let (length, _) = answer(question, server, &mut to).unwrap();
        to[..length].to_vec()
    }

    fn name(sort: Sort) -> Name {
        Name { sort, series: 0xab, number: 0x1_0003 }
    }

    #[test]
    fn names_are_read_in_either_case() {
        let octets = question(7, name(Sort::OnlyA), AAAA);
        assert_eq!(Name::parse(&octets[12..]), Some(name(Sort::OnlyA)));
        assert_eq!(Name::parse(&octets[12..].to_ascii_uppercase()), Some(name(Sort::OnlyA)));
        assert_eq!(name(Sort::OnlyA).text(), "n00ab00010003.lab.example");
        assert_eq!(question_for(7, &name(Sort::OnlyA).text(), AAAA).unwrap(), octets);
        assert_eq!(Name::parse(&octets[13..]), None);
        assert_eq!(name(Sort::OnlyA).v4().to_string(), "198.19.0.3");
    }

    #[test]
    fn the_zone_has_what_its_names_say() {
        let of = |sort, kind| {
            let message = answered(&question(9, name(sort), kind), Server::default());
            let reply = reply(&message).unwrap();
            (reply.code, reply.answers.iter().map(|found| found.data.to_vec()).collect::<Vec<_>>())
        };
        assert_eq!(of(Sort::OnlyA, AAAA), (0, vec![]));
        assert_eq!(of(Sort::OnlyA, A), (0, vec![vec![198, 19, 0, 3]]));
        assert_eq!(of(Sort::Both, AAAA).1, [name(Sort::Both).v6().octets().to_vec()]);
        assert_eq!(of(Sort::Server, A), (0, vec![]));
        let server = Server { v4: Some(Ipv4Addr::new(198, 51, 100, 2)), v6: None };
        let message = answered(&question(9, name(Sort::Server), A), server);
        assert_eq!(reply(&message).unwrap().answers[0].data, [198, 51, 100, 2]);
        let missing = answered(&question_for(9, "nothing.lab.example", A).unwrap(), server);
        assert_eq!(reply(&missing).unwrap().code, 3);
        let reverse = question_for(9, "2.100.51.198.in-addr.arpa", PTR).unwrap();
        assert_eq!(reply(&answered(&reverse, server)).unwrap().answers.len(), 1);
    }

    #[test]
    fn an_extended_question_is_answered_in_kind_and_with_its_own_case() {
        let mut asked = question(9, name(Sort::OnlyA), A).to_vec();
        asked[13] = b'N';
        asked[11] = 1;
        asked.extend([0, 0, 41, 0x04, 0xd0, 0, 0, 0x80, 0, 0, 0]);
        let message = answered(&asked, Server::default());
        assert_eq!(message[12..QUESTION], asked[12..QUESTION]);
        assert_eq!((message[7], message[11]), (1, 1));
        assert_eq!(message[message.len() - 11..message.len() - 8], [0, 0, 41]);
    }

    #[test]
    fn what_is_no_question_gets_no_answer() {
        let mut to = [0; LONGEST];
        let good = question(9, name(Sort::OnlyA), A);
        for length in 0..good.len() {
            assert!(answer(&good[..length], Server::default(), &mut to).is_none(), "{length}");
        }
        let reply = answered(&good, Server::default());
        assert!(answer(&reply, Server::default(), &mut to).is_none(), "no loops");
    }

    #[test]
    fn only_the_one_right_address_is_valid() {
        let native = answered(&question(1, name(Sort::Both), AAAA), Server::default());
        assert!(is_right(&native, name(Sort::Both), PREFIX));
        assert!(!is_right(&native, Name { number: 5, ..name(Sort::Both) }, PREFIX));
        let none = answered(&question(1, name(Sort::OnlyA), AAAA), Server::default());
        assert!(!is_right(&none, name(Sort::OnlyA), PREFIX), "no AAAA record");
        // As a DNS64 server says it.
        let mut made = question(1, name(Sort::OnlyA), AAAA).to_vec();
        (made[2], made[7]) = (0x81, 1);
        made.extend(AT_NAME);
        made.extend(fixed(AAAA, 16));
        made.extend(embedded(PREFIX, name(Sort::OnlyA).v4()));
        assert!(is_right(&made, name(Sort::OnlyA), PREFIX));
        // The owner's name in full, and a record in front of it.
        let mut long = made[..QUESTION].to_vec();
        long[7] = 2;
        long.extend(AT_NAME);
        long.extend(fixed(46, 2));
        long.extend([1, 2]);
        long.extend(&made[12..12 + NAME]);
        long.extend(&made[QUESTION + 2..]);
        assert!(is_right(&long, name(Sort::OnlyA), PREFIX));
        *made.last_mut().unwrap() ^= 1;
        assert!(!is_right(&made, name(Sort::OnlyA), PREFIX), "another address");
    }

    #[test]
    fn a_reply_cut_short_is_none() {
        let whole = answered(&question(1, name(Sort::Both), AAAA), Server::default());
        for length in 0..whole.len() {
            assert!(reply(&whole[..length]).is_none(), "{length}");
            assert!(!is_right(&whole[..length], name(Sort::Both), PREFIX), "{length}");
        }
    }
}
