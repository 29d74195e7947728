//! Clients, and senders of forged answers, of a DNS64 server.

use std::io::{ErrorKind, Write};
use std::net::{TcpStream, UdpSocket};

use fordway_testhost::{can_use_tun, poll};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;

use super::{connection, size};
use crate::common::daemon::Daemon;
use crate::common::dns::{self, Odd, Zone};
use crate::common::resolver::{PREFIX, SERVER, Site, answers, code};

/// The other /56 of [`Site`]: another client network.
const ATTACKER: &str = "2001:db8:5::2";

/// Names that nobody has asked for yet.
fn zone(names: usize) -> Zone {
    let add = |zone: Zone, number| zone.a(&format!("n{number}.alive.example.net"), "192.0.2.1");
    (0..names).fold(Zone::new("example.net"), add)
}

/// Somebody else gets what the name has.
#[track_caller]
fn others_are_served(site: &Site, number: usize) {
    let owner = format!("n{number}.alive.example.net");
    let response = site.ask("AAAA", &owner);
    assert_eq!(code(&response), ResponseCode::NoError, "{owner}: {response}");
    assert_eq!(answers(&response), [format!("{owner}. AAAA {PREFIX}c000:201")]);
}

fn count(daemon: &Daemon<'_>, what: &str) -> u64 {
    let stats = daemon.all_stats();
    stats
        .pointer(&format!("/dns64/{what}"))
        .and_then(serde_json::Value::as_u64)
        .unwrap_or_else(|| panic!("{what}: {stats}"))
}

#[test]
fn a_dead_zone_that_is_asked_for_again_and_again() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let rounds = size(6, 40);
    let _upstream = site.upstream(zone(rounds).silent_below("dead.example.org"));
    // Forged sources are not what this is about.
    let daemon = site.start(PREFIX, "rate = 'unlimited'\ntcp_clients = 64");
    let attacker = site.client.inside(|| {
        let socket = UdpSocket::bind((ATTACKER, 0)).unwrap();
        socket.connect(SERVER).unwrap();
        socket
    });
    attacker.set_nonblocking(true).unwrap();
    let mut octets = [0; 512];
    for round in 0..rounds {
        for number in 0..1000 {
            let owner = format!("r{round}-{number}.dead.example.org");
            let query = dns::query(&owner, RecordType::AAAA, None).to_vec().unwrap();
            // One that the socket has no room for is lost, as on the way.
            let _full = attacker.send(&query);
            while attacker.recv(&mut octets).is_ok() {}
        }
        others_are_served(&site, round);
    }
    poll("more than its share was asked for", || {
        (count(&daemon, "overload") + count(&daemon, "upstream/busy") > 0).then_some(())
    });
    daemon.stop();
}

#[test]
fn forged_errors_that_do_not_say_what_they_answer() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let forged = |zone: Zone, number| {
        let owner = format!("n{number}.alive.example.net");
        zone.odd(&owner, None, Odd::ForgedError)
    };
    let upstream = site.upstream((0..4).fold(zone(5), forged));
    let daemon = site.start(PREFIX, "");
    for number in 0..5 {
        others_are_served(&site, number);
    }
    // It was TCP that told.
    assert!(upstream.asked().iter().any(|asked| asked.tcp));
    let stats = daemon.all_stats();
    let server = &stats["dns64"]["upstream"]["servers"][0];
    assert!(server["mismatches"].as_u64().unwrap() >= 4, "{server}");
    daemon.stop();
}

/// Memory of a process, in KiB.
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn clients_by_tcp_that_do_not_read() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let networks = ["192.0.2", "198.51.100", "203.0.113"];
    let mut zone = zone(2);
    for address in networks.iter().flat_map(|net| (0..255).map(move |last| format!("{net}.{last}")))
    {
        zone = zone.a("large.example.net", &address);
    }
    let _upstream = site.upstream(zone);
    let daemon = site.start(PREFIX, "tcp_idle = '2s'");
    let large = dns::query("large.example.net", RecordType::AAAA, Some(1232));
    let len = site.send(&large, true).to_vec().unwrap().len();
    assert!(len > 20_000, "{len}");
    let before = memory(daemon.pid());
    let octets = large.to_vec().unwrap();
    let asked = [&(octets.len() as u16).to_be_bytes()[..], &octets].concat().repeat(128);
    let silent: Vec<TcpStream> = (0..64)
        .map(|_| {
            let mut stream = connection(&site.client, ATTACKER, SERVER);
            stream.set_nonblocking(true).unwrap();
            loop {
                match stream.write(&asked) {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // It was closed, for what the others hold.
                    Err(_) => break,
                }
            }
            stream
        })
        .collect();
    others_are_served(&site, 0);
    assert_eq!(site.send(&large, true).answers.len(), 765);
    // 64 times 128 answers would be 170 MB.
    let held = memory(daemon.pid()).saturating_sub(before);
    assert!(held < 64 << 10, "{held} KiB more");
    poll("they are let go", || (count(&daemon, "connections") == 0).then_some(()));
    drop(silent);
    others_are_served(&site, 1);
    daemon.stop();
}
