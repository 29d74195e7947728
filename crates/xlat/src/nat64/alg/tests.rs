//! Two TCP ends, a gateway that makes what they say longer and shorter, and a network that loses, repeats and
//! reorders: whatever happens, each end gets exactly what it should.

extern crate std;

mod begins;
mod ends;
mod gateway;
mod packets;
mod steps;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use super::*;

/// No mappings.
#[derive(Debug)]
pub(super) struct Nothing;

impl Mappings for Nothing {
    fn expect(
        &mut self,
        _host: (Ipv6Addr, u16),
        _at: Ipv4Addr,
        _from: Ipv4Addr,
        _pool6: u8,
    ) -> Option<(Ipv4Addr, u16)> {
        None
    }

    fn v6_of(&self, _pool6: u8, _addr: Ipv4Addr) -> Option<Ipv6Addr> {
        None
    }
}

pub(super) const ENDS: Ends = Ends {
    opener: Side::V6,
    host: (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 40_000),
    local: (Ipv4Addr::new(192, 0, 2, 1), 2000),
    remote: (Ipv4Addr::new(198, 51, 100, 1), 21),
    pool6: 0,
};

/// Reads lines. By their first octet: `l` becomes longer, `s` shorter, `d` vanishes, `r` is replaced by as much,
/// `x` ends everything, and others pass as soon as they come.
#[derive(Debug, Default)]
pub(super) struct Editor {
    inside: [bool; 2],
}

/// What a line becomes that is whole, with its end.
pub(super) fn edited(line: &[u8]) -> Vec<u8> {
    match line.first() {
        Some(b'l') => [b"<", line, b"-and-longer>", line].concat(),
        Some(b's') => b"s".to_vec(),
        Some(b'd') => Vec::new(),
        Some(b'r') => line.to_ascii_uppercase(),
        _ => line.to_vec(),
    }
}

impl Dialogue for Editor {
    fn octets(
        &mut self,
        from: Side,
        octets: &[u8],
        _ended: bool,
        out: &mut Vec<u8>,
        _context: &mut Context<'_>,
    ) -> Advice {
        let inside = &mut self.inside[usize::from(from == Side::V6)];
        let end = octets.iter().position(|octet| *octet == b'\n').map(|place| place + 1);
        if *inside || !b"lsdrx".contains(&octets[0]) {
            *inside = end.is_none();
            return Advice::Pass(end.unwrap_or(octets.len()));
        }
        match end {
            None => Advice::Hold,
            Some(_) if octets[0] == b'x' => Advice::Bypass,
            Some(end) => {
                out.extend_from_slice(&edited(&octets[..end]));
                Advice::Replace(end)
            }
        }
    }
}

pub(super) fn editor() -> Connection {
    Connection::new(Box::<Editor>::default())
}

/// Lets a segment pass: what it is on the other side.
pub(super) fn pass(
    connection: &mut Connection,
    from: Side,
    fields: TcpFields,
    payload: &[u8],
) -> (TcpFields, Vec<u8>) {
    let (mut fields, mut out) = (fields, Vec::new());
    let (counters, mut nothing) = (AlgCounters::default(), Nothing);
    let mut context = Context::new(ENDS, Duration::ZERO, &counters, &mut nothing);
    let passed = connection.pass(from, &mut fields, payload, true, &mut out, &mut context);
    match passed {
        Passed::Same => (fields, payload.to_vec()),
        Passed::Other => (fields, out),
    }
}
