//! An upgrade of one gateway after the other, between routers, with as many connections as there is room for: figures for people.

use std::net::TcpListener;

use super::idle::Idle;
use super::observer::Observer;
use super::pulses::{Pulses, target};
use super::routed::{ALL, started, world};
use super::{SUBSCRIBERS, is_shared};

/// In use, beside the idle ones of `FORDWAY_IDLE`.
const IN_USE: u64 = 200;

#[test]
#[ignore = "prints figures, which hold for a quiet machine and a release build"]
fn an_upgrade_of_all_gateways_is_measured() {
    for engine in ["user", "kernel"] {
        let Some(world) = world(&format!("engine = '{engine}'"), "500ms") else { return };
        let (_routed, mut daemons) = started(&world, 3);
        let listener = world.server.inside(|| TcpListener::bind("[::]:0").unwrap());
        let mut idle = Idle::open(&world, &listener, target(&listener), Idle::wanted());
        let observer = Observer::start(&world.router);
        let pulses = Pulses::start(&world, &listener, IN_USE);
        let records = (IN_USE + idle.number()) * 2 + SUBSCRIBERS;
        let shared = || world.until("all own shards", &ALL, |all| is_shared(all, records));
        shared();
        println!("{engine}: nothing happens: {:?} ms, broken", pulses.take());
        for gateway in ALL {
            assert!(world.cluster(gateway, "drain").status.success());
            println!("{engine}: {gateway} drains: {:?} ms, broken", pulses.take());
            let log = daemons[gateway].take().unwrap().stop();
            assert!(log.contains("this gateway has left"), "{log}");
            println!("{engine}: {gateway} leaves: {:?} ms, broken", pulses.take());
            daemons[gateway] = Some(world.start(gateway));
            shared();
            println!("{engine}: {gateway} is new: {:?} ms, broken", pulses.take());
            let moved = observer.check("an upgrade", 2);
            println!("{engine}: so many addresses and ports have moved: {moved}");
        }
        let broken = idle.broken();
        println!(
            "{engine}: of {} idle connections and {IN_USE} in use, idle ones broken: {broken}",
            idle.number()
        );
        pulses.end();
        daemons.into_iter().flatten().for_each(|daemon| drop(daemon.stop()));
    }
}
