use super::*;
use proptest::prelude::*;

extern crate alloc;
use alloc::vec::Vec;

/// An extension header that is stepped over, and its octets.
fn extension() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let kinds = prop_oneof![Just(protocol::HOPOPT), Just(protocol::IPV6_ROUTE), Just(60u8)];
    (kinds, 0u8..4, any::<u8>()).prop_map(|(kind, units, left)| {
        let mut octets = alloc::vec![0; (usize::from(units) + 1) * 8];
        octets[1] = units;
        octets[3] = left % 3;
        (kind, octets)
    })
}

proptest! {
    /// The walk against a chain whose parts are known.
    #[test]
    fn a_walk_finds_what_was_laid_out(
        chain in proptest::collection::vec(extension(), 0..5),
        fragment in proptest::option::of((0usize..8191, any::<bool>(), any::<u32>())),
        cut in 1usize..20,
    ) {
        let mut headers = chain.clone();
        let fragment = fragment.map(|(offset, more, identification)| FragmentHeader {
            next_header: protocol::UDP, offset: offset * 8, more, identification,
        });
        if let Some(fragment) = fragment {
            headers.push((protocol::IPV6_FRAG, fragment.to_bytes().to_vec()));
        }
        let mut bytes = alloc::vec![0u8; HEADER_LEN];
        let mut segments_left_at = None;
        for at in 0..headers.len() {
            let next = headers.get(at + 1).map_or(protocol::UDP, |next| next.0);
            if headers[at].0 == protocol::IPV6_ROUTE && headers[at].1[3] != 0 {
                segments_left_at = segments_left_at.or(Some(bytes.len() + 3));
            }
            headers[at].1[0] = next;
            bytes.extend(&headers[at].1);
        }
        let first = headers.first().map_or(protocol::UDP, |first| first.0);
        let skipped: usize = chain.iter().map(|(_, octets)| octets.len()).sum();

        let found = walk(&bytes, first).unwrap();
        prop_assert_eq!(found, Extensions {
            header_len: bytes.len(), protocol: protocol::UDP, fragment, segments_left_at,
        });
        prop_assert_eq!(found.skipped(), skipped);

        if !headers.is_empty() {
            // Whatever is missing of the last header, the walk ends there.
            let last = headers.last().unwrap().1.len();
            bytes.truncate(bytes.len() - cut.min(last));
            prop_assert_eq!(walk(&bytes, first), Err(Ipv6Error::Truncated));
        }
    }
}

#[test]
fn the_transport_behind_all_headers() {
    let behind = |headers: &[u8], next: u8| {
        let packet = [&[0; HEADER_LEN], headers].concat();
        transport_behind(&packet, next)
    };
    let fragment = |next, offset: u8| [next, 0, 0, offset, 0, 0, 0, 7];
    assert_eq!(behind(&[], protocol::UDP), Some(protocol::UDP));
    assert_eq!(behind(&fragment(protocol::TCP, 1), protocol::IPV6_FRAG), Some(protocol::TCP));
    assert_eq!(behind(&fragment(protocol::TCP, 8), protocol::IPV6_FRAG), None, "a later one");
    // AH with an integrity check value of 12 octets, then Destination Options of 16.
    let mut auth = [0; 24];
    (auth[0], auth[1]) = (protocol::IPV6_OPTS, 4);
    let mut options = [0; 16];
    (options[0], options[1]) = (protocol::ICMPV6, 1);
    let all = [&fragment(protocol::AH, 0)[..], &auth, &options].concat();
    assert_eq!(behind(&all, protocol::IPV6_FRAG), Some(protocol::ICMPV6));
    for cut in 1..all.len() {
        assert_eq!(behind(&all[..cut], protocol::IPV6_FRAG), None, "{cut} octets");
    }
    assert_eq!(behind(&[0; 16], 253), None, "who knows what follows");
}
