//! Who owns shards while gateways come, go, are killed and stand still, and what becomes of their records.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

use fordway_testhost::has_programs;
use fordway_testhost::namespace::can_test;
use nix::sys::signal::Signal;

use crate::gateway::{TABLE, timing};
use crate::ledger::{self, Span};
use crate::world::{MIDDLE, World, address, owned};

/// Records in each shard.
const RECORDS: u64 = 300;

fn can_run() -> bool {
    can_test() && has_programs(&["nats-server", "nft"])
}

pub(crate) fn longer_than_a_lease() {
    std::thread::sleep(2 * std::time::Duration::from_nanos(timing().ttl));
}

/// Three gateways that own 16 shards with records; `None`: a skip.
fn filled(servers: u16) -> Option<(World, Vec<(usize, serde_json::Value)>)> {
    if !can_run() {
        return None;
    }
    let mut world = World::new(servers, 3, 16);
    world.settled(&[0, 1, 2]);
    let all = fill(&mut world);
    Some((world, all))
}

/// Every shard gets records, which its standby has then, too.
pub(crate) fn fill(world: &mut World) -> Vec<(usize, serde_json::Value)> {
    for number in 0..3 {
        world.tell(number, &format!("traffic {RECORDS}"));
    }
    let all = world.settled(&[0, 1, 2]);
    assert!(are_full(&all), "{all:?}");
    all
}

/// Every shard has the records that traffic has made.
fn are_full(all: &[(usize, serde_json::Value)]) -> bool {
    owned(all).values().all(|contents| contents[0] == RECORDS)
}

#[test]
fn shards_move_with_their_records_as_gateways_drain_leave_and_join() {
    let Some((mut world, before)) = filled(1) else { return };
    world.tell(1, "drain");
    let drained = world.settled(&[0, 2]);
    assert_eq!(owned(&before), owned(&drained), "the records went with the shards");
    world.tell(1, "join");
    let joined = world.settled(&[0, 1, 2]);
    assert!(!joined[1].1["owned"].as_array().unwrap().is_empty(), "{joined:?}");
    assert_eq!(owned(&before), owned(&joined));
    // Where the operator wants it.
    let shard = joined[0].1["owned"][0].clone();
    world.tell(0, &format!("move {shard} 2"));
    world.until("the shard is where it is wanted", |all| {
        all[2].1["owned"].as_array().unwrap().contains(&shard)
    });
    world.tell(2, "leave");
    let left = world.until("it has left", |all| all[2].1["phase"] == "ended");
    assert_eq!(left[2].1["phase"], "ended");
    world.kill(2);
    let rest = world.settled(&[0, 1]);
    assert_eq!(owned(&before), owned(&rest));
    eprintln!("longest time without an owner: {:.1} ms", world.check());
}

#[test]
fn a_killed_gateway_s_shards_are_taken_with_their_records() {
    let Some((mut world, before)) = filled(3) else { return };
    let killed = world.kill(0);
    let after = world.settled(&[1, 2]);
    for (shard, contents) in owned(&before) {
        let spans = crate::ledger::read(world.folder(), 3);
        let now = &owned(&after)[&shard];
        assert_eq!(
            &contents,
            now,
            "shard {shard}, killed at {killed}: {:?}",
            spans[&(shard as u16)]
        );
    }
    eprintln!("taken over {:.0} ms after the process was killed", world.outage(0, killed));
    // A server of the store with it, and the gateway comes back with empty tables.
    world.nats.kill(0);
    world.start(0);
    let back = world.settled(&[0, 1, 2]);
    assert_eq!(owned(&before), owned(&back));
    world.nats.start_one(0);
    eprintln!("longest time without an owner: {:.1} ms", world.check());
}

#[test]
fn a_gateway_that_stands_still_translates_nothing_beyond_its_lease() {
    if !can_run() {
        return;
    }
    let mut world = World::new(1, 3, 16);
    world.settled(&[0, 1, 2]);
    world.signal(2, Signal::SIGSTOP);
    // It can't be asked meanwhile.
    fordway_testhost::poll("the others have its shards", || {
        let own = |world: &mut World, n: usize| {
            world.tell(n, "status")["owned"].as_array().map_or(0, Vec::len)
        };
        (own(&mut world, 0) + own(&mut world, 1) == 16).then_some(())
    });
    world.signal(2, Signal::SIGCONT);
    let back = world.settled(&[0, 1, 2]);
    assert!(!back[2].1["owned"].as_array().unwrap().is_empty(), "{back:?}");
    world.check();
}

#[test]
fn translation_goes_on_while_the_store_is_gone() {
    if !can_run() {
        return;
    }
    let mut world = World::new(1, 3, 16);
    let before = world.settled(&[0, 1, 2]);
    world.nats.kill(0);
    // For longer than a lease: it is extended by promises of the others.
    longer_than_a_lease();
    let gone = world.until("the store is gone, and leases last", |all| {
        all.iter().all(|(_, one)| {
            one["is_silent"] == true
                && one["is_store_open"] == false
                && one["left_ms"].as_u64() > Some(0)
        })
    });
    let shards = |all: &[(usize, serde_json::Value)]| {
        all.iter().map(|(_, one)| one["owned"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(shards(&before), shards(&gone), "nothing moves");
    // New records reach the standbys all the same.
    let filled = fill(&mut world);
    world.nats.start_one(0);
    world.until("the store is back", |all| {
        all.iter().all(|(_, one)| one["is_silent"] == false && one["is_store_open"] == true)
    });
    world.tell(0, "drain");
    let drained = world.settled(&[1, 2]);
    assert_eq!(owned(&filled), owned(&drained));
    world.check();
}

/// A day, in s.
const DAY: u64 = 86_400;

#[test]
fn the_wall_clock_may_say_anything() {
    if !can_run() || !has_programs(&["clang-19"]) {
        return;
    }
    let mut world = World::new(1, 3, 16);
    let [file, library] = ["offset", "wall.so"].map(|name| world.folder().join(name));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/wall.c");
    let mut compiler = Command::new("clang-19");
    compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", source, "-o"]).arg(&library);
    assert!(compiler.status().unwrap().success());
    let offset = File::create(&file).unwrap();
    let step = |days: i64| offset.write_all_at(&(days * DAY as i64).to_ne_bytes(), 0).unwrap();
    step(0);
    world.environment = [("LD_PRELOAD", library), ("WALL_OFFSET", file)]
        .map(|(name, path)| (name.into(), path.display().to_string()))
        .into();
    // The first one's clock stays right.
    for number in [1, 2] {
        world.kill(number);
        world.start(number);
    }
    world.settled(&[0, 1, 2]);
    let before = fill(&mut world);
    // Each owner of a shard has an epoch of its own, the same gateway a second time, too.
    let owners = |world: &World| {
        let last = |spans: Vec<Span>| spans.iter().map(|it| (it.epoch, it.gateway)).max();
        ledger::read(world.folder(), 3).into_values().map(last).collect::<Vec<_>>()
    };
    let first = owners(&world);
    for days in [365, -30] {
        step(days);
        longer_than_a_lease();
        let all = world.settled(&[0, 1, 2]);
        assert_eq!(owned(&before), owned(&all), "{days} days");
        assert_eq!(first, owners(&world), "{days} days: nothing moves");
        let wall = |n: usize| all[n].1["wall_s"].as_u64().unwrap();
        let [right, wrong] = [wall(0), wall(1)];
        assert!(right.abs_diff(wrong) > DAY - 60, "{right}, {wrong}: the clock was stepped");
        for (_, one) in &all {
            assert!(one["left_ms"].as_u64() > Some(0) && one["is_silent"] == false, "{one}");
        }
    }
    world.tell(1, "drain");
    assert_eq!(owned(&before), owned(&world.settled(&[0, 2])));
    world.check();
}

#[test]
fn a_gateway_with_another_configuration_owns_nothing() {
    if !can_run() {
        return;
    }
    let mut world = World::new(1, 2, 8);
    world.settled(&[0, 1]);
    world.kill(1);
    world.start_with(1, 4712);
    world.until("it says so", |all| all[1].1["phase"] == "WrongConfig");
    let all = world.settled(&[0]);
    assert_eq!(all[1].1["left_ms"], 0);
    world.check();
}

#[test]
fn who_is_cut_off_stops_and_the_others_go_on() {
    let Some((mut world, before)) = filled(1) else { return };
    // It hears nobody, and is heard: its writes arrive, and no acknowledgement comes back.
    world.deafen(2, &[MIDDLE, address(0), address(1)]);
    let cut = world.until("the others have its shards", |all| {
        let own = |n: usize| all[n].1["owned"].as_array().map_or(0, Vec::len);
        own(0) + own(1) == 16 && all[2].1["left_ms"] == 0
    });
    assert_eq!(owned(&before), owned(&cut[..2]), "with their records");
    fordway_testhost::poll("nobody is told to come to it any more", || {
        let of = |family| format!("{family} route show table {TABLE}");
        let left = ["-4", "-6"].map(|family| world.hosts[2].output("ip", &of(family)));
        left.iter().all(String::is_empty).then_some(())
    });
    world.mend(2);
    let back = world.settled(&[0, 1, 2]);
    assert_eq!(owned(&before), owned(&back));
    // One link alone, in one direction: all leases last, since the store hears everybody.
    world.deafen(1, &[address(0)]);
    longer_than_a_lease();
    let all = world.all();
    assert!(all.iter().all(|(_, one)| one["left_ms"].as_u64() > Some(0)), "{all:?}");
    world.mend(1);
    assert_eq!(owned(&before), owned(&world.settled(&[0, 1, 2])));
    world.check();
}
