//! What is said, to whom, and how it is taken back.

use fordway_dns64::ndp::{ALL_ROUTERS, Advertisement, PrefixInformation};
use fordway_router::{Preference, Prefixes, Rdnss, Settings, State};
use fordway_serve::Service as _;
use fordway_testhost::{has_programs, poll};
use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, setsockopt, socket,
    sockopt::ReceiveTimeout,
};
use nix::sys::time::TimeVal;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::listener::Listener;
use super::world::{LAN, UP, World};
use super::{counted, full, listed, serve, settings};
use fordway_testhost::namespace::can_test;

#[test]
fn every_option_is_on_the_link() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let router = world.link_local();
    let listener = Listener::new(&world.client);
    let server = serve(&world, full());
    let heard = listener.hear("an advertisement", |_| true);
    assert_eq!(heard.from, Some(router));
    let expected = Advertisement {
        cur_hop_limit: 64,
        managed: false,
        other: true,
        preference: Preference::High,
        router_lifetime: 12,
        reachable_time: 0,
        retrans_timer: 0,
    };
    assert_eq!(heard.fields, expected);
    assert_eq!(heard.link_layer, Some(vec![2, 0, 0, 0, 0, 1]));
    assert_eq!(heard.mtu, Some(1480));
    let prefix = "2001:db8:1::/64".parse().unwrap();
    assert_eq!(heard.prefixes, [(prefix, true, true, 86_400, 14_400)]);
    assert_eq!(heard.routes, [("2001:db8:9::/48".parse().unwrap(), 900)]);
    let servers: Vec<_> = heard.rdnss.iter().map(|(it, life)| (it.to_string(), *life)).collect();
    assert_eq!(servers, [("2001:db8:1::53".to_owned(), 12), ("2001:db8:1::54".to_owned(), 12)]);
    let names: Vec<_> = heard.dnssl.iter().map(|(it, life)| (it.to_string(), *life)).collect();
    assert_eq!(names, [("example.net.".to_owned(), 12), ("lab.example.com.".to_owned(), 12)]);
    // Rounded up to a multiple of 8.
    assert_eq!(heard.pref64, [("2001:db8:64::/96".parse().unwrap(), 16)]);
    let resolver = ("dns.example.net".to_owned(), vec!["2001:db8:1::53".parse().unwrap()], 12);
    assert_eq!(heard.dnr, [resolver]);
    assert_eq!(heard.captive_portal.as_deref(), Some("https://portal.example.net/api"));
    let seen = counted("the first one", &server, |it| it.sent >= 1);
    assert_eq!((seen.state, seen.forwarding), (State::Advertising, true));
    assert_eq!((seen.link_local, seen.prefixes), (Some(router), vec![prefix]));
    assert_eq!(seen.dnr, ["dns.example.net."]);
    assert_eq!(seen.captive_portal.as_deref(), Some("https://portal.example.net/api"));
    server.leave();
}

#[test]
fn the_kernel_takes_address_route_and_mtu() {
    if !can_test() {
        return;
    }
    let world = World::new();
    world.client.sysctl(&format!("ipv6/conf/{UP}/accept_ra_rt_info_max_plen"), "64");
    let router = world.link_local();
    let server = serve(&world, full());
    let address = poll("an address", || {
        let shown = world.client.ip(&format!("-6 -o address show dev {UP} scope global dynamic"));
        shown.contains("2001:db8:1:").then_some(shown)
    });
    assert!(address.contains("/64"), "{address}");
    let routes = poll("a default route", || {
        let shown = world.client.ip(&format!("-6 route show dev {UP}"));
        shown.contains("default").then_some(shown)
    });
    let default = routes.lines().find(|it| it.starts_with("default")).unwrap();
    assert!(default.contains(&format!("via {router}")), "{default}");
    assert!(default.contains("pref high") && default.contains("mtu 1480"), "{default}");
    assert!(default.contains("hoplimit 64"), "{default}");
    let more = routes.lines().find(|it| it.starts_with("2001:db8:9::/48"));
    assert!(more.is_some_and(|it| it.contains(&router.to_string())), "{routes}");
    assert_eq!(world.client.read_sysctl(&format!("ipv6/conf/{UP}/mtu")), "1480");
    // And it reaches what is behind the router.
    world.router.add_address("2001:db8:2::1/64", "lo");
    world.client.output("ping", "-6 -c 1 -W 10 2001:db8:2::1");
    server.stop();
    poll("no default route", || {
        let shown = world.client.ip(&format!("-6 route show default dev {UP}"));
        (!shown.contains("default")).then_some(())
    });
    poll("a deprecated address", || {
        let shown = world.client.ip(&format!("-6 address show dev {UP} scope global"));
        shown.contains("deprecated").then_some(())
    });
}

#[test]
fn the_kernel_hands_pref64_and_dns_servers_on() {
    if !can_test() {
        return;
    }
    let world = World::new();
    // RTNLGRP_ND_USEROPT is group 20.
    let netlink = world.client.run(|| {
        let netlink = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )
        .expect("a netlink socket");
        bind(netlink.as_raw_fd(), &NetlinkAddr::new(0, 1 << 19)).expect("a group");
        setsockopt(&netlink, ReceiveTimeout, &TimeVal::new(1, 0)).expect("a timeout");
        netlink
    });
    let server = serve(&world, full());
    let mut options = Vec::new();
    poll("both options", || {
        let mut datagram = [0; 4096];
        if let Ok(len) =
            recv(netlink.as_raw_fd(), &mut datagram, nix::sys::socket::MsgFlags::empty())
        {
            options.push(datagram[..len].to_vec());
        }
        let has =
            |octets: &[u8]| options.iter().any(|it| it.windows(octets.len()).any(|w| w == octets));
        // Scaled Lifetime 2 (16 seconds), PLC 0; the front of 2001:db8:64::.
        let pref64 = has(&[38, 2, 0, 16, 0x20, 0x01, 0x0d, 0xb8, 0, 0x64]);
        let rdnss = has(&[25, 5, 0, 0, 0, 0, 0, 12, 0x20, 0x01, 0x0d, 0xb8, 0, 1]);
        (pref64 && rdnss).then_some(())
    });
    server.leave();
}

#[test]
fn another_program_reads_the_same() {
    if !can_test() || !has_programs(&["rdisc6"]) {
        return;
    }
    let world = World::new();
    let server = serve(&world, full());
    counted("the first one", &server, |it| it.sent >= 1);
    let shown = world.client.output("rdisc6", &format!("-1 -r 10 {UP}"));
    for line in [
        "Stateful other conf.      :          Yes",
        "Router preference         :         high",
        "Prefix                   : 2001:db8:1::/64",
        "Source link-layer address: 02:00:00:00:00:01",
        "MTU                      :         1480 bytes (valid)",
        "Recursive DNS server     : 2001:db8:1::53",
        "DNS search list          : example.net lab.example.com",
        "Route                    : 2001:db8:9::/48",
    ] {
        let line: Vec<&str> = line.split_whitespace().collect();
        let found = shown.lines().any(|it| {
            let words: Vec<&str> = it.split_whitespace().collect();
            words.starts_with(&line)
        });
        assert!(found, "{line:?} is not in\n{shown}");
    }
    server.leave();
}

/// Wireshark reads the URI, and everything else beside an option that it does not know.
#[test]
fn a_dissector_of_others_reads_the_portal() {
    if !can_test() || !has_programs(&["tshark"]) {
        return;
    }
    let world = World::new();
    let server = serve(&world, full());
    counted("the first one", &server, |it| it.sent >= 1);
    let fields = ["icmpv6.opt.captive_portal", "icmpv6.opt.rdnss", "_ws.malformed"];
    let fields: Vec<String> = fields.iter().map(|it| format!("-e {it}")).collect();
    let arguments =
        format!("-i {UP} -c 1 -f icmp6[0]==134 -Y icmpv6.type==134 -T fields {}", fields.join(" "));
    let shown = world.client.output("tshark", &arguments);
    let read: Vec<&str> = shown.trim_end_matches('\n').split('\t').collect();
    assert_eq!(read, ["https://portal.example.net/api", "2001:db8:1::53,2001:db8:1::54", ""]);
    server.leave();
}

#[test]
fn stopping_takes_everything_back() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let listener = Listener::new(&world.client);
    let server = serve(&world, full());
    listener.hear("an advertisement", |it| it.fields.router_lifetime == 12);
    server.stop();
    let last = listener.hear("a last one", |it| it.fields.router_lifetime == 0);
    let prefix = "2001:db8:1::/64".parse().unwrap();
    assert_eq!(last.prefixes, [(prefix, true, true, 7200, 0)]);
    let lifetimes = last.rdnss.iter().map(|it| it.1).chain(last.dnssl.iter().map(|it| it.1));
    let lifetimes: Vec<u32> = lifetimes
        .chain(last.pref64.iter().map(|it| it.1))
        .chain(last.routes.iter().map(|it| it.1))
        .collect();
    assert_eq!(lifetimes, [0; 6]);
    assert_eq!(last.dnr, [("dns.example.net".to_owned(), vec![], 0)]);
    // Whether another router has a portal, hosts learn of that one.
    assert_eq!(last.captive_portal, None);
}

#[test]
fn other_settings_take_back_what_is_gone() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let listener = Listener::new(&world.client);
    let mut device = full();
    device.prefixes = listed(&["2001:db8:1::/64"]);
    let server = serve(&world, device.clone());
    listener.hear("an advertisement", |_| true);
    device.prefixes = listed(&["2001:db8:2::/64"]);
    device.rdnss = Rdnss::Listed(vec!["2001:db8:2::53".parse().unwrap()]);
    device.pref64 = vec!["2001:db8:65::/96".parse().unwrap()];
    device.dnr.clear();
    device.captive_portal = None;
    let begun = Instant::now();
    server.replace(settings(device)).unwrap();
    let heard = listener.hear("the new prefix", |it| {
        it.prefixes.iter().any(|it| it.0 == "2001:db8:2::/64".parse().unwrap())
    });
    let old = heard.prefixes.iter().find(|it| it.0 == "2001:db8:1::/64".parse().unwrap());
    let (_, on_link, autonomous, valid, preferred) = *old.expect("the old prefix, too");
    assert!(on_link && autonomous && preferred == 0, "{old:?}");
    let passed = begun.elapsed().as_secs() as u32 + 1;
    assert!((7200 - passed..=7200).contains(&valid), "{old:?}");
    let life = |text: &str| {
        let net = text.parse().unwrap();
        heard.pref64.iter().find(|it| it.0 == net).map(|it| it.1)
    };
    assert_eq!((life("2001:db8:64::/96"), life("2001:db8:65::/96")), (Some(0), Some(16)));
    let servers: Vec<_> = heard.rdnss.iter().map(|(it, life)| (it.to_string(), *life)).collect();
    assert_eq!(
        servers,
        [
            ("2001:db8:2::53".to_owned(), 12),
            ("2001:db8:1::53".to_owned(), 0),
            ("2001:db8:1::54".to_owned(), 0)
        ]
    );
    assert_eq!(heard.dnr, [("dns.example.net".to_owned(), vec![], 0)]);
    assert_eq!(heard.captive_portal.as_deref(), Some("urn:ietf:params:capport:unrestricted"));
    // What is counted is told right after what is said.
    counted("the old prefix", &server, |it| it.deprecated == ["2001:db8:1::/64".parse().unwrap()]);
    // The kernel holds both addresses, the old one deprecated.
    poll("both addresses", || {
        let shown = world.client.ip(&format!("-6 -o address show dev {UP} scope global"));
        let of = |text: &str| shown.lines().find(|it| it.contains(text)).map(str::to_owned);
        let (old, new) = (of("2001:db8:1:")?, of("2001:db8:2:")?);
        (old.contains("deprecated") && !new.contains("deprecated")).then_some(())
    });
    // A few times are enough, for all but the prefix.
    listener.hear("no word of the old server", |it| it.rdnss.len() == 1 && it.prefixes.len() == 2);
    // No device any more: everything is taken back.
    server.replace(Settings::default()).unwrap();
    let last = listener.hear("a last one", |it| it.fields.router_lifetime == 0);
    assert!(last.prefixes.iter().all(|it| it.4 == 0) && last.prefixes.len() == 2, "{last:#?}");
    poll("no device", || server.stats().devices.is_empty().then_some(()));
    server.stop();
}

#[test]
fn who_asks_is_answered_and_who_asks_wrongly_is_not() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let listener = Listener::new(&world.client);
    let mut device = full();
    device.interval = Duration::from_secs(1800);
    let server = serve(&world, device);
    listener.hear("the first one", |_| true);
    // All nodes have just heard one, so that the answer is for this host alone.
    listener.solicit();
    listener.hear("an answer", |_| true);
    let seen = counted("the answer", &server, |it| it.sent_unicast >= 1);
    assert_eq!(seen.solicitations, 1, "{seen:?}");
    let invalid = seen.invalid;
    let wrong: [(&[u8], u32); 4] = [
        // Forwarded; another code; too short; an option of length zero.
        (&[133, 0, 0, 0, 0, 0, 0, 0], 64),
        (&[133, 1, 0, 0, 0, 0, 0, 0], 255),
        (&[133, 0, 0, 0, 0, 0], 255),
        (&[133, 0, 0, 0, 0, 0, 0, 0, 200, 0, 0, 0, 0, 0, 0, 0], 255),
    ];
    for (message, hop_limit) in wrong {
        listener.send(message, ALL_ROUTERS, hop_limit);
    }
    counted("four refused", &server, |it| it.invalid == invalid + 4);
    server.leave();
}

#[test]
fn contradictions_of_other_routers_are_counted_and_what_they_say_too_stays() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let listener = Listener::new(&world.client);
    let server = serve(&world, full());
    listener.hear("the first one", |_| true);
    let agrees = Advertisement { other: true, router_lifetime: 1800, ..Advertisement::default() };
    let prefix = PrefixInformation {
        prefix: "2001:db8:1::".parse().unwrap(),
        prefix_len: 64,
        on_link: true,
        autonomous: true,
        valid_lifetime: 86_400,
        preferred_lifetime: 14_400,
    };
    listener.advertise(|it| it.prefix(&prefix).expect("room"), &agrees);
    let seen = counted("another router", &server, |it| it.advertisements == 1);
    assert_eq!(seen.inconsistent, 0);
    let contradicts = Advertisement { managed: true, ..agrees };
    listener.advertise(|it| it.mtu(1400).expect("room"), &contradicts);
    let seen = counted("another router", &server, |it| it.advertisements == 2);
    assert_eq!(seen.inconsistent, 1);
    // Both have said this prefix: it is not this router's alone to take back.
    server.stop();
    let last =
        listener.hear("a last one", |it| it.from.is_some() && it.fields.router_lifetime == 0);
    assert_eq!(last.prefixes, []);
    assert_eq!(last.pref64.len(), 1);
}

#[test]
fn who_does_not_forward_is_no_default_router() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let listener = Listener::new(&world.client);
    let server = serve(&world, full());
    listener.hear("a router", |it| it.fields.router_lifetime == 12);
    world.router.sysctl(&format!("ipv6/conf/{LAN}/forwarding"), "0");
    let heard = listener.hear("no router", |it| it.fields.router_lifetime == 0);
    // The rest is as it was.
    assert_eq!(heard.prefixes.len(), 1);
    assert_eq!(heard.fields.preference, Preference::Medium);
    counted("it", &server, |it| !it.forwarding);
    world.router.sysctl(&format!("ipv6/conf/{LAN}/forwarding"), "1");
    listener.hear("a router again", |it| it.fields.router_lifetime == 12);
    server.leave();
}

#[test]
fn leaving_says_nothing() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let listener = Listener::new(&world.client);
    let mut device = full();
    device.interval = Duration::from_secs(1800);
    device.prefixes = Prefixes::OfDevice;
    let first = serve(&world, device.clone());
    listener.hear("the first one", |_| true);
    first.leave();
    for heard in listener.heard_so_far() {
        // It may have said once more what it advertises.
        assert_eq!((heard.mtu, heard.fields.router_lifetime), (Some(1480), 5400));
    }
    // The next word is the next server's.
    device.mtu = Some(1300);
    let second = serve(&world, device);
    let heard = listener.hear("anything", |_| true);
    assert_eq!((heard.mtu, heard.fields.router_lifetime), (Some(1300), 5400));
    second.leave();
}
