//! Addresses that clients share (RFC 7596 sections 6.2 and 8.1, RFC 7597 section 5.1).

use std::net::Ipv6Addr;
use std::time::Duration;

use fordway_softwire::{Part, PortSet, Role, Settings};
use fordway_xlat::reassembly::{BUFFER_LEN, Limits, Origin, Outcome, Reassembler};
use fordway_xlat::{DropReason, IcmpErrorKind, Verdict};

use super::bench::{self, Bench, CLIENT, HOST, OTHER, TEP, dropped, packet, reply, v6};

fn set(psid: u16) -> PortSet {
    // 4,096 ports each: 4,096 to 8,191 is 1's.
    PortSet::new(0, 4, psid).unwrap()
}

fn tep() -> Bench {
    let list =
        [bench::binding(HOST, Some(set(1)), CLIENT), bench::binding(HOST, Some(set(2)), OTHER)];
    Bench::new(bench::settings(), &list)
}

fn client() -> Bench {
    let settings = Settings { role: Role::Client, ..bench::settings() };
    Bench::new(settings, &[bench::binding(HOST, Some(set(1)), CLIENT)])
}

fn to(transport: &str) -> Vec<u8> {
    packet(&format!("v4 = {{ src = \"198.51.100.7\", dst = \"192.0.2.1\" }}\n{transport}"))
}

fn from(transport: &str) -> Vec<u8> {
    packet(&format!("v4 = {{ src = \"192.0.2.1\", dst = \"198.51.100.7\" }}\n{transport}"))
}

/// To which client it goes.
fn way(packet: &[u8]) -> Ipv6Addr {
    v6(&tep().run(packet).one()[24..40])
}

fn about(quoted: &str) -> String {
    format!("icmp = {{ type = 3, code = 4, mtu = 1300 }}\ninner = {{ {quoted} }}")
}

#[test]
fn ports_choose_the_client() {
    for (port, client) in [(4096, CLIENT), (8191, CLIENT), (8192, OTHER), (12287, OTHER)] {
        assert_eq!(way(&to(&format!("udp = {{ sport = 53, dport = {port} }}"))), client);
        assert_eq!(
            way(&to(&format!("tcp = {{ sport = 80, dport = {port}, flags = \"A\" }}"))),
            client
        );
        assert_eq!(way(&to(&format!("icmp = {{ type = 0, id = {port} }}"))), client);
        assert_eq!(way(&to(&format!("icmp = {{ type = 8, id = {port} }}"))), client);
        let sent = "v4 = { src = \"192.0.2.1\", dst = \"203.0.113.1\" }";
        let error = about(&format!("{sent}, udp = {{ sport = {port}, dport = 53 }}"));
        assert_eq!(way(&to(&error)), client, "an error about what the client sent");
        let error = about(&format!("{sent}, icmp = {{ type = 8, id = {port} }}"));
        assert_eq!(way(&to(&error)), client);
    }
}

#[test]
fn a_port_that_nobody_has_is_unreachable() {
    let kind = IcmpErrorKind::AddressUnreachable;
    for transport in ["udp = { sport = 53, dport = 4095 }", "tcp = { sport = 80, dport = 12288 }"] {
        let verdict = tep().run(&to(transport)).verdict;
        assert_eq!(verdict, reply(kind, DropReason::SoftwireBinding));
    }
}

#[test]
fn what_has_no_port_has_no_way() {
    let gre =
        packet("v4 = { src = \"198.51.100.7\", dst = \"192.0.2.1\", proto = 47 }\npayload = 40");
    assert_eq!(tep().run(&gre).verdict, dropped(DropReason::Transport));
    assert_eq!(tep().run(&to("icmp = { type = 13 }")).verdict, dropped(DropReason::IcmpType));
    let foreign =
        "v4 = { src = \"203.0.113.9\", dst = \"203.0.113.1\" }, udp = { sport = 4096, dport = 1 }";
    assert_eq!(tep().run(&to(&about(foreign))).verdict, dropped(DropReason::IcmpInner));
    let cut = "udp = { sport = 53, dport = 4096 }\ncut = 26\npatch = [{ at = 2, hex = \"001a\" }]";
    let mut cut = to(cut);
    cut[10..12].fill(0);
    let sum = fordway_testkit::checksum::checksum(&cut[..20]);
    cut[10..12].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(tep().run(&cut).verdict, dropped(DropReason::Truncated));
}

#[test]
fn a_source_port_must_be_the_clients_own() {
    let kind = IcmpErrorKind::SourcePolicy;
    for (port, client, is_own) in
        [(4096, CLIENT, true), (8192, CLIENT, false), (8192, OTHER, true), (80, CLIENT, false)]
    {
        let answered = "v4 = { src = \"203.0.113.1\", dst = \"192.0.2.1\" }";
        for transport in [
            format!("udp = {{ sport = {port}, dport = 53 }}"),
            format!("icmp = {{ type = 8, id = {port} }}"),
            about(&format!("{answered}, udp = {{ sport = 53, dport = {port} }}")),
        ] {
            let tunnelled = bench::wrapped(client, TEP, &from(&transport));
            let verdict = tep().run(&tunnelled).verdict;
            if is_own {
                assert_eq!(verdict, Verdict::Forward, "{transport}");
            } else {
                assert_eq!(verdict, reply(kind, DropReason::SoftwireSource), "{transport}");
            }
        }
    }
}

#[test]
fn a_client_keeps_to_its_ports() {
    let kind = IcmpErrorKind::AdministrativelyProhibited;
    let outcome = client().run(&from("udp = { sport = 4096, dport = 53 }"));
    assert_eq!(outcome.verdict, Verdict::Forward);
    let verdict = client().run(&from("udp = { sport = 8192, dport = 53 }")).verdict;
    assert_eq!(verdict, reply(kind, DropReason::SoftwireSource));
    let mine = bench::wrapped(TEP, CLIENT, &to("udp = { sport = 53, dport = 4096 }"));
    assert_eq!(client().run(&mine).verdict, Verdict::Forward);
    let not_mine = bench::wrapped(TEP, CLIENT, &to("udp = { sport = 53, dport = 8192 }"));
    assert_eq!(client().run(&not_mine).verdict, dropped(DropReason::SoftwireSource));
}

#[test]
fn errors_out_of_the_tunnel_find_the_client_by_the_quoted_port() {
    let mut bench = tep();
    let sent = bench.run(&to("udp = { sport = 53, dport = 8192 }\npayload = 60")).one().to_vec();
    let hex: String = sent.iter().map(|octet| format!("{octet:02x}")).collect();
    let error = packet(&format!(
        "v6 = {{ src = \"2001:db8:9::1\", dst = \"{TEP}\" }}\nicmp = {{ type = 3, code = 0 }}\n\
         inner = {{ hex = \"{hex}\" }}"
    ));
    assert_eq!(bench.run(&error).verdict, Verdict::Forward);
}

#[test]
fn only_fragments_whose_ports_matter_have_to_be_whole() {
    let datagram = "udp = { sport = 4096, dport = 53 }\npayload = 100\nslice = [0, 64]";
    let fragment = from(datagram);
    let tunnelled = bench::wrapped(CLIENT, TEP, &fragment);
    let inside = Part::Inside { at: 40, remote: CLIENT };
    assert_eq!(tep().softwire.part(&tunnelled), inside);
    assert_eq!(Bench::tep().softwire.part(&tunnelled), Part::Whole);
    assert_eq!(client().softwire.part(&fragment), Part::Fragment);
    assert_eq!(Bench::client().softwire.part(&fragment), Part::Whole);
    let whole = from("udp = { sport = 4096, dport = 53 }");
    assert_eq!(tep().softwire.part(&bench::wrapped(CLIENT, TEP, &whole)), Part::Whole);
    // Where ports decide, a fragment that nobody has put together goes nowhere.
    assert_eq!(tep().run(&tunnelled).verdict, dropped(DropReason::FragmentsFull));
    // A fragment of the tunnel packet itself always has to be.
    let outer = packet(&format!(
        "v6 = {{ src = \"{CLIENT}\", dst = \"{TEP}\", next = 4 }}\n\
         ext = [{{ kind = \"fragment\", id = 9, more = true }}]\npayload = 64"
    ));
    assert_eq!(Bench::tep().softwire.part(&outer), Part::Fragment);
    assert_eq!(Bench::tep().run(&outer).verdict, dropped(DropReason::FragmentsFull));
}

#[test]
fn fragments_of_two_clients_are_never_mixed() {
    let mut reassembler = Reassembler::new(Limits::default());
    let mut buffer = vec![0; BUFFER_LEN];
    let mut insert =
        |origin, packet: &[u8]| reassembler.insert(origin, packet, Duration::ZERO, &mut buffer);
    let first = from("udp = { sport = 4096, dport = 53 }\npayload = 100\nslice = [0, 64]");
    let last = from("udp = { sport = 4096, dport = 53 }\npayload = 100\nslice = [64, 108]");
    assert_eq!(insert(Origin::Inside(CLIENT), &first), Outcome::Incomplete);
    assert_eq!(insert(Origin::Inside(OTHER), &last), Outcome::Incomplete);
    assert_eq!(insert(Origin::Softwire, &last), Outcome::Incomplete);
    assert!(matches!(insert(Origin::Inside(CLIENT), &last), Outcome::Complete(_)));
}
