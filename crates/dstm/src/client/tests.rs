//! The client against a server, over a network that tests can cut.

use super::*;
use crate::lease::Lease;
use crate::lease::Slot;
use crate::message::{ClientId, Key};
use crate::server::{ClientKey, Server, ServerSettings};
use fordway_counters::dstm::ServerStats;

const START: u64 = 1_767_225_600_000;

fn key() -> Key {
    Key::from_hex(&"11".repeat(32)).unwrap()
}

fn addresses() -> [SocketAddrV6; 2] {
    ["[2001:db8:f::1]:700", "[2001:db8:f::2]:700"].map(|it| it.parse().unwrap())
}

fn settings(pool: &str, lifetime: u32) -> ServerSettings {
    ServerSettings {
        pool: vec![pool.parse().unwrap()],
        ports: None,
        lifetime,
        max_lifetime: 86_400,
        rest: 30,
        tep: "2001:db8:f::1".parse().unwrap(),
        clients: vec![ClientKey { id: ClientId::new("me").unwrap(), key: key(), slot: None }],
        prefixes: Vec::new(),
    }
}

fn server(pool: &str, lifetime: u32) -> Server {
    Server::new(settings(pool, lifetime), [3; 32]).unwrap()
}

/// A client, two servers of which each can be cut off, and what the client's host has been told.
struct Bench {
    client: Client,
    servers: [Option<Server>; 2],
    now: u64,
    told: Vec<Effect>,
    sent: usize,
}

impl Bench {
    fn new(first: Option<Server>, second: Option<Server>) -> Bench {
        let servers = addresses()[..1 + usize::from(second.is_some())].to_vec();
        let id = Some(ClientId::new("me").unwrap());
        let settings = ClientSettings { servers, id, key: key(), sharing: false, lifetime: 0 };
        let client = Client::new(settings, 1, [4; 32]);
        Bench { client, servers: [first, second], now: START, told: Vec::new(), sent: 0 }
    }

    fn carry(&mut self, effects: Vec<Effect>) {
        let mut effects = std::collections::VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            let Effect::Send(to, octets) = effect else {
                self.told.push(effect);
                continue;
            };
            self.sent += 1;
            let Some(at) = addresses().iter().position(|it| *it == to) else { panic!("{to}") };
            let Some(server) = &mut self.servers[at] else { continue };
            let from = "[2001:db8::1]:5000".parse().unwrap();
            if let Some(reply) = server.receive(from, &octets, self.now).reply {
                effects.extend(self.client.receive(to, &reply.octets, self.now));
            }
        }
    }

    fn want(&mut self) {
        let effects = self.client.wanted(self.now);
        self.carry(effects);
    }

    /// Lets time pass until `end`.
    fn pass(&mut self, end: u64) {
        while let Some(next) = self.client.next().filter(|next| *next <= end) {
            self.now = next.max(self.now);
            for server in self.servers.iter_mut().flatten() {
                server.expire(self.now);
            }
            let effects = self.client.tick(self.now);
            self.carry(effects);
        }
        self.now = end;
    }

    fn lease(&self) -> Option<Lease> {
        self.servers.iter().flatten().flat_map(Server::leases).next().cloned()
    }

    fn stats(&self) -> ServerStats {
        self.servers[0].as_ref().unwrap().stats()
    }
}

#[test]
fn two_questions_and_a_lease() {
    let mut bench = Bench::new(Some(server("192.0.2.0/24", 100)), None);
    bench.want();
    let grant = *bench.client.grant().unwrap();
    assert_eq!(bench.told, [Effect::Bound(grant)]);
    assert_eq!((bench.sent, bench.client.phase()), (2, Phase::Bound));
    assert_eq!(bench.lease().unwrap().slot, grant.slot());
    assert_eq!(grant.until, START + 100_000);
    bench.want();
    assert_eq!(bench.sent, 2, "it has one");
}

#[test]
fn with_a_cookie_from_before_one_question_is_enough() {
    let mut bench = Bench::new(Some(server("192.0.2.0/24", 100)), None);
    bench.pass(START);
    assert_eq!((bench.sent, bench.client.phase()), (1, Phase::Idle));
    assert_eq!((bench.lease(), bench.told.len()), (None, 0), "nobody wants an address yet");
    bench.want();
    assert_eq!((bench.sent, bench.client.phase()), (2, Phase::Bound));
}

#[test]
fn a_client_that_needs_no_address_has_a_cookie_that_servers_take() {
    let mut bench = Bench::new(Some(server("192.0.2.0/24", 100)), None);
    for hour in 1..=10 {
        bench.pass(START + hour * 3_600_000 + hour * 77_777);
        let before = bench.sent;
        assert!((12 * hour..=18 * hour).contains(&(before as u64)), "{before} in {hour} hours");
        assert_eq!(bench.lease(), None);
        bench.want();
        assert_eq!((bench.sent - before, bench.client.phase()), (1, Phase::Bound), "{hour}");
        let effects = bench.client.release(bench.now);
        bench.carry(effects);
        bench.sent = before;
    }
}

#[test]
fn a_cookie_that_no_server_gives_is_asked_for_ever_less_often() {
    let mut bench = Bench::new(None, None);
    bench.pass(START + 60_000);
    assert!((6..=7).contains(&bench.sent), "{}", bench.sent);
    bench.pass(START + 660_000);
    assert!((15..=18).contains(&bench.sent), "{}", bench.sent);
    bench.servers[0] = Some(server("192.0.2.0/24", 100));
    bench.sent = 0;
    bench.pass(START + 760_000);
    assert_eq!((bench.sent, bench.client.phase()), (1, Phase::Idle));
}

#[test]
fn it_is_renewed_at_half_of_its_lifetime_again_and_again() {
    let mut bench = Bench::new(Some(server("192.0.2.0/24", 100)), None);
    bench.want();
    bench.pass(START + 49_000);
    assert_eq!(bench.stats().renewed, 0);
    bench.pass(START + 51_000);
    assert_eq!(bench.stats().renewed, 1);
    bench.pass(START + 1_000_000);
    assert_eq!((bench.stats().renewed, bench.stats().granted), (20, 1));
    let kept = bench.told.iter().skip(1).all(|it| matches!(it, Effect::Renewed(_)));
    assert!(kept && bench.client.phase() == Phase::Bound);
}

#[test]
fn a_server_that_is_lost_for_a_while_takes_nothing_away() {
    let mut bench = Bench::new(Some(server("192.0.2.0/24", 100)), None);
    bench.want();
    let away = bench.servers[0].take();
    bench.pass(START + 90_000);
    assert_eq!(bench.client.phase(), Phase::Bound, "valid until it ends");
    bench.servers[0] = away;
    bench.pass(START + 99_900);
    assert_eq!(bench.stats().renewed, 1);
    assert!(bench.client.grant().unwrap().until > START + 180_000);
    assert!(!bench.told.contains(&Effect::Lost));
}

#[test]
fn a_server_that_is_lost_for_good_ends_it_when_it_ends() {
    let mut bench = Bench::new(Some(server("192.0.2.0/24", 100)), None);
    bench.want();
    bench.servers[0] = None;
    let sent = bench.sent;
    bench.pass(START + 100_000);
    assert_eq!(bench.told.last(), Some(&Effect::Lost));
    assert_eq!(bench.client.phase(), Phase::Idle);
    assert!(bench.sent - sent < 30, "with longer and longer pauses: {}", bench.sent - sent);
}

#[test]
fn near_the_end_another_server_is_asked() {
    let mut bench =
        Bench::new(Some(server("192.0.2.0/24", 100)), Some(server("192.0.2.0/24", 100)));
    bench.want();
    let first = *bench.client.grant().unwrap();
    bench.servers[0] = None;
    bench.pass(START + 100_000);
    let second = *bench.client.grant().unwrap();
    assert_eq!((first.server, second.server), (addresses()[0], addresses()[1]));
    assert_eq!(first.v4, second.v4, "it wishes for the one that it has");
    assert!(!bench.told.contains(&Effect::Lost));
}

#[test]
fn it_asks_again_and_other_servers_too() {
    let mut bench = Bench::new(None, Some(server("192.0.2.0/24", 100)));
    bench.want();
    bench.pass(START + 10_000);
    assert_eq!(bench.client.grant().unwrap().server, addresses()[1]);
    let mut silent = Bench::new(None, None);
    silent.want();
    silent.pass(START + 300_000);
    assert_eq!((silent.client.phase(), silent.told.len()), (Phase::Asking, 0));
    assert!((10..=25).contains(&silent.sent), "with pauses of up to 30 s: {}", silent.sent);
}

#[test]
fn a_refusal_is_told_and_respected() {
    // Its only address is reserved for somebody else.
    let slot = Slot { v4: [192, 0, 2, 0].into(), ports: None };
    let other = ClientId::new("other").unwrap();
    let reserved = ClientKey { id: other, key: key(), slot: Some(slot) };
    let mut settings = settings("192.0.2.0/32", 100);
    settings.clients.push(reserved);
    let mut bench = Bench::new(Some(Server::new(settings, [1; 32]).unwrap()), None);
    bench.want();
    assert_eq!(bench.told, [Effect::Refused(Reason::Exhausted)]);
    let sent = bench.sent;
    bench.want();
    assert_eq!((bench.sent, bench.client.phase()), (sent, Phase::Refused));
    bench.pass(START + 10_001);
    assert_eq!(bench.client.phase(), Phase::Idle);
    bench.want();
    assert!(bench.sent > sent);
}

#[test]
fn another_server_may_have_an_address_if_the_first_has_none() {
    let empty = ServerSettings { pool: Vec::new(), ..settings("192.0.2.0/32", 100) };
    let first = Server::new(empty, [1; 32]).unwrap();
    let mut bench = Bench::new(Some(first), Some(server("192.0.2.0/24", 100)));
    bench.want();
    bench.pass(START + 1000);
    assert_eq!(bench.client.grant().map(|grant| grant.server), Some(addresses()[1]));
}

#[test]
fn it_is_given_back() {
    let mut bench = Bench::new(Some(server("192.0.2.0/24", 100)), None);
    bench.want();
    let effects = bench.client.release(bench.now);
    bench.carry(effects);
    assert_eq!(bench.told.last(), Some(&Effect::Released));
    assert_eq!((bench.lease(), bench.client.phase()), (None, Phase::Idle));
    // And when nobody answers, that is no reason to wait for ever.
    bench.want();
    bench.servers[0] = None;
    let effects = bench.client.release(bench.now);
    bench.carry(effects);
    assert_eq!(bench.client.phase(), Phase::Releasing);
    bench.pass(START + 10_000);
    assert_eq!((bench.told.last(), bench.client.phase()), (Some(&Effect::Released), Phase::Idle));
}

#[test]
fn a_server_that_has_forgotten_it_ends_it() {
    let mut bench = Bench::new(Some(server("192.0.2.0/24", 100)), None);
    bench.want();
    bench.servers[0] = Some(server("192.0.2.0/24", 100));
    bench.pass(START + 55_000);
    assert!(bench.told.contains(&Effect::Lost));
    bench.want();
    assert_eq!(bench.client.phase(), Phase::Bound);
}

#[test]
fn a_clock_that_has_gone_back_is_no_trouble() {
    let mut bench = Bench::new(Some(server("192.0.2.0/24", 100)), None);
    bench.client.number = 1 << 40;
    bench.want();
    let settings = bench.client.settings.clone();
    bench.client = Client::new(settings, 1, [5; 32]);
    bench.want();
    assert_eq!(bench.client.phase(), Phase::Bound, "with a number that is high enough");
    assert_eq!(bench.stats().stale, 1);
}

#[test]
fn a_server_that_never_takes_its_own_cookie_is_not_asked_all_the_time() {
    let mut bench = Bench::new(None, None);
    let [server, _] = addresses();
    let mut asked = 0;
    let mut effects = bench.client.wanted(START);
    while let Some(Effect::Send(_, octets)) = effects.pop() {
        asked += 1;
        let Message { transaction, number, .. } = Message::parse(&octets).unwrap();
        let offer = Message { transaction, number, body: Body::Offer { cookie: [1; COOKIE] } };
        effects = bench.client.receive(server, &offer.seal(&key()), START);
    }
    assert_eq!(asked, 3, "then it waits");
    assert!(bench.client.next().is_some_and(|next| next > START));
}

#[test]
fn answers_of_others_are_not_taken() {
    let mut bench = Bench::new(None, None);
    bench.want();
    let State::Asking(exchange) = bench.client.state else { panic!("it asks") };
    let body = Body::Ack {
        v4: [192, 0, 2, 1].into(),
        ports: None,
        lifetime: 100,
        tep: "2001:db8:f::1".parse().unwrap(),
    };
    let Exchange { transaction, number, .. } = exchange;
    let good = Message { transaction, number, body: body.clone() };
    let other_key = Key::from_hex(&"22".repeat(32)).unwrap();
    let [server, other] = addresses();
    let wrong = [
        (server, good.seal(&other_key)),
        (other, good.seal(&key())),
        (server, Message { transaction: transaction ^ 1, ..good.clone() }.seal(&key())),
        (server, Message { number: number + 1, ..good.clone() }.seal(&key())),
        (server, Vec::new()),
    ];
    for (from, octets) in wrong {
        assert!(bench.client.receive(from, &octets, bench.now).is_empty());
    }
    assert_eq!((bench.client.foreign(), bench.client.phase()), (5, Phase::Asking));
    assert_eq!(bench.client.receive(server, &good.seal(&key()), bench.now).len(), 1);
}
