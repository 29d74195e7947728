//! What one source, and all together, may keep.

use super::*;

#[test]
fn limits_hold() {
    let data = payload(64);
    let full = |fragments| dropped(DropReason::FragmentsFull, fragments);
    let first = |id| ipv4(id, 17, 0, &Part::new(0, true, &data[..8]));
    let third = |id| ipv4(id, 17, 0, &Part::new(16, true, &data[16..24]));

    let alone = Limits { octets_per_source: Limits::default().octets, ..Limits::default() };
    let mut bench = Bench::new(Limits { datagrams: 2, ..alone });
    assert_eq!(bench.insert(&first(1)), Outcome::Incomplete);
    assert_eq!(bench.insert(&first(2)), Outcome::Incomplete);
    assert_eq!(bench.insert(&first(3)), full(1));
    assert_eq!(bench.insert(&third(2)), Outcome::Incomplete);

    let mut bench = Bench::new(Limits { fragments: 2, ..Limits::default() });
    assert_eq!(bench.insert(&first(1)), Outcome::Incomplete);
    assert_eq!(bench.insert(&third(1)), Outcome::Incomplete);
    let fourth = ipv4(1, 17, 0, &Part::new(24, false, &data[24..]));
    assert_eq!(bench.insert(&fourth), full(3));

    let cost = DATAGRAM + FRAGMENT + 28;
    let mut bench = Bench::new(Limits { octets: 2 * cost, ..Limits::default() });
    assert_eq!(bench.insert(&first(1)), Outcome::Incomplete);
    assert_eq!(bench.insert(&first(2)), Outcome::Incomplete);
    assert_eq!(bench.reassembler.occupancy(), Occupancy { datagrams: 2, octets: 2 * cost });
    assert_eq!(bench.insert(&first(3)), full(1));
    assert_eq!(bench.insert(&third(1)), full(2));

    // A source that takes all it may leaves room to others.
    let mut bench = Bench::new(Limits { octets_per_source: cost, ..Limits::default() });
    assert_eq!(bench.insert(&first(1)), Outcome::Incomplete);
    assert_eq!(bench.insert(&first(2)), full(1));
    let other = ipv6(1, 17, 0, &Part::new(0, true, &data[..8]));
    assert_eq!(bench.insert(&other), full(1), "an IPv6 packet costs more");
    let mut bench = Bench::new(Limits { octets_per_source: cost + 28, ..Limits::default() });
    assert_eq!(bench.insert(&first(1)), Outcome::Incomplete);
    assert_eq!(bench.insert(&other), Outcome::Incomplete);
    let mut neighbour = other;
    neighbour[23] ^= 1;
    assert_eq!(bench.insert(&neighbour), full(1), "another host of the same 64-bit prefix");
    neighbour[15] ^= 1;
    assert_eq!(bench.insert(&neighbour), Outcome::Incomplete, "a host of another prefix");
}

#[test]
fn a_source_leaves_packets_in_the_making_to_others() {
    let data = payload(64);
    let first = |id| ipv4(id, 17, 0, &Part::new(0, true, &data[..8]));
    // A quarter of the octets is a quarter of the packets, too.
    let limits = Limits { datagrams: 8, ..Limits::default() };
    assert_eq!(limits.octets / limits.octets_per_source, 4);
    let mut bench = Bench::new(limits);
    assert_eq!(bench.insert(&first(1)), Outcome::Incomplete);
    assert_eq!(bench.insert(&first(2)), Outcome::Incomplete);
    assert_eq!(bench.insert(&first(3)), dropped(DropReason::FragmentsFull, 1));
    let other = ipv6(1, 17, 0, &Part::new(0, true, &data[..8]));
    assert_eq!(bench.insert(&other), Outcome::Incomplete);
    // One that was given up counts until its interval ends.
    let overlap = ipv4(1, 17, 0, &Part::new(0, true, &data[..16]));
    assert_eq!(bench.insert(&overlap), dropped(DropReason::FragmentOverlap, 2));
    assert_eq!(bench.insert(&first(3)), dropped(DropReason::FragmentsFull, 1));
    let _ = bench.reassembler.expire(Duration::from_secs(2));
    assert_eq!(bench.insert(&first(3)), Outcome::Incomplete);
    // Whoever is alone may have one, however small the share.
    let mut bench = Bench::new(Limits { datagrams: 2, ..Limits::default() });
    assert_eq!(bench.insert(&first(1)), Outcome::Incomplete);
}
