use fordway_discovery::{Failure, RouterReport};

use super::*;

fn device(index: u32) -> Device {
    Device { index, name: format!("eth{index}") }
}

fn device_report(index: u32) -> DeviceReport {
    DeviceReport {
        device: device(index),
        up: true,
        addressed: true,
        default_route: Some(1024),
        used: true,
        solicitations: 2,
        routers: Vec::new(),
        resolvers: Vec::new(),
    }
}

fn server(said: Option<Said>, knows_name: Option<bool>) -> ServerReport {
    let server = "[2001:db8::53]:53".parse().unwrap();
    ServerReport { server, asked: 1, said, knows_name }
}

fn advertised(pool6: &str) -> Prefix {
    Prefix {
        pool6: pool6.parse().unwrap(),
        source: Source::RouterAdvertisement { router: "fe80::1".parse().unwrap() },
        device: Some(device(0)),
        until: None,
        validation: Validation::NotNeeded,
        stale: false,
    }
}

fn resolved(pool6: &str) -> Prefix {
    let server = "[2001:db8::53]:53".parse().unwrap();
    let source = Source::Dns { server };
    Prefix { source, validation: Validation::NotTried, ..advertised(pool6) }
}

fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[test]
fn prefixes_say_where_they_are_from_and_why_they_are_not_used() {
    let (used, other) = (advertised("64:ff9b::/96"), resolved("2001:db8:64::/96"));
    let found = Found { prefixes: vec![used.clone()] };
    let report = Report {
        devices: vec![device_report(0)],
        prefixes: vec![used, other.clone()],
        ..Report::default()
    };
    let text = plain(&known(&found, &report));
    let expected = "\
64:ff9b::/96  used
  from       router fe80::1 on eth0: PREF64 in its advertisement (RFC 8781)
2001:db8:64::/96  not used: on eth0 a router advertisement has one, which goes first
  from       resolver [2001:db8::53]:53 on eth0: ipv4only.arpa (RFC 7050)
  validated  no: no domain is trusted (--trust)
";
    assert_eq!(text, expected);

    let mut report = Report { prefixes: vec![other], ..report };
    report.devices[0].used = false;
    let text = plain(&known(&Found::default(), &report));
    assert!(
        text.starts_with("2001:db8:64::/96  not used: eth0 has no IPv6 default route\n"),
        "{text}"
    );
}

#[test]
fn what_was_tried_says_what_each_answered() {
    let mut one = device_report(0);
    one.routers = vec![RouterReport {
        router: "fe80::1".parse().unwrap(),
        heard: Duration::from_secs(1 << 40),
        default_router: true,
        pref64: vec![],
        rdnss: vec![],
    }];
    let mut second = device_report(1);
    second.default_route = None;
    second.used = false;
    let third = DeviceReport { up: false, ..device_report(2) };
    let report = |said, knows| Report {
        devices: vec![one.clone(), second.clone(), third.clone()],
        resolvers: vec![server(said, knows)],
        ..Report::default()
    };
    let nothing = Some(Said::Nothing { name_exists: true });
    let text = plain(&tried(&report(nothing, Some(true)), true));
    let expected = "\
eth0  up
  router fe80::1: without PREF64, heard 0s ago
eth1  up, but no IPv6 default route leads that way
  no router advertisement (2 router solicitations sent)
eth2  down
/etc/resolv.conf
  resolver [2001:db8::53]:53: knows ipv4only.arpa, but no IPv6 address for it: it is no DNS64 server
";
    assert_eq!(text, expected);
    let last = |said, knows| {
        let text = plain(&tried(&report(said, knows), false));
        text.lines().last().unwrap().split_once("]:53: ").unwrap().1.to_owned()
    };
    let nxdomain = Some(Said::Nothing { name_exists: false });
    assert_eq!(last(nxdomain, Some(false)), "says that there is no ipv4only.arpa (NXDOMAIN)");
    assert_eq!(last(Some(Said::Failed(Failure::Timeout)), None), "does not answer");
    assert_eq!(last(None, None), "has not answered yet");
}

#[test]
fn the_advice_is_for_what_is_wrong_first() {
    let mut report = Report::default();
    let expect = |report: &Report, hears, words: &str| {
        let advice = advice(report, hears);
        assert!(advice.contains(words), "{advice}");
    };
    expect(&report, true, "ip link");
    report.devices = vec![DeviceReport { used: false, ..device_report(0) }];
    expect(&report, true, "--device");
    report.devices = vec![device_report(0)];
    expect(&report, true, "/etc/resolv.conf has none");
    report.resolvers = vec![server(Some(Said::Failed(Failure::Timeout)), None)];
    expect(&report, true, "no resolver answers");
    expect(&report, false, "run as root");
    report.resolvers = vec![server(Some(Said::Nothing { name_exists: false }), None)];
    expect(&report, true, "fordway clat --pref64");
    report.resolvers = vec![ServerReport { asked: 0, ..server(None, None) }];
    expect(&report, true, "no resolver was asked");
}

#[test]
fn a_lifetime_that_begins_anew_is_no_change() {
    let prefix = advertised("64:ff9b::/96");
    let later = Prefix { until: Some(Duration::from_secs(9)), ..prefix.clone() };
    let found = |prefix: &Prefix| Found { prefixes: vec![prefix.clone()] };
    assert!(same(&found(&prefix), &found(&later)));
    assert!(!same(&found(&prefix), &found(&Prefix { stale: true, ..later })));
    assert!(!same(&found(&prefix), &Found::default()));
}

#[test]
fn the_json_says_all_of_it() {
    let used = advertised("64:ff9b::/96");
    let found = Found { prefixes: vec![used.clone()] };
    let report = Report {
        devices: vec![device_report(0)],
        resolvers: vec![server(Some(Said::Prefixes(vec![used.pool6])), None)],
        prefixes: vec![used],
        settled: true,
    };
    let json = serde_json::to_value(Json::new(&found, &report, true)).unwrap();
    assert_eq!(json["preferred"], "64:ff9b::/96");
    let prefix = &json["prefixes"][0];
    assert_eq!(
        (&prefix["source"], &prefix["from"]),
        (&"router_advertisement".into(), &"fe80::1".into())
    );
    assert_eq!((&prefix["used"], &prefix["validated"]), (&true.into(), &false.into()));
    assert_eq!(json["devices"][0]["default_route_metric"], 1024);
    assert_eq!(json["resolvers"][0]["said"], "64:ff9b::/96");
}
