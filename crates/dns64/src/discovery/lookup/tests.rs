use hickory_proto::op::{MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{AAAA, SOA};
use hickory_proto::rr::{RData, Record};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn server(number: u8) -> SocketAddr {
    format!("[2001:db8::{number}]:53").parse().unwrap()
}

fn message(code: ResponseCode) -> Message {
    let mut message = Message::new(1, MessageType::Response, OpCode::Query);
    message.metadata.response_code = code;
    message
}

/// An answer with these addresses.
fn positive(ttl: u32, addresses: &[&str]) -> Message {
    let mut message = message(ResponseCode::NoError);
    for address in addresses {
        let data = RData::AAAA(AAAA(address.parse().unwrap()));
        message.add_answer(Record::from_rdata(well_known_name(), ttl, data));
    }
    message
}

fn negative(code: ResponseCode, ttl: u32) -> Message {
    let mut message = message(code);
    let soa = SOA::new(well_known_name(), well_known_name(), 1, 2, 3, 4, ttl);
    message.authorities = vec![Record::from_rdata(well_known_name(), ttl, RData::SOA(soa))];
    message
}

/// A lookup with a clock.
struct Run {
    lookup: Lookup,
    now: Time,
    random: Random,
    settings: Settings,
    ids: u64,
    life: u64,
}

impl Run {
    fn new(servers: u8) -> Self {
        let mut lookup = Lookup::default();
        let servers: Vec<_> = (1..=servers).map(server).collect();
        lookup.set_servers(&servers, MINUTE);
        let settings = Settings::default();
        Self { lookup, now: MINUTE, random: Random::new(7), settings, ids: 0, life: 1 }
    }

    /// Waits for the next question; the time until then.
    fn wait(&mut self) -> (Duration, Ask) {
        let start = self.now;
        let next = self.lookup.next(self.now).expect("nothing is being asked");
        if next > self.now {
            let before = self.lookup.poll(next - Duration::from_nanos(1), 0);
            assert!(before.is_none(), "asked too early: {before:?}");
        }
        self.now = self.now.max(next);
        self.ids += 1;
        let query = self.lookup.poll(self.now, self.ids).expect("it is due");
        (self.now - start, query)
    }

    fn answer(&mut self, answer: Result<&Message, Failure>) {
        assert!(self.lookup.is_asking(self.ids));
        let (settings, random) = (&self.settings, &mut self.random);
        self.lookup.answered(self.now, answer, self.life, settings, random);
    }

    fn fail(&mut self) -> Duration {
        let (waited, _) = self.wait();
        self.answer(Err(Failure::Timeout));
        waited
    }

    fn prefixes(&self) -> Vec<String> {
        let answer = self.lookup.answer(self.now);
        let prefixes = answer.map(|(answer, _)| answer.prefixes.clone()).unwrap_or_default();
        prefixes.iter().map(|(candidate, _)| candidate.pool6.to_string()).collect()
    }
}

const WELL_KNOWN: [&str; 2] = ["64:ff9b::c000:aa", "64:ff9b::c000:ab"];

#[test]
fn the_question_is_for_aaaa_of_the_well_known_name() {
    let mut run = Run::new(1);
    let (waited, query) = run.wait();
    assert_eq!(waited, Duration::ZERO);
    assert_eq!(
        (query.name.to_ascii().as_str(), query.record_type),
        ("ipv4only.arpa.", RecordType::AAAA)
    );
    assert_eq!(query.server, server(1));
    assert!(!query.authenticated);
}

/// RFC 7050 section 3: repeated ten seconds before the time to live is over.
#[test]
fn an_answer_is_asked_for_again_ten_seconds_before_its_end() {
    let mut run = Run::new(1);
    for ttl in [300, 86_400, 61] {
        run.wait();
        run.answer(Ok(&positive(ttl, &WELL_KNOWN)));
        assert_eq!(run.prefixes(), ["64:ff9b::/96"]);
        let next = run.lookup.next(run.now).unwrap();
        let ends = run.lookup.ends(run.now, true).unwrap();
        assert_eq!(ends - run.now, Duration::from_secs(ttl.into()));
        assert_eq!(ends - next, REFRESH);
    }
}

#[test]
fn a_short_time_to_live_does_not_make_it_ask_all_the_time() {
    let mut run = Run::new(1);
    for ttl in [0, 1, 10, 59] {
        run.wait();
        run.answer(Ok(&positive(ttl, &WELL_KNOWN)));
        assert_eq!(run.lookup.next(run.now).unwrap() - run.now, SHORTEST - REFRESH);
        assert_eq!(run.lookup.ends(run.now, true).unwrap() - run.now, SHORTEST);
    }
}

#[test]
fn nothing_is_asked_as_long_as_a_negative_answer_holds() {
    for code in [ResponseCode::NXDomain, ResponseCode::NoError] {
        let mut run = Run::new(1);
        run.wait();
        run.answer(Ok(&negative(code, 3600)));
        run.lookup.reachable(run.now);
        assert_eq!(run.wait().0, Duration::from_secs(3600), "{code}");
        // Another network may say otherwise.
        run.answer(Ok(&negative(code, 3600)));
        run.lookup.restart(run.now);
        assert_eq!(run.wait().0, Duration::ZERO);
        // Without a time to live, and with a very short one.
        run.answer(Ok(&message(code)));
        assert_eq!(run.wait().0, SHORTEST);
        run.answer(Ok(&negative(code, 1)));
        assert_eq!(run.wait().0, SHORTEST);
    }
}

#[test]
fn every_resolver_is_asked_in_its_turn() {
    let mut run = Run::new(3);
    assert_eq!(run.wait().1.server, server(1));
    run.answer(Ok(&negative(ResponseCode::NXDomain, 3600)));
    let (waited, query) = run.wait();
    assert_eq!((waited, query.server), (Duration::ZERO, server(2)));
    run.answer(Err(Failure::Timeout));
    let (waited, query) = run.wait();
    assert_eq!((waited, query.server), (Duration::ZERO, server(3)));
    run.answer(Ok(&positive(300, &WELL_KNOWN)));
    assert_eq!(run.prefixes(), ["64:ff9b::/96"]);
    // The first has said that there is nothing, for an hour; the second may answer now.
    let (waited, query) = run.wait();
    assert_eq!((waited.as_secs(), query.server), (290, server(2)));
}

#[test]
fn without_an_answer_attempts_become_ever_more_seldom() {
    let mut run = Run::new(2);
    let mut waited = Vec::new();
    for _ in 0..14 {
        assert_eq!(run.wait().1.server, server(1));
        run.answer(Err(Failure::Timeout));
        assert_eq!(run.fail(), Duration::ZERO);
        waited.push(run.lookup.next(run.now).unwrap() - run.now);
    }
    for (round, waited) in waited.iter().enumerate() {
        let expected = Duration::from_secs(1 << round).min(LONGEST_RETRY);
        assert!(
            *waited >= expected * 9 / 10 && *waited <= expected * 11 / 10,
            "{round}: {waited:?}"
        );
    }
    // What could not be reached may be reachable: at once, and from the beginning.
    run.lookup.reachable(run.now);
    run.lookup.reachable(run.now);
    assert_eq!(run.fail(), Duration::ZERO);
}

#[test]
fn an_answer_outlives_resolvers_that_do_not_answer() {
    let mut run = Run::new(1);
    run.wait();
    run.answer(Ok(&positive(300, &WELL_KNOWN)));
    let until = run.now + Duration::from_secs(300);
    while run.now < until + STALE {
        run.lookup.expire(run.now, true);
        let (answer, stale) = run.lookup.answer(run.now).expect("it is still there");
        assert_eq!((answer.until, stale), (until, run.now >= until));
        run.fail();
    }
    run.lookup.expire(run.now, true);
    assert_eq!(run.prefixes(), [""; 0]);
}

#[test]
fn what_nobody_needs_ends_with_its_time() {
    let mut run = Run::new(1);
    run.wait();
    run.answer(Ok(&positive(300, &WELL_KNOWN)));
    run.now += Duration::from_secs(300);
    run.lookup.expire(run.now, false);
    assert_eq!(run.prefixes(), [""; 0]);
}

#[test]
fn a_negative_answer_withdraws_at_once_what_the_same_resolver_said() {
    let mut run = Run::new(2);
    run.wait();
    run.answer(Ok(&positive(300, &WELL_KNOWN)));
    run.wait();
    run.answer(Ok(&negative(ResponseCode::NXDomain, 300)));
    assert_eq!(run.prefixes(), [""; 0]);

    let mut run = Run::new(2);
    run.fail();
    run.wait();
    run.answer(Ok(&positive(300, &WELL_KNOWN)));
    // The first resolver now answers: that it knows nothing takes nothing from the second.
    assert_eq!(run.wait().1.server, server(1));
    run.answer(Ok(&negative(ResponseCode::NXDomain, 300)));
    assert_eq!(run.prefixes(), ["64:ff9b::/96"]);
}

#[test]
fn prefixes_change_and_keep_their_place_when_a_resolver_turns_its_records() {
    let (one, two) = ("2001:db8:1::c000:aa", "2001:db8:2::c000:aa");
    let mut run = Run::new(1);
    let told = |run: &mut Run, addresses: &[&str]| {
        run.wait();
        run.answer(Ok(&positive(300, addresses)));
        run.prefixes()
    };
    assert_eq!(told(&mut run, &[one, two]), ["2001:db8:1::/96", "2001:db8:2::/96"]);
    assert_eq!(told(&mut run, &[two, one]), ["2001:db8:1::/96", "2001:db8:2::/96"]);
    assert_eq!(told(&mut run, &[two]), ["2001:db8:2::/96"]);
    assert_eq!(told(&mut run, &[WELL_KNOWN[0], two]), ["64:ff9b::/96", "2001:db8:2::/96"]);
}

#[test]
fn addresses_without_a_prefix_are_as_none() {
    let mut run = Run::new(1);
    run.wait();
    run.answer(Ok(&positive(600, &["2001:db8:bad::1"])));
    assert_eq!(run.prefixes(), [""; 0]);
    let said = run.lookup.reports()[0].said.clone();
    assert_eq!(said, Some(Said::OtherAddresses("2001:db8:bad::1".parse().unwrap())));
    assert_eq!(run.wait().0, Duration::from_secs(600));
}

#[test]
fn a_resolver_without_a_prefix_is_asked_what_it_knows() {
    let mut run = Run::new(1);
    run.settings.diagnose = true;
    run.wait();
    run.answer(Ok(&negative(ResponseCode::NoError, 300)));
    let (waited, query) = run.wait();
    assert_eq!((waited, query.record_type), (Duration::ZERO, RecordType::A));
    let mut known = message(ResponseCode::NoError);
    let data = RData::A("192.0.0.170".parse().unwrap());
    known.add_answer(Record::from_rdata(well_known_name(), 60, data));
    run.answer(Ok(&known));
    assert_eq!(run.lookup.reports()[0].knows_name, Some(true));
    assert_eq!(run.wait().0, Duration::from_secs(300));
}

#[test]
fn a_prefix_is_used_while_it_is_being_validated() {
    let mut run = Run::new(1);
    run.lookup.set_servers(&["[::1]:53".parse().unwrap()], run.now);
    run.settings.trusted_domains = vec![Name::from_ascii("example.com.").unwrap()];
    let proved = |run: &Run| run.lookup.answer(run.now).unwrap().0.prefixes[0].1.clone();
    let translator = Name::from_ascii("nat64.example.com.").unwrap();
    let prefix = "2001:db8:42::c000:aa";
    run.wait();
    run.answer(Ok(&positive(300, &[prefix])));
    assert_eq!(proved(&run), Validation::NotTried);
    for turn in 0..2 {
        let (_, query) = run.wait();
        assert!(query.authenticated && query.record_type == RecordType::PTR);
        let mut names = message(ResponseCode::NoError);
        let data = RData::PTR(hickory_proto::rr::rdata::PTR(translator.clone()));
        names.add_answer(Record::from_rdata(query.name, 60, data));
        run.answer(Ok(&names));
        let (_, query) = run.wait();
        assert!(query.authenticated && query.record_type == RecordType::AAAA);
        let mut addresses = message(ResponseCode::NoError);
        addresses.metadata.authentic_data = true;
        let data = RData::AAAA(AAAA(prefix.parse().unwrap()));
        addresses.add_answer(Record::from_rdata(query.name, 60, data));
        run.answer(Ok(&addresses));
        assert_eq!(proved(&run), Validation::Dnssec { name: translator.clone() });
        if turn == 0 {
            // Asked for again, it stays proved until the new proof is done.
            run.wait();
            run.answer(Ok(&positive(300, &[prefix])));
            assert_eq!(proved(&run), Validation::Dnssec { name: translator.clone() });
        }
    }
}

#[test]
fn a_late_answer_to_an_earlier_question_is_nobodys() {
    let mut run = Run::new(1);
    run.wait();
    run.lookup.restart(run.now);
    assert!(!run.lookup.is_asking(run.ids));
}
