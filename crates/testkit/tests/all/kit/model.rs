use fordway_testkit::model::*;
use std::net::{Ipv4Addr, Ipv6Addr};

const T: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

fn rules() -> Rules {
    Rules {
        pool6: vec!["2001:db8:64::".parse().unwrap()],
        pool4: vec![T],
        ports: (1000, 1099),
        blocks: None,
        by_address: false,
        accept_v4_syn: true,
        refresh_from_v4: true,
        subscriber_len: 128,
        most_ports: [0; 3],
        most_sessions: 0,
        most_new: 0,
        sizes: [64; 3],
        most_resting: usize::MAX,
        udp: 300,
        icmp: 60,
        tcp_est: 7200,
        tcp_trans: 240,
        tcp_incoming_syn: 6,
        port_rest: 120,
        subscriber: 600,
    }
}

/// A core that chooses what the test says.
struct Chooses(Option<End4>);

impl Peek for Chooses {
    fn chosen(&self, _: Transport, _: End6) -> Option<End4> {
        self.0
    }

    fn granted(&self, _: Ipv6Addr) -> Option<(Ipv4Addr, Vec<(u16, u16)>)> {
        Some((T, vec![(1000, 1099)]))
    }

    fn refused(&self) -> Option<(&str, bool)> {
        None
    }
}

fn datagram(host: &str, port: u16) -> Datagram<Ipv6Addr> {
    Datagram {
        transport: Transport::Udp,
        src: (host.parse().unwrap(), port),
        dst: ("2001:db8:64::198.51.100.2".parse().unwrap(), 53),
        flags: 0,
        mark: 0,
    }
}

#[test]
fn bad_choices_are_refused() {
    for (port, chosen) in [
        (5004, (T, 1025)),
        (5004, (T, 1000)),
        (53, (T, 1025)),
        (5004, (T, 1100)),
        (5004, (Ipv4Addr::new(203, 0, 113, 2), 1024)),
    ] {
        let mut model = Model::new(rules());
        let packet = datagram("2001:db8:1::1", port);
        assert!(model.from_v6(&packet, &Chooses(Some(chosen))).is_err(), "{port} {chosen:?}");
    }
    let mut model = Model::new(rules());
    let packet = datagram("2001:db8:1::1", 5004);
    assert!(model.from_v6(&packet, &Chooses(None)).is_err(), "ports are free");
}

#[test]
fn a_port_is_one_hosts() {
    let mut model = Model::new(rules());
    let chosen = Chooses(Some((T, 1024)));
    model.from_v6(&datagram("2001:db8:1::1", 5004), &chosen).unwrap();
    assert!(model.from_v6(&datagram("2001:db8:2::1", 5004), &chosen).is_err());
    // It rests.
    model.sweep(301);
    assert!(model.sessions.is_empty());
    assert!(model.from_v6(&datagram("2001:db8:2::1", 5004), &chosen).is_err());
    model.sweep(422);
    model.from_v6(&datagram("2001:db8:2::1", 5004), &chosen).unwrap();
}

#[test]
fn lifetimes_end_after_their_last_second() {
    let mut model = Model::new(rules());
    model.from_v6(&datagram("2001:db8:1::1", 5004), &Chooses(Some((T, 1024)))).unwrap();
    model.sweep(300);
    assert_eq!(model.sessions.len(), 1);
    model.sweep(301);
    assert!(model.sessions.is_empty());
}
