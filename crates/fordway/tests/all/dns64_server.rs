//! The DNS64 server of a gateway as its clients see it: sizes, policies by client, reloads, and messages that are none.

use std::net::SocketAddr;

use fordway_testhost::{can_use_tun, poll};
use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::RecordType;

use crate::common::daemon::Daemon;
use crate::common::dns::{self, Zone, ask_tcp, ask_udp};
use crate::common::resolver::{PREFIX, SERVER, Site, answers, code, reasons};

fn server() -> SocketAddr {
    SERVER.parse().unwrap()
}

fn zone() -> Zone {
    let mut zone = Zone::new("example.net").a("v4.example.net", "192.0.2.1");
    for i in 0..100 {
        zone = zone.a("many.example.net", &format!("192.0.2.{i}"));
    }
    for i in 0..20 {
        zone = zone.a("some.example.net", &format!("192.0.2.{i}"));
    }
    zone
}

/// What a client gets for `v4.example.net`.
fn v4(prefix: &str) -> Vec<String> {
    vec![format!("v4.example.net. AAAA {prefix}c000:201")]
}

#[test]
fn what_does_not_fit_says_so_and_comes_by_tcp() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let upstream = site.upstream(zone());
    let _daemon = site.start(PREFIX, "udp_size = 1232");
    // 20 AAAA records have 28 octets each.
    for (owner, payload, fits) in [
        ("some", None, false),
        ("some", Some(100), false),
        ("some", Some(512), false),
        ("some", Some(700), true),
        ("some", Some(4096), true),
        ("many", Some(1232), false),
        ("many", Some(4096), false),
    ] {
        let query = dns::query(&format!("{owner}.example.net"), RecordType::AAAA, payload);
        let octets = ask_udp(&site.client, None, server(), &query);
        let limit = payload.unwrap_or(0).clamp(512, 1232);
        assert!(octets.len() <= usize::from(limit), "{} of {limit}", octets.len());
        let response = Message::from_vec(&octets).unwrap();
        assert_eq!(response.metadata.truncation, !fits, "{owner} {payload:?}");
        assert_eq!(response.edns.is_some(), payload.is_some());
        if fits {
            assert_eq!(response.answers.len(), 20);
        }
        let response = Message::from_vec(&ask_tcp(&site.client, server(), &query)).unwrap();
        assert!(!response.metadata.truncation);
        assert_eq!(response.answers.len(), if owner == "some" { 20 } else { 100 });
    }
    // The server, too, takes to TCP what its upstream could not say by UDP.
    let by_tcp = upstream.asked().iter().any(|asked| {
        asked.tcp
            && asked.name == dns::name("many.example.net")
            && asked.record_type == RecordType::A
    });
    assert!(by_tcp, "{:?}", upstream.asked());
}

#[test]
fn policies_are_those_of_the_client() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let _upstream = site.upstream(zone());
    let rest = "\
        [[dns64.policy]]\nclient = [\"2001:db8:5::/48\"]\nenable = false\n\
        [[dns64.policy]]\nclient = [\"2001:db8:5::2/128\"]\npool6 = [\"2001:db8:77::/96\", \"2001:db8:78::/96\"]\n";
    let _daemon = site.start(PREFIX, rest);
    site.client.ip("addr add 2001:db8:5::3/64 dev c0");
    let ask = |from: &str, owner: &str| answers(&site.ask_from(from, "AAAA", owner));
    // Twice, so that one's answer from memory is not the other's.
    for _ in 0..2 {
        assert_eq!(ask("2001:db8:1::2", "v4.example.net"), v4(PREFIX));
        assert_eq!(
            ask("2001:db8:5::2", "v4.example.net"),
            [v4("2001:db8:77::"), v4("2001:db8:78::")].concat()
        );
        assert_eq!(ask("2001:db8:5::3", "v4.example.net"), Vec::<String>::new());
        assert_eq!(ask("2001:db8:5::2", "ipv4only.arpa").len(), 4);
        // For those without DNS64 the name is like any other (RFC 8880 section 7.1).
        let response = site.ask_from("2001:db8:5::3", "AAAA", "ipv4only.arpa");
        assert_eq!(code(&response), ResponseCode::NXDomain, "as this upstream has it");
    }
}

#[test]
fn who_is_not_allowed_is_refused() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let upstream = site.upstream(zone());
    let _daemon = site.start(PREFIX, "allow = [\"2001:db8:1::/64\"]");
    let response = site.ask_from("2001:db8:5::2", "AAAA", "v4.example.net");
    assert_eq!((code(&response), reasons(&response)), (ResponseCode::Refused, vec![18]));
    assert_eq!(upstream.asked(), []);
    assert_eq!(answers(&site.ask("AAAA", "v4.example.net")), v4(PREFIX));
}

#[test]
fn a_reload_changes_the_prefix_at_once() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let upstream = site.upstream(zone());
    let _daemon = site.start(PREFIX, "");
    assert_eq!(answers(&site.ask("AAAA", "v4.example.net")), v4(PREFIX));
    site.configure("2001:db8:77::", "");
    site.reload();
    assert_eq!(answers(&site.ask("AAAA", "v4.example.net")), v4("2001:db8:77::"));
    let found = answers(&site.ask("AAAA", "ipv4only.arpa"));
    assert_eq!(found[0], "ipv4only.arpa. AAAA 2001:db8:77::c000:aa");
    // What upstream has said is still known.
    assert_eq!(upstream.count("v4.example.net", RecordType::A), 1);
    site.configure("2001:db8:77::", "exempt = [\"v4.example.net\"]");
    site.reload();
    assert_eq!(answers(&site.ask("AAAA", "v4.example.net")), Vec::<String>::new());
}

#[test]
fn a_translator_lends_its_prefix() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let _upstream = site.upstream(zone());
    let write = |pool6: &str| {
        site.run.file(
            "both.toml",
            &format!(
                "[[translator]]\nname = \"nat64\"\nmode = \"nat64\"\nengine = \"user\"\n\
                 pool6 = {pool6}\npool4 = [\"192.0.2.128\"]\n\
                 [dns64]\nlisten = [\"{SERVER}\"]\nupstream = [\"203.0.113.53\"]\n"
            ),
        )
    };
    let file = write("[\"2001:db8:64::/96\"]");
    let _daemon = Daemon::start(&site.run, &site.gateway, &format!("run {}", file.display()));
    assert_eq!(answers(&site.ask("AAAA", "v4.example.net")), v4(PREFIX));
    // One more, which a translator takes while it runs.
    write("[\"2001:db8:64::/96\", \"2001:db8:77::/96\"]");
    site.reload();
    let both = [v4(PREFIX), v4("2001:db8:77::")].concat();
    assert_eq!(answers(&site.ask("AAAA", "v4.example.net")), both);
}

#[test]
fn the_short_form_is_a_server_too() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let _upstream = site.upstream(zone());
    let line = format!("dns64 --listen {SERVER} --upstream 203.0.113.53 --pref64 {PREFIX}/96");
    let daemon = Daemon::start(&site.run, &site.gateway, &line);
    assert_eq!(answers(&site.ask("AAAA", "v4.example.net")), v4(PREFIX));
    daemon.stop();
}

#[test]
fn messages_that_are_no_queries() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let upstream = site.upstream(zone());
    let daemon = site.start(PREFIX, "");
    let query = dns::query("v4.example.net", RecordType::AAAA, Some(1232));
    let good = query.to_vec().unwrap();
    let changed = |changes: &[(usize, u8)]| {
        let mut octets = good.clone();
        changes.iter().for_each(|(at, value)| octets[*at] = *value);
        octets
    };
    let mut twice = good.clone();
    twice[11] = 2;
    twice.extend_from_within(good.len() - 11..);
    let version = changed(&[(good.len() - 5, 1)]);
    let socket = site.client.inside(|| {
        let socket = std::net::UdpSocket::bind("[::]:0").unwrap();
        socket.connect(server()).unwrap();
        socket
    });
    socket.set_read_timeout(Some(fordway_testhost::PATIENCE)).unwrap();
    let mut buffer = [0; 4096];
    let mut ask = |octets: &[u8]| {
        socket.send(octets).unwrap();
        let len = socket.recv(&mut buffer).unwrap();
        Message::from_vec(&buffer[..len]).unwrap()
    };
    for (what, octets, expected) in [
        ("another opcode", changed(&[(2, 0x28)]), ResponseCode::NotImp),
        ("no question", changed(&[(5, 0)]), ResponseCode::FormErr),
        ("two questions", changed(&[(5, 2)]), ResponseCode::FormErr),
        ("65,535 questions", changed(&[(4, 255), (5, 255)]), ResponseCode::FormErr),
        ("an answer", changed(&[(7, 1)]), ResponseCode::FormErr),
        ("cut short", good[..good.len() - 3].to_vec(), ResponseCode::FormErr),
        ("a pointer to itself", changed(&[(12, 0xc0), (13, 12)]), ResponseCode::FormErr),
        ("two OPT records", twice, ResponseCode::FormErr),
        ("another version", version, ResponseCode::from(1, 0)),
    ] {
        let response = ask(&octets);
        assert_eq!(u16::from(code(&response)), u16::from(expected), "{what}");
        assert_eq!(response.metadata.id, query.metadata.id, "{what}");
    }
    for (what, octets) in [("no header", &good[..11]), ("a response", &changed(&[(2, 0x81)])[..])] {
        // No answer: the next one is that to the next query.
        socket.send(octets).unwrap();
        let mut next = query.clone();
        next.metadata.id ^= 1;
        let response = ask(&next.to_vec().unwrap());
        assert_eq!(response.metadata.id, next.metadata.id, "{what} was answered");
    }
    // RD is clear: only what is known here (RFC 8914 section 4.21).
    let mut alone = dns::query("text.example.net", RecordType::TXT, Some(1232));
    alone.metadata.recursion_desired = false;
    let response = ask(&alone.to_vec().unwrap());
    assert_eq!((code(&response), reasons(&response)), (ResponseCode::Refused, vec![20]));
    assert_eq!(upstream.count("text.example.net", RecordType::TXT), 0);
    // A transfer is not for the asking.
    let response = ask(&dns::query("example.net", RecordType::AXFR, Some(1232)).to_vec().unwrap());
    assert_eq!(code(&response), ResponseCode::Refused);
    assert_eq!(response.metadata.op_code, OpCode::Query);
    daemon.stop();
}

#[test]
fn many_connections_and_many_questions_on_one() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let upstream = site.upstream(zone());
    let daemon = site.start(PREFIX, "");
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..8 {
                    let query = dns::query("v4.example.net", RecordType::AAAA, None);
                    let octets = ask_tcp(&site.client, server(), &query);
                    assert_eq!(answers(&Message::from_vec(&octets).unwrap()), v4(PREFIX));
                }
            });
        }
    });
    // One question upstream for all of them.
    assert_eq!(upstream.count("v4.example.net", RecordType::A), 1);
    poll("the server counts them", || {
        let output = site.run.output(&site.gateway, "stats --json");
        let stats: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        (stats["dns64"].is_object()).then_some(())
    });
    daemon.stop();
}
