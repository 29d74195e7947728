//! Properties of the core, on drawn packets and on any octets at all.

use fordway_testkit::drawn::any_config;
use fordway_testkit::fuzz::{self, Plan};
use fordway_testkit::{oracle, properties};
use fordway_xlat::addr::Pool6;
use fordway_xlat::trace::Step;
use fordway_xlat::{
    ChecksumState, Gso, GsoKind, HEADROOM, Offload, Packet, State, Translator, Verdict,
};
use proptest::prelude::*;

fn plan() -> impl Strategy<Value = Plan> {
    proptest::collection::vec(any::<u8>(), 120..200)
        .prop_filter_map("too few octets", |data| Plan::draw(&data))
}

fn holds(result: Result<(), String>) -> Result<(), TestCaseError> {
    result.map_err(TestCaseError::fail)
}

proptest! {
    // A failing case prints itself whole; it belongs into a vector, not into a file of seeds.
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn ordinary_packets_are_never_dropped(plan in plan()) {
        holds(properties::never_dropped(&plan))?;
    }

    #[test]
    fn partial_checksums_may_be_completed_before_or_after(plan in plan()) {
        holds(properties::partial_equals_complete(&plan))?;
    }

    #[test]
    fn super_packets_may_be_segmented_before_or_after(plan in plan()) {
        holds(properties::super_equals_segments(&plan))?;
    }

    #[test]
    fn there_and_back_is_the_same_packet(plan in plan()) {
        holds(properties::round_trip(&plan))?;
    }

    #[test]
    fn checksums_lengths_and_mtus_are_right(plan in plan(), config in 0u8..8) {
        let (packet, offload) = plan.build();
        let translator = fuzz::translator(config);
        let outcome = oracle::translate(translator, &mut State::new(1), &packet, offload);
        holds(oracle::check(translator.config(), &packet, offload, &outcome))?;
    }

    #[test]
    fn damaged_packets_keep_the_rules(
        plan in plan(),
        config in any_config(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        keep in any::<bool>(),
    ) {
        let (mut packet, offload) = plan.build();
        for (at, octet) in damage {
            let at = at.index(packet.len());
            packet[at] = octet;
        }
        if !keep {
            packet.truncate(cut.index(packet.len()));
        }
        let translator = Translator::new(config).unwrap();
        let outcome = oracle::translate(&translator, &mut State::new(1), &packet, offload);
        holds(oracle::check(translator.config(), &packet, offload, &outcome))?;
    }

    #[test]
    fn any_octets_with_any_offload_and_any_configuration(
        packet in proptest::collection::vec(any::<u8>(), 0..300),
        version in prop_oneof![Just(None), Just(Some(0x45u8)), Just(Some(0x46)), Just(Some(0x60))],
        offload in any_offload(),
        config in any_config(),
    ) {
        let mut packet = packet;
        if let (Some(first), Some(version)) = (packet.first_mut(), version) {
            *first = version;
        }
        let translator = Translator::new(config).unwrap();
        let outcome = oracle::translate(&translator, &mut State::new(1), &packet, offload);
        holds(oracle::check(translator.config(), &packet, offload, &outcome))?;
    }

    #[test]
    fn watching_changes_nothing(plan in plan(), config in 0u8..8) {
        let (packet, offload) = plan.build();
        let translator = fuzz::translator(config);
        let unseen = oracle::translate(translator, &mut State::new(1), &packet, offload);
        let mut buffer = vec![0u8; HEADROOM + packet.len() + HEADROOM];
        let range = HEADROOM..HEADROOM + packet.len();
        buffer[range.clone()].copy_from_slice(&packet);
        let mut seen = Packet::new(&mut buffer, range, offload);
        let mut steps: Vec<Step> = Vec::new();
        let now = std::time::Duration::from_secs(1);
        let verdict = translator.translate(&mut seen, now, &mut State::new(1), &mut steps);
        prop_assert_eq!(verdict, unseen.verdict);
        prop_assert_eq!(steps.last(), Some(&Step::Verdict(verdict)));
        prop_assert!(steps[..steps.len() - 1].iter().all(|step| !step.section().is_empty()));
        if let Verdict::Forward = verdict {
            let pieces: Vec<Vec<u8>> =
                seen.fragments().map(|piece| [piece.head(), piece.body].concat()).collect();
            prop_assert_eq!(seen.is_split(), pieces.len() > 1);
            prop_assert_eq!(pieces, unseen.packets);
        }
    }

    #[test]
    fn little_headroom_is_a_drop_not_a_panic(plan in plan(), headroom in 0usize..64, behind in 0usize..8) {
        let (packet, offload) = plan.build();
        let roomy = oracle::translate(fuzz::translator(0), &mut State::new(1), &packet, offload);
        let mut buffer = vec![0u8; headroom + packet.len() + behind];
        let range = headroom..headroom + packet.len();
        buffer[range.clone()].copy_from_slice(&packet);
        let mut packet = Packet::new(&mut buffer, range, offload);
        let now = std::time::Duration::from_secs(1);
        let verdict = fuzz::translator(0).translate(&mut packet, now, &mut State::new(1), &mut ());
        let dropped = matches!(verdict, Verdict::Drop(_));
        prop_assert!(verdict == roomy.verdict || dropped, "{verdict:?}, not {:?}", roomy.verdict);
    }
}

proptest! {
    /// RFC 6052 section 2.2, figure 1: the octets of the IPv4 address follow the prefix, octet 8 left out.
    #[test]
    fn embedding_follows_the_figure(
        prefix in any::<[u8; 12]>(),
        units in prop_oneof![Just(4usize), Just(5), Just(6), Just(7), Just(8), Just(12)],
        v4 in any::<[u8; 4]>(),
        suffix in any::<[u8; 16]>(),
    ) {
        let mut expected = [0u8; 16];
        expected[..units].copy_from_slice(&prefix[..units]);
        // A global unicast prefix, whose octet 8 is zero.
        expected[0] = 0x20 | expected[0] & 0x1f;
        expected[8] = 0;
        let net = ipnet::Ipv6Net::new(expected.into(), units as u8 * 8).unwrap();
        let mut at = units;
        for octet in v4 {
            at += usize::from(at == 8);
            expected[at] = octet;
            at += 1;
        }
        let pool6 = Pool6::new(net).unwrap();
        prop_assert_eq!(pool6.embed(v4.into()).octets(), expected);
        // The suffix is ignored, octet 8 is not part of it.
        let mut received = expected;
        let rest = at + usize::from(at == 8);
        received[rest..].copy_from_slice(&suffix[rest..]);
        prop_assert!(pool6.contains(received.into()));
        prop_assert_eq!(pool6.extract(received.into()), Some(v4.into()));
        if units < 12 {
            received[8] = 1;
            prop_assert_eq!(pool6.extract(received.into()), None);
        }
    }
}

fn any_offload() -> impl Strategy<Value = Offload> {
    let checksum = prop_oneof![
        Just(ChecksumState::Complete),
        Just(ChecksumState::Verified),
        (0u16..400, 0u16..60).prop_map(|(start, offset)| ChecksumState::Partial { start, offset }),
        any::<(u16, u16)>().prop_map(|(start, offset)| ChecksumState::Partial { start, offset }),
    ];
    let kind = prop_oneof![
        4 => Just(GsoKind::None),
        1 => Just(GsoKind::TcpV4),
        1 => Just(GsoKind::TcpV6),
        1 => Just(GsoKind::Udp),
    ];
    (checksum, kind, any::<bool>(), any::<u16>(), any::<u16>()).prop_map(
        |(checksum, kind, ecn, size, header_len)| Offload {
            checksum,
            gso: Gso { kind, ecn, size, header_len },
        },
    )
}
