//! Connections that a gateway has announced.

use super::*;
use crate::nat64::alg::{Advice, Alg, Context, Dialogue, Ends};

const FTP: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 7), 21);
const STRANGER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 66);

/// Watches port 21, whose servers send from port 20.
#[derive(Debug)]
struct Silent;

impl Alg for Silent {
    fn label(&self) -> &'static str {
        "silent"
    }

    fn ports(&self) -> &[u16] {
        &[21]
    }

    fn data_port(&self, server: u16) -> Option<u16> {
        server.checked_sub(1)
    }

    fn open(&self, _ends: &Ends) -> alloc::boxed::Box<dyn Dialogue> {
        alloc::boxed::Box::new(Silent)
    }
}

impl Dialogue for Silent {
    fn octets(
        &mut self,
        _from: Side,
        octets: &[u8],
        _ended: bool,
        _out: &mut Vec<u8>,
        _context: &mut Context<'_>,
    ) -> Advice {
        Advice::Pass(octets.len())
    }
}

fn with_alg(change: impl FnOnce(&mut Settings)) -> Nat64 {
    let mut settings = settings(pool(1024, 65_535));
    settings.algs = vec![Arc::new(Silent)];
    change(&mut settings);
    nat(settings)
}

fn expect(nat: &Nat64, now: Duration) -> Result<(Ipv4Addr, u16), DropReason> {
    nat.view(now, 0).expect((host(1), 5282), POOL, FTP.0, 0, 0)
}

fn syn_from(remote: (Ipv4Addr, u16), near: (Ipv4Addr, u16)) -> Tuple<Ipv4Addr> {
    let template = from_v6(Protocol::Tcp, (host(1), 5282), Segment::Syn);
    Tuple { remote, ..answer(&template, near, Segment::Syn) }
}

#[test]
fn who_is_expected_may_connect_and_nobody_else() {
    let refusing: [fn(&mut Settings); 3] = [
        |_| {},
        |settings| settings.accept_v4_syn = false,
        |settings| settings.filtering = Filtering::AddressDependent,
    ];
    for change in refusing {
        let nat = with_alg(change);
        let local = expect(&nat, at(0)).unwrap();
        assert_eq!(local.0, POOL);
        let stranger = nat.from_v4(&syn_from((STRANGER, 20), local), at(1), 0);
        let refused = [DropReason::Filtered, DropReason::ExternallyInitiated].map(Refusal::Drop);
        assert!(stranger.is_err_and(|refusal| refused.contains(&refusal)), "{stranger:?}");
        // Neither a datagram nor a segment in the middle is that connection.
        let segment = Tuple { segment: Segment::Other, ..syn_from((FTP.0, 20), local) };
        let datagram = Tuple { protocol: Protocol::Udp, ..segment };
        for other in [segment, datagram] {
            assert!(nat.from_v4(&other, at(1), 0).is_err(), "{other:?}");
        }
        let server = nat.from_v4(&syn_from((FTP.0, 20), local), at(2), 0).unwrap();
        assert_eq!(server.host, (host(1), 5282));
        // It was one connection, and it has come.
        let second = nat.from_v4(&syn_from((FTP.0, 999), local), at(3), 0);
        assert!(second.is_err(), "{second:?}");
        // Its SYN may come again, and its data.
        assert!(nat.from_v4(&syn_from((FTP.0, 20), local), at(4), 0).is_ok());
    }
}

#[test]
fn who_is_expected_gets_answers_of_the_prefix_that_the_host_used() {
    let nat = with_alg(|_| {});
    let local = nat.view(at(0), 0).expect((host(1), 5282), POOL, FTP.0, 1, 0).unwrap();
    let syn = syn_from((FTP.0, 20), local);
    assert_eq!(nat.from_v4(&syn, at(1), 0).unwrap().pool6, 1);
    let next = Tuple { segment: Segment::Other, ..syn };
    assert_eq!(nat.from_v4(&next, at(2), 0).unwrap().pool6, 1);
}

#[test]
fn what_does_not_come_is_expected_for_tcp_trans() {
    let nat = with_alg(|_| {});
    let mut sweeper = Sweeper::new();
    let local = expect(&nat, at(0)).unwrap();
    assert_eq!(expect(&nat, at(100)).unwrap(), local, "the same port is the same mapping");
    sweep(&nat, &mut sweeper, at(330));
    assert!(nat.from_v4(&syn_from((FTP.0, 20), local), at(331), 0).is_ok());
    let nat = with_alg(|_| {});
    let local = expect(&nat, at(0)).unwrap();
    for seconds in 241..250 {
        sweep(&nat, &mut sweeper, at(seconds));
    }
    assert!(nat.from_v4(&syn_from((FTP.0, 20), local), at(250), 0).is_err());
    assert_eq!(nat.occupancy()[1].used, 0);
}

#[test]
fn a_quota_counts_for_what_is_expected() {
    let nat = with_alg(|settings| settings.quotas.ports[0] = 1);
    assert!(expect(&nat, at(0)).is_ok());
    let second = nat.view(at(0), 0).expect((host(1), 5283), POOL, FTP.0, 0, 0);
    assert_eq!(second, Err(DropReason::PortQuota));
    let other =
        nat.view(at(0), 0).expect((host(1), 5282), Ipv4Addr::new(192, 0, 2, 9), FTP.0, 0, 0);
    assert_eq!(other, Err(DropReason::PoolExhausted), "the other end would not believe in it");
}

#[test]
fn the_default_data_connection_passes_whatever_the_filter() {
    let refusing: [fn(&mut Settings); 2] = [
        |settings| settings.accept_v4_syn = false,
        |settings| settings.filtering = Filtering::AddressDependent,
    ];
    for change in refusing {
        let nat = with_alg(change);
        let control =
            Tuple { remote: FTP, ..from_v6(Protocol::Tcp, (host(1), 4000), Segment::Syn) };
        let local = nat.from_v6(&control, at(0), 0).unwrap();
        assert!(nat.from_v4(&syn_from((FTP.0, 20), local), at(1), 0).is_ok());
        assert!(nat.from_v4(&syn_from((FTP.0, 22), local), at(1), 0).is_err());
        assert!(nat.from_v4(&syn_from((STRANGER, 20), local), at(1), 0).is_err());
    }
}
