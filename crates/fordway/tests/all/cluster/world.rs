//! Gateways that share the load, the hosts around them, and their store.

use std::cell::RefCell;
use std::fmt::Write;
use std::process::Output;

use fordway_testhost::certificates::Authority;
use fordway_testhost::poll_or;
use serde_json::Value;

use super::store::Store;
use super::{SHARDS, SUBSCRIBERS};
use crate::common::connection::Connection;
use crate::common::daemon::{Daemon, RunDir};
use crate::common::netns::Netns;

pub(super) struct World {
    /// With the segment of the gateways, as bridge `middle`, whose ports are `gw1` and so on; and with the store.
    pub(super) router: Netns,
    /// Between the segment and the server, if it is not that one.
    pub(super) exit: Option<Netns>,
    pub(super) gateways: Vec<Netns>,
    pub(super) client: Netns,
    pub(super) server: Netns,
    pub(super) store: RefCell<Store>,
    pub(super) folders: Vec<RunDir>,
}

/// What gateways' files say.
pub(super) struct Setting<'a> {
    /// Lines about the translator.
    pub(super) engine: &'a str,
    pub(super) ttl: &'a str,
    pub(super) shards: u64,
    /// Lines about the cluster.
    pub(super) cluster: &'a str,
}

impl World {
    /// Two gateways and a router that sends everything to the first one.
    pub(super) fn new() -> World {
        let world = World::unrouted(2, 1, None);
        world.router.configure(&[
            "route add 2001:db8:64::/96 via 2001:db8:c::1",
            "route add 203.0.113.0/26 via 192.0.2.1",
        ]);
        world
    }

    /// So many gateways, and so many servers of the store. Routers don't know yet where packets go.
    pub(super) fn unrouted(gateways: u16, servers: u16, exit: Option<Netns>) -> World {
        let router = Netns::new("router");
        router.configure(&["link add middle type bridge", "link set middle up"]);
        router.configure(&[
            "addr add 2001:db8:c::100/64 dev middle",
            "addr add 192.0.2.100/24 dev middle",
        ]);
        if let Some(exit) = &exit {
            exit.link("segment", &router, "exit");
            router.configure(&["link set exit master middle"]);
            exit.configure(&["addr add 192.0.2.101/24 dev segment"]);
            exit.sysctl("net.ipv4.ip_forward", "1");
        }
        let towards_server = if exit.is_some() { "192.0.2.101" } else { "192.0.2.100" };
        let gateway = |number| {
            let gateway = Netns::new("gw");
            gateway.link("uplink", &router, &format!("gw{number}"));
            router.configure(&[&format!("link set gw{number} master middle")]);
            gateway.configure(&[
                &format!("addr add 2001:db8:c::{number}/64 dev uplink"),
                &format!("addr add 192.0.2.{number}/24 dev uplink"),
                &format!("route add default via {towards_server}"),
                "route add default via 2001:db8:c::100",
            ]);
            gateway
        };
        let gateways: Vec<_> = (1..=gateways).map(gateway).collect();
        let (client, server) = (Netns::new("client"), Netns::new("server"));
        client.link("c0", &router, "c1");
        let at_server = exit.as_ref().unwrap_or(&router);
        server.link("s0", at_server, "s1");
        let hosts: Vec<String> =
            (1..=SUBSCRIBERS).map(|n| format!("addr add {}/128 dev lo", host(n))).collect();
        client.configure(&hosts.iter().map(String::as_str).collect::<Vec<_>>());
        client.configure(&["addr add 2001:db8:d::2/64 dev c0"]);
        server.configure(&["addr add 198.51.100.2/24 dev s0"]);
        router.configure(&[
            "addr add 2001:db8:d::1/64 dev c1",
            "route add 2001:db8:1::/48 via 2001:db8:d::2",
        ]);
        at_server.configure(&["addr add 198.51.100.1/24 dev s1"]);
        server.configure(&["route add default via 198.51.100.1"]);
        router.sysctl("net.ipv4.ip_forward", "1");
        router.sysctl("net.ipv6.conf.all.forwarding", "1");
        let folders: Vec<RunDir> = gateways.iter().map(|_| RunDir::new()).collect();
        let store = RefCell::new(Store::start(&router, &folders[0], servers));
        World { router, exit, gateways, client, server, store, folders }
    }

    /// Writes the gateways' files. `engine`: lines about it.
    pub(super) fn configure(&self, engine: &str, ttl: &str) {
        self.configure_as(&Setting { engine, ttl, shards: SHARDS, cluster: "" });
    }

    /// Writes the gateways' files: certificates of an authority of their own, and one key.
    pub(super) fn configure_as(&self, setting: &Setting<'_>) {
        let Setting { engine, ttl, shards, cluster } = setting;
        let authority = Authority::new(self.folders[0].path(), "authority");
        let mut shared = String::new();
        for number in 1..=self.folders.len() {
            write!(
                shared,
                "[[cluster.gateway]]\nnumber = {number}\nname = 'gw{number}.example'\n\
                 address = '2001:db8:c::{number}'\nnext_hop4 = '192.0.2.{number}'\n"
            )
            .unwrap();
        }
        shared += &self.store.borrow().configuration();
        for (number, folder) in (1..).zip(&self.folders) {
            let name = format!("gw{number}.example");
            let [certificate, key] = authority.write(folder.path(), "gw", &[&name]);
            let secret = folder.file("cluster.key", "00112233445566778899aabbccddeeff\n");
            let text = format!(
                "[[translator]]\nname = 'nat64'\nmode = 'nat64'\n{engine}\nsubscriber_len = 56\n\
                 pool6 = ['2001:db8:64::/96']\npool4 = ['203.0.113.0/26']\n\
                 [cluster]\nname = '{name}'\nshards = {shards}\nttl = '{ttl}'\n{cluster}\nkey_file = '{}'\n\
                 certificate = '{}'\nkey = '{}'\nauthority = '{}'\n{shared}",
                secret.display(),
                certificate.display(),
                key.display(),
                authority.certificate.display(),
            );
            folder.file("fordway.toml", &text);
        }
    }

    pub(super) fn start(&self, gateway: usize) -> Daemon<'_> {
        let folder = &self.folders[gateway];
        let file = folder.path().join("fordway.toml");
        Daemon::start(folder, &self.gateways[gateway], &format!("run -c {}", file.display()))
    }

    /// Asks a gateway about the cluster, or tells it something.
    pub(super) fn cluster(&self, gateway: usize, arguments: &str) -> Output {
        self.folders[gateway].output(&self.gateways[gateway], &format!("cluster {arguments}"))
    }

    pub(super) fn status(&self, gateway: usize) -> Value {
        let output = self.cluster(gateway, "status --json");
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Waits until gateways are so, by their status.
    pub(super) fn until(&self, what: &str, gateways: &[usize], is_so: impl Fn(&[Value]) -> bool) {
        let look = || gateways.iter().map(|gateway| self.status(*gateway)).collect::<Vec<_>>();
        poll_or(|| is_so(&look()).then_some(()), || format!("{what}: {:#?}", look()));
    }

    /// What the client opens next is of this subscriber.
    pub(super) fn send_from(&self, subscriber: u64) {
        let source = host(subscriber);
        self.client.configure(&[&format!("route replace default via 2001:db8:d::1 src {source}")]);
    }

    /// A connection of a subscriber's.
    pub(super) fn connect(&self, subscriber: u64) -> Connection {
        self.send_from(subscriber);
        Connection::open(&self.client, &self.server, "2001:db8:64::198.51.100.2".parse().unwrap())
    }
}

/// A subscriber's address.
pub(super) fn host(subscriber: u64) -> String {
    format!("2001:db8:1:{subscriber}00::1")
}
