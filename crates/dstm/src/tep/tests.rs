//! Both ends of the link to a tunnel end point.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV6};

use super::*;
use crate::link::{Link, LinkSettings};

fn key() -> Key {
    Key::from_hex(&"ab".repeat(16)).unwrap()
}

fn at() -> SocketAddrV6 {
    "[2001:db8::2]:4000".parse().unwrap()
}

fn binding(last: u8, remote: &str) -> Binding {
    let v4 = Ipv4Addr::new(192, 0, 2, last);
    Binding {
        v4,
        ports: None,
        remote: remote.parse().unwrap(),
        local: "2001:db8:f::1".parse().unwrap(),
    }
}

/// A server's bindings, the link, and the tunnel end point behind it.
struct Bench {
    link: Link,
    tep: Tep,
    now: u64,
    /// What the server has.
    leases: Vec<Binding>,
    /// What the tunnel end point's engine has.
    engine: BTreeSet<Ipv4Addr>,
}

impl Bench {
    fn new(leases: Vec<Binding>) -> Bench {
        let settings = LinkSettings { tep: at(), key: key() };
        let link = Link::new(settings, 1_000_000, [7; 32]);
        let tep = Tep::new(key(), 1, 1000);
        Bench { link, tep, now: 5, leases, engine: BTreeSet::new() }
    }

    fn carry(&mut self, mut messages: Vec<Vec<u8>>) {
        while let Some(octets) = messages.pop() {
            let step = self.tep.receive(&octets, self.now);
            self.take(&step);
            if let Some(reply) = step.reply {
                let all = self.leases.iter().map(|it| Change::Bind(60, *it)).collect();
                messages.extend(self.link.receive(at(), &reply, self.now, || all));
            }
        }
    }

    fn take(&mut self, step: &TepStep) {
        for gone in &step.gone {
            assert!(self.engine.remove(&gone.v4), "{gone:?} was not there");
        }
        for come in &step.come {
            assert!(self.engine.insert(come.v4), "{come:?} was there");
        }
    }

    fn tick(&mut self) {
        let messages = self.link.tick(self.now);
        self.carry(messages);
    }

    fn bind(&mut self, binding: Binding) {
        self.leases.retain(|it| it.v4 != binding.v4);
        self.leases.push(binding);
        let (_, messages) = self.link.change(&[Change::Bind(60, binding)], self.now);
        self.carry(messages);
    }

    fn agree(&self) -> bool {
        let leases: BTreeSet<Ipv4Addr> = self.leases.iter().map(|it| it.v4).collect();
        leases == self.engine && self.link.confirmed() == self.link.given()
    }
}

#[test]
fn all_bindings_are_told_and_then_what_changes() {
    let mut bench = Bench::new((1..=100).map(|last| binding(last, "2001:db8::a")).collect());
    assert!(!bench.link.is_up());
    bench.tick();
    assert!(bench.link.is_up() && bench.agree());
    bench.bind(binding(200, "2001:db8::b"));
    bench.bind(binding(1, "2001:db8::c"));
    assert!(bench.agree());
    let gone = bench.leases.remove(0);
    let (ticket, messages) = bench.link.change(&[Change::Unbind(gone.v4, None)], bench.now);
    assert!(bench.link.confirmed() < ticket);
    bench.carry(messages);
    assert!(bench.link.confirmed() == ticket && bench.agree());
}

#[test]
fn a_tunnel_end_point_that_starts_again_gets_them_all() {
    let mut bench = Bench::new(vec![binding(1, "2001:db8::a"), binding(2, "2001:db8::b")]);
    bench.tick();
    bench.tep = Tep::new(key(), 2, 1000);
    bench.engine.clear();
    // A push to the life before is not taken.
    let (_, messages) =
        bench.link.change(&[Change::Bind(60, binding(3, "2001:db8::c"))], bench.now);
    assert!(bench.tep.receive(&messages[0], bench.now).reply.is_none());
    bench.leases.push(binding(3, "2001:db8::c"));
    for _ in 0..100 {
        bench.now = bench.link.next();
        bench.tick();
    }
    assert!(bench.agree() && bench.engine.len() == 3);
}

#[test]
fn a_server_that_starts_again_replaces_what_there_was() {
    let mut bench = Bench::new(vec![binding(1, "2001:db8::a"), binding(2, "2001:db8::b")]);
    bench.tick();
    bench.leases.remove(0);
    let settings = LinkSettings { tep: at(), key: key() };
    bench.link = Link::new(settings, 2_000_000, [8; 32]);
    bench.tick();
    assert!(bench.agree() && bench.engine.len() == 1);
}

#[test]
fn a_server_whose_clock_has_gone_back_is_heard_all_the_same() {
    let mut bench = Bench::new(vec![binding(1, "2001:db8::a")]);
    bench.tick();
    let settings = LinkSettings { tep: at(), key: key() };
    bench.link = Link::new(settings, 5, [8; 32]);
    bench.leases.push(binding(2, "2001:db8::b"));
    bench.tick();
    assert!(bench.agree() && bench.engine.len() == 2);
}

#[test]
fn messages_that_are_lost_are_sent_again() {
    let mut bench = Bench::new(vec![binding(1, "2001:db8::a")]);
    bench.tick();
    // The push is lost, then its answer.
    let (_, lost) = bench.link.change(&[Change::Bind(60, binding(2, "2001:db8::b"))], bench.now);
    bench.leases.push(binding(2, "2001:db8::b"));
    let step = bench.tep.receive(&lost[0], bench.now);
    bench.take(&step);
    assert!(!bench.agree(), "the answer was lost");
    bench.now = bench.link.next();
    bench.tick();
    assert!(bench.agree());
}

#[test]
fn bindings_end_when_the_server_is_lost() {
    let mut bench = Bench::new(vec![binding(1, "2001:db8::a")]);
    bench.tick();
    assert_eq!(bench.tep.next_end(), Some(bench.now + 60_000));
    assert_eq!(bench.tep.expire(bench.now + 59_999), TepStep::default());
    let step = bench.tep.expire(bench.now + 60_000);
    assert_eq!(step.gone, bench.leases);
    assert_eq!((bench.tep.bindings().count(), bench.tep.stats().expired), (0, 1));
    let mut silent = Bench::new(Vec::new());
    silent.tick();
    for _ in 0..20 {
        silent.now = silent.link.next();
        let _nobody_hears = silent.link.tick(silent.now);
    }
    assert!(!silent.link.is_up());
}

#[test]
fn a_session_of_earlier_is_not_taken_again() {
    let mut bench = Bench::new(vec![binding(1, "2001:db8::a")]);
    let hello = bench.link.tick(bench.now).remove(0);
    let welcome = bench.tep.receive(&hello, bench.now).reply.unwrap();
    let leases = vec![Change::Bind(60, bench.leases[0])];
    let first = bench.link.receive(at(), &welcome, bench.now, || leases).remove(0);
    let step = bench.tep.receive(&first, bench.now);
    bench.take(&step);
    let settings = LinkSettings { tep: at(), key: key() };
    bench.link = Link::new(settings, 2_000_000, [8; 32]);
    bench.leases.clear();
    bench.tick();
    assert!(bench.engine.is_empty());
    let again = bench.tep.receive(&first, bench.now);
    assert_eq!((again.reply, bench.tep.stats().stale), (None, 1), "replayed");
}

#[test]
fn whoever_has_another_key_is_not_heard() {
    let other = Key::from_hex(&"cd".repeat(16)).unwrap();
    let mut tep = Tep::new(other.clone(), 1, 10);
    let mut link = Link::new(LinkSettings { tep: at(), key: key() }, 1, [1; 32]);
    let hello = link.tick(0).remove(0);
    assert_eq!(tep.receive(&hello, 0), TepStep::default());
    assert_eq!(tep.receive(&hello[1..], 0), TepStep::default());
    assert_eq!((tep.stats().forged, tep.stats().malformed), (1, 1));
    let forged =
        Message { transaction: 1, number: 0, body: Body::Welcome { nonce: 1, session: 0 } }
            .seal(&other);
    assert!(link.receive(at(), &forged, 0, Vec::new).is_empty());
    assert_eq!((link.foreign(), link.is_up()), (1, false));
}

#[test]
fn it_holds_so_many_and_no_more() {
    let mut tep = Tep::new(key(), 1, 2);
    let changes = (1..=3).map(|last| Change::Bind(60, binding(last, "2001:db8::a"))).collect();
    let body = Body::Push { nonce: 1, session: 1, position: 0, whole: true, changes };
    let step = tep.receive(&Message { transaction: 1, number: 0, body }.seal(&key()), 0);
    assert_eq!((step.come.len(), tep.stats().full), (2, 1));
}
