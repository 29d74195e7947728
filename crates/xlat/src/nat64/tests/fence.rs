//! The fence of a cluster: packets of shards that are translated here, and of others.

use fordway_wire::checksum::{Sum, pseudo_v6};
use fordway_wire::ipv4::Ipv4Header;
use fordway_wire::ipv6::Ipv6Header;
use fordway_wire::protocol;
use proptest::prelude::*;

use super::replica::{Dealt, dealt};
use super::*;
use crate::packet::{HEADROOM, Offload, Packet, TAILROOM};
use crate::{Config, State, Translator, Verdict};

mod shapes;

use shapes::*;

/// CLOCK_BOOTTIME has another origin than the tables' clock.
const BOOT: Duration = Duration::from_secs(50);

/// A gateway with two shards; even hosts are in shard 0. It owns and translates some.
struct Gateway {
    translator: Translator,
    state: State,
}

impl Gateway {
    fn with(own: &[u16], settings: Settings) -> Gateway {
        let shards = Some(Arc::new(Shards::new(Dealt(2))));
        let nat = nat(Settings { shards, ..settings });
        let config = Config {
            pool6: vec!["2001:db8:64::/96".parse().unwrap()],
            icmp_source6: Some("2001:db8::fe".parse().unwrap()),
            ..Config::default()
        };
        let translator = Translator::nat64(config, Arc::new(nat)).unwrap();
        let mut state = State::new(0);
        state.boottime = BOOT;
        let gateway = Gateway { translator, state };
        for shard in own {
            gateway.shards().set_owned(*shard, true);
            gateway.shards().enable(*shard, None);
        }
        gateway.shards().lease(BOOT + Duration::from_secs(1));
        gateway
    }

    fn new(own: &[u16]) -> Gateway {
        Gateway::with(own, settings(dealt(Allocation::Shared)))
    }

    fn shards(&self) -> &Shards {
        self.translator.shards().unwrap()
    }

    fn nat(&self) -> &Nat64 {
        self.translator.tables().unwrap()
    }

    fn run(&mut self, octets: &[u8]) -> (Verdict, Vec<u8>) {
        let mut buffer = vec![0; HEADROOM + octets.len() + TAILROOM];
        let range = HEADROOM..HEADROOM + octets.len();
        buffer[range.clone()].copy_from_slice(octets);
        let mut packet = Packet::new(&mut buffer, range, Offload::default());
        let verdict = self.translator.translate(&mut packet, at(0), &mut self.state, &mut ());
        (verdict, packet.bytes().to_vec())
    }

    fn verdict(&mut self, octets: &[u8]) -> Verdict {
        self.run(octets).0
    }

    fn forward(&mut self, octets: &[u8]) -> Vec<u8> {
        let (verdict, out) = self.run(octets);
        assert_eq!(verdict, Verdict::Forward);
        out
    }

    fn may_leave(&self, boottime: Duration) -> Result<(), DropReason> {
        self.shards().let_leave(&self.state, boottime)
    }

    /// The shards whose lease the last packet needs to leave.
    fn entered(&self) -> Vec<u16> {
        self.state.entered.iter().flatten().map(|it| it.shard).collect()
    }

    /// A datagram of a host; gives its transport address.
    fn bound(&mut self, number: u16) -> (Ipv4Addr, u16) {
        let out = self.forward(&v6(number, SERVER.0, &udp_segment(9, 53)));
        source(&out)
    }

    /// All entries with their lifetimes and counters.
    fn entries(&self) -> [Vec<std::string::String>; 3] {
        let nat = self.nat();
        [
            nat.bib(at(0)).map(|it| std::format!("{it:?}")).collect(),
            nat.sessions(at(0)).map(|it| std::format!("{it:?}")).collect(),
            nat.subscribers(at(0)).map(|it| std::format!("{it:?}")).collect(),
        ]
    }
}

const ENDED: Verdict = Verdict::Drop(DropReason::LeaseEnded);

#[test]
fn own_shards_are_translated_and_others_are_elsewhere() {
    let mut gateway = Gateway::new(&[0]);
    let local = gateway.bound(2);
    assert_eq!(local.0.octets()[3] % 2, 0);
    let answer = v4(SERVER.0, local.0, &udp_segment(53, local.1));
    assert_eq!(gateway.forward(&answer)[24..40], host(2).octets());
    assert_eq!(gateway.may_leave(BOOT), Ok(()));
    assert_eq!(gateway.verdict(&v6(1, SERVER.0, &udp_segment(9, 53))), Verdict::Elsewhere(1));
    let to_other = v4(SERVER.0, Ipv4Addr::new(192, 0, 2, 1), &udp_segment(53, 2000));
    assert_eq!(gateway.verdict(&to_other), Verdict::Elsewhere(1));
    let no_shard = v4(SERVER.0, Ipv4Addr::new(192, 0, 2, 1), &udp_segment(53, 1999));
    let unmapped = Verdict::Drop(DropReason::NoMappingDestination);
    assert_eq!(gateway.verdict(&no_shard), unmapped);
}

#[test]
fn a_lease_ends_at_its_deadline() {
    let mut gateway = Gateway::new(&[0]);
    let until = BOOT + Duration::from_secs(1);
    let (packet, last) = (v6(2, SERVER.0, &udp_segment(9, 53)), until - Duration::from_nanos(1));
    gateway.state.boottime = until;
    assert_eq!(gateway.verdict(&packet), ENDED);
    assert_eq!(gateway.nat().occupancy().map(|it| it.used), [0; 3]);
    gateway.state.boottime = last;
    assert_eq!(gateway.verdict(&packet), Verdict::Forward);
    assert_eq!(gateway.may_leave(last), Ok(()));
    assert_eq!(gateway.may_leave(until), Err(DropReason::LeaseEnded));
    gateway.shards().lease(until + Duration::from_nanos(1));
    assert_eq!(gateway.may_leave(until), Ok(()));
    gateway.shards().lease(Duration::ZERO);
    assert_eq!(gateway.verdict(&packet), ENDED);
    // What is another gateway's is so without a lease, too.
    assert_eq!(gateway.verdict(&v6(1, SERVER.0, &udp_segment(9, 53))), Verdict::Elsewhere(1));
}

#[test]
fn who_does_not_tell_the_time_has_no_lease() {
    let mut gateway = Gateway::new(&[0]);
    gateway.shards().lease(Duration::MAX);
    gateway.state = State::new(0);
    assert_eq!(gateway.verdict(&v6(2, SERVER.0, &udp_segment(9, 53))), ENDED);
}

/// Its next owner waits for it.
#[test]
fn what_has_begun_leaves_though_its_shard_is_disabled() {
    let mut gateway = Gateway::new(&[0]);
    gateway.bound(2);
    gateway.shards().disable(0);
    gateway.shards().disable(0);
    assert_eq!(gateway.may_leave(BOOT), Ok(()));
    assert_eq!(gateway.verdict(&v6(2, SERVER.0, &udp_segment(9, 53))), Verdict::Elsewhere(0));
    assert_eq!(gateway.may_leave(BOOT), Ok(()), "it has entered no shard");
}

#[test]
fn what_has_begun_does_not_leave_by_another_lease() {
    let mut gateway = Gateway::new(&[0]);
    gateway.bound(2);
    gateway.shards().lease(BOOT + Duration::from_secs(1));
    assert_eq!(gateway.may_leave(BOOT), Ok(()), "the same lease");
    gateway.shards().lease(Duration::ZERO);
    gateway.shards().lease(BOOT + Duration::from_secs(1));
    // Other gateways may have owned its shard in between.
    assert_eq!(gateway.may_leave(BOOT), Err(DropReason::LeaseEnded));
    gateway.bound(2);
    assert_eq!(gateway.may_leave(BOOT), Ok(()));
}

/// A thread that has packets of a shard waiting lets none overtake them.
#[test]
fn enablings_count_when_the_thread_says_so() {
    let mut gateway = Gateway::new(&[0]);
    let packet = v6(2, SERVER.0, &udp_segment(9, 53));
    gateway.state.enablings = gateway.shards().enablings();
    assert_eq!(gateway.verdict(&packet), Verdict::Forward);
    gateway.shards().enable(0, None);
    assert_eq!(gateway.verdict(&packet), Verdict::Forward, "it was enabled already");
    gateway.shards().disable(0);
    gateway.shards().enable(0, None);
    assert_eq!(gateway.verdict(&packet), Verdict::Elsewhere(0));
    gateway.state.enablings = gateway.shards().enablings();
    assert_eq!(gateway.verdict(&packet), Verdict::Forward);
    gateway.shards().disable(0);
    assert_eq!(gateway.verdict(&packet), Verdict::Elsewhere(0), "at once");
}

/// An error about a host's packet, or about one to it, belongs to the host's shard, whoever sends the error.
#[test]
fn errors_go_by_what_they_quote() {
    let mut gateway = Gateway::new(&[0, 1]);
    let routers = [3, 4];
    for number in [1, 2] {
        let shard = number % 2;
        let local = gateway.bound(number);
        let answer = v4(SERVER.0, local.0, &udp_segment(53, local.1));
        let to_host = gateway.forward(&answer);
        let from_host = v4(local.0, SERVER.0, &udp_segment(local.1, 53));
        let about4 = error_v4(Ipv4Addr::new(203, 0, 113, 9), local.0, &from_host);
        let about6 = routers.map(|router| error_v6(router, &to_host));
        for error in [&about4, &about6[0], &about6[1]] {
            gateway.forward(error);
            assert_eq!(gateway.entered(), [shard]);
            gateway.shards().disable(shard);
            assert_eq!(gateway.run(error), (Verdict::Elsewhere(shard), error.clone()));
            gateway.shards().enable(shard, None);
        }
    }
}

#[test]
fn a_quiet_shard_drops_what_it_does_not_know_without_a_word() {
    let quotas = Quotas { ports: [0, 1, 0], ..Quotas::default() };
    let base = Settings { quotas, ..settings(dealt(Allocation::Shared)) };
    for filtering in [Filtering::EndpointIndependent, Filtering::AddressDependent] {
        let mut gateway = Gateway::with(&[0], Settings { filtering, ..base.clone() });
        let local = gateway.bound(2);
        let known = v4(SERVER.0, local.0, &udp_segment(53, local.1));
        let tcp = gateway.forward(&v6(2, SERVER.0, &tcp_segment(9, 80, SYN)));
        let (addr, port) = source(&tcp);
        let free = 2000 + (port - 1999) % 64;
        let stranger = Ipv4Addr::new(203, 0, 113, 9);
        let cases = [
            (v6(2, SERVER.0, &udp_segment(10, 53)), DropReason::PortQuota, true),
            (v6(2, SERVER.0, &tcp_segment(10, 80, ACK)), DropReason::NotSyn, false),
            (v4(stranger, addr, &tcp_segment(9, free, ACK)), DropReason::NoBib, false),
            (v4(stranger, addr, &tcp_segment(9, free, SYN)), DropReason::SynUnanswered, true),
        ];
        // Filtering lets it wait for the host's own SYN.
        let to_host = (v4(stranger, addr, &tcp_segment(9, port, SYN)), DropReason::SynUnanswered);
        let filtered = filtering == Filtering::AddressDependent;
        let more = filtered.then_some((to_host.0, to_host.1, true));
        let cases: Vec<_> = cases.into_iter().chain(more).collect();
        gateway.shards().enable(0, Some(BOOT + Duration::from_millis(2)));
        gateway.state.boottime = BOOT + Duration::from_millis(1);
        let before = gateway.entries();
        for (packet, reason, _) in &cases {
            assert_eq!(gateway.verdict(packet), Verdict::Drop(*reason), "{filtering:?}");
            assert!(gateway.state.syns.is_empty());
        }
        assert_eq!(gateway.entries(), before);
        assert_eq!(gateway.state.take_suppressed(), 0);
        gateway.forward(&known);
        gateway.state.boottime = BOOT + Duration::from_millis(2);
        for (packet, reason, is_answered) in &cases {
            let verdict = gateway.verdict(packet);
            let is_drop = verdict == Verdict::Drop(*reason);
            assert_eq!(is_drop, !is_answered, "{reason:?}: {verdict:?}");
        }
        assert_eq!(gateway.state.syns.len(), if filtered { 2 } else { 1 });
    }
}

/// Who takes over a shard's new sessions in its quiet time makes them.
#[test]
fn a_quiet_shard_opens_sessions() {
    let mut gateway = Gateway::new(&[0]);
    gateway.shards().enable(0, Some(BOOT + Duration::from_secs(1)));
    gateway.forward(&v6(2, SERVER.0, &tcp_segment(9, 80, SYN)));
    assert_eq!(gateway.nat().occupancy()[1].used, 1);
}

#[test]
fn a_packet_hairpins_where_both_shards_are_translated() {
    let mut gateway = Gateway::new(&[0, 1]);
    let target = gateway.bound(1);
    let packet = v6(2, target.0, &udp_segment(9, target.1));
    let out = gateway.forward(&packet);
    assert_eq!((out[0] >> 4, &out[24..40]), (6, &host(1).octets()[..]));
    assert_eq!(gateway.entered(), [0, 1]);
    assert_eq!(gateway.may_leave(BOOT), Ok(()));
    gateway.shards().disable(1);
    assert_eq!(gateway.forward(&packet)[0] >> 4, 4);
}

#[test]
fn hairpinning_between_shards_passes_both_owners() {
    let (mut even, mut odd) = (Gateway::new(&[0]), Gateway::new(&[1]));
    let target = odd.bound(1);
    let out = even.forward(&v6(2, target.0, &udp_segment(9, target.1)));
    assert_eq!((out[0] >> 4, &out[16..20]), (4, &target.0.octets()[..]));
    assert_eq!(even.verdict(&out), Verdict::Elsewhere(1));
    let to_host = odd.forward(&out);
    assert_eq!(to_host[24..40], host(1).octets());
    // The answer, and an error about the packet.
    let from = source(&out);
    let back = odd.forward(&v6(1, from.0, &udp_segment(9, from.1)));
    assert_eq!(even.forward(&back)[24..40], host(2).octets());
    let error = odd.forward(&error_v6(1, &to_host));
    assert_eq!((error[0] >> 4, &error[16..20]), (4, &from.0.octets()[..]));
    assert_eq!(odd.verdict(&error), Verdict::Elsewhere(0));
    assert_eq!(even.forward(&error)[24..40], host(2).octets());
    // Who translates both shards has sent no such packet out.
    odd.shards().set_owned(0, true);
    odd.shards().enable(0, None);
    assert_eq!(odd.verdict(&out), Verdict::Drop(DropReason::Loop));
}

/// The identifier of a query, by which it belongs to a shard, is chosen after the decision.
#[test]
fn a_query_to_the_pool_leaves_as_ipv4() {
    let mut gateway = Gateway::new(&[0, 1]);
    let out = gateway.forward(&v6_of(2, Ipv4Addr::new(192, 0, 2, 1), protocol::ICMPV6, &echo(7)));
    assert_eq!((out[0] >> 4, &out[16..20]), (4, &[192, 0, 2, 1][..]));
}

#[test]
fn a_stored_syn_is_answered_by_its_owner_alone() {
    let answer = |change: &dyn Fn(&mut Gateway)| {
        let mut gateway = Gateway::new(&[0]);
        let syn = v4(SERVER.0, Ipv4Addr::new(192, 0, 2, 2), &tcp_segment(80, 2000, SYN));
        assert_eq!(gateway.verdict(&syn), Verdict::Stored);
        // Another packet comes in between, which enters no shard.
        assert_eq!(gateway.verdict(&v6(1, SERVER.0, &udp_segment(9, 53))), Verdict::Elsewhere(1));
        let stored = gateway.state.syns.due(at(60)).unwrap();
        change(&mut gateway);
        let mut buffer = vec![0; HEADROOM + 28 + stored.packet.len()];
        let range = HEADROOM + 28..HEADROOM + 28 + stored.packet.len();
        buffer[range.clone()].copy_from_slice(&stored.packet);
        let mut packet = Packet::new(&mut buffer, range, Offload::default());
        let Gateway { translator, state } = &mut gateway;
        let verdict = translator.unanswered(&stored, &mut packet, at(60), state, &mut ());
        gateway.shards().lease(Duration::ZERO);
        (verdict, gateway.may_leave(BOOT))
    };
    let (verdict, may_leave) = answer(&|_| {});
    assert!(matches!(verdict, Verdict::Reply(_)), "{verdict:?}");
    assert_eq!(may_leave, Err(DropReason::LeaseEnded));
    assert_eq!(answer(&|it| it.shards().disable(0)).0, Verdict::Drop(DropReason::OtherShard));
    assert_eq!(answer(&|it| it.shards().lease(BOOT)).0, ENDED);
    let quiet = answer(&|it| it.shards().enable(0, Some(BOOT + Duration::from_secs(1)))).0;
    assert_eq!(quiet, Verdict::Drop(DropReason::SynUnanswered));
}

#[test]
fn fragments_from_ipv6_go_to_the_owner_as_they_came() {
    let gateway = Gateway::new(&[0]);
    let fragment = |number, offset: u8, more: u8| {
        let header = [protocol::UDP, 0, 0, offset | more, 0, 0, 0, 1];
        let octets = [&header[..], &[0; 16]].concat();
        let fragment = v6_of(number, SERVER.0, 44, &octets);
        gateway.translator.fragment_elsewhere(&fragment, &gateway.state)
    };
    assert_eq!([fragment(1, 0, 1), fragment(1, 16, 0), fragment(1, 16, 1)], [Some(1); 3]);
    assert_eq!([fragment(1, 0, 0), fragment(2, 0, 1), fragment(2, 16, 0)], [None; 3]);
    let whole = v6(1, SERVER.0, &udp_segment(1, 1));
    assert_eq!(gateway.translator.fragment_elsewhere(&whole, &gateway.state), None);
}

/// A packet of either side, of hosts 1 to 4, with or without a session.
fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    let segment = prop_oneof![
        (1_u16..4, 1_u16..4).prop_map(|(near, far)| udp_segment(near, far)),
        (1_u16..4, 1_u16..4, prop_oneof![Just(SYN), Just(ACK)])
            .prop_map(|(near, far, flags)| tcp_segment(near, far, flags)),
    ];
    let to_pool = (1_u8..5, 1999_u16..2003, any::<bool>()).prop_map(|(last, port, is_tcp)| {
        let (src, dst) = (SERVER.0, Ipv4Addr::new(192, 0, 2, last));
        match is_tcp {
            true => v4(src, dst, &tcp_segment(80, port, SYN)),
            false => v4(src, dst, &udp_segment(53, port)),
        }
    });
    let from_host =
        (1_u16..5, segment).prop_map(|(number, segment)| v6(number, SERVER.0, &segment));
    let of_either = prop_oneof![from_host, to_pool];
    (of_either, any::<bool>(), 0_u8..3).prop_map(|(packet, quoted, hops)| match (quoted, packet) {
        (true, packet) => quoting(&packet),
        (false, mut packet) => {
            set_hops(&mut packet, if hops == 0 { 1 } else { 64 });
            packet
        }
    })
}

proptest! {
    /// A packet of another gateway's shard changes nothing, and is not changed.
    #[test]
    fn what_is_elsewhere_is_left_alone(packets in prop::collection::vec(any_packet(), 1..12)) {
        let mut gateway = Gateway::new(&[0, 1]);
        for packet in &packets {
            gateway.run(packet);
        }
        gateway.shards().disable(1);
        gateway.state.syns = Syns::default();
        gateway.state.take_made();
        for packet in &packets {
            let before = gateway.entries();
            let (verdict, out) = gateway.run(packet);
            let is_others = shard_of(packet) == Some(1);
            prop_assert_eq!(verdict == Verdict::Elsewhere(1), is_others, "{:?}", verdict);
            if is_others {
                prop_assert_eq!(&out, packet);
                prop_assert_eq!(gateway.entries(), before);
                prop_assert!(!gateway.state.take_made());
            }
            gateway.state.take_made();
        }
    }
}
