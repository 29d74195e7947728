//! How long connections stand still when shards go to another gateway: figures for people, with times as operators have them.

use std::net::TcpListener;
use std::time::Instant;

use fordway_testhost::{can_use_tun, has_programs};

use super::idle::Idle;
use super::pulses::{Pulses, target};
use super::world::World;
use super::{SHARDS, SUBSCRIBERS, is_shared, owned};

const CONNECTIONS: u64 = 200;
const TRIALS: usize = 5;
/// TCP repeats nothing where connections stall for less, in ms.
const CALM: u64 = 150;

#[test]
#[ignore = "prints figures, which hold for a quiet machine and a release build"]
fn stalls_are_measured() {
    if !can_use_tun() || !has_programs(&["nats-server"]) {
        return;
    }
    for engine in ["user", "kernel"] {
        let world = World::new();
        world.configure(&format!("engine = '{engine}'"), "500ms");
        let first = world.start(0);
        let mut second = world.start(1);
        world.until("both own shards", &[0, 1], |all| is_shared(all, 0));
        // One server, so that each connection has a port of its own.
        let listener = world.server.inside(|| TcpListener::bind("[::]:0").unwrap());
        let mut idle = Idle::open(&world, &listener, target(&listener), Idle::wanted());
        let pulses = Pulses::start(&world, &listener, CONNECTIONS);
        let records = (CONNECTIONS + idle.number()) * 2 + SUBSCRIBERS;
        let both = || {
            world.until("both own shards", &[0, 1], |all| is_shared(all, records));
        };
        both();
        println!("{engine}: nothing happens: {:?} ms, broken", pulses.take());
        let mut ask = || {
            println!("{engine}: {} idle connections, broken: {}", idle.number(), idle.broken());
            // All at once were more than the engine has room for.
            while pulses.take().0 > CALM {}
        };
        for _ in 0..TRIALS {
            assert!(world.cluster(1, "drain").status.success());
            println!("{engine}: drain: {:?} ms, broken", pulses.take());
            assert!(world.cluster(1, "join").status.success());
            both();
            println!("{engine}: join: {:?} ms, broken", pulses.take());
        }
        ask();
        for _ in 0..TRIALS {
            let began = Instant::now();
            second.kill();
            world.until("the first owns all", &[0], |all| owned(&all[0]) == SHARDS);
            let took = began.elapsed().as_millis();
            println!("{engine}: kill: {:?} ms, broken; owned after {took} ms", pulses.take());
            second = world.start(1);
            both();
            println!("{engine}: start: {:?} ms, broken", pulses.take());
        }
        ask();
        pulses.end();
        second.stop();
        first.stop();
    }
}
