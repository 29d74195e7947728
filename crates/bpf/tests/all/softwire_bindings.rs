//! Bindings of softwires in the kernel's maps: programs find them as they are, by `BPF_PROG_TEST_RUN`.
//!
//! Needs root; says so, and does nothing, without.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use fordway_bpf::{Loaded, Outcome, PassReason, Program, SoftwireMaps, TestOptions, Tunnels};
use fordway_softwire::{Binding, PortSet, Role, Settings};
use fordway_testhost::is_root;
use fordway_xlat::Config;

use crate::alike::frame;
use crate::wire::draw;

const TEP: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);

/// A binding that changes while programs run: the next packet finds it as it is.
#[test]
fn bindings_change_while_programs_run() {
    if !is_root() {
        return;
    }
    let maps = Arc::new(SoftwireMaps::make(Role::Tep, 16).expect("maps"));
    let options = TestOptions {
        tunnels: Some(Tunnels { settings: Settings::default(), maps: Arc::clone(&maps) }),
        ..TestOptions::default()
    };
    let mut loaded = Loaded::load(&Config::default(), &[Program::SoftwireInterface], &options)
        .expect("a program");
    let mut to = |port: u16| -> Option<Ipv6Addr> {
        let packet = draw::packet(&format!(
            r#"v4 = {{ src = "198.51.100.7", dst = "192.0.2.1" }}
            udp = {{ sport = 53, dport = {port} }}
            payload = 5"#
        ));
        let run = loaded.run(Program::SoftwireInterface, &frame(&packet), 0, 1).expect("a run");
        match run.outcome {
            Some(Outcome::Translated) => Some(address(&run.frame[14 + 24..])),
            Some(Outcome::PassedOn(PassReason::Unmapped)) => None,
            other => panic!("{other:?}"),
        }
    };
    let v4 = Ipv4Addr::new(192, 0, 2, 1);
    let client = |last: u16| Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, last);
    let whole = |last| Binding { v4, ports: None, remote: client(last), local: TEP };
    let part = |psid, last| Binding {
        ports: Some(PortSet::new(4, 6, psid).expect("a port set")),
        ..whole(last)
    };
    // Of offset 4 and a PSID of 6 bits: ports 0x1000 and 0x1040 are of PSID 0 and 1.
    assert_eq!(to(0x1000), None);
    maps.insert(&whole(1)).expect("room");
    assert_eq!((to(0x1000), to(80)), (Some(client(1)), Some(client(1))));
    maps.insert(&whole(2)).expect("room");
    assert_eq!((to(0x1000), maps.len()), (Some(client(2)), 1));
    assert!(!maps.remove(&whole(1)).expect("maps"), "it has another tunnel now");
    assert!(maps.insert(&part(0, 3)).is_err(), "whole and shared");
    assert_eq!(to(0x1000), Some(client(2)), "what was refused changes nothing");
    maps.replace([part(0, 3), part(1, 4)]).expect("room");
    assert_eq!((to(0x1000), to(0x1040)), (Some(client(3)), Some(client(4))));
    assert_eq!((to(0x1080), to(80)), (None, None), "ports of nobody");
    assert!(maps.insert(&Binding { ports: PortSet::new(0, 6, 9).ok(), ..whole(1) }).is_err());
    assert!(maps.remove(&part(0, 3)).expect("maps"));
    assert_eq!((to(0x1000), to(0x1040)), (None, Some(client(4))));
    assert!(maps.remove(&part(1, 4)).expect("maps"));
    assert_eq!((to(0x1040), maps.is_empty()), (None, true));
    maps.insert(&whole(5)).expect("the address may be whole again");
    assert_eq!(to(80), Some(client(5)));
}

/// What a path has told of its MTU ends: it may have become wider (RFC 8201 section 5.3).
#[test]
fn a_path_mtu_that_was_learned_ends() {
    if !is_root() {
        return;
    }
    let maps = Arc::new(SoftwireMaps::make(Role::Tep, 16).expect("maps"));
    let settings = Settings { mtu6: 1500, ..Settings::default() };
    let options = TestOptions {
        tunnels: Some(Tunnels { settings, maps: Arc::clone(&maps) }),
        ..TestOptions::default()
    };
    let mut loaded = Loaded::load(&Config::default(), &[Program::SoftwireInterface], &options)
        .expect("a program");
    let binding = Binding {
        v4: Ipv4Addr::new(192, 0, 2, 1),
        ports: None,
        remote: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1),
        local: TEP,
    };
    maps.insert(&binding).expect("room");
    let mut pass = || {
        let packet = draw::packet(
            r#"v4 = { src = "198.51.100.7", dst = "192.0.2.1", df = true }
            udp = { sport = 53, dport = 80 }
            payload = 1400"#,
        );
        loaded.run(Program::SoftwireInterface, &frame(&packet), 0, 1).expect("a run").outcome
    };
    assert_eq!(pass(), Some(Outcome::Translated));
    maps.set_path_mtu(&binding, 1280, Duration::from_secs(3600)).expect("the binding");
    assert_eq!(pass(), Some(Outcome::PassedOn(PassReason::TooBig)));
    maps.set_path_mtu(&binding, 1280, Duration::ZERO).expect("the binding");
    assert_eq!(pass(), Some(Outcome::Translated));
}

#[test]
fn full_maps_refuse_and_stay_as_they_were() {
    if !is_root() {
        return;
    }
    let maps = SoftwireMaps::make(Role::Tep, 8).expect("maps");
    let binding = |last: u8| Binding {
        v4: Ipv4Addr::new(192, 0, 2, last),
        ports: None,
        remote: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, last.into()),
        local: TEP,
    };
    let taken = (0..100).take_while(|last| maps.insert(&binding(*last)).is_ok()).count();
    assert!((8..100).contains(&taken), "{taken}");
    assert_eq!(maps.len(), taken);
    assert!(maps.remove(&binding(0)).expect("maps"));
    maps.insert(&binding(200)).expect("there is room again");
}

fn address(octets: &[u8]) -> Ipv6Addr {
    <[u8; 16]>::try_from(&octets[..16]).expect("16 octets").into()
}
