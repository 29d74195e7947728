//! The gateway of FTP under anything that client and server may say, and any network between them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use fordway_wire::tcp::flag::{ACK, SYN};
use fordway_xlat::alg::{
    Alg, AlgCounters, Connection, Context, Ends, Ftp, HELD_MAX, Mappings, Passed, TcpFields,
};
use fordway_xlat::nat64::Side;

/// Gives whatever it is asked for.
struct Mapper;

impl Mappings for Mapper {
    fn expect(
        &mut self,
        host: (Ipv6Addr, u16),
        at: Ipv4Addr,
        _from: Ipv4Addr,
        _pool6: u8,
    ) -> Option<(Ipv4Addr, u16)> {
        Some((at, host.1 | 1024))
    }

    fn v6_of(&self, _pool6: u8, addr: Ipv4Addr) -> Option<Ipv6Addr> {
        Some(addr.to_ipv6_mapped())
    }
}

/// A connection through the gateway: the octets say where the client is, and then, segment by segment, who
/// speaks, where the segment lies, and what stands in it.
pub fn ftp(data: &[u8]) {
    let Some((first, mut rest)) = data.split_first() else { return };
    let opener = if first & 1 == 0 { Side::V6 } else { Side::V4 };
    let ends = Ends {
        opener,
        host: (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 4000),
        local: (Ipv4Addr::new(192, 0, 2, 1), 2000),
        remote: (Ipv4Addr::new(198, 51, 100, 7), 21),
        pool6: 0,
    };
    let (mut connection, counters) =
        (Connection::new(Ftp::default().open(&ends)), AlgCounters::default());
    let mut pass = |from: Side, mut fields: TcpFields, payload: &[u8]| {
        let (mut mapper, mut out) = (Mapper, Vec::new());
        let mut context = Context::new(ends, Duration::ZERO, &counters, &mut mapper);
        let passed = connection.pass(from, &mut fields, payload, true, &mut out, &mut context);
        let octets = if passed == Passed::Same { payload.to_vec() } else { out };
        // Both directions: what is held, waits, or is not acknowledged.
        assert!(connection.octets() <= 2 * (HELD_MAX + 2 * 16 * 1024 + 64 * 1024));
        (fields, octets)
    };
    let other = if opener == Side::V6 { Side::V4 } else { Side::V6 };
    let isses = [1000_u32, 0xffff_ff00];
    pass(opener, TcpFields { seq: isses[0], flags: SYN, ..TcpFields::default() }, &[]);
    let answer = TcpFields { seq: isses[1], ack: 1001, flags: SYN | ACK, ..TcpFields::default() };
    pass(other, answer, &[]);
    let mut next = isses.map(|iss| iss.wrapping_add(1));
    // An end says the same wherever it says something again.
    let mut said: [BTreeMap<u32, u8>; 2] = Default::default();
    while let [kind, offset, len, behind @ ..] = rest {
        let speaker = usize::from(kind & 1);
        let payload = &behind[..usize::from(*len).min(behind.len())];
        rest = &behind[payload.len()..];
        // Mostly in order; else before, or behind a gap.
        let seq = match kind >> 1 & 3 {
            2 => next[speaker].wrapping_sub(u32::from(*offset)),
            3 => next[speaker].wrapping_add(u32::from(*offset)),
            _ => next[speaker],
        };
        let place = |at: usize| seq.wrapping_add(at as u32);
        let octets = payload.iter().enumerate();
        let payload: Vec<u8> =
            octets.map(|(at, new)| *said[speaker].entry(place(at)).or_insert(*new)).collect();
        let flags = ACK | kind >> 3 & 0x05 | kind & 0x20;
        let ack = next[1 - speaker].wrapping_sub(u32::from(kind >> 6) * u32::from(*offset));
        let fields = TcpFields {
            seq,
            ack,
            flags,
            window: 500,
            urgent: (*offset).into(),
            ..TcpFields::default()
        };
        let from = if speaker == 0 { opener } else { other };
        let (first, one) = pass(from, fields, &payload);
        let end = seq.wrapping_add(payload.len() as u32);
        if next[speaker].wrapping_sub(end) > u32::MAX / 2 && kind >> 1 & 3 != 3 {
            next[speaker] = end;
        }
        // At once again: what became of it must be there a second time, unless it is acknowledged. What had come
        // early, and went with it the first time, is not.
        if !one.is_empty() && flags & 0x05 == 0 && kind >> 1 & 3 < 2 {
            let (second, again) = pass(from, fields, &payload);
            let skipped = second.seq.wrapping_sub(first.seq) as i32;
            if skipped <= 0 {
                let from = skipped.unsigned_abs() as usize;
                let again = again.get(from..).unwrap_or_default();
                assert!(!again.is_empty());
                assert!(again.starts_with(&one) || one.starts_with(again));
            }
        }
    }
}
