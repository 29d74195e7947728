//! Segments of super-packets and fragments of what is too long: cut behind the header, they are what had come of
//! the same packets cut before it.

use std::time::Duration;

use fordway_softwire::Settings;
use fordway_testkit::segment::segments;
use fordway_xlat::reassembly::{BUFFER_LEN, Limits, Origin, Outcome, Reassembler};
use fordway_xlat::{DropReason, Gso, GsoKind, IcmpErrorKind, Offload, Verdict};
use proptest::prelude::*;

use super::bench::{self, Bench, reply};

/// A super-packet, and its offload state.
fn super_packet(kind: GsoKind, payload: usize, size: u16, df: bool) -> (Vec<u8>, Offload) {
    let transport = match kind {
        GsoKind::Udp => "udp = { sport = 53, dport = 4000 }",
        _ => {
            "tcp = { sport = 80, dport = 4000, seq = 4294967000, flags = \"CAPF\", options = \"0101080a00000001\" }"
        }
    };
    let (packet, offload) = bench::partial(&format!(
        "v4 = {{ src = \"198.51.100.7\", dst = \"192.0.2.1\", id = 65530, df = {df} }}\n\
         {transport}\npayload = {payload}"
    ));
    let gso = Gso { kind, ecn: true, size, header_len: 0 };
    (packet, Offload { gso, ..offload })
}

/// The packets that come together out of tunnel packets, of which some are fragments.
fn opened(pieces: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut reassembler = Reassembler::new(Limits::default());
    let mut buffer = vec![0; BUFFER_LEN];
    let mut whole = Vec::new();
    for piece in pieces {
        match reassembler.insert(Origin::Softwire, piece, Duration::ZERO, &mut buffer) {
            Outcome::Whole => whole.push(piece[40..].to_vec()),
            Outcome::Complete(range) => whole.push(buffer[range][48..].to_vec()),
            Outcome::Incomplete => {}
            outcome => panic!("{outcome:?}"),
        }
    }
    assert_eq!(reassembler.occupancy().datagrams, 0, "a packet is not whole");
    whole
}

#[test]
fn a_super_packet_leaves_in_its_segments() {
    for (kind, size) in [(GsoKind::TcpV4, 1400), (GsoKind::Udp, 1432)] {
        let (packet, offload) = super_packet(kind, 9_999, size, true);
        let outcome = Bench::tep().run_with(&packet, offload);
        assert_eq!((outcome.verdict, outcome.offload), (Verdict::Forward, Offload::default()));
        assert_eq!(outcome.packets.len(), 9_999usize.div_ceil(usize::from(size)));
        let inner: Vec<_> = outcome.packets.iter().map(|it| it[40..].to_vec()).collect();
        assert_eq!(inner, segments(&packet, &offload).unwrap());
    }
}

#[test]
fn a_super_packet_whose_segments_do_not_fit_is_answered() {
    let (packet, offload) = super_packet(GsoKind::TcpV4, 9_999, 1440, true);
    let kind = IcmpErrorKind::TooBig { mtu: 1460 };
    let outcome = Bench::tep().run_with(&packet, offload);
    assert_eq!(outcome.verdict, reply(kind, DropReason::TooBig));
}

#[test]
fn segments_without_df_become_shorter() {
    let (packet, offload) = super_packet(GsoKind::TcpV4, 9_999, 1440, false);
    let outcome = Bench::tep().run_with(&packet, offload);
    let shorter = Offload { gso: Gso { size: 1412, ..offload.gso }, ..offload };
    let inner: Vec<_> = outcome.packets.iter().map(|it| it[40..].to_vec()).collect();
    assert_eq!(inner, segments(&packet, &shorter).unwrap());
    assert!(outcome.packets.iter().all(|it| it.len() <= 1500));
}

#[test]
fn a_long_packet_leaves_in_fragments() {
    let text = "v4 = { src = \"198.51.100.7\", dst = \"192.0.2.1\" }\nudp = { sport = 53, dport = 4000 }\npayload = 4000";
    let packet = bench::packet(text);
    let mut bench = Bench::tep();
    let first = bench.run(&packet);
    assert_eq!(first.packets.len(), 3);
    assert!(first.packets.iter().all(|it| it.len() <= 1500 && it[6] == 44 && it[40] == 4));
    assert_eq!(opened(&first.packets), [&packet[..]]);
    // The next packet's fragments have another identification.
    let id = |it: &Vec<u8>| it[44..48].to_vec();
    let second = bench.run(&packet);
    assert!(first.packets.iter().all(|it| id(it) == id(&first.packets[0])));
    assert_ne!(id(&first.packets[0]), id(&second.packets[0]));
}

proptest! {
    #[test]
    fn cut_after_is_cut_before(
        tcp: bool,
        payload in 1usize..20_000,
        size in 1u16..4_000,
        df: bool,
        mtu6 in 1280u32..4_100,
    ) {
        let kind = if tcp { GsoKind::TcpV4 } else { GsoKind::Udp };
        let size = size.max((payload / 40) as u16);
        let (packet, offload) = super_packet(kind, payload, size, df);
        let settings = Settings { mtu6, ..bench::settings() };
        let outcome = Bench::new(settings, &bench::whole()).run_with(&packet, offload);
        let mut expected = segments(&packet, &offload).unwrap();
        let fits = expected.iter().all(|it| it.len() + 40 <= mtu6 as usize);
        if !fits && df {
            prop_assert!(matches!(outcome.verdict, Verdict::Reply(_)));
            return Ok(());
        }
        prop_assert_eq!(outcome.verdict, Verdict::Forward);
        prop_assert!(outcome.packets.iter().all(|it| it.len() <= mtu6 as usize));
        if !fits && tcp {
            let size = (mtu6 - 40 - 48) as u16;
            let shorter = Offload { gso: Gso { size, ..offload.gso }, ..offload };
            expected = segments(&packet, &shorter).unwrap();
        }
        let label = |it: &Vec<u8>| it[..4].to_vec();
        prop_assert!(outcome.packets.iter().all(|it| label(it) == label(&outcome.packets[0])));
        prop_assert_eq!(opened(&outcome.packets), expected);
    }
}
