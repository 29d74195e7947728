//! Records as octets, in network byte order. Version 1: a change of a layout needs another number of the cluster's
//! encoding, which begins each of its messages.
//!
//! Keys have 24 octets. Unused ones at the end are 0.
//!
//! | kind | key: octets 0, 1.. |
//! |---|---|
//! | subscriber | 1; prefix (16); mark (4) |
//! | BIB entry (RFC 6146 section 3.1) | 2; protocol number of IPv4; T (4); t (2) |
//! | session (RFC 6146 section 3.2) | 3; protocol number of IPv4; T (4); t (2); Z (4); z (2), 0 for ICMP |
//!
//! | kind | value |
//! |---|---|
//! | subscriber | its port blocks, 0 to 8, each: address (4), first port (2), last port (2) |
//! | BIB entry | X' (16); x (2); mark of its subscriber (4); flags (1): 1, only expected connections pass from IPv4 |
//! | session | state (1), as [`TcpState`], of UDP and ICMP 4; class (1), as [`Timeout`]; what is left of its lifetime (1), in units of [`LEFT_UNIT`], rounded up; number of its prefix of `pool6` (1); only if an ALG has changed its octets, what is added to the sequence numbers of the IPv4 (4) and of the IPv6 host (4) |
//!
//! In the order of keys, a subscriber comes before BIB entries, these before sessions, and the sessions of a BIB entry
//! come one after the other.

use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::RangeInclusive;
use core::time::Duration;

use crate::nat64::table::{MAX_BLOCKS, PortBlock, Protocol, SessionKey, TcpState, Timeout, state};

/// Names a record, unique in its shard.
pub type RecordKey = [u8; 24];

/// The unit in which lifetimes are replicated: half an hour. A session that packets refresh once in that time causes no
/// change.
pub const LEFT_UNIT: Duration = Duration::from_secs(1800);

const SUBSCRIBER: u8 = 1;
const BIB: u8 = 2;
const SESSION: u8 = 3;

/// Flag of a BIB entry: only expected connections pass from IPv4.
const EXPECTED: u8 = 1;

/// Why octets are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// What a key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Subscriber { prefix: Ipv6Addr, mark: u32 },
    Bib { protocol: Protocol, v4: (Ipv4Addr, u16) },
    Session(SessionKey),
}

/// What a BIB entry's value says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BibValue {
    pub(super) v6: (Ipv6Addr, u16),
    pub(super) mark: u32,
    pub(super) is_expected: bool,
}

/// What a session's value says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SessionValue {
    pub(super) state: u8,
    pub(super) class: u8,
    pub(super) left: u8,
    pub(super) pool6: u8,
    pub(super) shift: Option<[u32; 2]>,
}

/// The octets of a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Octets {
    octets: [u8; 8 * MAX_BLOCKS],
    len: usize,
}

impl Octets {
    const EMPTY: Octets = Octets { octets: [0; 8 * MAX_BLOCKS], len: 0 };

    fn add(&mut self, more: &[u8]) {
        let end = self.len + more.len();
        if let Some(room) = self.octets.get_mut(self.len..end) {
            room.copy_from_slice(more);
            self.len = end;
        }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        self.octets.get(..self.len).unwrap_or_default()
    }
}

/// Reads octets in their order.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*first)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn port(&mut self) -> Result<u16, Malformed> {
        self.take().map(u16::from_be_bytes)
    }

    fn word(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_be_bytes)
    }

    fn v4(&mut self) -> Result<(Ipv4Addr, u16), Malformed> {
        Ok((Ipv4Addr::from_bits(self.word()?), self.port()?))
    }

    fn v6(&mut self) -> Result<Ipv6Addr, Malformed> {
        self.take::<16>().map(Ipv6Addr::from)
    }

    /// The rest is 0.
    fn end(self) -> Result<(), Malformed> {
        self.0.iter().all(|octet| *octet == 0).then_some(()).ok_or(Malformed)
    }
}

fn key_of(parts: &[&[u8]]) -> RecordKey {
    let mut key = [0; 24];
    let mut rest = key.as_mut_slice();
    for part in parts {
        let (room, after) = rest.split_at_mut(part.len().min(rest.len()));
        room.copy_from_slice(&part[..room.len()]);
        rest = after;
    }
    key
}

impl Named {
    pub(super) fn key(&self) -> RecordKey {
        match self {
            Named::Subscriber { prefix, mark } => {
                key_of(&[&[SUBSCRIBER], &prefix.octets(), &mark.to_be_bytes()])
            }
            Named::Bib { protocol, v4 } => {
                key_of(&[&[BIB, protocol.number()], &v4.0.octets(), &v4.1.to_be_bytes()])
            }
            Named::Session(SessionKey { local, remote, protocol }) => key_of(&[
                &[SESSION, *protocol],
                &local.0.octets(),
                &local.1.to_be_bytes(),
                &remote.0.octets(),
                &remote.1.to_be_bytes(),
            ]),
        }
    }

    pub(super) fn read(key: &RecordKey) -> Result<Named, Malformed> {
        let mut reader = Reader(key);
        let named = match reader.byte()? {
            SUBSCRIBER => Named::Subscriber { prefix: reader.v6()?, mark: reader.word()? },
            BIB => {
                let protocol = Protocol::of(reader.byte()?).ok_or(Malformed)?;
                Named::Bib { protocol, v4: reader.v4()? }
            }
            SESSION => {
                let protocol = Protocol::of(reader.byte()?).ok_or(Malformed)?;
                let (local, remote) = (reader.v4()?, reader.v4()?);
                if protocol == Protocol::Icmp && remote.1 != 0 {
                    return Err(Malformed);
                }
                Named::Session(SessionKey { local, remote, protocol: protocol.number() })
            }
            _ => return Err(Malformed),
        };
        reader.end().map(|()| named)
    }
}

/// The keys that sessions of a BIB entry have.
pub(super) fn sessions_of(protocol: Protocol, v4: (Ipv4Addr, u16)) -> RangeInclusive<RecordKey> {
    let key = |remote| {
        Named::Session(SessionKey { local: v4, remote, protocol: protocol.number() }).key()
    };
    key((Ipv4Addr::UNSPECIFIED, 0))..=key((Ipv4Addr::BROADCAST, u16::MAX))
}

/// The value of a subscriber.
pub(super) fn blocks_value(blocks: &[PortBlock]) -> Octets {
    let mut octets = Octets::EMPTY;
    for block in blocks {
        octets.add(&block.v4.octets());
        octets.add(&block.low.to_be_bytes());
        octets.add(&block.high.to_be_bytes());
    }
    octets
}

/// The blocks of a subscriber, each once, and how many.
pub(super) fn read_blocks(value: &[u8]) -> Result<([PortBlock; MAX_BLOCKS], usize), Malformed> {
    let mut blocks = [PortBlock { v4: Ipv4Addr::UNSPECIFIED, low: 0, high: 0 }; MAX_BLOCKS];
    let number = value.len() / 8;
    if !value.len().is_multiple_of(8) || number > MAX_BLOCKS {
        return Err(Malformed);
    }
    let mut reader = Reader(value);
    for place in 0..number {
        let (v4, low) = reader.v4()?;
        let block = PortBlock { v4, low, high: reader.port()? };
        if block.low > block.high || blocks[..place].contains(&block) {
            return Err(Malformed);
        }
        blocks[place] = block;
    }
    Ok((blocks, number))
}

impl BibValue {
    pub(super) fn octets(&self) -> Octets {
        let mut octets = Octets::EMPTY;
        octets.add(&self.v6.0.octets());
        octets.add(&self.v6.1.to_be_bytes());
        octets.add(&self.mark.to_be_bytes());
        octets.add(&[if self.is_expected { EXPECTED } else { 0 }]);
        octets
    }

    pub(super) fn read(value: &[u8]) -> Result<BibValue, Malformed> {
        let mut reader = Reader(value);
        let v6 = (reader.v6()?, reader.port()?);
        let (mark, flags) = (reader.word()?, reader.byte()?);
        let is_whole = reader.0.is_empty() && flags & !EXPECTED == 0;
        is_whole.then_some(BibValue { v6, mark, is_expected: flags != 0 }).ok_or(Malformed)
    }
}

impl SessionValue {
    pub(super) fn octets(&self) -> Octets {
        let mut octets = Octets::EMPTY;
        octets.add(&[self.state, self.class, self.left, self.pool6]);
        for shift in self.shift.iter().flatten() {
            octets.add(&shift.to_be_bytes());
        }
        octets
    }

    /// The value of a session of `protocol`, which is one that is replicated.
    pub(super) fn read(value: &[u8], protocol: u8) -> Result<SessionValue, Malformed> {
        let mut reader = Reader(value);
        let [state, class, left, pool6] = reader.take()?;
        let shift = match reader.0.len() {
            0 => None,
            8 => Some([reader.word()?, reader.word()?]),
            _ => return Err(Malformed),
        };
        let is_tcp = Protocol::of(protocol) == Some(Protocol::Tcp);
        let suits =
            is_replicated(protocol, state, class) && left != 0 && (is_tcp || shift.is_none());
        suits.then_some(SessionValue { state, class, left, pool6, shift }).ok_or(Malformed)
    }
}

/// Whether a session of this protocol, state and class has a record, if its protocol is replicated: TCP from
/// establishment on, until it ends. A connection that is being opened is not: its SYN is retransmitted (RFC 6146 section
/// 3.5.2.2).
pub(super) fn is_replicated(protocol: u8, state: u8, class: u8) -> bool {
    let is = |timeout: Timeout| class == timeout as u8;
    match Protocol::of(protocol) {
        Some(Protocol::Tcp) => {
            (TcpState::Established as u8..=TcpState::Trans as u8).contains(&state)
                && (is(Timeout::TcpEst) || is(Timeout::TcpTrans))
        }
        Some(Protocol::Udp) => state == state::LIVE && is(Timeout::Udp),
        Some(Protocol::Icmp) => state == state::LIVE && is(Timeout::Icmp),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// The layouts, octet by octet: gateways of one version must agree.
    #[test]
    fn layouts_are_as_documented() {
        let prefix = "2001:db8:1:2::".parse().unwrap();
        let key = Named::Subscriber { prefix, mark: 0x0102_0304 }.key();
        let expected = "01 20010db8000100020000000000000000 01020304 000000";
        assert_eq!(hex(&key), expected.replace(' ', ""));
        let v4 = (Ipv4Addr::new(192, 0, 2, 1), 0x1234);
        let key = Named::Bib { protocol: Protocol::Udp, v4 }.key();
        assert_eq!(hex(&key), alloc::format!("0211c00002011234{:032}", 0));
        let remote = (Ipv4Addr::new(198, 51, 100, 7), 443);
        let key = Named::Session(SessionKey { local: v4, remote, protocol: 6 }).key();
        assert_eq!(hex(&key), alloc::format!("0306c00002011234c633640701bb{:020}", 0));

        let block = PortBlock { v4: v4.0, low: 1024, high: 2047 };
        assert_eq!(hex(blocks_value(&[block]).as_slice()), "c0000201040007ff");
        let v6 = ("2001:db8::9".parse().unwrap(), 0x4321);
        let value = BibValue { v6, mark: 7, is_expected: true };
        let expected = "20010db8000000000000000000000009 4321 00000007 01";
        assert_eq!(hex(value.octets().as_slice()), expected.replace(' ', ""));
        let value = SessionValue { state: 8, class: 2, left: 4, pool6: 1, shift: None };
        assert_eq!(hex(value.octets().as_slice()), "08020401");
        let shifted = SessionValue { shift: Some([1, u32::MAX]), ..value };
        assert_eq!(hex(shifted.octets().as_slice()), "0802040100000001ffffffff");
    }

    #[test]
    fn a_subscriber_has_so_many_blocks_at_most() {
        let block = |low| PortBlock { v4: Ipv4Addr::LOCALHOST, low, high: low };
        let blocks: Vec<_> = (0..MAX_BLOCKS as u16).map(block).collect();
        let value = blocks_value(&blocks);
        assert_eq!(read_blocks(value.as_slice()).map(|(_, number)| number), Ok(MAX_BLOCKS));
        let more = [value.as_slice(), &[0; 8]].concat();
        let [twice, from_the_end] =
            [[block(7), block(7)], [block(7), PortBlock { low: 9, ..block(8) }]];
        let others = [twice, from_the_end].map(|blocks| blocks_value(&blocks).as_slice().to_vec());
        for wrong in others.into_iter().chain([more]) {
            assert_eq!(read_blocks(&wrong).map(|(_, number)| number), Err(Malformed), "{wrong:?}");
        }
    }

    #[test]
    fn queries_have_no_remote_port() {
        let v4 = (Ipv4Addr::LOCALHOST, 7);
        for (protocol, remote) in [(1, 0), (1, 9), (6, 9), (6, 0)] {
            let remote = (Ipv4Addr::LOCALHOST, remote);
            let named = Named::Session(SessionKey { local: v4, remote, protocol });
            assert_eq!(Named::read(&named.key()).is_ok(), (protocol, remote.1) != (1, 9));
        }
    }

    #[test]
    fn sessions_that_live_have_records() {
        let tcp = [TcpState::Established, TcpState::Trans].map(|state| (6, state as u8));
        let states = [(17, state::LIVE), (1, state::LIVE)].into_iter().chain(tcp);
        for (protocol, is) in states {
            for class in [Timeout::Udp, Timeout::TcpEst, Timeout::TcpTrans, Timeout::Icmp] {
                let fits = match protocol {
                    17 => class == Timeout::Udp,
                    1 => class == Timeout::Icmp,
                    _ => matches!(class, Timeout::TcpEst | Timeout::TcpTrans),
                };
                assert_eq!(is_replicated(protocol, is, class as u8), fits);
                assert!(!is_replicated(protocol, state::DEAD, class as u8));
            }
        }
    }

    fn hex(octets: &[u8]) -> alloc::string::String {
        octets.iter().map(|octet| alloc::format!("{octet:02x}")).collect()
    }

    #[test]
    fn sessions_of_an_entry_lie_together() {
        let v4 = (Ipv4Addr::new(192, 0, 2, 1), 2000);
        let keys = sessions_of(Protocol::Tcp, v4);
        let session = |local, port, protocol| {
            Named::Session(SessionKey { local, remote: (Ipv4Addr::LOCALHOST, port), protocol })
                .key()
        };
        assert!(keys.contains(&session(v4, 0, 6)) && keys.contains(&session(v4, u16::MAX, 6)));
        assert!(!keys.contains(&session((v4.0, 2001), 0, 6)));
        assert!(!keys.contains(&session((v4.0, 1999), u16::MAX, 6)));
        assert!(!keys.contains(&session(v4, 9, 17)));
    }

    proptest! {
        /// What is read is what was written: there is one form of each record, so equal records have equal octets.
        #[test]
        fn octets_are_refused_or_come_back(
            key in any::<[u8; 24]>(),
            kind in 0_u8..5,
            protocol in prop::sample::select(Vec::from([1_u8, 6, 17, 2])),
            zeros in 0_usize..24,
            value in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let mut key = key;
            key[0] = kind;
            if kind != SUBSCRIBER {
                key[1] = protocol;
            }
            key[24 - zeros.min(22)..].fill(0);
            if let Ok(named) = Named::read(&key) {
                prop_assert_eq!(named.key(), key);
            }
            if let Ok((blocks, number)) = read_blocks(&value) {
                let written = blocks_value(&blocks[..number]);
                prop_assert_eq!(written.as_slice(), &value[..]);
            }
            if let Ok(read) = BibValue::read(&value) {
                let written = read.octets();
                prop_assert_eq!(written.as_slice(), &value[..]);
            }
            if let Ok(read) = SessionValue::read(&value, protocol) {
                let written = read.octets();
                prop_assert_eq!(written.as_slice(), &value[..]);
            }
        }
    }
}
