//! Addresses that hosts have for themselves (NAT-PT, RFC 2766).

use super::*;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 65);
const CLIENT: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 9), 3000);

/// Two addresses for hosts: 203.0.113.65 and 203.0.113.66.
fn addresses(outgoing: bool) -> Addresses {
    Addresses {
        pool: vec!["203.0.113.64/30".parse().unwrap()],
        outgoing,
        hold: Duration::from_secs(60),
        ..Addresses::default()
    }
}

fn settings_of(addresses: Addresses) -> Settings {
    let pools = if addresses.outgoing { Vec::new() } else { vec![pool(1024, 65_535)] };
    let dynamic4 = Duration::from_secs(600);
    let lifetimes = Lifetimes { dynamic4, ..Lifetimes::default() };
    Settings { pools, addresses: Some(addresses), lifetimes, ..settings(pool(1, 1)) }
}

fn from_v4(protocol: Protocol, near: (Ipv4Addr, u16), segment: Segment) -> Tuple<Ipv4Addr> {
    let remote = if protocol == Protocol::Icmp { (CLIENT.0, 0) } else { CLIENT };
    Tuple { protocol, near, remote, segment, pool6: 0, mark: 0, packets: 1, octets: 60 }
}

/// The addresses that are bound, with their hosts, and whether they are held.
fn bound(nat: &Nat64, now: Duration) -> Vec<(Ipv4Addr, Ipv6Addr, bool)> {
    let all = nat.bib(now).filter(|entry| entry.binding.protocol.is_none());
    all.map(|it| (it.binding.v4.0, it.binding.v6.0, it.is_held)).collect()
}

#[test]
fn who_was_asked_for_by_name_can_be_reached() {
    let nat = nat(settings_of(addresses(false)));
    let Bound { addr, is_fixed } = nat.bind_by_name(host(5), at(0), 0).unwrap();
    assert!(!is_fixed && addresses(false).pool[0].contains(&addr));
    assert_eq!(nat.bind_by_name(host(5), at(1), 0).unwrap().addr, addr);
    assert_eq!(bound(&nat, at(1)), [(addr, host(5), true)]);
    for (protocol, port) in [(Protocol::Tcp, 80), (Protocol::Udp, 5000), (Protocol::Icmp, 77)] {
        let segment = if protocol == Protocol::Tcp { Segment::Syn } else { Segment::Other };
        let found = nat.from_v4(&from_v4(protocol, (addr, port), segment), at(2), 0).unwrap();
        // Basic NAT: the port stays.
        assert_eq!(found.host, (host(5), port), "{protocol:?}");
    }
    assert_eq!(bound(&nat, at(2)), [(addr, host(5), false)]);
    // The answer goes back under the same address, though what the host begins goes by the pool of ports.
    let answers =
        Tuple { remote: CLIENT, ..from_v6(Protocol::Tcp, (host(5), 80), Segment::SynAck) };
    assert_eq!(nat.from_v6(&answers, at(2), 0), Ok((addr, 80)));
    assert_eq!(nat.from_v6(&udp(5, 9000), at(2), 0).unwrap().0, POOL);
    assert_eq!(nat.bound_host(addr, at(2)), Some((host(5), false)));
}

#[test]
fn strangers_bind_half_of_what_a_host_may_have() {
    let quotas = Quotas { ports: [4; 3], ..Quotas::default() };
    let nat = nat(Settings { quotas, ..settings_of(addresses(true)) });
    let addr = nat.bind_by_name(host(5), at(0), 0).unwrap().addr;
    let arrives = |port| {
        let tuple = from_v4(Protocol::Udp, (addr, port), Segment::Other);
        nat.from_v4(&tuple, at(1), 0).map(|found| found.host.1)
    };
    assert_eq!([arrives(1), arrives(2)], [Ok(1), Ok(2)]);
    assert_eq!(arrives(3), Err(Refusal::Drop(DropReason::PortQuota)));
    for port in [9000, 9001] {
        assert_eq!(nat.from_v6(&udp(5, port), at(1), 0), Ok((addr, port)));
    }
    assert_eq!(nat.from_v6(&udp(5, 9002), at(1), 0), Err(DropReason::PortQuota));
}

#[test]
fn strangers_do_not_fill_the_table_of_bindings() {
    let sizes = Sizes { bibs: 63, sessions: 4096, subscribers: 256 };
    let nat = nat(Settings { sizes, ..settings_of(addresses(true)) });
    let addr = nat.bind_by_name(host(5), at(0), 0).unwrap().addr;
    let mut ports = 1..1000;
    let refused = ports.find_map(|port| {
        let tuple = from_v4(Protocol::Udp, (addr, port), Segment::Other);
        nat.from_v4(&tuple, at(1), 0).err()
    });
    assert_eq!(refused, Some(Refusal::Drop(DropReason::BibFull)));
    // Seven eighths of 64, one of which is the address itself.
    assert_eq!(ports.start, 57);
    assert_eq!(nat.from_v6(&udp(5, 9000), at(1), 0), Ok((addr, 9000)));
}

#[test]
fn only_a_syn_begins_a_connection() {
    let nat = nat(settings_of(addresses(false)));
    let addr = nat.bind_by_name(host(5), at(0), 0).unwrap().addr;
    for segment in [Segment::Other, Segment::SynAck, Segment::Rst, Segment::Fin] {
        let tuple = from_v4(Protocol::Tcp, (addr, 80), segment);
        let refused = nat.from_v4(&tuple, at(0), 0);
        assert_eq!(refused, Err(Refusal::Drop(DropReason::NoBib)), "{segment:?}");
    }
    // Nobody has the other address: a SYN to it might still be a simultaneous open, as in NAT64.
    let other = from_v4(Protocol::Udp, (Ipv4Addr::new(203, 0, 113, 66), 80), Segment::Other);
    let nobody = if addr == ADDRESS { other } else { Tuple { near: (ADDRESS, 80), ..other } };
    assert_eq!(nat.from_v4(&nobody, at(0), 0), Err(Refusal::Drop(DropReason::NoBib)));
}

#[test]
fn a_name_that_nobody_uses_gives_its_address_back() {
    let nat = nat(settings_of(addresses(false)));
    let mut sweeper = Sweeper::new();
    nat.bind_by_name(host(1), at(0), 0).unwrap();
    nat.bind_by_name(host(2), at(30), 0).unwrap();
    assert_eq!(nat.bind_by_name(host(3), at(31), 0), Err(DropReason::PoolExhausted));
    let (swept, _) = sweep(&nat, &mut sweeper, at(59));
    assert_eq!((swept.bibs[3], swept.held), (2, 2));
    let (swept, events) = sweep(&nat, &mut sweeper, at(61));
    assert_eq!((swept.bibs[3], swept.held), (1, 1));
    assert!(events.iter().any(|event| matches!(event, Event::BibRemoved(_))), "{events:?}");
    nat.bind_by_name(host(3), at(62), 0).unwrap();
}

#[test]
fn traffic_keeps_an_address_and_idle_time_frees_it() {
    let nat = nat(settings_of(addresses(false)));
    let mut sweeper = Sweeper::new();
    let addr = nat.bind_by_name(host(1), at(0), 0).unwrap().addr;
    let syn = from_v4(Protocol::Tcp, (addr, 80), Segment::Syn);
    nat.from_v4(&syn, at(1), 0).unwrap();
    let answers =
        Tuple { remote: CLIENT, ..from_v6(Protocol::Tcp, (host(1), 80), Segment::SynAck) };
    nat.from_v6(&answers, at(1), 0).unwrap();
    // An established connection holds the address without a packet, for longer than an idle one is kept.
    for now in [2, 1000, 7000] {
        sweep(&nat, &mut sweeper, at(now));
        assert_eq!(bound(&nat, at(now)).len(), 1, "{now}");
    }
    nat.from_v4(&Tuple { segment: Segment::Rst, ..syn }, at(7001), 0).unwrap();
    for now in [7002, 7300, 7301] {
        sweep(&nat, &mut sweeper, at(now));
    }
    assert_eq!((nat.sessions(at(7301)).count(), bound(&nat, at(7301)).len()), (0, 1));
    sweep(&nat, &mut sweeper, at(7500));
    assert_eq!(bound(&nat, at(7500)).len(), 1);
    for now in [7990, 7991] {
        sweep(&nat, &mut sweeper, at(now));
    }
    assert!(bound(&nat, at(7991)).is_empty());
}

#[test]
fn basic_nat_pt_keeps_ports_and_gives_every_host_an_address() {
    let nat = nat(settings_of(addresses(true)));
    let first = nat.from_v6(&udp(1, 5000), at(0), 0).unwrap();
    assert_eq!(first.1, 5000);
    let again = from_v6(Protocol::Tcp, (host(1), 443), Segment::Syn);
    assert_eq!(nat.from_v6(&again, at(0), 0), Ok((first.0, 443)));
    let second = nat.from_v6(&udp(2, 5000), at(0), 0).unwrap();
    assert!(second.0 != first.0 && second.1 == 5000);
    // RFC 2766 section 3.2: then newer hosts can't.
    assert_eq!(nat.from_v6(&udp(3, 5000), at(0), 0), Err(DropReason::PoolExhausted));
    // Section 3.1: a packet that begins nothing makes no state.
    let stray = from_v6(Protocol::Tcp, (host(1), 444), Segment::Other);
    assert_eq!(nat.from_v6(&stray, at(0), 0), Err(DropReason::NotSyn));
    // What it has begun with does not matter to who is asked for.
    assert_eq!(nat.bind_by_name(host(1), at(1), 0).unwrap().addr, first.0);
}

#[test]
fn quotas_count_under_an_address_of_ones_own() {
    let quotas = Quotas { ports: [0, 2, 0], sessions: 4, new_per_second: 0 };
    let nat = nat(Settings { quotas, ..settings_of(addresses(true)) });
    for port in [1, 2] {
        nat.from_v6(&udp(1, port), at(0), 0).unwrap();
    }
    assert_eq!(nat.from_v6(&udp(1, 3), at(0), 0), Err(DropReason::PortQuota));
    // Strangers have half of the sessions: two are there.
    let addr = nat.bind_by_name(host(1), at(0), 0).unwrap().addr;
    let syn = from_v4(Protocol::Tcp, (addr, 80), Segment::Syn);
    let refused = Err(Refusal::Drop(DropReason::SessionQuota));
    assert_eq!(nat.from_v4(&syn, at(0), 0), refused);
    let subscriber = nat.subscribers(at(0)).next().unwrap();
    assert_eq!((subscriber.ports, subscriber.sessions, subscriber.blocks.len()), ([0, 2, 0], 2, 0));
}

#[test]
fn who_is_counted_first_gets_ports_later() {
    let mut it = settings_of(addresses(false));
    it.pools[0].allocation = Allocation::Blocks { size: 64, most: 2 };
    let nat = nat(it);
    let addr = nat.bind_by_name(host(1), at(0), 0).unwrap().addr;
    nat.from_v4(&from_v4(Protocol::Udp, (addr, 80), Segment::Other), at(0), 0).unwrap();
    assert!(nat.subscribers(at(0)).next().unwrap().blocks.is_empty());
    assert_eq!(nat.from_v6(&udp(1, 5000), at(0), 0).unwrap().0, POOL);
    let subscribers: Vec<_> = nat.subscribers(at(0)).collect();
    assert_eq!((subscribers.len(), subscribers[0].blocks.len()), (1, 1));
    assert_eq!(nat.blocks()[0].used, 1);
}

#[test]
fn who_may_begin_is_configured() {
    let initiators = vec!["198.51.100.0/24".parse().unwrap()];
    let nat = nat(settings_of(Addresses { initiators, ..addresses(false) }));
    let addr = nat.bind_by_name(host(1), at(0), 0).unwrap().addr;
    let syn = from_v4(Protocol::Tcp, (addr, 80), Segment::Syn);
    let stranger = Tuple { remote: (Ipv4Addr::new(192, 0, 2, 200), 1), ..syn };
    let refused = Err(Refusal::Drop(DropReason::MayNotBegin));
    assert_eq!(nat.from_v4(&stranger, at(0), 0), refused);
    assert!(nat.from_v4(&syn, at(0), 0).is_ok());
    // The entry is there now, and lets nobody else in either.
    assert_eq!(nat.from_v4(&stranger, at(1), 0), refused);
    // Whom the host has asked, it hears.
    let asks = Tuple { remote: stranger.remote, ..udp(1, 5000) };
    let local = nat.from_v6(&asks, at(1), 0).unwrap();
    let answers = Tuple { near: local, ..from_v4(Protocol::Udp, local, Segment::Other) };
    assert!(nat.from_v4(&Tuple { remote: stranger.remote, ..answers }, at(1), 0).is_ok());
}

#[test]
fn a_port_that_the_host_uses_elsewhere_is_not_there() {
    let nat = nat(settings_of(addresses(false)));
    let local = nat.from_v6(&udp(1, 123), at(0), 0).unwrap();
    assert_eq!(local.0, POOL);
    let addr = nat.bind_by_name(host(1), at(0), 0).unwrap().addr;
    let asks = from_v4(Protocol::Udp, (addr, 123), Segment::Other);
    assert_eq!(nat.from_v4(&asks, at(0), 0), Err(Refusal::Drop(DropReason::PortInUse)));
    // When its session is over, it is.
    let mut sweeper = Sweeper::new();
    for now in [301, 302] {
        sweep(&nat, &mut sweeper, at(now));
    }
    let addr = nat.bind_by_name(host(1), at(303), 0).unwrap().addr;
    assert!(nat.from_v4(&Tuple { near: (addr, 123), ..asks }, at(303), 0).is_ok());
}

#[test]
fn what_the_operator_binds_stays_and_makes_others_go() {
    let fixed = vec![(ADDRESS, host(7))];
    let dynamic = nat(settings_of(addresses(false)));
    // Somebody else has it already, and the host another one.
    while dynamic.bound_host(ADDRESS, at(0)).is_none() {
        dynamic.bind_by_name(host(9), at(0), 0).unwrap();
        dynamic.bind_by_name(host(7), at(0), 0).unwrap();
    }
    let both = Addresses { fixed, pool: Vec::new(), ..addresses(false) };
    assert!(both.contains(ADDRESS) && !both.contains(CLIENT.0));
    let both = Addresses { pool: addresses(false).pool, ..both };
    let nat = dynamic.reconfigured(settings_of(both)).unwrap();
    assert!(nat.make_fixed_addresses(at(1)).is_empty());
    assert_eq!(nat.bind_by_name(host(7), at(1), 0), Ok(Bound { addr: ADDRESS, is_fixed: true }));
    let mut sweeper = Sweeper::new();
    sweeper.review();
    for now in [2, 3, 100_000] {
        sweep(&nat, &mut sweeper, at(now));
    }
    assert_eq!(bound(&nat, at(100_000)), [(ADDRESS, host(7), false)]);
    assert!(nat.make_fixed_addresses(at(100_000)).is_empty());
}

#[test]
fn what_cannot_be_a_host_gets_nothing() {
    let clients = vec!["2001:db8:1::/48".parse().unwrap()];
    let nat = nat(settings_of(Addresses { clients, ..addresses(true) }));
    for text in ["ff02::1", "::1", "fe80::1", "::", "2001:db8:2::1"] {
        let refused = nat.bind_by_name(text.parse().unwrap(), at(0), 0);
        assert_eq!(refused, Err(DropReason::NoMappingDestination), "{text}");
    }
    let tuple = from_v6(Protocol::Udp, ("2001:db8:2::1".parse().unwrap(), 1), Segment::Other);
    assert_eq!(nat.from_v6(&tuple, at(0), 0), Err(DropReason::PoolExhausted));
    assert!(bound(&nat, at(0)).is_empty());
}

#[test]
fn draining_binds_nothing() {
    let nat = nat(settings_of(addresses(true)));
    let addr = nat.bind_by_name(host(1), at(0), 0).unwrap().addr;
    nat.drain(true);
    assert_eq!(nat.bind_by_name(host(2), at(0), 0), Err(DropReason::Draining));
    assert_eq!(nat.from_v6(&udp(2, 1), at(0), 0), Err(DropReason::Draining));
    let syn = from_v4(Protocol::Tcp, (addr, 80), Segment::Syn);
    assert_eq!(nat.from_v4(&syn, at(0), 0), Err(Refusal::Drop(DropReason::Draining)));
}

#[test]
fn settings_that_have_no_place_end_what_is_bound() {
    let nat = nat(settings_of(addresses(false)));
    let addr = nat.bind_by_name(host(1), at(0), 0).unwrap().addr;
    nat.from_v4(&from_v4(Protocol::Udp, (addr, 80), Segment::Other), at(0), 0).unwrap();
    let pool = vec!["203.0.113.128/30".parse().unwrap()];
    let other = nat.reconfigured(settings_of(Addresses { pool, ..addresses(false) })).unwrap();
    let mut sweeper = Sweeper::new();
    sweeper.review();
    for now in [1, 2] {
        sweep(&other, &mut sweeper, at(now));
    }
    assert_eq!((bound(&other, at(2)).len(), other.sessions(at(2)).count()), (0, 0));
    super::races::assert_sound(&other);
}

#[test]
fn many_threads_bind_one_host_once() {
    let nat = Arc::new(nat(settings_of(addresses(false))));
    let found: HashSet<Ipv4Addr> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|shard| {
                let nat = &nat;
                scope.spawn(move || {
                    let addr = nat.bind_by_name(host(1), at(0), shard);
                    let tuple = |addr| from_v4(Protocol::Udp, (addr, 80), Segment::Other);
                    // Two addresses are enough for two who meet; more of them may be refused.
                    addr.ok().inspect(|it| {
                        let _ = nat.from_v4(&tuple(it.addr), at(0), shard);
                    })
                })
            })
            .collect();
        threads.into_iter().filter_map(|it| it.join().unwrap()).map(|it| it.addr).collect()
    });
    assert_eq!(found.len(), 1, "{found:?}");
    let mut sweeper = Sweeper::new();
    for now in [1, 2, 3] {
        sweep(&nat, &mut sweeper, at(now));
    }
    super::races::assert_sound(&nat);
    assert_eq!(bound(&nat, at(3)).len(), 1);
}
