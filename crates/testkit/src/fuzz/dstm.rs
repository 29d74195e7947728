//! The control protocol of DSTM: whatever comes, authentic or not, is refused or read; and whatever is read,
//! no address is lent twice and what the tunnel end point has is what it was told.

use std::collections::HashMap;
use std::net::{Ipv6Addr, SocketAddrV6};

use fordway_dstm::{
    Binding, Body, Client, ClientId, ClientKey, ClientSettings, Effect, Key, Message, PrefixKey,
    Record, Server, ServerSettings, Slot, Step, Tep, TepStep,
};

/// Octets between the version and the options: kind, length, transaction, number.
const FRONT: [u8; 5] = *b"DSTM\x01";

/// Any octets. The first chooses: one message (0), messages to a server (1), to a tunnel end point (2), to a
/// client (3), lines of a lease file (4).
pub fn dstm(data: &[u8]) {
    let [chooses, data @ ..] = data else {
        return;
    };
    match chooses % 5 {
        0 => message(data),
        1 => server(data),
        2 => tep(data),
        3 => client(data),
        _ => lines(data),
    }
}

fn key() -> Key {
    Key::from_hex(&"5a".repeat(16)).expect("a key")
}

/// Kind, transaction, number and options become an authentic message.
fn authentic(part: &[u8]) -> Option<Vec<u8>> {
    let [kind, transaction, number, options @ ..] = part else {
        return None;
    };
    let mut octets = FRONT.to_vec();
    let len = u16::try_from(24 + options.len() + 34).ok()?;
    octets.push(*kind);
    octets.extend(len.to_be_bytes());
    octets.extend(u64::from(*transaction).to_be_bytes());
    octets.extend(u64::from(*number).to_be_bytes());
    octets.extend(options);
    octets.extend([0, 32]);
    let tag = key().authenticate(&octets);
    octets.extend(tag);
    Some(octets)
}

/// Parts of the data, each with its length in front.
fn parts(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let [len, rest @ ..] = data else {
            return None;
        };
        let (part, next) = rest.split_at(usize::from(*len).min(rest.len()));
        data = next;
        Some(part)
    })
}

fn message(data: &[u8]) {
    let _any = Message::parse(data);
    let Some(octets) = authentic(data) else { return };
    let Ok(read) = Message::parse(&octets) else { return };
    assert!(key().has_sealed(&octets));
    let again = read.seal(&key());
    assert_eq!(Message::parse(&again), Ok(read), "what was written");
}

fn settings(ports: Option<u32>) -> ServerSettings {
    let client =
        |name: &str, slot| ClientKey { id: ClientId::new(name).expect("a name"), key: key(), slot };
    let reserved = Slot { v4: [192, 0, 2, 1].into(), ports: None };
    ServerSettings {
        pool: vec!["192.0.2.0/30".parse().expect("a network")],
        ports,
        lifetime: 60,
        max_lifetime: 600,
        rest: 10,
        tep: Ipv6Addr::LOCALHOST,
        clients: vec![client("a", None), client("b", Some(reserved))],
        prefixes: vec![PrefixKey {
            prefix: "2001:db8::/32".parse().expect("a prefix"),
            key: key(),
            most: 3,
        }],
    }
}

/// What a tunnel end point has.
#[derive(Default)]
struct Engine(HashMap<Slot, Binding>);

impl Engine {
    fn apply(&mut self, gone: &[Binding], come: &[Binding]) {
        let slot = |it: &Binding| Slot { v4: it.v4, ports: it.ports };
        for binding in gone {
            assert_eq!(self.0.remove(&slot(binding)).as_ref(), Some(binding), "it was there");
        }
        for binding in come {
            let before = self.0.insert(slot(binding), *binding);
            assert!(before.is_none_or(|before| before == *binding), "nobody else had it");
        }
    }
}

fn server(data: &[u8]) {
    let [sharing, data @ ..] = data else {
        return;
    };
    let ports = (sharing & 1 == 1).then_some(16_384);
    let mut server = Server::new(settings(ports), [1; 32]).expect("settings");
    let (mut engine, mut now) = (Engine::default(), 1_000_000);
    // What the server offers to each address, which the next message brings.
    let mut cookies: HashMap<Ipv6Addr, [u8; 16]> = HashMap::new();
    for part in parts(data) {
        let [host, time, part @ ..] = part else { continue };
        now += u64::from(*time) * 1000;
        let at = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(*host % 5));
        let from = SocketAddrV6::new(at, 5000, 0, 0);
        let expired = server.expire(now);
        carry_out(&expired, &mut engine);
        let Some(octets) = authentic(part) else { continue };
        let Some(octets) = with_cookie(&octets, cookies.get(&at)) else { continue };
        let step = server.receive(from, &octets, now);
        carry_out(&step, &mut engine);
        if host & 0x80 != 0 {
            carry_out(&server.failed(&step, now), &mut engine);
        }
        if let Some(reply) = &step.reply {
            assert_eq!(reply.to, from);
            assert!(reply.octets.len() <= octets.len() + 64, "no amplifier");
            if let Ok(Message { body: Body::Offer { cookie }, .. }) = Message::parse(&reply.octets)
            {
                cookies.insert(at, cookie);
            }
        }
        let mut leases: Vec<Binding> = server.leases().map(fordway_dstm::Lease::binding).collect();
        let mut bindings: Vec<Binding> = engine.0.values().copied().collect();
        let order = |it: &Binding| (it.v4, it.ports, it.remote);
        leases.sort_by_key(order);
        bindings.sort_by_key(order);
        assert_eq!(leases, bindings);
    }
}

/// The message with the cookie that the host has been offered.
fn with_cookie(octets: &[u8], offered: Option<&[u8; 16]>) -> Option<Vec<u8>> {
    let Ok(mut message) = Message::parse(octets) else { return Some(octets.to_vec()) };
    match &mut message.body {
        Body::Request { cookie, .. }
        | Body::Renew { cookie, .. }
        | Body::Release { cookie, .. } => {
            *cookie = offered.copied().or(*cookie);
        }
        _ => {}
    }
    Some(message.seal(&key()))
}

fn carry_out(step: &Step, engine: &mut Engine) {
    for record in &step.records {
        assert_eq!(Record::parse(&record.to_string()).as_ref(), Ok(record));
    }
    let come: Vec<Binding> = step.come.iter().map(fordway_dstm::Lease::binding).collect();
    engine.apply(&step.gone, &come);
}

fn tep(data: &[u8]) {
    let mut tep = Tep::new(key(), 0, 4);
    let (mut engine, mut now) = (Engine::default(), 0);
    let take = |engine: &mut Engine, step: &TepStep| engine.apply(&step.gone, &step.come);
    for part in parts(data) {
        let [time, part @ ..] = part else { continue };
        now += u64::from(*time) * 1000;
        take(&mut engine, &tep.expire(now));
        let Some(octets) = authentic(part) else { continue };
        take(&mut engine, &tep.receive(&octets, now));
        assert!(tep.bindings().count() <= 4);
        assert!(tep.bindings().all(|it| engine.0.values().any(|has| has == it)));
        assert_eq!(tep.bindings().count(), engine.0.len());
    }
}

fn client(data: &[u8]) {
    let server = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 700, 0, 0);
    let settings =
        ClientSettings { servers: vec![server], id: None, key: key(), sharing: true, lifetime: 0 };
    let mut client = Client::new(settings, 0, [2; 32]);
    let (mut now, mut question) = (0, None);
    for part in parts(data) {
        let [does, time, part @ ..] = part else { continue };
        now += u64::from(*time) * 100;
        let effects = match does % 4 {
            0 => client.wanted(now),
            1 => client.release(now),
            2 => client.tick(now),
            // An answer to what it has asked last.
            _ => match (authentic(part).map(|octets| Message::parse(&octets)), question) {
                (Some(Ok(answer)), Some((transaction, number))) => {
                    let answer = Message { transaction, number, ..answer };
                    client.receive(server, &answer.seal(&key()), now)
                }
                _ => client.receive(server, part, now),
            },
        };
        let sent = effects.iter().filter_map(|effect| match effect {
            Effect::Send(_, octets) => Message::parse(octets).ok(),
            _ => None,
        });
        let sent: Vec<Message> = sent.collect();
        assert!(sent.len() <= 1, "one question at a time");
        question = sent.last().map(|it| (it.transaction, it.number)).or(question);
        assert!(
            client.grant().is_none_or(|grant| client.next().is_some_and(|it| it <= grant.until))
        );
    }
}

fn lines(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for line in text.lines() {
        if let Ok(record) = Record::parse(line) {
            assert_eq!(Record::parse(&record.to_string()), Ok(record));
        }
    }
}
