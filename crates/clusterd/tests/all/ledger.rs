//! What each gateway's data path was allowed, and when: at no time may two of them translate one shard.
//!
//! Each data path appends a line to its gateway's file before it may do more, and after it may do less. All clocks are one
//! machine's, so that times of different files can be compared.

use std::collections::BTreeMap;
use std::path::Path;

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// A process has begun: nothing is allowed.
    Begin,
    Lease(u64),
    Translate(u16, u64),
    Stop(u16),
}

fn parse(line: &str) -> Option<(u64, Event)> {
    let words: Vec<&str> = line.split(' ').collect();
    let event = match words[..] {
        [_, "begin"] => Event::Begin,
        [_, "lease", until] => Event::Lease(until.parse().ok()?),
        [_, "translate", shard, epoch] => {
            Event::Translate(shard.parse().ok()?, epoch.parse().ok()?)
        }
        [_, "stop", shard] => Event::Stop(shard.parse().ok()?),
        _ => return None,
    };
    Some((words[0].parse().ok()?, event))
}

/// A time in which a gateway was allowed to translate a shard, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) gateway: u16,
    pub(crate) epoch: u64,
}

/// The spans of a gateway's file, by shard.
fn spans(gateway: u16, text: &str, all: &mut BTreeMap<u16, Vec<Span>>) {
    let mut until = 0;
    // Which shards are enabled, since when, and in which epoch.
    let mut enabled: BTreeMap<u16, (u64, u64)> = BTreeMap::new();
    // Ends spans of some shards at a time, or at the deadline before it.
    let mut end = |shard: u16, (since, epoch): (u64, u64), at: u64, until: u64| {
        let to = at.min(until);
        if to > since {
            all.entry(shard).or_default().push(Span { from: since, to, gateway, epoch });
        }
    };
    for line in text.lines() {
        // A process that was killed may have left half a line, which was not allowed to it yet.
        let Some((at, event)) = parse(line) else { continue };
        match event {
            Event::Begin => {
                for (shard, state) in std::mem::take(&mut enabled) {
                    end(shard, state, at, until);
                }
                until = 0;
            }
            Event::Lease(new) => {
                for (shard, state) in &mut enabled {
                    end(*shard, *state, at, until);
                    state.0 = at;
                }
                until = new;
            }
            Event::Translate(shard, epoch) => {
                if let Some(state) = enabled.insert(shard, (at, epoch)) {
                    end(shard, state, at, until);
                }
            }
            Event::Stop(shard) => {
                if let Some(state) = enabled.remove(&shard) {
                    end(shard, state, at, until);
                }
            }
        }
    }
    for (shard, state) in enabled {
        end(shard, state, u64::MAX, until);
    }
}

/// All spans of the gateways' files in a folder, by shard, in the order of time.
pub(crate) fn read(folder: &Path, gateways: u16) -> BTreeMap<u16, Vec<Span>> {
    let mut all = BTreeMap::new();
    for gateway in 0..gateways {
        let text = std::fs::read_to_string(folder.join(format!("{gateway}.ledger")));
        spans(gateway, &text.unwrap_or_default(), &mut all);
    }
    all.values_mut().for_each(|spans| spans.sort());
    all
}

/// Asserts that no two gateways translated one shard at one time, and that each new owner has a later epoch.
pub(crate) fn check(all: &BTreeMap<u16, Vec<Span>>) {
    for (shard, spans) in all {
        for two in spans.windows(2) {
            let [one, next] = two else { continue };
            if one.gateway != next.gateway {
                assert!(
                    one.to <= next.from,
                    "shard {shard} was translated by two: {one:?}, {next:?}"
                );
                assert!(one.epoch < next.epoch, "shard {shard}: {one:?}, {next:?}");
            }
        }
    }
}

/// The longest time in which a shard had no owner between two owners, in ms.
pub(crate) fn longest_gap(all: &BTreeMap<u16, Vec<Span>>) -> f64 {
    let of = |spans: &Vec<Span>| {
        let gaps = spans.windows(2).map(|two| two[1].from.saturating_sub(two[0].to));
        gaps.max().unwrap_or(0)
    };
    all.values().map(of).max().unwrap_or(0) as f64 / 1e6
}

#[test]
fn two_owners_at_one_time_are_found() {
    let mut all = BTreeMap::new();
    spans(0, "1 begin\n5 lease 100\n10 translate 3 1\n50 lease 90\n70 stop 3\n", &mut all);
    spans(1, "1 begin\n2 lease 200\n70 translate 3 2\n80 tran", &mut all);
    let of = |from, to, gateway, epoch| Span { from, to, gateway, epoch };
    assert_eq!(all[&3], [of(10, 50, 0, 1), of(50, 70, 0, 1), of(70, 200, 1, 2)]);
    check(&all);
    assert!((longest_gap(&all)).abs() < f64::EPSILON);
    // One that stops a little later, one whose lease is longer, one with the same epoch.
    for wrong in ["10 translate 3 1\n5 lease 100\n71 stop 3\n", "5 lease 300\n6 translate 3 1\n"] {
        let mut all = BTreeMap::new();
        spans(0, &format!("1 begin\n{}", wrong.replace("10 translate", "6 translate")), &mut all);
        spans(1, "1 begin\n2 lease 200\n70 translate 3 2\n", &mut all);
        all.values_mut().for_each(|spans| spans.sort());
        assert!(std::panic::catch_unwind(|| check(&all)).is_err(), "{wrong}: {all:?}");
    }
    let mut all = BTreeMap::new();
    spans(0, "1 lease 100\n6 translate 3 2\n20 stop 3\n", &mut all);
    spans(1, "2 lease 200\n70 translate 3 2\n", &mut all);
    assert!(std::panic::catch_unwind(|| check(&all)).is_err());
}
