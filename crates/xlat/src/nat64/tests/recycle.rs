//! Tables whose entries were all used before.

use super::*;

/// The free lists of sessions that have entries.
fn stocked(nat: &Nat64) -> Vec<usize> {
    let regions = nat.memory.regions();
    let first = Kind::Session as usize * layout::FREE_SHARDS;
    let lists = regions.free[first..first + layout::FREE_SHARDS].iter().enumerate();
    lists.filter(|(_, list)| list.count.load(Ordering::Relaxed) != 0).map(|(at, _)| at).collect()
}

#[test]
fn entries_come_back_to_those_who_take_them() {
    let nat = nat(settings(pool(1024, 65_535)));
    let mut sweeper = Sweeper::over(2);
    for round in 0..5 {
        for number in 0..1000 {
            nat.from_v6(&udp(1, 5000 + number), at(round * 1000), 0).unwrap();
        }
        sweep(&nat, &mut sweeper, at(round * 1000 + 999));
        assert_eq!(stocked(&nat), [0, 1], "round {round}");
    }
    // What the one takes is what it gets: no list grows at the other's cost.
    let regions = nat.memory.regions();
    let first = Kind::Session as usize * layout::FREE_SHARDS;
    let counts = [0, 1].map(|at| regions.free[first + at].count.load(Ordering::Relaxed));
    assert!(counts[0].abs_diff(counts[1]) <= 1, "{counts:?}");
    assert!(regions.meta.fresh[Kind::Session as usize].load(Ordering::Relaxed) < 3000);
}

#[test]
fn a_table_is_short_from_seven_eighths_on_until_entries_end() {
    let sizes = Sizes { bibs: 4096, sessions: 800, subscribers: 256 };
    let nat = nat(Settings { sizes, ..settings(pool(1024, 65_535)) });
    let used = |kind: Kind| nat.occupancy()[kind as usize].used;
    let first = (5000..5800).find(|number| {
        nat.from_v6(&udp(1, *number), at(0), 0).unwrap();
        nat.is_short()
    });
    assert_eq!(first, Some(5699), "{:?}", nat.occupancy());
    assert_eq!((used(Kind::Session), used(Kind::Bib)), (700, 700));
    sweep(&nat, &mut Sweeper::default(), at(1000));
    assert!(!nat.is_short());
    // All entries were used once: those that are free again count.
    for number in 5000..5699 {
        nat.from_v6(&udp(1, number), at(1001), 0).unwrap();
    }
    assert!(!nat.is_short());
}
