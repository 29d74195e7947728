use std::time::Duration;

use hickory_proto::op::{MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::AAAA;
use hickory_proto::rr::{RData, Record};

use super::super::{Advertisement, Said};
use super::*;

mod model;

const SECOND: Duration = Duration::from_secs(1);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn pool6(text: &str) -> Pool6 {
    text.parse().unwrap()
}

fn link(index: u32, up: bool) -> Link {
    Link {
        device: Device { index, name: format!("dev{index}") },
        up,
        was_down: false,
        multicast: true,
        addressed: true,
        default_route: Some(1024),
    }
}

fn router(number: u16) -> std::net::Ipv6Addr {
    std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number)
}

fn resolver(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A host that does what it is told at once.
struct Host {
    discovery: Discovery,
    now: Time,
    solicited: Vec<(Time, u32)>,
    asked: Vec<(Time, Ask)>,
}

impl Host {
    fn new(settings: Settings) -> Self {
        let discovery = Discovery::new(settings, 42);
        Self { discovery, now: secs(1000), solicited: Vec::new(), asked: Vec::new() }
    }

    fn handle(&mut self, event: Event) {
        self.discovery.handle(self.now, event);
        self.poll();
    }

    fn poll(&mut self) {
        for turn in 0.. {
            assert!(turn < 100, "there is always something to do");
            match self.discovery.poll(self.now) {
                Some(Action::Solicit { device }) => self.solicited.push((self.now, device)),
                Some(Action::Ask(ask)) => self.asked.push((self.now, ask)),
                None => break,
            }
        }
        if let Some(deadline) = self.discovery.deadline(self.now) {
            assert!(deadline > self.now, "it would come back at once, for ever");
        }
    }

    /// Lets time pass, with everything that is due on the way.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(deadline) = self.discovery.deadline(self.now).filter(|at| *at <= until) {
            self.now = deadline;
            self.poll();
        }
        self.now = until;
        self.poll();
    }

    fn advertise(&mut self, device: u32, from: u16, pref64: &[(&str, u64)], rdnss: &[&str]) {
        let advertisement = Advertisement {
            default_router: true,
            pref64: pref64.iter().map(|(text, life)| (pool6(text), secs(*life))).collect(),
            rdnss: rdnss.iter().map(|text| (text.parse().unwrap(), Some(secs(600)))).collect(),
        };
        self.handle(Event::Advertisement { device, router: router(from), advertisement });
    }

    /// Answers the last question with these addresses; NXDOMAIN if there is none.
    fn answer(&mut self, ttl: u32, addresses: &[&str]) {
        let (_, ask) = self.asked.last().unwrap();
        let mut message = Message::new(1, MessageType::Response, OpCode::Query);
        if addresses.is_empty() {
            message.metadata.response_code = ResponseCode::NXDomain;
        }
        for address in addresses {
            let data = RData::AAAA(AAAA(address.parse().unwrap()));
            message.add_answer(Record::from_rdata(ask.name.clone(), ttl, data));
        }
        let id = ask.id;
        self.handle(Event::Answer { id, answer: Ok(Box::new(message)) });
    }

    fn fail(&mut self) {
        let id = self.asked.last().unwrap().1.id;
        self.handle(Event::Answer { id, answer: Err(Failure::Timeout) });
    }

    fn prefixes(&self) -> Vec<String> {
        let found = self.discovery.found(self.now);
        found.prefixes.iter().map(|prefix| prefix.pool6.to_string()).collect()
    }
}

fn host() -> Host {
    Host::new(Settings::default())
}

const A: &str = "2001:db8:a::/96";
const B: &str = "2001:db8:b::/96";
const A_ADDRESS: &str = "2001:db8:a::c000:aa";

#[test]
fn a_prefix_of_an_advertisement_is_used_until_its_lifetime_ends() {
    let mut host = host();
    host.handle(Event::Resolvers(vec![resolver("[2001:db8::53]:53")]));
    host.handle(Event::Links(vec![link(1, true)]));
    assert_eq!(host.prefixes(), [""; 0]);
    host.advertise(1, 1, &[(A, 600)], &[]);
    let found = host.discovery.found(host.now);
    assert_eq!(
        found.prefixes,
        [Prefix {
            pool6: pool6(A),
            source: Source::RouterAdvertisement { router: router(1) },
            device: Some(Device { index: 1, name: "dev1".to_owned() }),
            until: Some(host.now + secs(600)),
            validation: Validation::NotNeeded,
            stale: false,
        }]
    );
    host.pass(secs(599));
    assert_eq!(host.prefixes(), [A]);
    assert_eq!(host.asked, [], "nobody has to be asked");
    host.pass(SECOND);
    assert_eq!(host.prefixes(), [""; 0]);
    // Now DNS is asked.
    assert_eq!(host.asked.len(), 1);
    host.answer(300, &["64:ff9b::c000:aa"]);
    assert_eq!(host.prefixes(), ["64:ff9b::/96"]);
    host.advertise(1, 1, &[(A, 600)], &[]);
    assert_eq!(host.prefixes(), [A], "RFC 8781 section 5.1: advertisements before DNS");
}

#[test]
fn lifetime_zero_withdraws_and_each_router_speaks_for_itself() {
    let mut host = host();
    host.handle(Event::Links(vec![link(1, true)]));
    host.advertise(1, 1, &[(A, 600), (B, 600)], &[]);
    host.advertise(1, 2, &[(B, 1200)], &[]);
    assert_eq!(host.prefixes(), [A, B]);
    let until = |host: &Host| host.discovery.found(host.now).prefixes.last().unwrap().until;
    assert_eq!(until(&host), Some(host.now + secs(1200)), "the later of the two");
    host.advertise(1, 1, &[(A, 0), (B, 0)], &[]);
    assert_eq!(host.prefixes(), [B], "the other router still says it");
    host.advertise(1, 2, &[(B, 0)], &[]);
    assert_eq!(host.prefixes(), [""; 0]);
    // Withdrawing what nobody has said is nothing.
    host.advertise(1, 2, &[(B, 0)], &[]);
    assert_eq!(host.prefixes(), [""; 0]);
}

#[test]
fn the_routers_own_lifetime_does_not_matter() {
    let mut host = host();
    host.handle(Event::Links(vec![link(1, true)]));
    let advertisement =
        Advertisement { default_router: false, pref64: vec![(pool6(A), secs(600))], rdnss: vec![] };
    host.handle(Event::Advertisement { device: 1, router: router(1), advertisement });
    assert_eq!(host.prefixes(), [A]);
    // An advertisement without the option does not withdraw it.
    host.advertise(1, 1, &[], &[]);
    assert_eq!(host.prefixes(), [A]);
}

#[test]
fn many_options_are_bounded() {
    let mut host = host();
    host.handle(Event::Links(vec![link(1, true)]));
    for number in 0..1000u16 {
        let text = format!("2001:db8:{number:x}::/96");
        host.advertise(1, number, &[(&text, 600)], &["2001:db8::53"]);
    }
    assert_eq!(host.prefixes().len(), 32);
    assert_eq!(host.discovery.report(host.now).devices[0].routers.len(), 16);
}

#[test]
fn resolvers_of_the_advertisement_go_before_those_of_the_host() {
    let mut host = host();
    host.handle(Event::Resolvers(vec![resolver("192.0.2.53:53")]));
    host.handle(Event::Links(vec![link(1, true), link(2, true)]));
    host.advertise(1, 1, &[], &["fe80::53", "2001:db8::53"]);
    host.pass(secs(1));
    let (_, ask) = host.asked.first().unwrap();
    assert_eq!(ask.server, resolver("[fe80::53%1]:53"));
    assert_eq!(ask.device.as_ref().unwrap().index, 1);
    host.answer(300, &[A_ADDRESS]);
    let found = host.discovery.found(host.now);
    assert_eq!(found.prefixes.len(), 1);
    assert_eq!(found.prefixes[0].device.as_ref().unwrap().index, 1);
    assert_eq!(found.prefixes[0].source, Source::Dns { server: resolver("[fe80::53%1]:53") });
    // The other link has no router that says anything: the host's resolver is asked for it.
    host.pass(secs(2));
    let (_, ask) = host.asked.last().unwrap();
    assert_eq!((ask.server, ask.device.is_none()), (resolver("192.0.2.53:53"), true));
}

#[test]
fn the_hosts_resolvers_wait_for_a_first_advertisement() {
    let mut host = host();
    host.handle(Event::Resolvers(vec![resolver("192.0.2.53:53")]));
    let start = host.now;
    host.handle(Event::Links(vec![link(1, true)]));
    host.pass(secs(60));
    assert_eq!(host.asked[0].0 - start, secs(2));
    // Where none can be heard, nothing is waited for.
    let mut host = Host::new(Settings { advertisements: false, ..Settings::default() });
    host.handle(Event::Resolvers(vec![resolver("192.0.2.53:53")]));
    host.handle(Event::Links(vec![link(1, true)]));
    assert_eq!(host.asked.len(), 1);
    assert_eq!(host.solicited, []);
}

#[test]
fn nobody_is_asked_without_an_address_or_a_route() {
    let mut host = host();
    host.handle(Event::Resolvers(vec![resolver("192.0.2.53:53")]));
    let mut bare = link(1, true);
    (bare.addressed, bare.default_route) = (false, None);
    host.handle(Event::Links(vec![bare.clone()]));
    host.pass(secs(600));
    assert_eq!(host.asked, []);
    bare.addressed = true;
    host.handle(Event::Links(vec![bare.clone()]));
    host.pass(secs(60));
    assert_eq!(host.asked, []);
    bare.default_route = Some(100);
    host.handle(Event::Links(vec![bare]));
    assert_eq!(host.asked.len(), 1);
}

#[test]
fn an_advertisement_from_where_no_route_leads_is_not_used() {
    let mut host = host();
    let mut bridge = link(2, true);
    bridge.default_route = None;
    host.handle(Event::Links(vec![link(1, true), bridge.clone()]));
    host.advertise(2, 1, &[(B, 600)], &[]);
    assert_eq!(host.prefixes(), [""; 0]);
    host.advertise(1, 1, &[(A, 600)], &[]);
    assert_eq!(host.prefixes(), [A]);
    let report = host.discovery.report(host.now);
    let known: Vec<_> = report.prefixes.iter().map(|one| one.pool6).collect();
    assert_eq!(known, [pool6(A), pool6(B)]);
    assert_eq!(report.devices.iter().map(|one| one.used).collect::<Vec<_>>(), [true, false]);
    // Named by the operator it is.
    let mut host = Host::new(Settings { device: Some("dev2".to_owned()), ..Settings::default() });
    host.handle(Event::Links(vec![link(1, true), bridge]));
    host.advertise(2, 1, &[(B, 600)], &[]);
    host.advertise(1, 1, &[(A, 600)], &[]);
    assert_eq!(host.prefixes(), [B]);
}

#[test]
fn uplinks_are_in_the_order_of_their_routes() {
    let mut host = host();
    let (mut one, mut two) = (link(1, true), link(2, true));
    (one.default_route, two.default_route) = (Some(600), Some(100));
    host.handle(Event::Links(vec![one.clone(), two.clone()]));
    host.advertise(1, 1, &[(A, 600)], &[]);
    host.advertise(2, 1, &[(B, 600)], &[]);
    assert_eq!(host.prefixes(), [B, A]);
    let found = host.discovery.found(host.now);
    assert_eq!(found.preferred(None).unwrap().pool6, pool6(B));
    assert_eq!(found.preferred(Some("dev1")).unwrap().pool6, pool6(A));
    assert_eq!(found.preferred(Some("dev3")), None);
    two.default_route = Some(700);
    host.handle(Event::Links(vec![one, two]));
    assert_eq!(host.prefixes(), [A, B]);
}

#[test]
fn what_is_configured_goes_before_everything() {
    let settings = Settings { configured: vec![pool6(B), pool6(A)], ..Settings::default() };
    let mut host = Host::new(settings);
    host.handle(Event::Resolvers(vec![resolver("192.0.2.53:53")]));
    host.handle(Event::Links(vec![link(1, true)]));
    host.advertise(1, 1, &[("64:ff9b::/96", 600)], &["2001:db8::53"]);
    host.pass(secs(60));
    assert_eq!(host.prefixes(), [B, A]);
    assert_eq!((host.solicited.len(), host.asked.len()), (0, 0));
    assert_eq!(host.discovery.report(host.now).prefixes.len(), 3);
}

#[test]
fn a_short_flap_keeps_the_prefix_and_asks_again() {
    let mut host = host();
    host.handle(Event::Links(vec![link(1, true)]));
    host.pass(secs(1));
    host.advertise(1, 1, &[(A, 600)], &[]);
    host.handle(Event::Links(vec![link(1, false)]));
    host.pass(secs(9));
    assert_eq!(host.prefixes(), [A]);
    let before = host.solicited.len();
    host.handle(Event::Links(vec![link(1, true)]));
    host.pass(secs(1));
    assert_eq!(host.solicited.len(), before + 1, "RFC 4861 section 6.3.7: re-attached");
    host.advertise(1, 1, &[(A, 600)], &[]);
    host.pass(secs(60));
    assert_eq!(host.prefixes(), [A]);
}

#[test]
fn another_network_takes_the_first_place_at_once() {
    let mut host = host();
    host.handle(Event::Links(vec![link(1, true)]));
    host.advertise(1, 1, &[(A, 600)], &[]);
    let mut flapped = link(1, true);
    flapped.was_down = true;
    host.handle(Event::Links(vec![flapped]));
    assert_eq!(host.prefixes(), [A]);
    host.advertise(1, 2, &[(B, 600)], &[]);
    assert_eq!(host.prefixes(), [B, A]);
    host.pass(secs(12));
    assert_eq!(host.prefixes(), [B], "nobody says the other any more");
}

#[test]
fn a_link_that_stays_down_or_goes_away_takes_its_prefixes_with_it() {
    let mut host = host();
    host.handle(Event::Links(vec![link(1, true)]));
    host.advertise(1, 1, &[(A, 600)], &[]);
    host.handle(Event::Links(vec![link(1, false)]));
    host.pass(secs(10));
    assert_eq!(host.prefixes(), [""; 0]);
    host.advertise(1, 1, &[(A, 600)], &[]);
    assert_eq!(host.prefixes(), [""; 0], "it is down");
    host.handle(Event::Links(vec![link(1, true)]));
    host.advertise(1, 1, &[(A, 600)], &[]);
    assert_eq!(host.prefixes(), [A]);
    host.handle(Event::Links(vec![]));
    assert_eq!(host.prefixes(), [""; 0]);
}

#[test]
fn a_host_that_has_slept_looks_again() {
    let mut host = host();
    host.handle(Event::Resolvers(vec![resolver("192.0.2.53:53")]));
    host.handle(Event::Links(vec![link(1, true)]));
    host.pass(secs(2));
    host.answer(86_400, &[A_ADDRESS]);
    let (solicited, asked) = (host.solicited.len(), host.asked.len());
    host.now += secs(3600);
    host.handle(Event::Resumed);
    assert_eq!(host.prefixes(), [A], "until somebody says otherwise");
    host.pass(secs(2));
    assert_eq!((host.solicited.len(), host.asked.len()), (solicited + 1, asked + 1));
    host.answer(60, &[]);
    assert_eq!(host.prefixes(), [""; 0]);
}

#[test]
fn an_answer_from_before_is_forgotten_if_nobody_answers_after() {
    let mut host = host();
    host.handle(Event::Resolvers(vec![resolver("192.0.2.53:53")]));
    host.handle(Event::Links(vec![link(1, true)]));
    host.pass(secs(2));
    host.answer(86_400, &[A_ADDRESS]);
    host.handle(Event::Resumed);
    host.pass(secs(2));
    host.fail();
    assert_eq!(host.prefixes(), [A]);
    host.pass(secs(10));
    assert_eq!(host.prefixes(), [""; 0]);
}

#[test]
fn both_are_asked_where_everything_is_wanted() {
    let mut host = Host::new(Settings { both: true, ..Settings::default() });
    host.handle(Event::Links(vec![link(1, true)]));
    assert!(!host.discovery.report(host.now).settled, "a router may answer yet");
    host.advertise(1, 1, &[(B, 600)], &["2001:db8::53"]);
    assert!(!host.discovery.report(host.now).settled, "the resolver may answer yet");
    host.answer(300, &[A_ADDRESS]);
    assert_eq!(host.prefixes(), [B], "one source is selected");
    let report = host.discovery.report(host.now);
    assert!(report.settled);
    assert_eq!(
        report.prefixes.iter().map(|one| one.pool6).collect::<Vec<_>>(),
        [pool6(B), pool6(A)]
    );
    assert_eq!(report.devices[0].resolvers[0].said, Some(Said::Prefixes(vec![pool6(A)])));
}

#[test]
fn only_what_is_proved_is_used_where_that_is_demanded() {
    let settings = Settings { require_validation: true, ..Settings::default() };
    let mut host = Host::new(settings.clone());
    host.handle(Event::Links(vec![link(1, true)]));
    host.advertise(1, 1, &[], &["2001:db8::53"]);
    host.answer(300, &[A_ADDRESS]);
    assert_eq!(host.prefixes(), [""; 0]);
    host.advertise(1, 1, &[(B, 600)], &[]);
    assert_eq!(host.prefixes(), [B], "RFC 8781 section 7");

    let mut host = Host::new(Settings { secure_channel: true, ..settings });
    host.handle(Event::Links(vec![link(1, true)]));
    host.advertise(1, 1, &[], &["2001:db8::53"]);
    host.answer(300, &[A_ADDRESS]);
    assert_eq!(host.prefixes(), [A]);
    assert_eq!(host.discovery.found(host.now).prefixes[0].validation, Validation::SecureChannel);
}
