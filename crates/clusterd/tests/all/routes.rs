//! Routes to the owners of shards, as BIRD tells them to a router: BGP, with BFD.
//!
//! ```text
//! gateways, BIRD, AS 65001 ════ router in the middle, BIRD, AS 65000
//! ```

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fordway_cluster::{Shard, ShardMap};
use fordway_testhost::namespace::{Namespace, can_test};
use fordway_testhost::{bird, has_programs, poll_or};
use ipnet::Ipv4Net;
use serde_json::Value;

use crate::gateway::{TABLE, pool};
use crate::world::World;

const SHARDS: u16 = 16;
/// The router's IPv4 address on the segment.
const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 100);

/// A gateway's.
fn v4(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 1 + number as u8)
}

/// A BIRD, which ends with it.
struct Bird(Child);

impl Drop for Bird {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A second without packets of BFD: a busy machine does not send one each 50 ms.
const LOST: u32 = 20;

/// Starts BIRD at a place with this configuration.
fn start(place: &Namespace, folder: &Path, name: &str, id: Ipv4Addr, config: &str) -> Bird {
    let file = folder.join(format!("{name}.conf"));
    std::fs::write(&file, format!("router id {id};\n{}{config}", bird::common(LOST))).unwrap();
    let control = folder.join(format!("{name}.ctl"));
    Bird(place.run(move || {
        Command::new("bird")
            .arg("-f")
            .arg("-c")
            .arg(file)
            .arg("-s")
            .arg(control)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("bird is installed")
    }))
}

fn of_router(gateways: usize) -> String {
    let sessions = (0..gateways).map(|number| {
        format!(
            "protocol bgp {{ local {ROUTER} as 65000; neighbor {} as 65001; bfd on; passive;\n\
             ipv4 {{ import all; export none; }}; }}\n",
            v4(number)
        )
    });
    "protocol kernel { scan time 1; ipv4 { import none; export all; }; }\n".to_owned()
        + &sessions.collect::<String>()
}

/// Which gateway the router sends packets to a shard to.
fn next(shown: &str, gateways: usize, prefix: &str) -> Option<usize> {
    let line = shown.lines().find(|line| line.starts_with(prefix))?;
    (0..gateways).find(|number| line.contains(&format!("via {} ", v4(*number))))
}

fn map() -> ShardMap {
    ShardMap::new(SHARDS, [1, 2], 56, &[pool()]).unwrap()
}

/// Waits until the router sends each shard's packets to its owner.
fn follows(world: &mut World, gateways: usize) {
    let map = map();
    let last = std::cell::RefCell::new(String::new());
    poll_or(
        || {
            let (all, shown) = (world.all(), world.middle.ip("route show"));
            let owner = |shard: u16| {
                let own = |one: &Value| {
                    one["owned"].as_array().is_some_and(|own| own.contains(&shard.into()))
                };
                all.iter().find(|(_, one)| own(one)).map(|(number, _)| *number)
            };
            let both = |shard| {
                let (prefix, _) = map.prefixes(Shard(shard))[0];
                (owner(shard), next(&shown, gateways, &format!("{prefix} ")))
            };
            let pairs: Vec<_> = (0..SHARDS).map(both).collect();
            let is = pairs.iter().all(|(owner, next)| owner.is_some() && owner == next);
            last.replace(format!("{pairs:?}\n{shown}"));
            is.then_some(())
        },
        || format!("the router follows the owners: (owner, next hop) {}", last.borrow()),
    );
}

#[test]
fn routers_follow_the_owners_of_shards() {
    if !can_test() || !has_programs(&["nats-server", "bird"]) {
        return;
    }
    let mut world = World::new(1, 3, SHARDS);
    let folder = world.folder().to_path_buf();
    world.middle.ip(&format!("address add {ROUTER}/24 dev bridge"));
    let mut birds: Vec<Option<Bird>> = Vec::new();
    let start_bird = |world: &World, number: usize| {
        let config = bird::gateway(v4(number).into(), ROUTER.into(), TABLE);
        let (host, name) = (&world.hosts[number], format!("bird{number}"));
        Some(start(host, &folder, &name, v4(number), &config))
    };
    for (number, host) in world.hosts.iter().enumerate() {
        host.ip(&format!("address add {}/24 dev uplink", v4(number)));
        birds.push(start_bird(&world, number));
    }
    let _router = start(&world.middle, &folder, "router", ROUTER, &of_router(3));
    world.settled(&[0, 1, 2]);
    follows(&mut world, 3);
    world.tell(1, "drain");
    world.settled(&[0, 2]);
    follows(&mut world, 3);
    world.tell(1, "join");
    world.settled(&[0, 1, 2]);
    follows(&mut world, 3);
    // An owner without a routing daemon: others have the whole pool, and hand its packets over.
    birds[1] = None;
    let owned = world.all()[1].1["owned"][0].as_u64().expect("a shard") as u16;
    let (prefix, _) = map().prefixes(Shard(owned))[0];
    let whole = map().all_prefixes()[0];
    poll_or(
        || {
            let shown = world.middle.ip("route show");
            let by = |prefix: Ipv4Net| next(&shown, 3, &format!("{prefix} "));
            // The route to the owner before stays for a moment.
            (by(prefix).is_none() && matches!(by(whole), Some(0 | 2))).then_some(())
        },
        || world.middle.ip("route show"),
    );
    birds[1] = start_bird(&world, 1);
    follows(&mut world, 3);
    // A gateway's process is killed, and its routing daemon goes on: later epochs are better.
    world.kill(0);
    world.settled(&[1, 2]);
    follows(&mut world, 3);
    let left = |world: &World, number: usize| {
        let of = |family| {
            world.hosts[number].output("ip", &format!("{family} route show table {TABLE}"))
        };
        of("-4") + &of("-6")
    };
    assert!(left(&world, 1).contains("blackhole 64:ff9b::/96"), "{}", left(&world, 1));
    assert!(left(&world, 0).contains("blackhole 198.51.100."), "the dead one's are still there");
    // The next process gives them up, as far as it does not own their shards.
    world.start(0);
    world.settled(&[0, 1, 2]);
    follows(&mut world, 3);
    // A host dies with everything.
    world.kill(2);
    birds[2] = None;
    world.hosts[2].ip("link set dev uplink down");
    world.settled(&[0, 1]);
    follows(&mut world, 3);
    // Who leaves takes its routes along.
    world.tell(1, "leave");
    world.until("it has left", |all| {
        all.iter().any(|(number, one)| *number == 1 && one["phase"] == "ended")
    });
    fordway_testhost::poll("its routes are gone", || left(&world, 1).is_empty().then_some(()));
    world.kill(1);
    world.settled(&[0]);
    follows(&mut world, 3);
    world.check();
}
