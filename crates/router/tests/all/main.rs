//! The router against the kernel's host side, and against a reader of its own, in namespaces.

mod dhcpv6;
mod follow;
mod listener;
mod say;
mod world;

use std::time::Duration;

use fordway_dns64::ndp::Preference;
use fordway_router::{Device, DeviceStats, Prefixes, Rdnss, Resolver, Route, Server, Settings};
use fordway_serve::Service as _;
use fordway_testhost::poll;
use world::{LAN, World};

/// Everything that can be said.
fn full() -> Device {
    let name = |text: &str| text.parse().expect("a name");
    Device {
        rdnss: Rdnss::Listed(vec![
            "2001:db8:1::53".parse().expect("an address"),
            "2001:db8:1::54".parse().expect("an address"),
        ]),
        dnssl: vec![name("example.net."), name("lab.example.com.")],
        pref64: vec!["2001:db8:64::/96".parse().expect("a prefix")],
        routes: vec![Route {
            prefix: "2001:db8:9::/48".parse().expect("a prefix"),
            preference: Preference::High,
            lifetime: Some(900),
        }],
        dnr: vec![Resolver {
            name: name("dns.example.net."),
            priority: 1,
            addresses: vec!["2001:db8:1::53".parse().expect("an address")],
            alpn: vec!["dot".to_owned(), "h2".to_owned()],
            port: None,
            dohpath: Some("/dns-query{?dns}".to_owned()),
            lifetime: None,
        }],
        captive_portal: Some("https://portal.example.net/api".to_owned()),
        mtu: Some(1480),
        preference: Preference::High,
        dhcpv6: true,
        // So that what has changed is said within the time of a test.
        interval: Duration::from_secs(4),
        ..Device::new(LAN)
    }
}

fn listed(prefixes: &[&str]) -> Prefixes {
    Prefixes::Listed(prefixes.iter().map(|it| it.parse().expect("a prefix")).collect())
}

fn settings(device: Device) -> Settings {
    Settings { devices: vec![device] }
}

/// A server in the router's namespace.
fn serve(world: &World, device: Device) -> Server {
    let wanted = settings(device);
    world
        .router
        .run(move || Server::start(Server::bind(&wanted).expect("sockets")).expect("a server"))
}

fn stats(server: &Server) -> DeviceStats {
    server.stats().devices.into_iter().next().expect("one device")
}

/// Waits until `wanted` holds of what the server counts.
fn counted(what: &str, server: &Server, wanted: impl Fn(&DeviceStats) -> bool) -> DeviceStats {
    poll(what, || Some(stats(server)).filter(&wanted))
}
