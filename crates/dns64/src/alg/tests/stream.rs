//! DNS over TCP: what goes on of what came.

use fordway_xlat::alg::{Advice, Alg, AlgCounters, Context, Dialogue, Ends, Mappings};

use super::*;

/// The tables of a bench.
struct Tables<'a>(&'a Bench);

impl Mappings for Tables<'_> {
    fn expect(
        &mut self,
        _host: (Ipv6Addr, u16),
        _at: Ipv4Addr,
        _from: Ipv4Addr,
        _pool6: u8,
    ) -> Option<(Ipv4Addr, u16)> {
        None
    }

    fn v6_of(&self, _pool6: u8, _addr: Ipv4Addr) -> Option<Ipv6Addr> {
        None
    }

    fn tables(&self) -> Option<(&Config, &Nat64)> {
        Some((&self.0.config, &self.0.nat64))
    }
}

/// A connection of an IPv6 client with an IPv4 server.
struct Connection<'a> {
    bench: &'a Bench,
    dialogue: Box<dyn Dialogue>,
    /// What is not dealt with: from IPv4, from IPv6.
    waits: [Vec<u8>; 2],
    may_keep: bool,
}

impl<'a> Connection<'a> {
    fn new(bench: &'a Bench) -> Connection<'a> {
        let gateway = Arc::new(bench.gateway.with(bench.gateway.policy().clone()));
        let streams = DnsStreams::new(gateway);
        assert_eq!((streams.label(), streams.ports()), ("dns", &[53][..]));
        let (dialogue, waits) = (streams.open(&Self::ends()), [Vec::new(), Vec::new()]);
        Connection { bench, dialogue, waits, may_keep: true }
    }

    fn ends() -> Ends {
        let (host, local, remote) = ends(Side::V6);
        Ends { opener: Side::V6, host, local, remote, pool6: 0 }
    }

    /// Sends octets from one side; gives what arrives at the other.
    fn send(&mut self, from: Side, octets: &[u8], ended: bool) -> Vec<u8> {
        let waits = &mut self.waits[usize::from(from == Side::V6)];
        waits.extend_from_slice(octets);
        let (mut tables, counters) = (Tables(self.bench), AlgCounters::default());
        let mut context = Context::new(Self::ends(), self.bench.now, &counters, &mut tables);
        context.may_keep = self.may_keep;
        let mut arrived = Vec::new();
        while !waits.is_empty() {
            let mut out = Vec::new();
            match self.dialogue.octets(from, waits, ended, &mut out, &mut context) {
                Advice::Hold => break,
                Advice::Pass(number) => arrived.extend(waits.drain(..number)),
                Advice::Replace(number) => {
                    waits.drain(..number);
                    arrived.extend(out);
                }
                Advice::Bypass => arrived.append(waits),
            }
        }
        arrived
    }
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes()[..], message].concat()
}

fn messages(mut octets: &[u8]) -> Vec<Message> {
    let mut all = Vec::new();
    while let Some((length, rest)) = octets.split_first_chunk() {
        let (message, behind) = rest.split_at(usize::from(u16::from_be_bytes(*length)));
        all.push(Message::from_vec(message).unwrap());
        octets = behind;
    }
    all
}

/// The server's answer to a question that has arrived there.
fn answer(question: &Message, text: &str) -> Vec<u8> {
    let Upstream::Message { mut message, .. } = reply(text) else { panic!("{text}") };
    message.metadata.id = question.metadata.id;
    message.queries = question.queries.clone();
    framed(&message.to_vec().unwrap())
}

const AAAA_NONE: &str = NO_A;
const A: &str = "NOERROR\nwww.example.net. 60 A 198.51.100.80";
const TRANSLATED: &str = "NOERROR\nwww.example.net. 60 AAAA 2001:db8:64::c633:6450";

/// The two questions that arrive for one of the client's.
fn asked(connection: &mut Connection<'_>) -> [Message; 2] {
    let question = framed(&query("AAAA www.example.net.").to_vec().unwrap());
    messages(&connection.send(Side::V6, &question, false)).try_into().unwrap()
}

#[test]
fn both_families_are_asked_for_and_one_answer_comes() {
    for swapped in [false, true] {
        let bench = Bench::new();
        let mut connection = Connection::new(&bench);
        let [own, other] = asked(&mut connection);
        assert_eq!(own.queries[0].query_type, RecordType::AAAA);
        assert_eq!(other.queries[0].query_type, RecordType::A);
        assert_ne!(own.metadata.id, other.metadata.id);
        let mut answers = [answer(&own, AAAA_NONE), answer(&other, A)];
        if swapped {
            answers.reverse();
        }
        assert!(connection.send(Side::V4, &answers[0], false).is_empty());
        let got = messages(&connection.send(Side::V4, &answers[1], false));
        assert_eq!((got.len(), show(&got[0]).as_str()), (1, TRANSLATED), "{swapped}");
        assert_eq!(got[0].metadata.id, own.metadata.id);
    }
}

#[test]
fn an_answer_that_has_all_goes_on_at_once_and_the_other_nowhere() {
    let bench = Bench::new();
    let mut connection = Connection::new(&bench);
    let [own, other] = asked(&mut connection);
    let native = answer(&own, "NOERROR\nwww.example.net. 60 AAAA 2001:db8:9::1");
    assert_eq!(connection.send(Side::V4, &native, false), native);
    assert!(connection.send(Side::V4, &answer(&other, A), false).is_empty());
    // The connection goes on; other questions pass as they are.
    let soa = framed(&query("SOA example.net.").to_vec().unwrap());
    assert_eq!(connection.send(Side::V6, &soa, false), soa);
    // The other one first: it waits, and is given up.
    let [own, other] = asked(&mut connection);
    assert!(connection.send(Side::V4, &answer(&other, A), false).is_empty());
    let native = answer(&own, "NOERROR\nwww.example.net. 60 AAAA 2001:db8:9::1");
    assert_eq!(connection.send(Side::V4, &native, false), native);
}

#[test]
fn octets_come_as_they_like() {
    let bench = Bench::new();
    let mut connection = Connection::new(&bench);
    let question = framed(&query("AAAA www.example.net.").to_vec().unwrap());
    let mut arrived = Vec::new();
    for octet in &question {
        arrived.extend(connection.send(Side::V6, &[*octet], false));
    }
    let [own, other]: [Message; 2] = messages(&arrived).try_into().unwrap();
    let answers = [answer(&own, AAAA_NONE), answer(&other, A)].concat();
    let (front, back) = answers.split_at(answers.len() - 3);
    assert!(connection.send(Side::V4, front, false).is_empty());
    let got = messages(&connection.send(Side::V4, back, false));
    assert_eq!(show(&got[0]), TRANSLATED);
}

#[test]
fn a_server_that_ends_early_has_said_what_it_said() {
    let bench = Bench::new();
    let mut connection = Connection::new(&bench);
    let [own, _] = asked(&mut connection);
    let negative = answer(&own, AAAA_NONE);
    assert_eq!(connection.send(Side::V4, &negative, true), negative);
    // Half a message is passed on as it is when nothing follows.
    let mut connection = Connection::new(&bench);
    assert_eq!(connection.send(Side::V6, &[0, 40, 1, 2], true), [0, 40, 1, 2]);
}

#[test]
fn what_is_too_long_or_no_message_passes() {
    let bench = Bench::new();
    let mut connection = Connection::new(&bench);
    let long = framed(&vec![7; 20_000]);
    let mut arrived = Vec::new();
    for part in long.chunks(1400) {
        arrived.extend(connection.send(Side::V4, part, false));
    }
    assert_eq!(arrived, long);
    for junk in [&[][..], &[1], &[9; 30]] {
        let junk = framed(junk);
        assert_eq!(connection.send(Side::V6, &junk, false), junk);
    }
    // Behind them messages are found again.
    assert_eq!(asked(&mut connection).len(), 2);
}

#[test]
fn a_connection_holds_so_many_questions() {
    let bench = Bench::new();
    let mut connection = Connection::new(&bench);
    let mut question = query("AAAA www.example.net.");
    let mut doubled = 0;
    for id in 0..200 {
        question.metadata.id = id * 7;
        let sent = framed(&question.to_vec().unwrap());
        let arrived = connection.send(Side::V6, &sent, false);
        doubled += usize::from(arrived != sent);
        assert!(arrived.starts_with(&sent));
    }
    assert_eq!(doubled, 64);
}

#[test]
fn names_of_addresses_are_asked_for_once() {
    let bench = Bench::new();
    let mut connection = Connection::new(&bench);
    let name = "0.5.4.6.3.3.6.c.0.0.0.0.0.0.0.0.0.0.0.0.4.6.0.0.8.b.d.0.1.0.0.2.ip6.arpa.";
    let question = framed(&query(&format!("PTR {name}")).to_vec().unwrap());
    let [seen]: [Message; 1] =
        messages(&connection.send(Side::V6, &question, false)).try_into().unwrap();
    assert_eq!(seen.queries[0].name.to_string(), "80.100.51.198.in-addr.arpa.");
    let said = answer(&seen, "NOERROR\n80.100.51.198.in-addr.arpa. 300 PTR old.example.net.");
    let got = messages(&connection.send(Side::V4, &said, false));
    assert_eq!(show(&got[0]), format!("NOERROR\n{name} 300 PTR old.example.net."));
}

/// A client and a server that belong together let a connection keep no more than its part, and nobody's answer is lost.
#[test]
fn what_waits_on_a_connection_is_bounded() {
    let bench = Bench::new();
    let mut connection = Connection::new(&bench);
    let mut asked = Vec::new();
    for id in 0..60 {
        let mut question = query("AAAA www.example.net.");
        question.metadata.id = 2 * id;
        let sent = connection.send(Side::V6, &framed(&question.to_vec().unwrap()), false);
        let [own, _other] = messages(&sent).try_into().unwrap();
        asked.push(own);
    }
    // Long, and without an answer for the client: each would wait for the other one.
    let long = format!("NOERROR\n{}", "www.example.net. 60 TXT x\n".repeat(120));
    let mut heard = 0;
    for (number, question) in asked.iter().enumerate() {
        let arrived = connection.send(Side::V4, &answer(question, long.trim_end()), false);
        heard += messages(&arrived).len();
        assert!(connection.dialogue.kept() < 64 * 1024, "{number}: {}", connection.dialogue.kept());
    }
    assert!(heard > 30 && heard < 60, "{heard} of 60 were told at once");
    // When memory is short everywhere, a question is not kept at all.
    let mut connection = Connection::new(&bench);
    connection.may_keep = false;
    let question = framed(&query("AAAA www.example.net.").to_vec().unwrap());
    assert_eq!(connection.send(Side::V6, &question, false), question);
    assert_eq!(connection.dialogue.kept(), 0);
}

#[test]
fn an_answer_that_could_not_wait_is_as_if_it_said_nothing() {
    let bench = Bench::new();
    let mut connection = Connection::new(&bench);
    let question = framed(&query("AAAA www.example.net.").to_vec().unwrap());
    let [own, other] = messages(&connection.send(Side::V6, &question, false)).try_into().unwrap();
    connection.may_keep = false;
    assert_eq!(messages(&connection.send(Side::V4, &answer(&other, A), false)), []);
    let said = answer(&own, NO_A);
    assert_eq!(connection.send(Side::V4, &said, false), said);
    assert_eq!(connection.dialogue.kept(), 0);
}
