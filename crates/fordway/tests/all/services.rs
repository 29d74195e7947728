//! The DNS64 server and the router advertisements beside the translators: set up, told the same prefixes, changed
//! together, and taken down.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use fordway_testhost::{can_use_tun, poll};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{RData, RecordType};
use serde_json::Value;

use crate::common::daemon::{Daemon, FORDWAY, RunDir};
use crate::common::dns::{Upstream, Zone, ask_udp, query};
use crate::common::host::{assert_same, snapshot};
use crate::common::netns::Netns;
use crate::common::threads::{assert_privileged_hear_nobody, threads};

/// A router between a link of hosts and a server of names.
struct Site {
    router: Netns,
    host: Netns,
    _names: Netns,
    _upstream: Upstream,
    run: RunDir,
}

const SERVER: &str = "[2001:db8:1::1]:53";
const TRANSLATOR: &str = "[[translator]]\nname = 'nat64'\nmode = 'nat64'\nengine = 'user'\nqueues = 1\n\
                          pool4 = ['192.0.2.1']\n";
const SERVICES: &str = "[dns64]\nlisten = ['2001:db8:1::1']\nupstream = ['203.0.113.53']\n\
                        timeout = '10s'\ndeadline = '30s'\n\
                        [[advertise]]\ndevice = 'lan0'\ninterval = '4s'\n";

impl Site {
    fn new() -> Site {
        let (router, host, names) = (Netns::new("router"), Netns::new("host"), Netns::new("names"));
        router.link("lan0", &host, "eth0");
        router.link("wan0", &names, "eth0");
        router
            .configure(&["addr add 2001:db8:1::1/64 dev lan0", "addr add 203.0.113.2/24 dev wan0"]);
        names.ip("addr add 203.0.113.53/24 dev eth0");
        let zone = Zone::new("example.net").a("v4.example.net", "198.51.100.7");
        let upstream = Upstream::start(&names, "203.0.113.53:53", zone);
        Site { router, host, _names: names, _upstream: upstream, run: RunDir::new() }
    }

    /// Writes the file: a translator with these prefixes, if any, and what else there is to be.
    fn write(&self, pool6: &str, services: &str) -> PathBuf {
        let translator = match pool6 {
            "" => String::new(),
            pool6 => format!("{TRANSLATOR}pool6 = {pool6}\n"),
        };
        self.run.file("site.toml", &format!("{translator}{services}"))
    }

    fn start(&self, pool6: &str, services: &str) -> Daemon<'_> {
        let file = self.write(pool6, services);
        Daemon::start(&self.run, &self.router, &format!("run {}", file.display()))
    }

    fn fordway(&self, arguments: &str) -> (bool, String) {
        let output = self.run.output(&self.router, arguments);
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    /// The addresses that the host is told for a name.
    fn addresses(&self, name: &str) -> Vec<Ipv6Addr> {
        let answer = self.ask(name);
        let of_aaaa = |data: &RData| match data {
            RData::AAAA(aaaa) => Some(aaaa.0),
            _ => None,
        };
        answer.answers.iter().filter_map(|record| of_aaaa(&record.data)).collect()
    }

    fn ask(&self, name: &str) -> Message {
        let server: SocketAddr = SERVER.parse().unwrap();
        let octets = ask_udp(&self.host, None, server, &query(name, RecordType::AAAA, Some(1232)));
        Message::from_vec(&octets).unwrap()
    }

    /// Waits until the host has made an address of the prefix of the link, which it was told.
    fn host_has_an_address(&self) {
        poll("the host takes an address", || {
            let addresses = self.host.ip("-6 -o addr show dev eth0 scope global");
            let ready = addresses.contains("2001:db8:1:0:") && !addresses.contains("tentative");
            ready.then_some(())
        });
    }
}

/// What is advertised on lan0 by now.
fn advertised(daemon: &Daemon<'_>, what: &str) -> Vec<String> {
    let status = daemon.status();
    let device = &status["advertise"][0];
    assert_eq!(device["device"], "lan0", "{status}");
    let all = device[what].as_array().unwrap().iter();
    all.map(|it| it.as_str().unwrap().to_owned()).collect()
}

fn address(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

#[test]
fn hosts_are_told_what_the_translator_does_and_nothing_is_left() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let before = snapshot(&site.router);
    let daemon = site.start("['2001:db8:64::/96']", SERVICES);
    site.host_has_an_address();
    let default = site.host.ip("-6 route show default");
    assert!(default.contains("proto ra") && default.contains("fe80:"), "{default}");
    assert_eq!(site.addresses("v4.example.net"), [address("2001:db8:64::c633:6407")]);
    poll("it advertises", || {
        let prefixes = advertised(&daemon, "prefixes");
        (prefixes == ["2001:db8:1::/64"]).then_some(())
    });
    assert_eq!(advertised(&daemon, "rdnss"), ["2001:db8:1::1"]);
    assert_eq!(advertised(&daemon, "pref64"), ["2001:db8:64::/96"]);
    let status = daemon.status();
    assert_eq!(status["dns64"]["pool6"], serde_json::json!(["2001:db8:64::/96"]));
    assert_eq!(status["dns64"]["upstream"][0]["alive"], true, "{status}");
    let (_, shown) = site.fordway("status");
    assert!(shown.contains("DNS64 server") && shown.contains("router advertisements"), "{shown}");
    let (_, shown) = site.fordway("stats");
    assert!(shown.contains("synthesised") && shown.contains("solicitations"), "{shown}");
    let (_, metrics) = site.fordway("stats --prometheus");
    assert!(metrics.contains("fordway_dns64_queries_total{transport=\"udp\"} "), "{metrics}");
    assert!(metrics.contains("fordway_router_advertising{device=\"lan0\"} 1\n"), "{metrics}");
    daemon.stop();
    // The last advertisement says that the router is none any more.
    poll("the host forgets the router", || {
        (!site.host.ip("-6 route show default").contains("fe80:")).then_some(())
    });
    assert_same(&snapshot(&site.router), &before);
}

#[test]
fn another_prefix_is_told_at_once_and_a_translator_that_goes_takes_its_own_along() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let daemon = site.start("['2001:db8:64::/96']", SERVICES);
    site.host_has_an_address();
    assert_eq!(site.addresses("v4.example.net"), [address("2001:db8:64::c633:6407")]);
    site.write("['2001:db8:64::/96', '2001:db8:65::/96']", SERVICES);
    let (good, said) = site.fordway("reload");
    assert!(good && said.contains("changed: nat64, dns64, advertisements on lan0"), "{said}");
    let both = [address("2001:db8:64::c633:6407"), address("2001:db8:65::c633:6407")];
    assert_eq!(site.addresses("v4.example.net"), both);
    poll("both are advertised", || (advertised(&daemon, "pref64").len() == 2).then_some(()));
    let (good, said) = site.fordway("down nat64");
    assert!(good, "{said}");
    assert_eq!(site.addresses("v4.example.net"), [] as [Ipv6Addr; 0]);
    poll("none is advertised", || advertised(&daemon, "pref64").is_empty().then_some(()));
    daemon.stop();
}

#[test]
fn a_reload_that_one_server_refuses_changes_nothing() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let daemon = site.start("['2001:db8:64::/96']", SERVICES);
    site.host_has_an_address();
    let running = snapshot(&site.router);
    // Somebody has the port.
    let _taken = site.router.inside(|| std::net::UdpSocket::bind("[2001:db8:1::1]:5353").unwrap());
    let elsewhere = SERVICES.replace("['2001:db8:1::1']", "['[2001:db8:1::1]:5353']");
    let absent = SERVICES.replace("timeout =", "ca = '/nonexistent/ca.pem'\ntimeout =");
    let absent = absent.replace("'203.0.113.53'", "'tls://203.0.113.53'");
    for (services, expected) in [(elsewhere, "sport = :5353"), (absent, "/nonexistent/ca.pem")] {
        site.write("['2001:db8:64::/96', '2001:db8:65::/96']", &services);
        let (good, said) = site.fordway("reload");
        assert!(!good && said.contains(expected), "{said}");
        assert_eq!(daemon.status()["translators"][0]["pool6"].as_array().unwrap().len(), 1);
        assert_eq!(site.addresses("v4.example.net"), [address("2001:db8:64::c633:6407")]);
        assert_same(&snapshot(&site.router), &running);
    }
    daemon.stop();
}

#[test]
fn servers_come_and_go_without_a_translator() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let before = snapshot(&site.router);
    let dns64 = "[dns64]\nlisten = ['2001:db8:1::1']\nupstream = ['203.0.113.53']\n\
                 pool6 = ['2001:db8:64::/96']\nallow = ['2001:db8:1::/64']\n";
    let advertise = "[[advertise]]\ndevice = 'lan0'\ninterval = '4s'\n";
    let daemon = site.start("", &format!("{dns64}{advertise}"));
    site.host_has_an_address();
    assert_eq!(site.addresses("v4.example.net"), [address("2001:db8:64::c633:6407")]);
    // The server goes: nobody answers there any more.
    site.write("", advertise);
    let (good, said) = site.fordway("reload");
    assert!(good && said.contains("gone: dns64"), "{said}");
    assert!(daemon.status()["dns64"].is_null());
    let free = site.router.inside(|| std::net::UdpSocket::bind(SERVER));
    assert!(free.is_ok(), "the port is still taken");
    drop(free);
    poll("no prefix is advertised", || advertised(&daemon, "pref64").is_empty().then_some(()));
    // It comes back for other hosts alone, and the advertisements go.
    site.write("", &dns64.replace("2001:db8:1::/64", "2001:db8:2::/64"));
    let (good, said) = site.fordway("reload");
    assert!(good && said.contains("new: dns64; gone: advertisements on lan0"), "{said}");
    assert_eq!(site.ask("v4.example.net").metadata.response_code, ResponseCode::Refused);
    poll("the host forgets the router", || {
        (!site.host.ip("-6 route show default").contains("fe80:")).then_some(())
    });
    assert_same(&snapshot(&site.router), &before);
    daemon.stop();
}

#[test]
fn who_may_ask_follows_the_addresses_of_the_router() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    site.host.ip("addr add 2001:db8:7::7/64 dev eth0");
    site.host.ip("-6 route add 2001:db8:1::1/128 dev eth0 src 2001:db8:7::7");
    site.router.ip("-6 route add 2001:db8:7::7/128 dev lan0");
    let daemon = site.start("['2001:db8:64::/96']", &SERVICES[..SERVICES.find("[[adv").unwrap()]);
    assert_eq!(site.ask("v4.example.net").metadata.response_code, ResponseCode::Refused);
    site.router.ip("addr add 2001:db8:7::1/64 dev lan0");
    poll("its network is a local one", || {
        let code = site.ask("v4.example.net").metadata.response_code;
        (code == ResponseCode::NoError).then_some(())
    });
    daemon.stop();
}

/// One that can't follow keeps nobody else from it.
#[test]
fn a_spoilt_certificate_is_the_proxys_alone() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let certified = rcgen::generate_simple_self_signed(["proxy.example".to_owned()]).unwrap();
    let certificate = site.run.file("proxy.pem", &certified.cert.pem());
    let key = site.run.file("proxy.key", &certified.signing_key.serialize_pem());
    let proxy = format!(
        "[[proxy]]\nname = 'p'\nlisten = ['::1']\ncertificate = '{}'\nkey = '{}'\n",
        certificate.display(),
        key.display()
    );
    site.host.ip("addr add 2001:db8:7::7/64 dev eth0");
    site.host.ip("-6 route add 2001:db8:1::1/128 dev eth0 src 2001:db8:7::7");
    site.router.ip("-6 route add 2001:db8:7::7/128 dev lan0");
    let services = &SERVICES[..SERVICES.find("[[adv").unwrap()];
    let daemon = site.start("['2001:db8:64::/96']", &format!("{services}{proxy}"));
    assert_eq!(site.ask("v4.example.net").metadata.response_code, ResponseCode::Refused);
    std::fs::write(&certificate, "nothing").unwrap();
    site.router.ip("addr add 2001:db8:7::1/64 dev lan0");
    poll("its network is a local one", || {
        let code = site.ask("v4.example.net").metadata.response_code;
        (code == ResponseCode::NoError).then_some(())
    });
    poll("the proxy's trouble is told", || {
        daemon.log().contains("a change has failed, will retry").then_some(())
    });
    daemon.stop();
}

/// The words of a line of /proc/PID/status.
fn process_status(path: &str, field: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().to_owned()
}

#[test]
fn threads_that_read_packets_have_no_capability() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let daemon = site.start("['2001:db8:64::/96']", SERVICES);
    let pid = daemon.pid();
    // CAP_NET_BIND_SERVICE (10), CAP_NET_ADMIN (12), CAP_NET_RAW (13) and CAP_SYS_NICE (23).
    assert_eq!(process_status(&format!("/proc/{pid}/status"), "CapEff:"), "0000000000803400");
    let mut others = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let thread = thread.unwrap().path();
        if thread.ends_with(pid.to_string()) {
            continue;
        }
        let status = thread.join("status");
        let name = process_status(status.to_str().unwrap(), "Name:");
        let capabilities = process_status(status.to_str().unwrap(), "CapPrm:");
        assert_eq!(capabilities, "0000000000000000", "{name}");
        others += 1;
    }
    assert!(others >= 3, "{others} threads");
    assert_privileged_hear_nobody(pid);
    // A queue's thread precedes programs, though it has no capability either.
    let all = threads(pid);
    let (queue, rest): (Vec<_>, Vec<_>) = all.iter().partition(|it| it.name == "nat64-0");
    assert!(queue.len() == 1 && queue[0].nice() == -10, "{all:?}");
    poll("no other thread precedes others", || {
        rest.iter().all(|it| it.nice() != -10).then_some(())
    });
    daemon.stop();
}

#[test]
fn who_is_in_the_way_is_named_before_anything_is_changed() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let before = snapshot(&site.router);
    let _taken = site.router.inside(|| std::net::UdpSocket::bind(SERVER).unwrap());
    let file = site.write("['2001:db8:64::/96']", SERVICES);
    let (good, said) = site.fordway(&format!("run {}", file.display()));
    assert!(!good && said.contains("sport = :53"), "{said}");
    assert_same(&snapshot(&site.router), &before);
}

#[test]
fn the_example_of_a_whole_network_is_checked() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/ipv6-only-network.toml");
    let output =
        std::process::Command::new(FORDWAY).args(["check", file, "--json"]).output().unwrap();
    let checked: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "{checked}");
    assert_eq!(checked["messages"], serde_json::json!([]));
    assert_eq!(checked["translators"][0]["mode"], "nat64");
    assert_eq!(checked["dns64"], serde_json::json!(["[2001:db8:1::1]:53"]));
    assert_eq!(checked["advertise"], serde_json::json!(["lan0"]));
}
