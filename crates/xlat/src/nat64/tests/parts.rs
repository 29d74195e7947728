//! What the tables are built of, each part alone.

use super::*;
use crate::nat64::memory::{fits, heads_of, is_superseded, keeps_prefixes, tell_prefixes};
use crate::nat64::policy::{BlockBitmap, Numbered, ticks as in_ticks};
use crate::nat64::table::{Chained, Directory, FREE_SHARDS, FreeList, Secret};

use alloc::collections::BTreeMap;
use proptest::prelude::*;

/// `crates/bpf/c/nat64_hash.h` must give the same: computed by hand, from that file.
#[test]
fn hashes_are_those_of_the_other_engine() {
    let secret = Secret([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]);
    let host = "2001:db8:1::a1".parse().unwrap();
    let local = ("203.0.113.7".parse().unwrap(), 50_001);
    let remote = ("198.51.100.2".parse().unwrap(), 443);
    assert_eq!(secret.v6(host, 40_000, 6), 0xe1bb_5b28_a832_b2dc);
    assert_eq!(secret.v4(local.0, local.1, 17), 0xd9af_ec2a_7ea7_f7f6);
    assert_eq!(secret.session(local, remote, 6), 0xf6e2_0413_0446_8f3d);
    let prefix = "2001:db8:1:2::a1".parse().unwrap();
    assert_eq!(secret.subscriber(prefix, 0x8000_0007), 0x307d_0ed0_b84f_ba15);
    assert_eq!(secret.port(host, 40_000, 6), 0xebd6_226b_7919_865c);
    assert_eq!(secret.port(host, 40_001, 6), 0xebd6_226b_7919_865c);
    let hash = 0x1111_2222_3333_4444;
    assert_eq!(secret.again(hash, 0), hash);
    assert_eq!(secret.again(hash, 0xffff), 0x0510_b765_8074_f162);
}

#[test]
fn tables_are_as_large_as_they_say() {
    let sizes = Sizes { bibs: 100, sessions: 300, subscribers: 1 };
    assert_eq!(sizes.entries(), [101, 301, 2]);
    assert_eq!(sizes.heads(), [64, 64, 256, 1]);
    let heap = Heap::new(&sizes, [1, 2]);
    let regions = heap.regions();
    assert_eq!(sizes.octets(), 101 * 64 + 301 * 64 + 2 * 128 + 385 * 8);
    assert_eq!(regions.octets(), sizes.octets());

    assert!(fits(regions.meta, &sizes));
    assert!(!fits(regions.meta, &Sizes { bibs: 101, ..sizes }), "the same directory");
    regions.meta.masks[2].fetch_xor(0x200, Ordering::Relaxed);
    assert!(!fits(regions.meta, &sizes));
    assert_eq!(heads_of(regions.meta), None);
    regions.meta.masks[2].fetch_xor(0x300, Ordering::Relaxed);
    assert!(fits(regions.meta, &sizes), "an earlier version made more heads");
    assert_eq!(heads_of(regions.meta), Some([64, 64, 512, 1]));
    regions.meta.by_address.store(1, Ordering::Relaxed);
    assert!(is_superseded(regions.meta) && !fits(regions.meta, &sizes), "without permissions");
    regions.meta.layout.fetch_add(1, Ordering::Relaxed);
    assert!(!is_superseded(regions.meta) && fits(regions.meta, &sizes), "with permissions");
    regions.meta.layout.fetch_add(1, Ordering::Relaxed);
    assert!(!fits(regions.meta, &sizes));
}

#[test]
fn a_free_list_gives_each_entry_once_wherever_it_lies() {
    let sizes = Sizes { bibs: 200, sessions: 1, subscribers: 1 };
    let heap = Heap::new(&sizes, [1, 2]);
    let regions = heap.regions();
    let list = FreeList::of(&regions, layout::Kind::Bib);
    let mut reserve = Vec::new();
    for round in 0..3 {
        // Only the first round finds entries that nobody ever had.
        let mut taken = HashSet::new();
        while let Some(index) = list.take(regions.bibs, round) {
            assert!((1..=200).contains(&index));
            assert!(taken.insert(index), "{index} twice");
            assert_eq!(list.used(), taken.len() as u64);
            reserve.push(list.has_reserve());
        }
        assert_eq!(taken.len(), 200);
        assert_eq!(list.ever_used(), 201);
        for (place, index) in taken.into_iter().enumerate() {
            list.give(regions.bibs, place, index);
        }
        assert_eq!(list.used(), 0);
        let counts = regions.free[..FREE_SHARDS].iter().map(|free| {
            // A head that changes has another version, or a thread could take it for an old one.
            let changes = free.head.load(Ordering::Relaxed) >> 32;
            let count = free.count.load(Ordering::Relaxed);
            (changes >= count, count)
        });
        let expected =
            (0..FREE_SHARDS).map(|shard| (true, (200 - shard).div_ceil(FREE_SHARDS) as u64));
        assert_eq!(counts.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
    // Less than 7/8 of 201 in use.
    let expected: Vec<bool> = (1..=200).map(|used| used < 175).collect();
    assert_eq!(reserve, [expected.clone(), expected.clone(), expected].concat());
    let next = regions.bibs[1].next6.load(Ordering::Relaxed);
    assert_eq!(Chained::next(&regions.bibs[1], Directory::Bib6).load(Ordering::Relaxed), next);
    regions.bibs[1].next4.store(77, Ordering::Relaxed);
    let other = Chained::next(&regions.bibs[1], Directory::Bib4);
    assert_eq!(other.load(Ordering::Relaxed), 77);
}

/// Lists are filled for as many processors as there are: a processor whose list is empty must not search all of them.
#[test]
fn a_free_list_that_is_empty_takes_from_the_nearest() {
    let heap = Heap::new(&Sizes { bibs: 3, sessions: 1, subscribers: 1 }, [1, 2]);
    let regions = heap.regions();
    let list = FreeList::of(&regions, layout::Kind::Bib);
    let all: Vec<u32> = (0..3).map(|_| list.take(regions.bibs, 0).unwrap()).collect();
    for (own, shards) in [(1, [0, 3, 2]), (2, [3, 0, 1]), (3, [2, 1, 0]), (63, [62, 61, 0])] {
        for (shard, index) in shards.into_iter().zip(&all) {
            list.give(regions.bibs, shard, *index);
        }
        let taken: Vec<u32> = std::iter::from_fn(|| list.take(regions.bibs, own)).collect();
        assert_eq!(taken, all, "{own}");
    }
}

/// A few ranges of 203.0.113.0/24, in any order. Some have the same addresses, but other ports.
fn ranges() -> impl Strategy<Value = Vec<Range>> {
    let range = (0u8..60, 0u8..20, 1u16..2000, 0u16..3000);
    proptest::collection::vec(range, 1..5).prop_map(|drawn| {
        let at = |last: u8| Ipv4Addr::new(203, 0, 113, last);
        let range = |(number, (first, more, low, ports)): (usize, (u8, u8, u16, u16))| {
            let low = number as u16 * 5000 + low;
            Range { first: at(first), last: at(first + more), low, high: low + ports }
        };
        drawn.into_iter().enumerate().map(range).collect()
    })
}

/// The blocks of a pool, one after the other, made as a person would.
fn naive(ranges: &[Range], size: u16) -> Vec<PortBlock> {
    let mut blocks = Vec::new();
    for range in ranges {
        for addr in range.first.to_bits()..=range.last.to_bits() {
            let mut low = u32::from(range.low);
            while low + u32::from(size) - 1 <= u32::from(range.high) {
                let high = (low + u32::from(size) - 1) as u16;
                blocks.push(PortBlock { v4: Ipv4Addr::from_bits(addr), low: low as u16, high });
                low += u32::from(size);
            }
        }
    }
    blocks
}

proptest! {
    #[test]
    fn blocks_are_numbered_one_after_the_other(ranges in ranges(), size in 1u16..900) {
        let expected = naive(&ranges, size);
        let clients = vec!["2001:db8:c000::/52".parse().unwrap()];
        let allocation = Allocation::Deterministic { size };
        let pool = Pool { ranges: ranges.clone(), clients, allocation, ..Pool::default() };
        prop_assert_eq!(pool.blocks(), expected.len() as u64);
        let pool = Numbered::new(pool);
        prop_assert_eq!(pool.blocks(), expected.len() as u64);
        let mut of_address: BTreeMap<Ipv4Addr, Vec<u64>> = BTreeMap::new();
        for (number, block) in (0..).zip(&expected) {
            prop_assert_eq!(pool.block(number), Some(*block));
            prop_assert_eq!(pool.number(*block), Some(number));
            if size > 1 {
                let other = PortBlock { low: block.low + 1, ..*block };
                prop_assert_eq!(pool.number(other), None);
            }
            of_address.entry(block.v4).or_default().push(number);
            // RFC 7422: there and back.
            let host = Ipv6Addr::from_bits(0x2001_0db8_c000 << 80 | u128::from(number) << 64 | 5);
            let (net, inside) = (ipnet::Ipv6Net::new(host, 64).unwrap().trunc(), number < 4096);
            let there = pool.deterministic(host, 64);
            prop_assert_eq!(there, inside.then_some(number));
            for port in [block.low, block.high] {
                let subscriber = pool.subscriber_of(block.v4, port, 64);
                prop_assert_eq!(subscriber, inside.then_some(net));
            }
        }
        prop_assert_eq!(pool.block(expected.len() as u64), None);
        for range in &ranges {
            let numbers = pool.blocks_at(range.last).flatten().collect::<Vec<_>>();
            prop_assert_eq!(numbers, of_address.get(&range.last).cloned().unwrap_or_default());
            prop_assert!(pool.contains(range.first, range.low) && pool.contains(range.last, range.high));
            if let Some(before) = range.low.checked_sub(1) {
                prop_assert!(!pool.contains(range.first, before));
                prop_assert_eq!(pool.subscriber_of(range.first, before, 64), None);
            }
        }
    }

    #[test]
    fn given_blocks_are_a_set(
        blocks in 1u64..200,
        steps in proptest::collection::vec((0u64..210, 0u64..210, 0u64..210, any::<bool>()), 0..300),
    ) {
        let range = Range { first: POOL, last: POOL, low: 1, high: blocks as u16 };
        let allocation = Allocation::Blocks { size: 1, most: 1 };
        let pool = Pool { ranges: vec![range], allocation, ..Pool::default() };
        let given = BlockBitmap::of(&pool);
        let mut naive = HashSet::new();
        for (number, start, end, back) in steps {
            if back {
                given.give_back(number);
                naive.remove(&number);
            } else {
                prop_assert_eq!(given.take(number), number < blocks && naive.insert(number));
            }
            let (start, end) = (start.min(end).min(blocks), start.max(end).min(blocks));
            let from = number.clamp(start, end);
            let free = |number: &u64| !naive.contains(number);
            let first = (from..end).find(free).or_else(|| (start..from).find(free));
            prop_assert_eq!(given.find(start..end, number), first);
            prop_assert_eq!(given.occupancy(), Occupancy { used: naive.len() as u64, size: blocks });
        }
    }
}

/// Entries know the prefix of their IPv4 host by its number.
#[test]
fn tables_mean_the_same_while_prefixes_are_only_added() {
    let heap = Heap::new(&Sizes { bibs: 4, sessions: 4, subscribers: 4 }, [1, 2]);
    let meta = heap.regions().meta;
    let [a, b, c] =
        ["64:ff9b::/96", "2001:db8:64::/96", "2001:db8:65::/96"].map(|it| it.parse().unwrap());
    assert!(keeps_prefixes(meta, &[a], 64), "nobody has told yet");
    tell_prefixes(meta, &[a, b], 64);
    assert!(keeps_prefixes(meta, &[a, b], 64));
    assert!(keeps_prefixes(meta, &[a, b, c], 64));
    for other in [&[a][..], &[b, a], &[a, c], &[c, a, b]] {
        assert!(!keeps_prefixes(meta, other, 64), "{other:?}");
    }
    assert!(!keeps_prefixes(meta, &[a, b], 56));
}

/// Of the session that an ALG was the last to change.
#[test]
fn a_binding_keeps_the_shift_of_one_session() {
    let nat = nat(settings(pool(2000, 2063)));
    let first = from_v6(Protocol::Tcp, (host(1), 4000), Segment::Syn);
    let second = Tuple { remote: (SERVER.0, 81), ..first };
    let local = nat.from_v6(&first, at(0), 0).unwrap();
    assert_eq!(nat.from_v6(&second, at(0), 0), Ok(local));
    let kept = || [first, second].map(|it| nat.kept_shift((local, it.remote)));
    assert_eq!(kept(), [None, None]);
    nat.keep_shift((local, first.remote), [1, 2]);
    assert_eq!(kept(), [Some([1, 2]), None]);
    nat.keep_shift((local, second.remote), [3, 4]);
    assert_eq!(kept(), [None, Some([3, 4])]);
}

#[test]
fn subscribers_that_have_no_place_have_no_block() {
    let range = Range { first: POOL, last: POOL, low: 1024, high: 65_535 };
    let pool = |client: &str| Pool {
        ranges: vec![range],
        clients: vec![client.parse().unwrap()],
        allocation: Allocation::Deterministic { size: 4096 },
        mark: None,
    };
    let host = "2001:db8::f".parse().unwrap();
    let place = |client, len| pool(client).deterministic(host, len);
    // 64,512 ports are 15 blocks of 4096, and 3072 ports that are nobody's.
    assert_eq!(place("2001:db8::/64", 128), None, "more bits than a number has");
    assert_eq!(place("2001:db8::/65", 128), None, "no such block");
    assert_eq!(place("2001:db8::/65", 127), Some(7));
    assert_eq!(pool("2001:db8::/65").deterministic("2001:db8::3".parse().unwrap(), 128), Some(3));
    assert_eq!(place("2001:db8::/124", 128), None, "no such block");
    assert_eq!(place("2001:db8::8/125", 128), Some(7));
    assert_eq!(place("2001:db8::/64", 56), None, "a subscriber wider than the clients");
    assert_eq!(place("2001:db8:1::/64", 128), None, "none of the clients");

    let of = |client: &str, port, len| pool(client).subscriber_of(POOL, port, len);
    let net = |text: &str| Some(text.parse().unwrap());
    assert_eq!(of("2001:db8::/64", 1024 + 4096, 128), net("2001:db8::1/128"));
    assert_eq!(of("2001:db8::/125", 1024 + 7 * 4096, 128), net("2001:db8::7/128"));
    assert_eq!(of("2001:db8::/125", 1024 + 8 * 4096, 128), None, "no such client");
    assert_eq!(of("2001:db8::/64", 1024 + 15 * 4096, 128), None, "behind the last block");
    assert_eq!(of("2001:db8::/64", 1023, 128), None);
    let shared = Pool { allocation: Allocation::Shared, ..pool("2001:db8::/64") };
    assert_eq!(shared.subscriber_of(POOL, 5000, 128), None);
}

#[test]
fn lifetimes_are_whole_ticks_and_never_too_short() {
    // RFC 6146 section 4 gives seconds; a tick has 2^27 ns.
    for (nanoseconds, expected) in [(0, 0), (1, 1), (1 << 27, 1), ((1 << 27) + 1, 2)] {
        assert_eq!(in_ticks(Duration::from_nanos(nanoseconds)), expected);
    }
    assert_eq!(in_ticks(Duration::MAX), 0x7fff_fffe, "an age has 32 bits");
    assert_eq!(tick(Duration::from_nanos((1 << 32) - 1)), 31);
    let lifetimes = Lifetimes::default();
    let ticks = Ticks::of(&Settings::default());
    let class = |timeout: Timeout| ticks.of_class(timeout as u8);
    assert_eq!(class(Timeout::Udp), in_ticks(lifetimes.udp));
    assert_eq!(class(Timeout::TcpIncomingSyn), in_ticks(lifetimes.tcp_incoming_syn));
    assert_eq!(ticks.of_class(99), 0, "damaged memory");
}

#[test]
fn what_is_the_translators_own() {
    let fixed = StaticBib {
        protocol: Protocol::Tcp,
        v6: (host(1), 80),
        v4: (Ipv4Addr::new(203, 0, 113, 8), 8080),
    };
    let pool = pool(2000, 2999);
    let nat = nat(Settings { bib: vec![fixed], ..settings(pool.clone()) });
    for (protocol, addr, port, own) in [
        (Protocol::Udp, POOL, 2000, true),
        (Protocol::Tcp, POOL, 2999, true),
        (Protocol::Udp, POOL, 1999, false),
        (Protocol::Udp, POOL, 3000, false),
        (Protocol::Udp, SERVER.0, 2000, false),
        (Protocol::Tcp, fixed.v4.0, 8080, true),
        (Protocol::Udp, fixed.v4.0, 8080, false),
        (Protocol::Tcp, fixed.v4.0, 8081, false),
        (Protocol::Tcp, POOL, 8080, false),
    ] {
        assert_eq!(nat.owns(protocol, addr, port), own, "{protocol:?} {addr} {port}");
        let is_fixed = (protocol, (addr, port)) == (fixed.protocol, fixed.v4);
        assert_eq!(pool.contains(addr, port) || is_fixed, own, "{protocol:?} {addr} {port}");
    }
    assert!(nat.owns_address(POOL) && nat.owns_address(fixed.v4.0));
    assert!(!nat.owns_address(SERVER.0));
    for (protocol, label) in Protocol::ALL.into_iter().zip(["tcp", "udp", "icmp"]) {
        assert_eq!(protocol.label(), label);
    }
}

#[test]
fn tables_that_do_not_fit_say_why() {
    let text = |error: Nat64Error| alloc::string::ToString::to_string(&error);
    let first = nat(settings(pool(1024, 65_535)));
    let made = |settings| Nat64::new(settings, Arc::clone(first.memory()));
    let other = Sizes { sessions: 5000, ..first.settings().sizes };
    let error = made(Settings { sizes: other, ..first.settings().clone() }).unwrap_err();
    assert_eq!(text(error), "the tables that exist have another layout or other sizes");
    let filtering = Filtering::AddressDependent;
    let filters = || Settings { filtering, ..first.settings().clone() };
    assert!(made(filters()).is_ok(), "nobody was counted yet");
    made(first.settings().clone()).unwrap();
    first.from_v6(&udp(1, 5000), at(0), 0).unwrap();
    let error = made(filters()).unwrap_err();
    assert_eq!(text(error), "filtering can't change while the tables have entries");

    let filters = nat(Settings { filtering, ..settings(pool(1024, 65_535)) });
    filters.from_v6(&udp(1, 5000), at(0), 0).unwrap();
    let made = |filtering| {
        let settings = Settings { filtering, ..filters.settings().clone() };
        Nat64::new(settings, Arc::clone(filters.memory())).map(|_| ())
    };
    assert_eq!(made(filtering), Ok(()), "as before");
    assert_eq!(made(Filtering::EndpointIndependent), Err(Nat64Error::Filtering));
}

#[test]
fn old_and_new_settings_give_no_block_to_two() {
    let blocks =
        |size| Pool { allocation: Allocation::Blocks { size, most: 1 }, ..pool(1000, 1399) };
    let first = nat(settings(blocks(100)));
    let second = first.reconfigured(first.settings().clone()).unwrap();
    let other = first.reconfigured(settings(blocks(50))).unwrap();
    assert_eq!(other.blocks()[0].size, 8);
    // Threads that still have the old settings, and those that have the new ones already.
    let mut given = HashSet::new();
    for (number, nat) in [&first, &second, &second, &first].into_iter().enumerate() {
        let local = nat.from_v6(&udp(number as u16, 5000), at(0), 0).unwrap();
        assert!(given.insert((local.1 - 1000) / 100), "given twice");
    }
    assert_eq!(first.blocks(), second.blocks());
    assert_eq!(second.from_v6(&udp(9, 5000), at(0), 0), Err(DropReason::PoolExhausted));
}

#[test]
fn what_the_operator_adds_outlives_a_change_of_settings() {
    let nat = nat(settings(pool(1024, 65_535)));
    let added = StaticBib {
        protocol: Protocol::Tcp,
        v6: (host(1), 80),
        v4: (Ipv4Addr::new(203, 0, 113, 8), 8080),
    };
    nat.add_bib(&added, at(0)).unwrap();
    let next = nat.reconfigured(settings(pool(2000, 2999))).unwrap();
    let mut sweeper = Sweeper::new();
    sweeper.review();
    for second in 1..4 {
        sweep(&next, &mut sweeper, at(second));
    }
    assert_eq!(next.bib(at(5)).count(), 1);
    let syn = Tuple {
        protocol: Protocol::Tcp,
        near: added.v4,
        ..answer(&udp(1, 1), added.v4, Segment::Syn)
    };
    assert_eq!(next.from_v4(&syn, at(5), 0).unwrap().host, added.v6);
}

#[test]
fn counts_that_are_right_are_left() {
    let nat = nat(settings(pool(1024, 65_535)));
    nat.from_v6(&udp(1, 5000), at(0), 0).unwrap();
    assert_eq!(nat.adopt(&|| {}).counts, 0);
    nat.memory().regions().subscribers[1].sessions.store(7, Ordering::Relaxed);
    nat.memory().regions().subscribers[1].ports[0].store(7, Ordering::Relaxed);
    assert_eq!(nat.adopt(&|| {}).counts, 2);
    assert_eq!(nat.adopt(&|| {}).counts, 0);
}

#[test]
fn an_index_has_30_bits() {
    let most = Sizes { bibs: u32::MAX, sessions: u32::MAX, subscribers: u32::MAX };
    assert_eq!(most.entries(), [(1 << 30) - 1; 3]);
    assert_eq!(most.heads(), [1 << 30; 4]);
}

#[test]
fn a_session_takes_158_octets_at_most() {
    let most = u64::from(Sizes::MAX);
    let powers = (12..=30)
        .flat_map(|bits| [1 << bits, (1_u64 << bits) * 8 / 5, (1_u64 << bits) * 8 / 5 + 8]);
    for number in powers.chain([262_144, 1_000_000, 10_000_000]).map(|number| number.min(most)) {
        let entries = number as u32;
        let sizes = Sizes { bibs: entries, sessions: entries, subscribers: 1 };
        // Beside the sessions there are the entries 0, and a subscriber.
        let each = (sizes.octets() - 2 * 64 - 2 * 128 - 8) as f64 / number as f64;
        assert!((142.9..=158.1).contains(&each), "{each} octets for each of {number}");
    }
}

#[test]
fn a_binding_counts_16_million_sessions() {
    let nat = nat(settings(pool(1024, 65_535)));
    nat.from_v6(&udp(1, 1), at(0), 0).unwrap();
    let bib = &nat.memory().regions().bibs[1];
    bib.life.fetch_add(0xff_fffd, Ordering::Relaxed);
    assert!(bib.add_session());
    assert!(!bib.add_session(), "the state comes behind it");
    assert_eq!(bib.state(), state::LIVE);
}

#[test]
fn who_takes_tables_over_knows_which_blocks_are_given() {
    let allocation = Allocation::Blocks { size: 100, most: 2 };
    let pool = Pool { allocation, ..pool(1000, 1399) };
    let first = nat(settings(pool));
    let local = first.from_v6(&udp(1, 5000), at(0), 0).unwrap();
    let second = Nat64::new(first.settings().clone(), Arc::clone(first.memory())).unwrap();
    assert_eq!(second.blocks(), [Occupancy { used: 1, size: 4 }]);
    let taken = |number: u16| {
        let (low, high) = (1000 + 100 * number, 1099 + 100 * number);
        second.is_assigned(PortBlock { v4: local.0, low, high })
    };
    let own = (local.1 - 1000) / 100;
    assert_eq!([0, 1, 2, 3].map(taken), [0, 1, 2, 3].map(|number| Some(number == own)));
    let mut blocks: HashSet<u16> = HashSet::from([own]);
    for number in 2..=4 {
        let local = second.from_v6(&udp(number, 5000), at(0), 0).unwrap();
        assert!(blocks.insert((local.1 - 1000) / 100), "given twice");
    }
    assert_eq!(second.from_v6(&udp(5, 5000), at(0), 0), Err(DropReason::PoolExhausted));
}

/// `crates/bpf/c/nat64_port.h` tries the same port first.
#[test]
fn a_port_is_its_hosts_hash() {
    let nat = nat(settings(pool(1024, 65_534)));
    let secret = Secret([7, 11]);
    for port in 5000..5032 {
        let local = nat.from_v6(&udp(1, port), at(0), 0).unwrap();
        // 32,255 pairs; the last port has no other beside it.
        let pair = secret.port(host(1), port, 17) as u32 % 32_255;
        assert_eq!(u32::from(local.1), 1024 + 2 * pair + u32::from(port % 2));
    }
}
