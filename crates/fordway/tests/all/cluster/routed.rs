//! Three gateways between routers that find the owners of shards by BGP and BFD, and a look at each packet.
//!
//! ```text
//! client ── router, FRR, with the store ════ gw1, gw2, gw3, BIRD ════ exit, FRR ── server
//! ```

use std::cell::RefCell;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fordway_testhost::{can_use_tun, has_programs, poll_or};
use rustix::process::Signal;
use socket2::SockRef;

use super::idle::pass;
use super::observer::Observer;
use super::pulses::{Pulses, target};
use super::routers::{Frr, has_frr, start_bird};
use super::world::World;
use super::{SHARDS, SUBSCRIBERS, TTL, is_shared, owned};
use crate::common::daemon::Daemon;
use crate::common::host::snapshot;
use crate::common::netns::Netns;
use crate::common::process::Process;

const CONNECTIONS: u64 = 2 * SUBSCRIBERS;
/// Of a connection: BIB entry and session; and subscribers.
const RECORDS: u64 = 2 * CONNECTIONS + SUBSCRIBERS;
/// A second without packets of BFD: a busy machine does not send one each 50 ms.
const LOST: u32 = 20;
pub(super) const ALL: [usize; 3] = [0, 1, 2];

/// The routers' daemons and the gateways'.
pub(super) struct Routed<'a> {
    world: &'a World,
    lost: u32,
    frr: [Frr; 2],
    birds: RefCell<Vec<Option<Process>>>,
}

pub(super) fn world(engine: &str, ttl: &str) -> Option<World> {
    if !can_use_tun() || !has_programs(&["nats-server", "bird"]) || !has_frr() {
        return None;
    }
    let world = World::unrouted(3, 3, Some(Netns::new("exit")));
    world.configure(engine, ttl);
    Some(world)
}

impl<'a> Routed<'a> {
    fn start(world: &'a World, lost: u32) -> Routed<'a> {
        let frr = |host: &Netns, own: &str| Frr::start(host, own.parse().unwrap(), 3, lost);
        let frr = [
            frr(&world.router, "2001:db8:c::100"),
            frr(world.exit.as_ref().unwrap(), "192.0.2.101"),
        ];
        let routed = Routed { world, lost, frr, birds: RefCell::new(ALL.map(|_| None).into()) };
        ALL.iter().for_each(|gateway| routed.announce(*gateway));
        routed
    }

    /// Starts a gateway's routing daemon.
    fn announce(&self, gateway: usize) {
        let bird = start_bird(
            &self.world.gateways[gateway],
            &self.world.folders[gateway],
            gateway as u16 + 1,
            self.lost,
        );
        self.birds.borrow_mut()[gateway] = Some(bird);
    }

    /// Waits until routers have a route to each shard's prefix, and of `pool6` one to each gateway, and BFD runs.
    fn follow(&self) {
        let (router, exit) = (&self.world.router, self.world.exit.as_ref().unwrap());
        let shown = || {
            let alive = [self.frr[0].alive(router), self.frr[1].alive(exit)];
            (exit.ip("route show"), router.ip("-6 route show"), alive)
        };
        let is = |(exit, router, alive): &(String, String, [usize; 2])| {
            let prefixes = exit.lines().filter(|line| line.starts_with("203.0.113."));
            let hops = router.matches("via ").count() - 1;
            let is_routed = prefixes.count() as u64 >= SHARDS && hops >= ALL.len();
            is_routed && *alive == [ALL.len(); 2]
        };
        poll_or(|| is(&shown()).then_some(()), || format!("routes: {:#?}", shown()));
    }

    /// A gateway's host is gone from one moment to the next, with everything.
    fn die(&self, gateway: usize, daemon: Daemon<'_>) {
        self.world.router.configure(&[&format!("link set gw{} down", gateway + 1)]);
        daemon.kill();
        self.birds.borrow_mut()[gateway] = None;
    }

    /// It is there again, with nothing but its files.
    fn live(&self, gateway: usize) -> Daemon<'a> {
        self.world.router.configure(&[&format!("link set gw{} up", gateway + 1)]);
        self.announce(gateway);
        self.world.start(gateway)
    }

    fn owned_by(&self, gateways: &[usize]) {
        self.world
            .until("others own all", gateways, |all| all.iter().map(owned).sum::<u64>() == SHARDS);
    }

    fn shared(&self) {
        self.world.until("all own shards", &ALL, |all| is_shared(all, RECORDS));
    }
}

/// Routers and gateways in the world, as soon as all own shards.
pub(super) fn started(world: &World, lost: u32) -> (Routed<'_>, Vec<Option<Daemon<'_>>>) {
    let routed = Routed::start(world, lost);
    let daemons = ALL.map(|gateway| Some(world.start(gateway))).into();
    world.until("all own shards", &ALL, |all| is_shared(all, 0));
    routed.follow();
    (routed, daemons)
}

/// Begins in the world: three gateways, connections in use, and the observer.
fn begin(world: &World) -> (Routed<'_>, Vec<Option<Daemon<'_>>>, Pulses, Observer) {
    let (routed, daemons) = started(world, LOST);
    let observer = Observer::start(&world.router);
    let listener = world.server.inside(|| TcpListener::bind("[::]:0").unwrap());
    let pulses = Pulses::start(world, &listener, CONNECTIONS);
    routed.shared();
    (routed, daemons, pulses, observer)
}

/// After something, all connections go on, and those that it has moved have moved so often at most; of one move, some have.
fn after(pulses: &Pulses, observer: &Observer, what: &str, most: usize) {
    pulses.go_on();
    let moved = observer.check(what, most);
    assert!(most != 1 || moved > 0, "{what}: nothing has moved");
}

/// `server`: which server of the store dies with a gateway, counted from the leader.
fn hosts_come_and_go(engine: &str, server: usize) {
    let Some(world) = world(engine, TTL) else { return };
    let before: Vec<_> = world.gateways.iter().map(snapshot).collect();
    let (routed, mut daemons, pulses, observer) = begin(&world);
    let after = |what: &str, most: usize| after(&pulses, &observer, what, most);
    after("nothing happens", 0);
    assert!(world.cluster(0, "drain").status.success());
    routed.owned_by(&[1, 2]);
    after("drain", 1);
    assert!(world.cluster(0, "join").status.success());
    routed.shared();
    after("join", 1);
    // A machine that runs a server of the store, too. Servers of 2.9 lose with their leader what they have acknowledged within the
    // last tenths of a second, which is to be no move of a shard.
    thread::sleep(Duration::from_secs(2));
    let leader = world.store.borrow().leader(&world.router);
    let server = (leader + server) % ALL.len();
    world.store.borrow_mut().kill(server);
    routed.die(1, daemons[1].take().unwrap());
    routed.owned_by(&[0, 2]);
    after("a death", 1);
    world.store.borrow_mut().start_one(&world.router, server);
    daemons[1] = Some(routed.live(1));
    routed.shared();
    after("a newcomer", 1);
    let log = daemons[2].take().unwrap().stop();
    assert!(log.contains("this gateway has left"), "{log}");
    routed.owned_by(&[0, 1]);
    after("a leave", 1);
    pulses.end();
    daemons.into_iter().flatten().for_each(|daemon| drop(daemon.stop()));
    assert_eq!(world.gateways.iter().map(snapshot).collect::<Vec<_>>(), before);
}

#[test]
#[ignore = "a minute of three gateways: make soak"]
fn connections_go_on_between_routers_when_hosts_come_and_go() {
    hosts_come_and_go("engine = 'user'", 1);
}

#[test]
#[ignore = "a minute of three gateways: make soak"]
fn connections_go_on_between_routers_with_programs_in_the_kernel() {
    hosts_come_and_go("engine = 'kernel'", 1);
}

#[test]
#[ignore = "servers of 2.9 lose writes that they have acknowledged when their leader is killed"]
fn connections_go_on_when_the_store_s_leader_dies_with_a_host() {
    ["user", "kernel"].iter().for_each(|it| hosts_come_and_go(&format!("engine = '{it}'"), 0));
}

fn links_and_processes_fail(engine: &str) {
    let Some(world) = world(engine, TTL) else { return };
    let (routed, daemons, pulses, observer) = begin(&world);
    let after = |what: &str, most: usize| after(&pulses, &observer, what, most);
    // Shorter than a lease, again and again. What BFD has given up comes back.
    for _ in 0..5 {
        for state in ["down", "up"] {
            world.router.configure(&[&format!("link set gw3 {state}")]);
            thread::sleep(Duration::from_millis(200));
        }
    }
    routed.shared();
    after("a link that flaps", 2);
    // It hears nobody, and is heard.
    let deaf = &world.gateways[0];
    deaf.run(
        "nft add table netdev cut ; add chain netdev cut in { type filter hook ingress device uplink priority -500 ; } ; \
         add rule netdev cut in drop",
    );
    routed.owned_by(&[1, 2]);
    after("a link of one direction", 1);
    deaf.run("nft delete table netdev cut");
    routed.shared();
    after("both directions again", 1);
    // Its programs go on until its lease ends, and it can't be asked.
    let paused = daemons[1].as_ref().unwrap();
    paused.signal(Signal::STOP);
    routed.owned_by(&[0, 2]);
    after("a gateway that stands still", 1);
    paused.signal(Signal::CONT);
    routed.shared();
    after("it goes on", 1);
    // Nothing moves without the store.
    ALL.iter().for_each(|server| world.store.borrow_mut().kill(*server));
    thread::sleep(2 * ttl());
    routed.shared();
    after("no store", 0);
    ALL.iter().for_each(|server| world.store.borrow_mut().start_one(&world.router, *server));
    let drain = world.cluster(2, "drain");
    assert!(drain.status.success(), "{}", String::from_utf8_lossy(&drain.stderr));
    routed.owned_by(&[0, 1]);
    after("the store is back", 1);
    pulses.end();
    daemons.into_iter().flatten().for_each(|daemon| drop(daemon.stop()));
}

fn ttl() -> Duration {
    Duration::from_secs(TTL.trim_end_matches('s').parse().unwrap())
}

#[test]
#[ignore = "a minute of three gateways: make soak"]
fn a_port_has_one_owner_whatever_links_and_processes_do() {
    links_and_processes_fail("engine = 'user'");
}

#[test]
#[ignore = "a minute of three gateways: make soak"]
fn a_port_has_one_owner_with_programs_in_the_kernel() {
    links_and_processes_fail("engine = 'kernel'");
}

/// Of the `outage` of 15 minutes that a configuration has unless it is written.
const WITHOUT_STORE: Duration = Duration::from_secs(600);

#[test]
#[ignore = "ten minutes: make soak"]
fn translation_goes_on_while_the_store_is_gone_for_ten_minutes() {
    let Some(world) = world("engine = 'kernel'", TTL) else { return };
    let (routed, daemons, pulses, observer) = begin(&world);
    ALL.iter().for_each(|server| world.store.borrow_mut().kill(*server));
    let killed = Instant::now();
    while killed.elapsed() < WITHOUT_STORE {
        thread::sleep(Duration::from_secs(20));
        routed.shared();
        after(&pulses, &observer, "no store", 0);
    }
    // One that is new.
    world.connect(1).check();
    ALL.iter().for_each(|server| world.store.borrow_mut().start_one(&world.router, *server));
    let drain = world.cluster(2, "drain");
    assert!(drain.status.success(), "{}", String::from_utf8_lossy(&drain.stderr));
    routed.owned_by(&[0, 1]);
    after(&pulses, &observer, "the store is back", 1);
    pulses.end();
    daemons.into_iter().flatten().for_each(|daemon| drop(daemon.stop()));
}

/// Connections that are opened one after the other, with the time at which each was open. The last one's other end is `None`, if the
/// server never heard that it is open.
fn open_until(
    client: &Netns,
    listener: TcpListener,
    over: &AtomicBool,
) -> Vec<(Instant, TcpStream, Option<TcpStream>)> {
    let to = target(&listener);
    client.inside(move || {
        let mut all = Vec::new();
        while !over.load(Ordering::SeqCst) {
            let Ok(client) = TcpStream::connect_timeout(&to, Duration::from_millis(300)) else {
                continue;
            };
            let at = Instant::now();
            let server = listener.accept().ok().map(|(server, _)| server);
            let is_open = server.is_some();
            all.push((at, client, server));
            if !is_open {
                break;
            }
            thread::sleep(Duration::from_millis(3));
        }
        all
    })
}

#[test]
#[ignore = "prints figures, which hold for a quiet machine and a release build"]
fn deaths_are_measured() {
    const TRIALS: usize = 5;
    for engine in ["user", "kernel"] {
        let Some(world) = world(&format!("engine = '{engine}'"), "500ms") else { return };
        let (routed, mut daemons) = started(&world, 3);
        let observer = Observer::start(&world.router);
        let listener = world.server.inside(|| TcpListener::bind("[::]:0").unwrap());
        let pulses = Pulses::start(&world, &listener, 200);
        // Also how long a connection is waited for.
        SockRef::from(&listener).set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        for trial in 0..2 * TRIALS {
            let victim = trial % 2;
            // Shards go on moving to the newcomer, one after the other.
            while observer.check("moves to a newcomer", SHARDS as usize) > 0 {
                thread::sleep(Duration::from_secs(2));
            }
            pulses.take();
            let over = AtomicBool::new(false);
            let (died, young) = thread::scope(|scope| {
                let (client, own) = (&world.client, listener.try_clone().unwrap());
                let young = scope.spawn(|| open_until(client, own, &over));
                thread::sleep(Duration::from_secs(1));
                let died = Instant::now();
                routed.die(victim, daemons[victim].take().unwrap());
                over.store(true, Ordering::SeqCst);
                routed.owned_by(&[1 - victim, 2]);
                (died, young.join().unwrap())
            });
            let took = died.elapsed().as_millis();
            let (stall, broken) = pulses.take();
            let young: Vec<_> = young.into_iter().filter(|(at, ..)| *at < died).collect();
            let opened = young.len();
            let (mut ages, mut times, mut ends) = (Vec::new(), Vec::new(), Vec::new());
            for (at, client, server) in young {
                match server {
                    Some(server) => {
                        times.push(at);
                        ends.push([client, server]);
                    }
                    None => ages.push((died - at).as_millis()),
                }
            }
            let there = pass(&mut ends, 0, 1);
            let back = pass(&mut ends, 1, 0);
            let lost =
                times.iter().zip(there.iter().zip(&back)).filter(|(_, (a, b))| !(**a && **b));
            ages.extend(lost.map(|(at, _)| (died - *at).as_millis()));
            observer.check("a death", 1);
            println!(
                "{engine}: stall {stall} ms, broken {broken} of 200; all owned after {took} ms; of {opened} connections \
                 opened in the second before, lost by age in ms: {ages:?}"
            );
            drop(ends);
            daemons[victim] = Some(routed.live(victim));
            world.until("all own shards", &ALL, |all| {
                all.iter().all(|one| owned(one) > 0)
                    && all
                        .iter()
                        .map(|one| super::number(one, "/shards_by_role/uncovered"))
                        .sum::<u64>()
                        == 0
                    && all.iter().map(owned).sum::<u64>() == SHARDS
            });
        }
        pulses.end();
        daemons.into_iter().flatten().for_each(|daemon| drop(daemon.stop()));
    }
}
