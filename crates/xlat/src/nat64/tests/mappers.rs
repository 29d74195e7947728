//! What the mappers say of a packet by its addresses.

use super::*;
use crate::addr::{Eam, EamTable};
use crate::config::Config;
use crate::mapper::Mapper;
use crate::stateless::{Dynamic, Stateless};
use crate::stop::Stop;
use crate::tuple::{Incoming, Part};

/// A UDP header with ports 4000 and 2000.
const PACKET: [u8; 28] = {
    let mut packet = [0; 28];
    [packet[20], packet[21], packet[22], packet[23]] = [0x0f, 0xa0, 0x07, 0xd0];
    packet
};

const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);

fn udp4(src: Ipv4Addr, dst: Ipv4Addr) -> Incoming<'static, Ipv4Addr> {
    Incoming::new(&PACKET, 20, (src, dst), fordway_wire::protocol::UDP, Part::Whole)
}

fn udp6(src: Ipv6Addr, dst: Ipv6Addr) -> Incoming<'static, Ipv6Addr> {
    Incoming::new(&PACKET, 20, (src, dst), fordway_wire::protocol::UDP, Part::Whole)
}

fn config() -> Config {
    let eam = Eam::new("198.51.100.5/32".parse().unwrap(), "2001:db8:5::5/128".parse().unwrap());
    Config {
        pool6: vec!["2001:db8:64::/96".parse().unwrap()],
        eam: EamTable::new([eam.unwrap()]).unwrap(),
        icmp_source4: Some(OWN),
        ..Config::default()
    }
}

#[test]
fn a_dynamic_address_is_an_address_like_others() {
    let pool = vec!["192.0.2.0/24".parse().unwrap()];
    let dynamic4 = Some(Dynamic4 { pool, clients: Vec::new() });
    let nat = nat(Settings { dynamic4, ..settings(Pool::default()) });
    let (config, pool) = (config(), nat.settings().dynamic4.as_ref().unwrap());
    let mut mapper =
        Stateless { config: &config, bindings: Dynamic { view: nat.view(at(0), 0), pool } };
    let v4 = mapper.bindings.view.dynamic4(pool, host(1)).unwrap().unwrap();
    let mut admit = |src, dst| mapper.admit_v4(&udp4(src, dst), &mut ());
    let known = admit(Ipv4Addr::new(203, 0, 113, 9), v4).unwrap();
    assert_eq!(known.dst.addr, host(1));
    assert_eq!(known.src.addr, "2001:db8:64::203.0.113.9".parse::<Ipv6Addr>().unwrap());
    // RFC 7757 section 3.2: who has an explicit mapping is known by it.
    let explicit = admit(Ipv4Addr::new(198, 51, 100, 5), v4).unwrap();
    assert_eq!(explicit.src.addr, "2001:db8:5::5".parse::<Ipv6Addr>().unwrap());
    // The translator's own address is nobody's, though it lies in the pool.
    let own: Result<_, Stop> = admit(SERVER.0, OWN);
    assert_eq!(own.unwrap_err().reason, DropReason::SelfAddressed);
}

/// An entry that was added by hand outlives the address's being the translator's: then it is no reason to
/// hairpin a packet.
#[test]
fn what_is_not_the_translators_does_not_turn_round() {
    let stranger = Ipv4Addr::new(203, 0, 113, 77);
    let own = StaticBib { protocol: Protocol::Tcp, v6: (host(8), 80), v4: (stranger, 80) };
    let first = nat(Settings { bib: vec![own], ..settings(pool(1024, 65_535)) });
    let added = StaticBib { protocol: Protocol::Udp, v6: (host(9), 53), v4: (stranger, 2000) };
    first.add_bib(&added, at(0)).unwrap();
    let config = config();
    let hairpins = |nat: &Nat64| {
        let mut mapper = Stateful::new(&config, nat.view(at(0), 0), 1, 28);
        let dst = "2001:db8:64::203.0.113.77".parse().unwrap();
        let incoming = udp6(host(1), dst);
        let admitted = mapper.admit_v6(&incoming, &mut ()).unwrap();
        mapper.hairpins(&incoming, &admitted).unwrap()
    };
    assert!(hairpins(&first));
    let second = first.reconfigured(settings(pool(1024, 65_535))).unwrap();
    assert!(!hairpins(&second));
}
