//! Gateways that share the load, as operators run them: hosts' connections go on whatever becomes of the gateways.
//!
//! ```text
//! client ──┐
//!          ├── router, with the store ════ gw1, gw2
//! server ──┘
//! ```
//!
//! The router sends everything to gw1, which hands over what gw2 owns.

mod idle;
mod observer;
mod pulses;
mod rolling;
mod routed;
mod routers;
mod scaling;
mod stalls;
mod store;
mod world;

use std::thread;
use std::time::Duration;

use fordway_testhost::{can_use_tun, has_programs, poll_or};
use rustix::process::Signal;
use serde_json::Value;

use crate::common::connection::Connection;
use crate::common::daemon::{Daemon, count};
use crate::common::host::snapshot;
use world::World;

const SHARDS: u64 = 16;
/// Subscribers, each with a connection.
const SUBSCRIBERS: u64 = 8;
/// Of each connection: subscriber, BIB entry, session.
const RECORDS: u64 = 3 * SUBSCRIBERS;

/// Eight times as long as usual: a busy machine does not renew a lease each 100 ms.
const TTL: &str = "4s";

fn number(status: &Value, pointer: &str) -> u64 {
    status.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

fn owned(status: &Value) -> u64 {
    number(status, "/shards_by_role/owner")
}

/// All own shards, each of which another one is ready to take, with all records.
fn is_shared(all: &[Value], records: u64) -> bool {
    let sum = |pointer: &str| all.iter().map(|one| number(one, pointer)).sum::<u64>();
    all.iter().all(|one| owned(one) > 0)
        && sum("/shards_by_role/owner") == SHARDS
        && sum("/shards_by_role/ready") >= SHARDS
        && sum("/shards_by_role/uncovered") == 0
        && sum("/records/lag") == 0
        && sum("/records/own") == records
        && sum("/records/others") >= records
}

#[test]
fn connections_go_on_when_gateways_drain_die_and_come_back() {
    go_on("engine = 'user'");
}

#[test]
fn connections_go_on_with_programs_in_the_kernel() {
    go_on("engine = 'kernel'");
}

#[test]
fn connections_go_on_with_programs_in_front_of_routing() {
    for attach in ["ingress", "xdp"] {
        go_on(&format!("engine = 'kernel'\nattach = '{attach}'\ndevices = ['uplink']"));
    }
}

fn go_on(engine: &str) {
    if !can_use_tun() || !has_programs(&["nats-server"]) {
        return;
    }
    let world = World::new();
    world.configure(engine, TTL);
    let before = world.gateways.iter().map(snapshot).collect::<Vec<_>>();
    let (mut first, second) = (world.start(0), world.start(1));
    world.until("both own shards", &[0, 1], |all| is_shared(all, 0));
    let mut open: Vec<_> = (1..=SUBSCRIBERS).map(|n| world.connect(n)).collect();
    let mut check = || open.iter_mut().for_each(Connection::check);
    world.until("both have all records", &[0, 1], |all| is_shared(all, RECORDS));
    let own = world.status(1);
    assert!(number(&own, "/records/own") > 0, "nothing is handed over: {own:#}");

    first.counts_at_least("nat64", "handed_over", 1);
    assert_eq!(count(&second.stats("nat64"), "handed_over"), 0);

    if engine.contains("kernel") {
        // The programs of each carry what is its own, as soon as its shards are not quiet any more, and leave the rest to the
        // user engine.
        let all = || [&first, &second].map(|daemon| daemon.stats("nat64"));
        let carry = |stats: &Value| count(stats, "kernel/v6_to_v4/packets") > 0;
        let carried = || {
            check();
            all().iter().all(carry).then_some(())
        };
        poll_or(carried, || format!("{:#?}", all()));
        assert!(count(&first.stats("nat64"), "kernel/handed_over") > 0);
    }

    // What a cluster can't do is refused.
    for (line, why) in [
        ("down nat64", "shared by a cluster"),
        ("bib add tcp 203.0.113.1:2000 [2001:db8:1:100::1]:80", "no static BIB entries"),
    ] {
        let refused = world.folders[0].output(&world.gateways[0], line);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(why), "{line}: {said}");
    }

    // Every shard of the second goes to the first, and back.
    let drained = world.cluster(1, "drain");
    assert!(drained.status.success(), "{}", String::from_utf8_lossy(&drained.stderr));
    world.until("the first owns all", &[0], |all| {
        owned(&all[0]) == SHARDS && number(&all[0], "/records/own") == RECORDS
    });
    check();
    assert!(world.cluster(1, "join").status.success());
    world.until("both own shards again", &[0, 1], |all| is_shared(all, RECORDS));
    check();

    // One dies; the other has its sessions.
    second.kill();
    world.until("the first owns all", &[0], |all| owned(&all[0]) == SHARDS);
    check();
    let survivor = world.status(0);
    assert_eq!(number(&survivor, "/records/own"), RECORDS, "{survivor:#}");
    assert!(number(&survivor, "/moves/taken_over") > 0, "{survivor:#}");

    if engine.contains("kernel") {
        // The last one dies as well: the tables outlive it.
        first.kill();
        first = world.start(0);
        world.until("it owns all again", &[0], |all| {
            owned(&all[0]) == SHARDS && number(&all[0], "/records/own") == RECORDS
        });
        check();
    }

    // It comes back, and the one that goes now gives everything to it first.
    let second = world.start(1);
    world.until("both own shards once more", &[0, 1], |all| is_shared(all, RECORDS));
    world.router.configure(&[
        "route replace 2001:db8:64::/96 via 2001:db8:c::2",
        "route replace 203.0.113.0/26 via 192.0.2.2",
    ]);
    let log = first.stop();
    assert!(log.contains("this gateway has left"), "{log}");
    world.until("the second owns all", &[1], |all| owned(&all[0]) == SHARDS);
    check();
    second.stop();
    assert_eq!(world.gateways.iter().map(snapshot).collect::<Vec<_>>(), before);
}

/// Routers still send packets to it for a moment.
#[test]
fn a_gateway_that_has_left_hands_over_before_it_ends() {
    if !can_use_tun() || !has_programs(&["nats-server"]) {
        return;
    }
    let world = World::new();
    world.configure("engine = 'kernel'", TTL);
    let (mut first, second) = (world.start(0), world.start(1));
    world.until("both own shards", &[0, 1], |all| is_shared(all, 0));
    let mut open: Vec<_> = (1..=SUBSCRIBERS).map(|n| world.connect(n)).collect();
    world.until("both have all records", &[0, 1], |all| is_shared(all, RECORDS));
    let announced = || world.gateways[0].ip("-6 route show table 6146");
    assert!(announced().contains("2001:db8:64::/96"), "{}", announced());
    first.signal(Signal::TERM);
    poll_or(|| announced().is_empty().then_some(()), announced);
    // It goes on meanwhile, and so do its programs as long as it has not taken them down.
    thread::sleep(Duration::from_millis(300));
    first.signal(Signal::STOP);
    open.iter_mut().for_each(Connection::check);
    first.signal(Signal::CONT);
    assert!(first.wait().success(), "{}", first.log());
    second.stop();
}

#[test]
fn a_gateway_without_its_name_or_key_does_not_start() {
    if !can_use_tun() || !has_programs(&["nats-server"]) {
        return;
    }
    let world = World::new();
    world.configure("engine = 'user'", TTL);
    let folder = &world.folders[1];
    let said = |what: &str, by: &str| {
        let file = folder.path().join("fordway.toml");
        let text = std::fs::read_to_string(&file).unwrap().replace(what, by);
        let other = folder.file("other.toml", &text);
        let arguments = format!("run -c {}", other.display());
        let mut daemon = Daemon::spawn(folder, &world.gateways[1], &arguments);
        assert!(!daemon.wait().success());
        daemon.log()
    };
    let log = said("name = 'gw2.example'\nshards", "shards");
    assert!(log.contains("none of the cluster's gateways is this host"), "{log}");
    folder.file("cluster.key", "00112233445566778899aabbccddeef\n");
    let log = said("", "");
    assert!(log.contains("has no 32 hexadecimal digits"), "{log}");
    std::fs::remove_file(folder.path().join("cluster.key")).unwrap();
    assert!(said("", "").contains("cluster.key: No such file"));
}

/// It is cut off from the store, so it can't end its lease, and waits; who tells it again does not.
#[test]
fn a_second_signal_ends_a_gateway_that_waits_for_others() {
    if !can_use_tun() || !has_programs(&["nats-server"]) {
        return;
    }
    let world = World::new();
    world.configure("engine = 'user'", TTL);
    let before = snapshot(&world.gateways[0]);
    let mut gateway = world.start(0);
    world.until("it owns all", &[0], |all| owned(&all[0]) == SHARDS);
    world.router.configure(&["link set middle down"]);
    let says = |gateway: &Daemon<'_>, what: &str| {
        poll_or(|| gateway.log().contains(what).then_some(()), || gateway.log());
    };
    gateway.signal(Signal::TERM);
    says(&gateway, "giving all shards to other gateways");
    gateway.signal(Signal::INT);
    assert!(gateway.wait().success(), "{}", gateway.log());
    says(&gateway, "SIGINT again: other gateways are not waited for");
    assert_eq!(snapshot(&world.gateways[0]), before);
}
