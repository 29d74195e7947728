//! How long programs keep the kernel's answers to where packets go.
//!
//! Needs root; says so, and does nothing, without.

use std::sync::Arc;
use std::time::Duration;

use fordway_bpf::{Outcome, PassReason, RoutingNews};
use fordway_testhost::{can_use_tun, poll};
use fordway_xlat::Offload;
use nix::time::{ClockId, clock_gettime};

use crate::wire::draw::packet;
use crate::wire::{apart, run};
use crate::xdp_bench::{CONFIG, Gateway, MODES, Mode, Setup, text};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

const NO_ROUTE: Outcome = Outcome::PassedOn(PassReason::NoRoute);

/// A gateway whose programs have heard all for a long time to come, and keep answers as long.
struct Bench {
    gateway: Gateway,
    news: Arc<RoutingNews>,
    /// The link-layer address to which the last packet went.
    went_to: String,
}

impl Bench {
    fn new(mode: Mode, config: &str) -> Bench {
        let news = Arc::new(RoutingNews::new(LONG).unwrap());
        let routing = Some(Arc::clone(&news));
        let gateway = Setup { mode, config, only_xdp: true, routing, ..Setup::default() }.make();
        news.heard(LONG);
        Bench { gateway, news, went_to: String::new() }
    }

    /// Tells of a change.
    fn changed(&self) {
        self.news.changed();
        next_tick();
    }

    /// What becomes of a packet of the IPv4 host with this number to an IPv6 host.
    fn up(&mut self, from: u8) -> Outcome {
        self.up_to(from, 1)
    }

    fn up_to(&mut self, from: u8, to: u8) -> Outcome {
        let (from, to) = (format!("192.0.2.{from}"), format!("198.51.100.{to}"));
        self.pass(&format!("v4 = {{ src = \"{from}\", dst = \"{to}\", df = true }}"))
    }

    /// Of a packet of the IPv6 host with this number to an IPv4 host.
    fn down(&mut self, from: u8) -> Outcome {
        self.down_to(from, 5)
    }

    fn down_to(&mut self, from: u8, to: u8) -> Outcome {
        let (from, to) = (format!("2001:db8:1::{from:x}"), format!("2001:db8:64::c000:2{to:02x}"));
        self.pass(&format!("v6 = {{ src = \"{from}\", dst = \"{to}\" }}"))
    }

    fn pass(&mut self, header: &str) -> Outcome {
        let packet = packet(&format!("{header}\nudp = {{}}\npayload = 9"));
        let frame = self.gateway.frame(&packet, Offload::default());
        let outcome = self.gateway.pass(&frame).expect("the frame was sent");
        if outcome == Outcome::Translated {
            let sent = self.gateway.other(&packet).host.expect("the translated frame");
            self.went_to = text(sent.dst);
        }
        let _ = (self.gateway.a.host.take(), self.gateway.b.host.take());
        let _ = (self.gateway.a.stack.take(), self.gateway.b.stack.take());
        outcome
    }
}

/// Waits for the next tick of the kernel's clock: until then an answer is good whatever has changed.
fn next_tick() {
    let now = || clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).unwrap();
    let begin = now();
    poll("the clock ticks", || (now() != begin).then_some(()));
}

/// Runs a test of each kind of program, in a namespace of its own.
fn each(test: impl Fn(Bench) + Sync) {
    if !can_use_tun() {
        return;
    }
    for mode in MODES {
        apart(|| test(Bench::new(mode, CONFIG)));
    }
}

fn close(bench: Bench) {
    bench.gateway.close();
}

#[test]
fn an_answer_is_kept_until_a_change_is_told() {
    each(|mut bench| {
        // From their second packet on, pairs of hosts are kept.
        for _ in 0..3 {
            assert_eq!((bench.up(5), bench.down(5)), (Outcome::Translated, Outcome::Translated));
        }
        run("ip route replace unreachable 2001:db8:1::/64");
        run("ip route del 2001:db8:64::/96");
        assert_eq!((bench.up(5), bench.down(5)), (Outcome::Translated, Outcome::Translated));
        // Of a host that was not asked for yet nothing is kept.
        assert_eq!((bench.up(6), bench.down(6)), (NO_ROUTE, Outcome::Unmatched));
        bench.changed();
        assert_eq!((bench.up(5), bench.down(5)), (NO_ROUTE, Outcome::Unmatched));
        // That there is none is an answer as well.
        run("ip route replace 2001:db8:1::/64 via 2001:db8:b::2");
        run("ip route add 2001:db8:64::/96 dev fw0");
        assert_eq!((bench.up(5), bench.down(5)), (NO_ROUTE, Outcome::Unmatched));
        bench.changed();
        assert_eq!((bench.up(5), bench.down(5)), (Outcome::Translated, Outcome::Translated));
        close(bench);
    });
}

#[test]
fn nothing_is_kept_of_which_nobody_hears() {
    each(|mut bench| {
        assert_eq!(bench.up(5), Outcome::Translated);
        run("ip route replace unreachable 2001:db8:1::/64");
        assert_eq!(bench.up(5), Outcome::Translated);
        // The daemon has ended. With the clock's next tick the kernel is asked again.
        bench.news.heard(Duration::ZERO);
        poll("the route is gone", || (bench.up(5) == NO_ROUTE).then_some(()));
        run("ip route replace 2001:db8:1::/64 via 2001:db8:b::2");
        poll("the route is back", || (bench.up(5) == Outcome::Translated).then_some(()));
        // What was asked meanwhile was kept for its tick alone.
        run("ip route replace unreachable 2001:db8:1::/64");
        bench.news.heard(LONG);
        poll("the route is gone", || (bench.up(5) == NO_ROUTE).then_some(()));
        close(bench);
    });
}

#[test]
fn sources_share_an_answer_where_destinations_decide() {
    each(|mut bench| {
        bench.news.set_by_destination(true);
        assert_eq!((bench.up(5), bench.down(5)), (Outcome::Translated, Outcome::Translated));
        run("ip route replace unreachable 2001:db8:1::/64");
        run("ip route del 2001:db8:64::/96");
        assert_eq!((bench.up(6), bench.down(6)), (Outcome::Translated, Outcome::Translated));
        // That is over at once.
        bench.news.set_by_destination(false);
        next_tick();
        assert_eq!((bench.up(7), bench.down(7)), (NO_ROUTE, Outcome::Unmatched));
        assert_eq!((bench.up(5), bench.down(5)), (NO_ROUTE, Outcome::Unmatched));
        // As the kernel chooses.
        run("ip route replace 2001:db8:1::/64 via 2001:db8:b::2");
        run("ip -6 rule add from 2001:db8:64::c000:208 to 2001:db8:1::/64 unreachable pref 100");
        bench.changed();
        assert_eq!(
            (bench.up(5), bench.up(8), bench.up(9)),
            (Outcome::Translated, NO_ROUTE, Outcome::Translated)
        );
        close(bench);
    });
}

#[test]
fn an_unknown_neighbour_is_asked_for_again() {
    each(|mut bench| {
        run("ip neigh del 2001:db8:b::2 dev gwb");
        assert_eq!(bench.up(5), NO_ROUTE);
        let mac = text(bench.gateway.b.host_mac);
        run(&format!("ip neigh replace 2001:db8:b::2 lladdr {mac} nud permanent dev gwb"));
        poll("the neighbour is known", || (bench.up(5) == Outcome::Translated).then_some(()));
        close(bench);
    });
}

#[test]
fn destinations_behind_one_next_hop_share_an_answer() {
    each(|mut bench| {
        bench.news.set_by_destination(true);
        bench.news.set_fine(Some(&[]));
        bench.changed();
        assert_eq!((bench.up(5), bench.down(5)), (Outcome::Translated, Outcome::Translated));
        run("ip route add unreachable 2001:db8:1::2");
        run("ip route add unreachable 192.0.2.6");
        assert_eq!(
            (bench.up_to(5, 2), bench.down_to(5, 6)),
            (Outcome::Translated, Outcome::Translated)
        );
        // Others are of another network, and not shared with.
        run("ip route add 2001:db8:64::c000:208/128 via 2001:db8:b::2");
        assert_eq!(bench.down_to(5, 8), Outcome::Translated);
        let told = ["2001:db8:1::2", "192.0.2.6", "2001:db8:64::c000:208"];
        let told = told.map(|it| it.parse().unwrap());
        bench.news.set_fine(Some(&told));
        bench.changed();
        for _ in 0..2 {
            assert_eq!((bench.up(5), bench.down(5)), (Outcome::Translated, Outcome::Translated));
            assert_eq!((bench.up_to(5, 2), bench.down_to(5, 6)), (NO_ROUTE, NO_ROUTE));
            assert_eq!(bench.down_to(5, 8), Outcome::Unmatched);
        }
        close(bench);
    });
}

#[test]
fn hosts_on_a_link_have_answers_of_their_own() {
    each(|mut bench| {
        let mac = text(bench.gateway.b.host_mac);
        bench.news.set_by_destination(true);
        bench.news.set_fine(Some(&[]));
        for first in [1, 2] {
            run("ip route replace 2001:db8:1::/64 dev gwb");
            run(&format!("ip neigh replace 2001:db8:1::1 lladdr {mac} nud permanent dev gwb"));
            bench.changed();
            for host in [first, 3 - first, first, 3 - first] {
                let wanted = if host == 1 { Outcome::Translated } else { NO_ROUTE };
                assert_eq!(bench.up_to(5, host), wanted, "{host}");
            }
            // Each has its own link-layer address.
            // The first of them is a host like others.
            run(&format!("ip neigh replace 2001:db8:1::1 lladdr {mac} nud permanent dev gwb"));
            assert_eq!(bench.up_to(5, 0), NO_ROUTE);
            let other = "02:00:00:00:00:77";
            run(&format!("ip neigh replace 2001:db8:1::2 lladdr {other} nud permanent dev gwb"));
            bench.changed();
            for host in [1, 2, 1, 2] {
                assert_eq!(bench.up_to(5, host), Outcome::Translated, "{host}");
                assert_eq!(bench.went_to, if host == 1 { &mac } else { other }, "{host}");
            }
            run("ip neigh del 2001:db8:1::2 dev gwb");
        }
        close(bench);
    });
}
