//! The kinds of translators, with what makes their programs differ.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use fordway_cluster::ShardMap;
use fordway_softwire::Role;
use fordway_xlat::Config;
use fordway_xlat::addr::{Eam, EamTable, Pool6};
use fordway_xlat::nat64::{
    Addresses, Allocation, Dynamic4, Filtering, Pool, Protocol, Quotas, Range, Settings, Shards,
    Sizes, StaticBib,
};

/// A translator.
#[derive(Clone)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// The attach points that its configuration allows.
    pub(crate) places: &'static [&'static str],
    pub(crate) config: Config,
    pub(crate) state: State,
}

/// What decides beside addresses.
#[derive(Clone)]
pub(crate) enum State {
    None,
    Nat64(Arc<Settings>),
    Softwire(fordway_softwire::Settings),
}

const GATEWAY: &[&str] = &["interface", "ingress", "in-place", "direct", "xdp"];
const CLIENT: &[&str] = &["interface", "uplink"];
const TEP: &[&str] = &["interface", "ingress", "in-place", "direct"];

pub(crate) fn all() -> Vec<Kind> {
    let stateless = |name, places, config| Kind { name, places, config, state: State::None };
    let nat64 = |name, settings| Kind {
        name,
        places: GATEWAY,
        config: config(1),
        state: State::Nat64(Arc::new(Settings { sizes: SIZES, ..settings })),
    };
    let softwire = |name, places, role| {
        let settings = fordway_softwire::Settings { role, mtu6: 1500, ..Default::default() };
        Kind { name, places, config: Config::default(), state: State::Softwire(settings) }
    };
    let many_prefixes = |kind: Kind| Kind { config: config(16), ..kind };
    vec![
        stateless("siit", GATEWAY, config(1)),
        stateless("siit with 8 mappings", GATEWAY, mapped(1, 8)),
        stateless("siit with 20 mappings", GATEWAY, mapped(1, 20)),
        stateless("siit with 16 prefixes and 8 mappings", GATEWAY, mapped(16, 8)),
        stateless("siit with 16 prefixes and 20 mappings", GATEWAY, mapped(16, 20)),
        stateless("clat", CLIENT, mapped(1, 1)),
        nat64("dynamic4", dynamic4()),
        Kind {
            config: mapped(16, 8),
            ..nat64("dynamic4 with 16 prefixes and 8 mappings", dynamic4())
        },
        nat64("nat64", Settings { pools: vec![pool(1)], ..Settings::default() }),
        many_prefixes(nat64(
            "nat64 with 16 prefixes",
            Settings { pools: pools(1), ..Settings::default() },
        )),
        nat64("nat64 with pools by mark", Settings { pools: pools(8), ..Settings::default() }),
        nat64("nat64 with port forwards", forwards()),
        nat64("nat64 with address-dependent filtering", address_dependent()),
        nat64("nat64 with quotas", quotas()),
        many_prefixes(nat64("nat64 with all of these", all_of_these())),
        many_prefixes(nat64("nat64 with all of these in a cluster", shared())),
        nat64("nat-pt", nat_pt(true)),
        nat64("napt-pt", nat_pt(false)),
        softwire("softwire of a client", CLIENT, Role::Client),
        softwire("softwire of a tunnel end point", TEP, Role::Tep),
    ]
}

const SIZES: Sizes = Sizes { bibs: 1000, sessions: 2000, subscribers: 100 };

/// So many prefixes, of several lengths.
fn config(prefixes: u16) -> Config {
    let lengths = [96, 40, 48, 56, 64];
    let pool6 = (0..prefixes).map(|number| {
        let length = lengths[usize::from(number) % lengths.len()];
        Pool6::new(format!("2001:db8:{}00::/{length}", 10 + number).parse().unwrap()).unwrap()
    });
    Config { pool6: pool6.collect(), mtu4: 1500, mtu6: 1500, ..Config::default() }
}

/// And so many explicit mappings: up to 8 lie in the programs, more in maps.
fn mapped(prefixes: u16, mappings: u8) -> Config {
    let eam = (0..mappings).map(|number| {
        let (v4, v6) = (format!("192.0.2.{number}/32"), format!("2001:db8:7::{number}/128"));
        Eam::new(v4.parse().unwrap(), v6.parse().unwrap()).unwrap()
    });
    Config { eam: EamTable::new(eam).unwrap(), ..config(prefixes) }
}

fn dynamic4() -> Settings {
    let pool = vec!["198.51.100.0/25".parse().unwrap(), "203.0.113.0/28".parse().unwrap()];
    Settings { dynamic4: Some(Dynamic4 { pool, clients: Vec::new() }), ..Settings::default() }
}

fn pool(number: u8) -> Pool {
    let address = Ipv4Addr::new(203, 0, 113, number);
    Pool {
        ranges: vec![Range {
            first: address,
            last: address,
            low: 1024 + u16::from(number),
            high: 65_535,
        }],
        ..Pool::default()
    }
}

/// Pools by the mark of packets, of ranges that don't join.
fn pools(number: u8) -> Vec<Pool> {
    (1..=number).map(|it| Pool { mark: Some(u32::from(it)), ..pool(it) }).collect()
}

fn forwards() -> Settings {
    let host: Ipv6Addr = "2001:db8:1::1".parse().unwrap();
    let forward = |port: u16, v4: u8| StaticBib {
        protocol: Protocol::Tcp,
        v6: (host, port),
        v4: (Ipv4Addr::new(203, 0, 113, v4), port),
    };
    Settings {
        pools: vec![pool(1)],
        bib: (0..16).map(|number| forward(80 + u16::from(number), 100 + number)).collect(),
        ..Settings::default()
    }
}

fn address_dependent() -> Settings {
    let blocks = Allocation::Blocks { size: 256, most: 4 };
    Settings {
        pools: vec![Pool { allocation: blocks, ..pool(1) }],
        filtering: Filtering::AddressDependent,
        subscriber_len: 64,
        ..Settings::default()
    }
}

fn quotas() -> Settings {
    Settings {
        pools: vec![pool(1)],
        quotas: Quotas { ports: [100, 100, 10], sessions: 200, new_per_second: 50 },
        subscriber_len: 56,
        refresh_from_v4: false,
        accept_v4_syn: false,
        ..Settings::default()
    }
}

fn all_of_these() -> Settings {
    Settings {
        pools: pools(48),
        bib: forwards().bib,
        more_left_ports: vec![21, 53, 554],
        accept_v4_syn: true,
        ..Settings { filtering: Filtering::AddressDependent, ..quotas() }
    }
}

fn shared() -> Settings {
    let ranges: Vec<Vec<Range>> = (1..=64).map(|number| pool(number).ranges).collect();
    let map = ShardMap::new(1024, [5, 7], 56, &ranges).unwrap();
    Settings { shards: Some(Arc::new(Shards::new(map))), ..all_of_these() }
}

fn nat_pt(outgoing: bool) -> Settings {
    let addresses = Addresses {
        pool: vec!["203.0.113.64/29".parse().unwrap()],
        fixed: vec![(Ipv4Addr::new(203, 0, 113, 99), "2001:db8:1::2".parse().unwrap())],
        outgoing,
        initiators: vec!["198.51.100.0/25".parse().unwrap()],
        ..Addresses::default()
    };
    let pools = if outgoing { Vec::new() } else { vec![pool(1)] };
    Settings { pools, addresses: Some(addresses), ..Settings::default() }
}
