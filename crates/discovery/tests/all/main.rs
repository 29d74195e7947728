//! The watcher in namespaces: routers that advertise, resolvers that answer, links that come and go.

mod advertiser;
mod resolver;
mod world;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use fordway_discovery::{
    self as discovery, Found, Prefix, Report, Said, Settings, Source, Validation, Watcher,
};
use fordway_testhost::{PATIENCE, poll, poll_or};
use tokio::sync::watch;
use world::{LAN, Links as _, UP, World};

use fordway_testhost::namespace::{Namespace, can_test};

const A: &str = "2001:db8:a::/96";
const B: &str = "2001:db8:b::/96";

/// A watcher that runs in a namespace.
struct Watching {
    found: watch::Receiver<Found>,
    report: watch::Receiver<Report>,
    _stop: Sender<()>,
    ended: Receiver<()>,
    _dir: tempfile::TempDir,
    resolv_conf: PathBuf,
}

/// Asks and solicits at once.
fn quick() -> Settings {
    Settings { solicitation_delay: Duration::ZERO, ..Settings::default() }
}

impl Watching {
    fn start(namespace: &Namespace, settings: Settings, resolv_conf: &str) -> Watching {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("resolv.conf");
        std::fs::write(&path, resolv_conf).expect("a file");
        let (ready, started) = channel();
        let (stop, stopped) = channel::<()>();
        let (over, ended) = channel();
        let conf = path.clone();
        namespace.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let watcher = Watcher::open(settings).expect("sockets").resolv_conf(&conf);
                ready.send((watcher.found(), watcher.report())).expect("the test waits");
                let (end, ends) = tokio::sync::oneshot::channel();
                std::thread::spawn(move || {
                    // Ends when the test lets go of it.
                    let _ = stopped.recv();
                    let _ = end.send(());
                });
                tokio::select! {
                    ended = watcher.run() => ended.expect("it runs for ever"),
                    _ = ends => {}
                }
            });
            let _ = over.send(());
        });
        let (found, report) = started.recv().expect("the watcher has started");
        Watching { found, report, _stop: stop, ended, _dir: dir, resolv_conf: path }
    }

    fn prefixes(&self) -> Vec<String> {
        let found = self.found.borrow();
        found.prefixes.iter().map(|prefix| prefix.pool6.to_string()).collect()
    }

    /// Waits until exactly these are used, in this order.
    fn wait_for(&self, wanted: &[&str]) -> Vec<Prefix> {
        let found = || {
            assert!(self.ended.try_recv().is_err(), "the watcher has ended");
            (self.prefixes() == wanted).then(|| self.found.borrow().prefixes.clone())
        };
        let told = || format!("{wanted:?}, but {:#?}", self.report.borrow());
        poll_or(found, told)
    }
}

#[test]
fn a_router_tells_changes_and_withdraws_the_prefix() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let mut listener = world.router.listener(LAN);
    let advertiser = world.router.advertiser(LAN, None);
    let watching = Watching::start(&world.host, quick(), "");
    listener.wait();
    assert_eq!(watching.prefixes(), [""; 0]);
    advertiser.say(1800, &[(A, 600)], &[]);
    let prefixes = watching.wait_for(&[A]);
    let router = world.router.link_local(LAN);
    assert_eq!(prefixes[0].source, Source::RouterAdvertisement { router });
    assert_eq!(prefixes[0].device.as_ref().unwrap().name, UP);
    assert_eq!(prefixes[0].validation, Validation::NotNeeded);
    let left = discovery::remaining(prefixes[0].until.unwrap());
    assert!(left <= Duration::from_secs(600) && left > Duration::from_secs(500), "{left:?}");

    // Renumbering: the new one beside the old one, then the old one withdrawn; of all lengths.
    advertiser.say(1800, &[(B, 600)], &[]);
    watching.wait_for(&[A, B]);
    advertiser.say(1800, &[(A, 0)], &[]);
    watching.wait_for(&[B]);
    let lengths = [
        "2001:db8::/32",
        "2001:db8:100::/40",
        "2001:db8:122::/48",
        "2001:db8:122:300::/56",
        "2001:db8:122:344::/64",
    ];
    let options: Vec<_> = lengths.iter().map(|text| (*text, 600)).collect();
    advertiser.say(1800, &options, &[]);
    let mut all = vec![B];
    all.extend(lengths);
    watching.wait_for(&all);
    // The router says goodbye as a default router, and its prefixes go on (RFC 8781).
    let withdrawn: Vec<_> = all.iter().map(|text| (*text, 0)).collect();
    advertiser.say(0, &withdrawn, &[]);
    watching.wait_for(&[]);
}

#[test]
fn advertisements_that_somebody_else_may_have_sent_are_not_believed() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let mut listener = world.router.listener(LAN);
    let watching = Watching::start(&world.host, quick(), "");
    let advertiser = world.router.advertiser(LAN, None);
    listener.wait();
    advertiser.say(1800, &[], &[]);
    poll("the router", || {
        watching.report.borrow().devices.iter().any(|one| !one.routers.is_empty()).then_some(())
    });
    advertiser.forge_hop_limit(64, &[(A, 600)]);
    world.router.advertiser(LAN, Some("2001:db8:1::1")).say(1800, &[(A, 600)], &[]);
    for octets in advertiser::broken() {
        advertiser.send_octets(&octets);
    }
    // What comes after them is heard, so they have been.
    advertiser.say(1800, &[(B, 600)], &[]);
    watching.wait_for(&[B]);
}

#[test]
fn of_two_routers_each_speaks_for_itself() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let one = world.router.advertiser(LAN, None);
    // Another address of the same end of the link is another router.
    world.router.add_address("fe80::2/64", LAN);
    let two = world.router.advertiser(LAN, Some("fe80::2"));
    let mut listener = world.router.listener(LAN);
    let watching = Watching::start(&world.host, quick(), "");
    listener.wait();
    one.say(1800, &[(A, 600), (B, 600)], &[]);
    watching.wait_for(&[A, B]);
    two.say(1800, &[(B, 1200)], &[]);
    one.say(0, &[(A, 0), (B, 0)], &[]);
    let prefixes = watching.wait_for(&[B]);
    let router = "fe80::2".parse().unwrap();
    assert_eq!(prefixes[0].source, Source::RouterAdvertisement { router });
}

#[test]
fn the_resolver_of_the_advertisement_is_asked() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let resolver = resolver::start(&world.router, "[2001:db8:1::1]:53");
    resolver.says(&["64:ff9b::192.0.0.170", "64:ff9b::192.0.0.171"], 300);
    // The host's own file names one that never answers.
    let mut listener = world.router.listener(LAN);
    let watching = Watching::start(&world.host, quick(), "nameserver 2001:db8:1::dead\n");
    let advertiser = world.router.advertiser(LAN, None);
    listener.wait();
    advertiser.say(1800, &[], &["2001:db8:1::1"]);
    let prefixes = watching.wait_for(&["64:ff9b::/96"]);
    let server: SocketAddr = "[2001:db8:1::1]:53".parse().unwrap();
    assert_eq!(prefixes[0].source, Source::Dns { server });
    assert_eq!(prefixes[0].device.as_ref().unwrap().name, UP);
    assert_eq!(resolver.asked(), 1);
    // An advertisement goes before it, and gives way to it again.
    advertiser.say(1800, &[(A, 600)], &[]);
    watching.wait_for(&[A]);
    advertiser.say(1800, &[(A, 0)], &[]);
    watching.wait_for(&["64:ff9b::/96"]);
    assert_eq!(resolver.asked(), 1, "the answer holds");
}

#[test]
fn the_hosts_resolvers_are_asked_where_no_router_names_one() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let resolver = resolver::start(&world.router, "[2001:db8:1::1]:53");
    resolver.says(&[], 300);
    world.router.add_address("2001:db8:1::1:1/64", LAN);
    world.host.ip("-6 route add default via 2001:db8:1::1 dev up0");
    let dead = "nameserver 2001:db8:1::dead\nnameserver 2001:db8:1::1\n";
    let settings = Settings { diagnose: true, ..quick() };
    let watching = Watching::start(&world.host, settings, dead);
    let said = |server: &str| {
        let server: SocketAddr = server.parse().unwrap();
        let report = watching.report.borrow();
        let found = report.resolvers.iter().find(|one| one.server == server).cloned();
        found.filter(|one| one.said.is_some())
    };
    let none = poll("the second resolver", || said("[2001:db8:1::1]:53"));
    assert_eq!(none.said, Some(Said::Nothing { name_exists: true }));
    assert!(matches!(said("[2001:db8:1::dead]:53").unwrap().said, Some(Said::Failed(_))));
    assert_eq!(watching.prefixes(), [""; 0]);
    let known =
        poll("the name", || said("[2001:db8:1::1]:53").filter(|one| one.knows_name.is_some()));
    assert_eq!(known.knows_name, Some(true));

    // Another file, as the host would write it in another network.
    resolver.says(&["2001:db8:a::192.0.0.171"], 300);
    let other = resolver::start(&world.router, "[2001:db8:1::1:1]:53");
    other.says(&["2001:db8:b::192.0.0.170", "2001:db8:a::192.0.0.170"], 300);
    let new = watching.resolv_conf.with_extension("new");
    std::fs::write(&new, "nameserver 2001:db8:1::1:1\n").unwrap();
    std::fs::rename(&new, &watching.resolv_conf).unwrap();
    watching.wait_for(&[B, A]);
}

#[test]
fn a_link_that_flaps_solicits_again_and_another_network_takes_over() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let advertiser = world.router.advertiser(LAN, None);
    let mut listener = world.router.listener(LAN);
    let watching = Watching::start(&world.host, quick(), "");
    listener.wait();
    advertiser.say(1800, &[(A, 6000)], &[]);
    watching.wait_for(&[A]);
    // So short that nobody may notice but by being told.
    world.router.ip("link set lan0 down");
    world.router.ip("link set lan0 up");
    let advertiser = world.router.advertiser(LAN, None);
    listener.wait();
    assert_eq!(watching.prefixes(), [A], "kept meanwhile");
    advertiser.say(1800, &[(B, 6000)], &[]);
    // The new one goes first at once; the old one, which nobody says any more, goes soon.
    poll("the new network", || (watching.prefixes().first()? == B).then_some(()));
    watching.wait_for(&[B]);
    // A link that is taken away takes its prefix with it.
    world.router.ip("link delete lan0");
    watching.wait_for(&[]);
}

#[test]
fn the_uplink_with_the_better_route_goes_first() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let second = Namespace::create();
    second.connect("lan2", &world.host, "up2", 2);
    let one = world.router.advertiser(LAN, None);
    let two = second.advertiser("lan2", None);
    let mut listener = second.listener("lan2");
    let watching = Watching::start(&world.host, quick(), "");
    listener.wait();
    one.say(1800, &[(A, 600)], &[]);
    two.say(1800, &[(B, 600)], &[]);
    // Both have a default route of the same metric, by the kernel; the first interface goes first.
    watching.wait_for(&[A, B]);
    world.host.ip("-6 route add default via 2001:db8:2::1 dev up2 metric 10");
    watching.wait_for(&[B, A]);
    assert_eq!(watching.found.borrow().preferred(Some(UP)).unwrap().pool6.to_string(), A);
    // One without a default route is not used at all.
    world.host.ip("-6 route del default via 2001:db8:2::1 dev up2 metric 10");
    world.host.ip("-6 route flush proto ra dev up2");
    watching.wait_for(&[A]);
    let only = Settings { device: Some("up2".to_owned()), ..quick() };
    let named = Watching::start(&world.host, only, "");
    listener.wait();
    two.say(0, &[(B, 600)], &[]);
    named.wait_for(&[B]);
}

#[test]
fn a_flood_of_changes_is_survived() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let mut listener = world.router.listener(LAN);
    let watching = Watching::start(&world.host, quick(), "");
    let advertiser = world.router.advertiser(LAN, None);
    listener.wait();
    advertiser.say(1800, &[(A, 6000)], &[]);
    watching.wait_for(&[A]);
    // More than a netlink socket's buffer holds.
    let routes: String =
        (0..20_000u32).map(|n| format!("route add 2001:db8:f:{n:x}::/64 dev up0\n")).collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), routes).unwrap();
    world.host.ip(&format!("-6 -batch {}", file.path().display()));
    advertiser.say(1800, &[(A, 0), (B, 6000)], &[]);
    watching.wait_for(&[B]);
}

#[test]
fn without_privileges_the_reason_is_said() {
    if !can_test() {
        return;
    }
    let namespace = Namespace::create();
    namespace.run(|| {
        caps::drop(None, caps::CapSet::Effective, caps::Capability::CAP_NET_RAW).unwrap();
        let error = Watcher::open(quick()).unwrap_err();
        assert!(error.is_privilege(), "{error}");
        assert!(error.hint().unwrap().contains("CAP_NET_RAW"));
        let without = Settings { advertisements: false, ..quick() };
        assert!(Watcher::open(without).is_ok());
    });
}

#[test]
fn one_look_ends_when_everybody_has_been_heard() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let resolver = resolver::start(&world.router, "[2001:db8:1::1]:53");
    resolver.says(&["2001:db8:b::192.0.0.170"], 300);
    let advertiser = world.router.advertiser(LAN, None);
    let mut listener = world.router.listener(LAN);
    let look = |settings: Settings| {
        let (sender, result) = channel();
        world.host.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            // Far longer than it takes.
            let timeout = Duration::from_secs(600);
            let looked = runtime.expect("a runtime").block_on(discovery::look(settings, timeout));
            let _ = sender.send(looked.expect("it can look"));
        });
        result
    };
    let all = Settings { both: true, ..quick() };
    let result = look(all);
    listener.wait();
    advertiser.say(1800, &[(A, 600)], &["2001:db8:1::1"]);
    let (found, report) = result.recv_timeout(PATIENCE).expect("it ends");
    assert_eq!(found.prefixes.len(), 1);
    assert_eq!(found.prefixes[0].pool6.to_string(), A);
    let known: Vec<_> = report.prefixes.iter().map(|one| one.pool6.to_string()).collect();
    assert_eq!(known, [A, B]);
    assert_eq!(report.devices[0].resolvers[0].asked, 1);

    // Nothing anywhere: that is known as soon as the resolver has said so.
    resolver.says(&[], 300);
    let result = look(quick());
    listener.wait();
    advertiser.say(1800, &[(A, 0)], &["2001:db8:1::1"]);
    let (found, report) = result.recv_timeout(PATIENCE).expect("it ends");
    assert_eq!(found, Found::default());
    let said = report.devices[0].resolvers[0].said.clone();
    assert_eq!(said, Some(Said::Nothing { name_exists: true }));
}
