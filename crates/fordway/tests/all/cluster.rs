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
mod stalls;

use std::net::TcpStream;
use std::process::{Child, Output, Stdio};

use fordway_testhost::certificates::Authority;
use fordway_testhost::{can_use_tun, has_programs, poll, poll_or};
use rustix::process::Signal;
use serde_json::Value;

use crate::common::connection::Connection;
use crate::common::daemon::{Daemon, RunDir, count};
use crate::common::host::snapshot;
use crate::common::netns::Netns;

const SHARDS: u64 = 16;
/// Subscribers, each with a connection.
const SUBSCRIBERS: u64 = 8;
/// Of each connection: subscriber, BIB entry, session.
const RECORDS: u64 = 3 * SUBSCRIBERS;

/// Eight times as long as usual: a busy machine does not renew a lease each 100 ms.
const TTL: &str = "4s";

struct World {
    router: Netns,
    gateways: [Netns; 2],
    client: Netns,
    server: Netns,
    store: Child,
    folders: [RunDir; 2],
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.store.kill();
        let _ = self.store.wait();
    }
}

impl World {
    fn new() -> World {
        let router = Netns::new("router");
        router.configure(&["link add middle type bridge", "link set middle up"]);
        router.configure(&[
            "addr add 2001:db8:c::100/64 dev middle",
            "addr add 192.0.2.100/24 dev middle",
        ]);
        let gateways = [1, 2].map(|number| {
            let gateway = Netns::new("gw");
            gateway.link("uplink", &router, &format!("gw{number}"));
            router.configure(&[&format!("link set gw{number} master middle")]);
            gateway.configure(&[
                &format!("addr add 2001:db8:c::{number}/64 dev uplink"),
                &format!("addr add 192.0.2.{number}/24 dev uplink"),
                "route add default via 192.0.2.100",
                "route add default via 2001:db8:c::100",
            ]);
            gateway
        });
        let (client, server) = (Netns::new("client"), Netns::new("server"));
        client.link("c0", &router, "c1");
        server.link("s0", &router, "s1");
        let hosts: Vec<String> =
            (1..=SUBSCRIBERS).map(|n| format!("addr add {}/128 dev lo", host(n))).collect();
        client.configure(&hosts.iter().map(String::as_str).collect::<Vec<_>>());
        client.configure(&["addr add 2001:db8:d::2/64 dev c0"]);
        server.configure(&["addr add 198.51.100.2/24 dev s0"]);
        router.configure(&[
            "addr add 2001:db8:d::1/64 dev c1",
            "addr add 198.51.100.1/24 dev s1",
            "route add 2001:db8:1::/48 via 2001:db8:d::2",
            "route add 2001:db8:64::/96 via 2001:db8:c::1",
            "route add 203.0.113.0/26 via 192.0.2.1",
        ]);
        server.configure(&["route add default via 198.51.100.1"]);
        router.sysctl("net.ipv4.ip_forward", "1");
        router.sysctl("net.ipv6.conf.all.forwarding", "1");
        let folders = [RunDir::new(), RunDir::new()];
        let store = start_store(&router, &folders[0]);
        World { router, gateways, client, server, store, folders }
    }

    /// Writes the gateways' files: certificates of an authority of their own, and one key. `engine`: lines about it.
    fn configure(&self, engine: &str, ttl: &str) {
        let authority = Authority::new(self.folders[0].path(), "authority");
        for (number, folder) in (1..).zip(&self.folders) {
            let name = format!("gw{number}.example");
            let [certificate, key] = authority.write(folder.path(), "gw", &[&name]);
            let shared = folder.file("cluster.key", "00112233445566778899aabbccddeeff\n");
            let text = format!(
                "[[translator]]\nname = 'nat64'\nmode = 'nat64'\n{engine}\nsubscriber_len = 56\n\
                 pool6 = ['2001:db8:64::/96']\npool4 = ['203.0.113.0/26']\n\
                 [cluster]\nname = '{name}'\nshards = {SHARDS}\nttl = '{ttl}'\nkey_file = '{}'\n\
                 certificate = '{}'\nkey = '{}'\nauthority = '{}'\n\
                 [[cluster.gateway]]\nnumber = 1\nname = 'gw1.example'\naddress = '2001:db8:c::1'\nnext_hop4 = '192.0.2.1'\n\
                 [[cluster.gateway]]\nnumber = 2\nname = 'gw2.example'\naddress = '2001:db8:c::2'\nnext_hop4 = '192.0.2.2'\n\
                 [cluster.store]\nservers = ['nats://[2001:db8:c::100]:4222']\nreplicas = 1\n",
                shared.display(),
                certificate.display(),
                key.display(),
                authority.certificate.display(),
            );
            folder.file("fordway.toml", &text);
        }
    }

    fn start(&self, gateway: usize) -> Daemon<'_> {
        let folder = &self.folders[gateway];
        let file = folder.path().join("fordway.toml");
        Daemon::start(folder, &self.gateways[gateway], &format!("run -c {}", file.display()))
    }

    /// Asks a gateway about the cluster, or tells it something.
    fn cluster(&self, gateway: usize, arguments: &str) -> Output {
        self.folders[gateway].output(&self.gateways[gateway], &format!("cluster {arguments}"))
    }

    fn status(&self, gateway: usize) -> Value {
        let output = self.cluster(gateway, "status --json");
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Waits until gateways are so, by their status.
    fn until(&self, what: &str, gateways: &[usize], is_so: impl Fn(&[Value]) -> bool) {
        let look = || gateways.iter().map(|gateway| self.status(*gateway)).collect::<Vec<_>>();
        poll_or(|| is_so(&look()).then_some(()), || format!("{what}: {:#?}", look()));
    }

    /// What the client opens next is of this subscriber.
    fn send_from(&self, subscriber: u64) {
        let source = host(subscriber);
        self.client.configure(&[&format!("route replace default via 2001:db8:d::1 src {source}")]);
    }

    /// A connection of a subscriber's.
    fn connect(&self, subscriber: u64) -> Connection {
        self.send_from(subscriber);
        Connection::open(&self.client, &self.server, "2001:db8:64::198.51.100.2".parse().unwrap())
    }
}

fn host(subscriber: u64) -> String {
    format!("2001:db8:1:{subscriber}00::1")
}

fn start_store(router: &Netns, folder: &RunDir) -> Child {
    let text = format!(
        "listen: \"[2001:db8:c::100]:4222\"\njetstream {{ store_dir: \"{}\" }}\n",
        folder.path().join("store").display()
    );
    let file = folder.file("nats.conf", &text);
    let mut server = router.command("nats-server");
    server.arg("-c").arg(file).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = server.spawn().unwrap();
    poll("the store listens", || {
        assert!(server.try_wait().unwrap().is_none(), "the store has ended");
        router.inside(|| TcpStream::connect("[2001:db8:c::100]:4222")).ok()
    });
    server
}

fn number(status: &Value, pointer: &str) -> u64 {
    status.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

fn owned(status: &Value) -> u64 {
    number(status, "/shards_by_role/owner")
}

/// Both own shards, each of which the other is ready to take, with all records.
fn is_shared(all: &[Value], records: u64) -> bool {
    let own = |one: &Value, other: &Value| {
        owned(one) > 0
            && owned(one) == number(other, "/shards_by_role/ready")
            && number(one, "/shards_by_role/uncovered") == 0
            && number(one, "/records/own") == number(other, "/records/others")
            && number(one, "/records/lag") == 0
    };
    let sum = |pointer: &str| all.iter().map(|one| number(one, pointer)).sum::<u64>();
    own(&all[0], &all[1])
        && own(&all[1], &all[0])
        && sum("/shards_by_role/owner") == SHARDS
        && sum("/records/own") == records
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
    let before = world.gateways.each_ref().map(snapshot);
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
    assert_eq!(world.gateways.each_ref().map(snapshot), before);
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
