//! Pieces of what is no sound tunnel packet. Sound ones are in the tests of the testkit.

use alloc::vec::Vec;

use crate::{Gso, GsoKind, Offload, Packet};

fn pieces(octets: &[u8], kind: GsoKind, size: u16, limit: usize) -> Vec<usize> {
    let mut buffer = octets.to_vec();
    let gso = Gso { kind, ecn: false, size, header_len: 0 };
    let offload = Offload { gso, ..Offload::default() };
    let mut packet = Packet::new(&mut buffer, 0..octets.len(), offload);
    packet.cut_tunnelled(limit, 9);
    packet.fragments().map(|piece| piece.head().len() + piece.body.len()).collect()
}

#[test]
fn nothing_panics_and_nothing_is_without_end() {
    let mut octets = alloc::vec![0u8; 400];
    octets[0] = 0x60;
    for (next_header, inner) in [(4, 0x4f), (17, 0)] {
        octets[6] = next_header;
        octets[40] = inner;
        nothing_panics(&octets);
    }
}

fn nothing_panics(octets: &[u8]) {
    for kind in [GsoKind::None, GsoKind::TcpV4, GsoKind::TcpV6, GsoKind::Udp] {
        for len in 0..octets.len() {
            for (size, limit) in [(0, 0), (1, 0), (100, 100), (7, 1280), (u16::MAX, 60)] {
                assert!(pieces(&octets[..len], kind, size, limit).len() <= len.max(1));
            }
        }
    }
}
