use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use crate::cookie::LIFETIME;
use crate::message::ClientId;

const NOW: u64 = 1_767_225_600_000;

fn key(octet: u8) -> Key {
    Key::from_hex(&format!("{octet:02x}").repeat(16)).unwrap()
}

fn id(name: &str) -> ClientId {
    ClientId::new(name).unwrap()
}

fn settings() -> ServerSettings {
    let slot = Slot { v4: [198, 51, 100, 9].into(), ports: None };
    ServerSettings {
        pool: vec!["192.0.2.0/30".parse().unwrap()],
        ports: None,
        lifetime: 100,
        max_lifetime: 1000,
        rest: 30,
        tep: "2001:db8:f::1".parse().unwrap(),
        clients: vec![
            ClientKey { id: id("laptop"), key: key(1), slot: None },
            ClientKey { id: id("printer"), key: key(2), slot: Some(slot) },
        ],
        prefixes: vec![PrefixKey {
            prefix: "2001:db8:5::/64".parse().unwrap(),
            key: key(5),
            most: 3,
        }],
    }
}

/// A client as it should not need to be: it says whatever the test wants.
struct Host {
    at: SocketAddrV6,
    id: Option<ClientId>,
    key: Key,
    number: u64,
    cookie: Option<[u8; 16]>,
}

impl Host {
    fn named(name: &str, key_of: u8, at: &str) -> Host {
        let at = SocketAddrV6::new(at.parse().unwrap(), 4000, 0, 0);
        Host { at, id: Some(id(name)), key: key(key_of), number: 10, cookie: None }
    }

    fn laptop() -> Host {
        Host::named("laptop", 1, "2001:db8::1")
    }

    fn of_prefix(last: u16) -> Host {
        let at = Ipv6Addr::new(0x2001, 0xdb8, 5, 0, 0, 0, 0, last);
        let at = SocketAddrV6::new(at, 4000, 0, 0);
        Host { at, id: None, key: key(5), number: 10, cookie: None }
    }

    fn request(&self) -> Body {
        let (id, cookie) = (self.id.clone(), self.cookie);
        Body::Request { id, cookie, v4: None, sharing: false, lifetime: 0, tunnel: None }
    }

    fn renew(&self, slot: Slot) -> Body {
        let (id, cookie, Slot { v4, ports }) = (self.id.clone(), self.cookie, slot);
        Body::Renew { id, cookie, v4, ports, lifetime: 0, tunnel: None }
    }

    fn release(&self, slot: Slot) -> Body {
        let (id, cookie, Slot { v4, ports }) = (self.id.clone(), self.cookie, slot);
        Body::Release { id, cookie, v4, ports }
    }

    fn seal(&mut self, body: Body) -> Vec<u8> {
        self.number += 1;
        Message { transaction: self.number * 7, number: self.number, body }.seal(&self.key)
    }

    fn send(&mut self, server: &mut Server, body: Body, now: u64) -> (Step, Option<Body>) {
        let octets = self.seal(body);
        let step = server.receive(self.at, &octets, now);
        let body = step.reply.as_ref().map(|reply| {
            assert_eq!(reply.to, self.at);
            assert!(self.key.has_sealed(&reply.octets));
            let message = Message::parse(&reply.octets).unwrap();
            assert_eq!((message.number, message.transaction), (self.number, self.number * 7));
            message.body
        });
        (step, body)
    }

    /// Sends a request without a cookie, and keeps the one that is offered.
    fn fetch_cookie(&mut self, server: &mut Server, now: u64) {
        self.cookie = None;
        let (step, body) = self.send(server, self.request(), now);
        assert!(step.come.is_none() && step.records.is_empty(), "nothing is given yet");
        let Some(Body::Offer { cookie }) = body else { panic!("no offer but {body:?}") };
        self.cookie = Some(cookie);
    }

    /// Gets a lease.
    fn lease(&mut self, server: &mut Server, now: u64) -> Lease {
        self.fetch_cookie(server, now);
        let (step, body) = self.send(server, self.request(), now);
        let lease = step.come.clone().unwrap_or_else(|| panic!("refused: {body:?}"));
        assert_eq!(step.records, [Record::Lent(lease.clone())]);
        lease
    }
}

fn server() -> Server {
    Server::new(settings(), [9; 32]).unwrap()
}

fn reason(body: Option<Body>) -> Reason {
    match body {
        Some(Body::Refuse { reason, .. }) => reason,
        other => panic!("not refused but {other:?}"),
    }
}

#[test]
fn a_lease_is_granted_renewed_and_given_back() {
    let (mut server, mut host) = (server(), Host::laptop());
    let lease = host.lease(&mut server, NOW);
    assert_eq!((lease.until, lease.remote), (NOW + 100_000, *host.at.ip()));
    let later = NOW + 50_000;
    let (step, body) = host.send(&mut server, host.renew(lease.slot), later);
    assert_eq!(step.come.unwrap().until, later + 100_000);
    let Some(Body::Ack { v4, lifetime: 100, tep, .. }) = body else { panic!("{body:?}") };
    assert_eq!((v4, tep), (lease.slot.v4, lease.local));
    assert!(server.expire(later + 99_999).gone.is_empty(), "the first end does not count any more");
    let (step, body) = host.send(&mut server, host.release(lease.slot), later + 1);
    assert!(matches!(body, Some(Body::Ack { lifetime: 0, .. })));
    assert_eq!(step.gone, [lease.binding()]);
    assert_eq!(step.records, [Record::Ended(lease.slot)]);
    assert_eq!((server.lease_count(), server.free()), (0, 4));
    let (step, body) = host.send(&mut server, host.renew(lease.slot), later + 2);
    assert_eq!((reason(body), step.come), (Reason::NoLease, None));
}

#[test]
fn a_lease_ends() {
    let (mut server, mut host) = (server(), Host::laptop());
    let lease = host.lease(&mut server, NOW);
    assert!(server.next_end().is_some_and(|end| end <= lease.until));
    assert_eq!(server.expire(lease.until - 1).gone, []);
    let step = server.expire(lease.until);
    assert_eq!(step.gone, [lease.binding()]);
    assert_eq!((server.stats().expired, server.lease_count()), (1, 0));
    // And whoever had it is forgotten later.
    while let Some(end) = server.next_end() {
        assert_eq!(server.expire(end).gone, []);
    }
    assert!(server.peers.is_empty());
}

#[test]
fn reservations_are_kept_and_nobody_else_gets_them() {
    let mut server = server();
    let mut printer = Host::named("printer", 2, "2001:db8::2");
    let lease = printer.lease(&mut server, NOW);
    assert_eq!(lease.slot.v4, Ipv4Addr::new(198, 51, 100, 9));
    server.expire(lease.until);
    assert_eq!(server.free(), 4, "it is none of the pool's");
    assert_eq!(printer.lease(&mut server, lease.until + 1).slot, lease.slot);
}

#[test]
fn who_has_no_key_or_another_gets_no_answer() {
    let mut server = server();
    for (mut host, forged) in [
        (Host::named("laptop", 2, "2001:db8::1"), true),
        (Host::named("nobody", 1, "2001:db8::1"), false),
        (Host { id: None, ..Host::laptop() }, false),
        (Host { key: key(1), ..Host::of_prefix(1) }, true),
    ] {
        let before = server.stats();
        let (step, _) = host.send(&mut server, host.request(), NOW);
        assert_eq!(step, Step::default());
        assert_eq!(server.stats().forged > before.forged, forged);
        assert_eq!(server.stats().unknown > before.unknown, !forged);
    }
    let mut host = Host::laptop();
    let (step, _) = host.send(&mut server, Body::Hello, NOW);
    assert_eq!((step, server.stats().unexpected), (Step::default(), 1));
    assert_eq!(server.receive(host.at, b"DSTM", NOW), Step::default());
    assert_eq!(server.stats().malformed, 1);
    assert!(server.peers.is_empty(), "nothing is kept for any of them");
}

#[test]
fn addresses_of_others_take_nothing_of_the_pool() {
    let mut server = server();
    for last in 1..1000 {
        // Whoever has the prefix's key, but does not receive at these addresses.
        let mut host = Host::of_prefix(last);
        host.cookie = Some([last as u8; 16]);
        let (step, body) = host.send(&mut server, host.request(), NOW);
        assert!(matches!(body, Some(Body::Offer { .. })) && step.come.is_none());
    }
    assert_eq!((server.peers.len(), server.free()), (0, 4));
    let mut host = Host::of_prefix(1);
    host.fetch_cookie(&mut server, NOW);
    let mut other = Host { cookie: host.cookie, ..Host::of_prefix(2) };
    let (_, body) = other.send(&mut server, other.request(), NOW);
    assert!(matches!(body, Some(Body::Offer { .. })), "a cookie is for one address");
}

#[test]
fn a_message_that_comes_again_changes_nothing() {
    let (mut server, mut host) = (server(), Host::laptop());
    host.fetch_cookie(&mut server, NOW);
    let request = host.seal(host.request());
    let first = server.receive(host.at, &request, NOW);
    let lease = first.come.clone().unwrap();
    let again = server.receive(host.at, &request, NOW + 5000);
    assert_eq!(again.reply, first.reply, "the answer was lost, or somebody replays");
    assert_eq!((again.come, again.records.len()), (None, 0));
    // The client gives it back and takes it again; then somebody replays the release.
    let release = host.seal(host.release(lease.slot));
    assert_eq!(server.receive(host.at, &release, NOW + 6000).gone.len(), 1);
    let request = host.seal(host.request());
    assert!(server.receive(host.at, &request, NOW + 7000).come.is_some());
    let replayed = server.receive(host.at, &release, NOW + 8000);
    assert!(replayed.gone.is_empty() && replayed.records.is_empty());
    let body = Message::parse(&replayed.reply.unwrap().octets).unwrap().body;
    let Body::Refuse { reason: Reason::Stale, expected, .. } = body else { panic!("{body:?}") };
    assert_eq!((expected, server.stats().stale), (Some(host.number), 1));
    assert!(server.lease(&lease.identity).is_some());
    // Minutes later, the cookie is no good any more.
    let much_later = server.receive(host.at, &release, NOW + 2 * LIFETIME);
    let body = Message::parse(&much_later.reply.unwrap().octets).unwrap().body;
    assert!(matches!(body, Body::Offer { .. }));
}

#[test]
fn a_pool_that_is_exhausted_is_told() {
    let mut server = server();
    let mut named: Vec<ClientKey> = settings().clients;
    named.extend((0..5).map(|n| ClientKey { id: id(&format!("c{n}")), key: key(1), slot: None }));
    server.replace(ServerSettings { clients: named, ..settings() }, NOW).unwrap();
    let mut hosts: Vec<Host> =
        (0..5).map(|n| Host::named(&format!("c{n}"), 1, "2001:db8::1")).collect();
    let leases: Vec<Lease> =
        hosts[..4].iter_mut().map(|host| host.lease(&mut server, NOW)).collect();
    let slots: BTreeSet<Slot> = leases.iter().map(|lease| lease.slot).collect();
    assert_eq!((slots.len(), server.free()), (4, 0));
    let last = &mut hosts[4];
    last.fetch_cookie(&mut server, NOW);
    let (step, body) = last.send(&mut server, last.request(), NOW);
    assert!(matches!(body, Some(Body::Refuse { reason: Reason::Exhausted, retry: 10, .. })));
    assert!(step.records.is_empty() && server.stats().exhausted == 1);
    let body = hosts[0].release(leases[0].slot);
    let (step, _) = hosts[0].send(&mut server, body, NOW + 1);
    assert_eq!(step.gone.len(), 1);
    let last = &mut hosts[4];
    let (step, _) = last.send(&mut server, last.request(), NOW + 2);
    assert_eq!(step.come.unwrap().slot, leases[0].slot, "all else is lent");
}

#[test]
fn the_clients_of_a_prefix_have_a_limit() {
    let mut server = server();
    for last in 1..=3 {
        Host::of_prefix(last).lease(&mut server, NOW);
    }
    for last in 4..100 {
        let mut host = Host::of_prefix(last);
        host.fetch_cookie(&mut server, NOW);
        let (_, body) = host.send(&mut server, host.request(), NOW);
        assert_eq!(reason(body), Reason::Limit);
    }
    assert_eq!(server.peers.len(), 3);
    assert_eq!(server.lease_count(), 3);
    Host::laptop().lease(&mut server, NOW);
}

#[test]
fn shared_addresses_are_for_those_who_can() {
    let mut server =
        Server::new(ServerSettings { ports: Some(16_384), ..settings() }, [9; 32]).unwrap();
    let mut host = Host::laptop();
    host.fetch_cookie(&mut server, NOW);
    let (_, body) = host.send(&mut server, host.request(), NOW);
    assert_eq!(reason(body), Reason::SharedOnly);
    let (id, cookie) = (host.id.clone(), host.cookie);
    let body = Body::Request { id, cookie, v4: None, sharing: true, lifetime: 0, tunnel: None };
    let (step, body) = host.send(&mut server, body, NOW);
    let slot = step.come.unwrap().slot;
    assert!(matches!(body, Some(Body::Ack { ports, .. }) if ports == slot.ports));
    assert_eq!(slot.range().unwrap().len(), 16_384);
}

#[test]
fn a_client_that_moves_takes_its_lease_along() {
    let (mut server, mut host) = (server(), Host::laptop());
    let lease = host.lease(&mut server, NOW);
    host.at.set_ip("2001:db8:77::1".parse().unwrap());
    host.fetch_cookie(&mut server, NOW + 1000);
    let (step, _) = host.send(&mut server, host.request(), NOW + 1000);
    assert_eq!(step.gone, [lease.binding()]);
    let moved = step.come.unwrap();
    assert_eq!((moved.slot, moved.remote), (lease.slot, *host.at.ip()));
    assert_eq!(server.lease_count(), 1);
}

#[test]
fn the_end_of_the_tunnel_is_in_the_clients_network() {
    let (mut server, mut host) = (server(), Host::laptop());
    host.fetch_cookie(&mut server, NOW);
    let with = |host: &Host, end: &str| match host.request() {
        Body::Request { id, cookie, v4, sharing, lifetime, .. } => {
            let tunnel = Some(end.parse().unwrap());
            Body::Request { id, cookie, v4, sharing, lifetime, tunnel }
        }
        other => other,
    };
    for far in ["2001:db8:0:1::1", "::", "ff02::1"] {
        let body = with(&host, far);
        let (step, body) = host.send(&mut server, body, NOW);
        assert_eq!((reason(body), step.come), (Reason::Tunnel, None));
    }
    let body = with(&host, "2001:db8::4:6");
    let (step, _) = host.send(&mut server, body, NOW);
    let lease = step.come.unwrap();
    assert_eq!(lease.remote, "2001:db8::4:6".parse::<Ipv6Addr>().unwrap());
}

#[test]
fn whoever_sends_too_much_is_not_answered() {
    let (mut server, mut host) = (server(), Host::laptop());
    let lease = host.lease(&mut server, NOW);
    let mut answered = 0;
    for _ in 0..1000 {
        let (step, _) = host.send(&mut server, host.renew(lease.slot), NOW);
        answered += usize::from(step.reply.is_some());
    }
    assert!((20..=30).contains(&answered), "{answered}");
    assert!(server.stats().limited > 900);
    let (step, _) = host.send(&mut server, host.renew(lease.slot), NOW + 10_000);
    assert!(step.reply.is_some());
}

#[test]
fn what_fails_is_taken_back() {
    let (mut server, mut host) = (server(), Host::laptop());
    host.fetch_cookie(&mut server, NOW);
    let (step, _) = host.send(&mut server, host.request(), NOW);
    let back = server.failed(&step, NOW);
    assert_eq!(back.gone, [step.come.unwrap().binding()]);
    let body = Message::parse(&back.reply.unwrap().octets).unwrap().body;
    assert_eq!(reason(Some(body)), Reason::Trouble);
    assert_eq!((server.lease_count(), server.free()), (0, 4));
    // A renewal: it ends when it would have ended before.
    let lease = host.lease(&mut server, NOW);
    let (step, _) = host.send(&mut server, host.renew(lease.slot), NOW + 1000);
    let back = server.failed(&step, NOW + 1000);
    assert_eq!((back.come.as_ref(), back.gone.len()), (Some(&lease), 0));
    assert_eq!(server.lease(&lease.identity), Some(&lease));
    // A release: it goes on.
    let (step, _) = host.send(&mut server, host.release(lease.slot), NOW + 2000);
    server.failed(&step, NOW + 2000);
    assert_eq!(server.lease(&lease.identity), Some(&lease));
    let (_, body) = host.send(&mut server, host.release(lease.slot), NOW + 3000);
    assert!(matches!(body, Some(Body::Ack { lifetime: 0, .. })));
    assert_eq!(server.free(), 4);
}

#[test]
fn leases_of_an_earlier_life() {
    let mut before = server();
    let lease = Host::laptop().lease(&mut before, NOW);
    let mut printer = Host::named("printer", 2, "2001:db8::2");
    let reserved = printer.lease(&mut before, NOW);
    let mut after = Server::new(settings(), [10; 32]).unwrap();
    assert!(after.restore(&lease, NOW + 1) && after.restore(&reserved, NOW + 1));
    assert!(!after.restore(&lease, NOW + 1), "it is there already");
    assert_eq!((after.free(), after.lease_count()), (3, 2));
    // The client goes on with it; its cookie is of the earlier life.
    let mut host = Host::laptop();
    host.number = 500;
    host.fetch_cookie(&mut after, NOW + 2);
    let (step, _) = host.send(&mut after, host.renew(lease.slot), NOW + 2);
    assert_eq!(step.come.unwrap().slot, lease.slot);
    // What does not fit is not taken up.
    let mut other = Server::new(settings(), [11; 32]).unwrap();
    assert!(!other.restore(&lease, lease.until), "over");
    let elsewhere = Lease { local: Ipv6Addr::LOCALHOST, ..lease.clone() };
    assert!(!other.restore(&elsewhere, NOW), "another tunnel end point");
    let nobody = Lease { identity: Identity::Named(id("nobody")), ..lease.clone() };
    assert!(!other.restore(&nobody, NOW));
    let foreign = Slot { v4: [203, 0, 113, 1].into(), ports: None };
    assert!(!other.restore(&Lease { slot: foreign, ..lease.clone() }, NOW));
    assert!(!other.restore(&Lease { slot: reserved.slot, ..lease }, NOW), "somebody else's");
}

#[test]
fn other_settings_end_what_does_not_fit() {
    let mut server = server();
    let lease = Host::laptop().lease(&mut server, NOW);
    let mut host = Host::of_prefix(1);
    let kept = host.lease(&mut server, NOW);
    let other = ServerSettings { clients: Vec::new(), ..settings() };
    let step = server.replace(other, NOW + 1).unwrap();
    assert_eq!(step.gone, [lease.binding()]);
    assert_eq!(server.leases().collect::<Vec<_>>(), [&kept]);
    let (step, _) = host.send(&mut server, host.renew(kept.slot), NOW + 2);
    assert!(step.come.is_some(), "it goes on, cookie and all");
    let twice = [settings().clients, settings().clients].concat();
    let wrong = server.replace(ServerSettings { clients: twice, ..settings() }, NOW + 3);
    assert_eq!(wrong, Err(WrongSettings::Twice(id("laptop"))));
    assert_eq!(server.lease_count(), 1);
}

#[test]
fn a_lease_can_be_revoked() {
    let mut server = server();
    let lease = Host::laptop().lease(&mut server, NOW);
    let step = server.revoke(&lease.identity, NOW).unwrap();
    assert_eq!(step.gone, [lease.binding()]);
    assert_eq!(server.revoke(&lease.identity, NOW), None);
}
