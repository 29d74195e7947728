//! What is said on control connections, and what is heard.

extern crate std;

use alloc::string::{String, ToString};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::nat64::alg::{AlgCounters, Mappings};

const HOST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0x31);
const POOL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 31);
const REMOTE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

/// Gives port 60192, or nothing.
#[derive(Debug)]
struct Mapper {
    is_full: bool,
    asked: Vec<(Ipv6Addr, u16)>,
}

impl Mappings for Mapper {
    fn expect(
        &mut self,
        host: (Ipv6Addr, u16),
        at: Ipv4Addr,
        from: Ipv4Addr,
        _pool6: u8,
    ) -> Option<(Ipv4Addr, u16)> {
        assert_eq!((at, from), (POOL, REMOTE));
        self.asked.push(host);
        (!self.is_full).then_some((at, 60_192))
    }

    fn v6_of(&self, _pool6: u8, addr: Ipv4Addr) -> Option<Ipv6Addr> {
        let prefix: Ipv6Addr = "64:ff9b::".parse().unwrap();
        Some(Ipv6Addr::from_bits(prefix.to_bits() | u128::from(addr.to_bits())))
    }
}

/// A control connection: what each says, and what the other hears.
struct Talk {
    control: Control,
    mapper: Mapper,
    counters: AlgCounters,
    client: Side,
    has_gone: bool,
    held: [Vec<u8>; 2],
}

impl Talk {
    fn of(client: Side) -> Talk {
        let mut talk = Talk {
            control: Control::new(client),
            mapper: Mapper { is_full: false, asked: Vec::new() },
            counters: AlgCounters::default(),
            client,
            has_gone: false,
            held: [Vec::new(), Vec::new()],
        };
        assert_eq!(talk.server("220 ready\r\n"), "220 ready\r\n");
        talk
    }

    fn v6() -> Talk {
        Talk::of(Side::V6)
    }

    fn say(&mut self, from: Side, octets: &[u8]) -> Vec<u8> {
        let place = usize::from(from == Side::V6);
        self.held[place].extend_from_slice(octets);
        let ends = Ends {
            opener: self.client,
            host: (HOST, 4000),
            local: (POOL, 2000),
            remote: (REMOTE, 21),
            pool6: 0,
        };
        let mut heard = Vec::new();
        while !self.held[place].is_empty() {
            let held = &mut self.held[place];
            if self.has_gone {
                heard.append(held);
                break;
            }
            let mut out = Vec::new();
            let mut context = Context::new(ends, Duration::ZERO, &self.counters, &mut self.mapper);
            match self.control.octets(from, held, false, &mut out, &mut context) {
                Advice::Hold => break,
                Advice::Pass(number) => heard.extend(held.drain(..number)),
                Advice::Replace(number) => {
                    held.drain(..number);
                    heard.extend(out);
                }
                Advice::Bypass => self.has_gone = true,
            }
        }
        heard
    }

    fn text(&mut self, from: Side, text: &str) -> String {
        String::from_utf8(self.say(from, text.as_bytes())).unwrap()
    }

    fn client(&mut self, text: &str) -> String {
        self.text(self.client, text)
    }

    fn server(&mut self, text: &str) -> String {
        let server = if self.client == Side::V6 { Side::V4 } else { Side::V6 };
        self.text(server, text)
    }
}

#[test]
fn epsv_is_pasv_to_the_server() {
    for command in ["EPSV\r\n", "epsv 2\r\n", "EPSV\n"] {
        let mut talk = Talk::v6();
        assert_eq!(talk.client(command), "PASV\r\n");
        let answer = talk.server("227 Entering Passive Mode (192,0,2,31,237,19)\r\n");
        assert_eq!(answer, "229 Entering Extended Passive Mode (|||60691|)\r\n");
    }
}

#[test]
fn answers_to_pasv_are_searched_for_their_numbers() {
    let answers = [
        ("227 =192,0,2,31,4,1\r\n", "229 Entering Extended Passive Mode (|||1025|)\r\n"),
        ("227 Mode 3 (10,0,0,1,4,1).\r\n", "229 Entering Extended Passive Mode (|||1025|)\r\n"),
        ("227 Entering\r\n", "425 Can't open data connection\r\n"),
        ("227 (1,2,3,4,0,0)\r\n", "425 Can't open data connection\r\n"),
        ("227 (1,2,3,4,256,0)\r\n", "425 Can't open data connection\r\n"),
        ("500 What?\r\n", "500 What?\r\n"),
        ("421 Bye\r\n", "421 Bye\r\n"),
        (
            "227-One\r\n two\r\n227 (192,0,2,31,4,1)\r\n",
            "229-One\r\n two\r\n229 Entering Extended Passive Mode (|||1025|)\r\n",
        ),
    ];
    for (said, heard) in answers {
        let mut talk = Talk::v6();
        talk.client("EPSV\r\n");
        assert_eq!(talk.server(said), heard);
    }
}

#[test]
fn other_protocols_and_all_do_not_reach_the_server() {
    for (command, answer) in
        [("EPSV 1\r\n", "522 "), ("EPSV ALL\r\n", "504 "), ("ALGS\r\n", "504 ")]
    {
        let mut talk = Talk::v6();
        assert_eq!(talk.client(command), "NOOP\r\n");
        // Whatever it thinks of it.
        for said in ["200 Zzz\r\n", "530-Please\r\n530 log in\r\n"] {
            let mut talk = Talk { control: Control::new(Side::V6), ..Talk::v6() };
            talk.server("220 ready\r\n");
            talk.client(command);
            assert!(talk.server(said).starts_with(answer));
        }
        assert_eq!(talk.server("421 Time is over\r\n"), "421 Time is over\r\n");
    }
    assert_eq!(Talk::v6().client("EPSV what\r\n"), "EPSV what\r\n");
}

#[test]
fn eprt_is_port_with_a_mapping() {
    let mut talk = Talk::v6();
    let heard = talk.client("EPRT |2|2001:db8:2::31|5282|\r\n");
    assert_eq!(heard, "PORT 192,0,2,31,235,32\r\n");
    assert_eq!(talk.mapper.asked, [(HOST, 5282)]);
    assert_eq!(talk.server("200 OK\r\n"), "200 OK\r\n");
}

#[test]
fn eprt_passes_where_it_is_not_for_the_client_or_there_is_no_mapping() {
    for command in [
        "EPRT |2|2001:db8:2::32|5282|\r\n",
        "EPRT |1|192.0.2.31|5282|\r\n",
        "EPRT |1|2001:db8:2::31|5282|\r\n",
        "EPRT |2|2001:db8:2::31|0|\r\n",
        "EPRT |2|2001:db8:2::31|70000|\r\n",
        "EPRT |2|2001:db8:2::31|5282\r\n",
        "EPRT\r\n",
        "PORT 192,0,2,31,1,1\r\n",
        "PASV\r\n",
    ] {
        let mut talk = Talk::v6();
        assert_eq!(talk.client(command), command);
        assert!(talk.mapper.asked.is_empty());
    }
    let mut talk = Talk::v6();
    talk.mapper.is_full = true;
    let command = "EPRT |2|2001:db8:2::31|5282|\r\n";
    assert_eq!(talk.client(command), command);
}

#[test]
fn algs_asks_and_sets() {
    let mut talk = Talk::v6();
    let mut algs = |argument: &str| {
        assert_eq!(talk.client(&std::format!("ALGS {argument}\r\n")), "NOOP\r\n");
        talk.server("200 NOOP ok\r\n")
    };
    assert!(algs("STATUS64").starts_with("216 EPSVEPRT"));
    assert!(algs("disable64").starts_with("216 NONE"));
    assert!(algs("STATUS64").starts_with("216 NONE"));
    assert!(algs("").starts_with("504"));
    assert_eq!(talk.client("EPSV\r\n"), "EPSV\r\n");
    let answer = "229 Entering Extended Passive Mode (|||1025|)\r\n";
    assert_eq!(talk.server(answer), answer);
    assert_eq!(talk.client("EPSV ALL\r\n"), "EPSV ALL\r\n");
    talk.server("200 OK\r\n");
    assert_eq!(talk.client("ALGS ENABLE64\r\n"), "NOOP\r\n");
    assert!(talk.server("200 OK\r\n").starts_with("216 EPSVEPRT"));
    assert_eq!(talk.client("EPSV\r\n"), "PASV\r\n");
}

#[test]
fn after_auth_nothing_is_read_unless_it_is_refused() {
    let mut talk = Talk::v6();
    assert_eq!(talk.client("AUTH TLS\r\n"), "AUTH TLS\r\n");
    assert_eq!(talk.server("234 Proceed\r\n"), "234 Proceed\r\n");
    assert!(talk.has_gone);
    for answer in ["504 Unknown\r\n", "431-No\r\n431 No\r\n", "530 Log in\r\n"] {
        let mut talk = Talk::v6();
        talk.client("AUTH TLS\r\n");
        assert_eq!(talk.client("EPSV\r\n"), "EPSV\r\n", "it is not known yet for whom");
        assert_eq!(talk.server(answer), answer);
        talk.server("229 Mode (|||1025|)\r\n");
        assert_eq!(talk.client("EPSV\r\n"), "PASV\r\n");
    }
}

#[test]
fn commands_come_together_and_in_pieces() {
    let mut talk = Talk::v6();
    let said = "USER a\r\nEPSV\r\nNOOP\r\nALGS STATUS64\r\nEPSV\r\n";
    assert_eq!(talk.client(said), "USER a\r\nPASV\r\nNOOP\r\nNOOP\r\nPASV\r\n");
    let said = "331 Pass?\r\n227 (1,2,3,4,4,1)\r\n200 own\r\n200 ours\r\n227 (1,2,3,4,4,2)\r\n";
    let heard = talk.server(said);
    let lines: Vec<&str> = heard.lines().collect();
    assert_eq!(lines[0], "331 Pass?");
    assert!(lines[1].contains("|1025|") && lines[2] == "200 own");
    assert!(lines[3].starts_with("216") && lines[4].contains("|1026|"));
    assert_eq!(talk.counters.get(Event::Translated), 4);
    assert_eq!(talk.counters.get(Event::Answered), 1);
    // What can't be a command that is read goes at once.
    assert_eq!(talk.client("E x"), "E x");
    assert_eq!(talk.client("\r\n"), "\r\n");
    assert_eq!(talk.server("500 "), "500 ");
    assert_eq!(talk.server("What?\r\n"), "What?\r\n");
    assert_eq!(talk.client("E"), "");
    assert_eq!(talk.client("N"), "EN");
    assert_eq!(talk.client("D\r\nEP"), "D\r\n");
    assert_eq!(talk.client("S"), "");
    assert_eq!(talk.client("V\r\n"), "PASV\r\n");
}

#[test]
fn preliminary_replies_are_not_the_answer() {
    let mut talk = Talk::v6();
    talk.client("RETR file\r\nEPSV\r\n");
    assert_eq!(talk.server("150 Here\r\n226 Done\r\n"), "150 Here\r\n226 Done\r\n");
    assert!(talk.server("227 (1,2,3,4,4,1)\r\n").starts_with("229"));
    // A server that has answered once where it should have twice.
    talk.client("RETR file\r\nABOR\r\n");
    talk.server("226 Aborted\r\n");
    talk.client("EPSV\r\n");
    assert!(talk.server("227 (1,2,3,4,4,1)\r\n").starts_with("229"));
}

#[test]
fn codes_inside_an_answer_are_none() {
    let mut talk = Talk::v6();
    talk.client("FEAT\r\nEPSV\r\n");
    let feat = "211-Features:\r\n EPSV\r\n226 not the end\r\n211 End\r\n";
    assert_eq!(talk.server(feat), feat);
    assert!(talk.server("227 (1,2,3,4,4,1)\r\n").starts_with("229"));
}

#[test]
fn a_line_that_is_too_long_passes() {
    let mut talk = Talk::v6();
    let long = std::format!("EPRT |2|{}", "0".repeat(LINE_MAX));
    assert_eq!(talk.client(&long), long);
    assert_eq!(talk.client("|1|\r\nEPSV\r\n"), "|1|\r\nPASV\r\n");
    let reply = std::format!("227 {}", "x".repeat(LINE_MAX));
    talk.server("500 What?\r\n");
    assert_eq!(talk.server(&reply), reply);
    assert_eq!(talk.counters.get(Event::TooLong), 2);
}

#[test]
fn too_many_commands_at_once_let_go() {
    let mut talk = Talk::v6();
    let many = "NOOP\r\n".repeat(PENDING_MAX + 1);
    assert_eq!(talk.client(&many), many);
    assert!(talk.has_gone);
}

#[test]
fn telnet_options_are_refused_and_signals_pass() {
    let mut talk = Talk::v6();
    // WILL 1, DO 3, WONT 5, and the signals before ABOR.
    let said = [&[255, 251, 1, 255, 253, 3, 255, 252, 5, 255, 244, 255, 242][..], b"ABOR\r\n"];
    let heard = talk.say(Side::V6, &said.concat());
    assert_eq!(heard, [&[255, 244, 255, 242][..], b"ABOR\r\n"].concat());
    let heard = talk.say(Side::V4, b"226 Done\r\n");
    assert_eq!(heard, [&[255, 254, 1, 255, 252, 3][..], b"226 Done\r\n"].concat());
    let heard = talk.say(Side::V4, b"200 More\r\n");
    assert_eq!(heard, b"200 More\r\n");
}

#[test]
fn of_many_telnet_options_some_are_refused() {
    let mut talk = Talk::v6();
    assert!(talk.say(Side::V6, &[255, 251, 1].repeat(REFUSALS_MAX + 1)).is_empty());
    let heard = talk.say(Side::V4, b"200 Yes\r\n");
    assert_eq!(heard, [&[255, 254, 1].repeat(REFUSALS_MAX)[..], b"200 Yes\r\n"].concat());
}

#[test]
fn telnet_options_are_refused_in_whatever_pieces_they_come() {
    let mut talk = Talk::v6();
    for octet in [255, 251, 1, 255, 244] {
        let whole = octet == 244;
        assert_eq!(talk.say(Side::V6, &[octet]), if whole { vec![255, 244] } else { Vec::new() });
    }
    assert_eq!(talk.say(Side::V4, b"200 Yes\r\n"), [&[255, 254, 1][..], b"200 Yes\r\n"].concat());
}

#[test]
fn a_client_in_v4_gets_at_a_server_in_v6() {
    let mut talk = Talk::of(Side::V4);
    assert_eq!(talk.client("PASV\r\n"), "EPSV\r\n");
    let heard = talk.server("229 Entering Extended Passive Mode (|||1025|)\r\n");
    assert_eq!(heard, "227 Entering Passive Mode (192,0,2,31,235,32)\r\n");
    assert_eq!(talk.mapper.asked, [(HOST, 1025)]);
    assert_eq!(talk.client("EPSV 1\r\n"), "EPSV\r\n");
    let heard = talk.server("229 Entering Extended Passive Mode (|||1026|)\r\n");
    assert_eq!(heard, "229 Entering Extended Passive Mode (|||60192|)\r\n");
    let heard = talk.client("PORT 198,51,100,7,4,1\r\n");
    assert_eq!(heard, "EPRT |2|64:ff9b::c633:6407|1025|\r\n");
    talk.server("200 OK\r\n");
    let heard = talk.client("EPRT |1|198.51.100.7|1026|\r\n");
    assert_eq!(heard, "EPRT |2|64:ff9b::c633:6407|1026|\r\n");
    talk.server("200 OK\r\n");
    talk.client("PASV\r\n");
    assert_eq!(talk.server("500 No\r\n"), "500 No\r\n");
    // A server that answers less than it should.
    talk.client("NOOP\r\nPASV\r\n");
    let heard = talk.server("229 Entering Extended Passive Mode (|||1027|)\r\n");
    assert_eq!(heard, "227 Entering Passive Mode (192,0,2,31,235,32)\r\n");
    // Not to somebody else (RFC 2577 section 3).
    for command in ["PORT 198,51,100,8,4,1\r\n", "EPRT |1|198.51.100.8|1|\r\n", "ALGS STATUS64\r\n"]
    {
        assert_eq!(talk.client(command), command);
        talk.server("500 No\r\n");
    }
    talk.mapper.is_full = true;
    talk.client("PASV\r\n");
    assert_eq!(talk.server("229 (|||1027|)\r\n"), "425 Can't open data connection\r\n");
}

#[test]
fn arguments_are_read() {
    let v6 = |text: &str| IpAddr::V6(text.parse().unwrap());
    assert_eq!(line::eprt(b"!2!::1!1!"), Some((v6("::1"), 1)));
    assert_eq!(line::eprt(b"|2|::1|+1|"), None);
    assert_eq!(line::eprt(b"|2|::1|1|x"), None);
    assert_eq!(line::eprt(b"12121111"), None);
    // Neither a digit nor a space is a delimiter.
    assert_eq!(line::eprt(b"929::1919"), None);
    assert_eq!(line::eprt(b" 2 ::1 1 "), None);
    assert_eq!(line::port(b"1,2,3,4,5,6"), Some((Ipv4Addr::new(1, 2, 3, 4), 0x506)));
    assert_eq!(line::port(b"1,2,3,4,5,6,7"), None);
    assert_eq!(line::port(b"1,2,3,4,5,6 "), None);
    assert_eq!(line::passive(b"Mode (99,1,2,3,4,5)"), Some((Ipv4Addr::new(99, 1, 2, 3), 0x405)));
    // No address begins within a number.
    assert_eq!(line::passive(b"Mode (9999,1,2,3,4,5)"), None);
    assert_eq!(line::extended_passive(b"Mode (|||6446|)"), Some(6446));
    assert_eq!(line::extended_passive(b"Mode (|||6446|"), None);
    assert_eq!(line::code(b"22"), None);
    assert_eq!(line::code(b"2x7 "), None);
    assert_eq!(line::code(b"227-"), Some((*b"227", false)));
}

/// A whole session, with the answers of the server in their places.
fn script() -> [(bool, &'static str); 9] {
    [
        (true, "USER anonymous\r\n"),
        (false, "331-Hello\r\n331 Password?\r\n"),
        (true, "PASS x@\r\nEPSV\r\n"),
        (false, "230 Welcome\r\n227 Passive (192,0,2,31,237,19)\r\n"),
        (true, "RETR file\r\nEPRT |2|2001:db8:2::31|5282|\r\n"),
        (false, "150 Opening\r\n226 Done\r\n200 PORT ok\r\n"),
        (true, "ALGS STATUS64\r\nEPSV ALL\r\nQUIT\r\n"),
        (false, "200 zzz\r\n200 zzz\r\n221 Bye\r\n"),
        (true, ""),
    ]
}

proptest! {
    #[test]
    fn how_it_is_cut_does_not_matter(cuts in prop::collection::vec(1_usize..20, 1..60)) {
        let whole: Vec<String> = {
            let mut talk = Talk::v6();
            let heard = script().map(|(client, text)| {
                if client { talk.client(text) } else { talk.server(text) }
            });
            heard.to_vec()
        };
        let mut talk = Talk::v6();
        let mut cuts = cuts.iter().cycle();
        for ((client, text), whole) in script().iter().zip(whole) {
            let (mut rest, mut heard) = (*text, String::new());
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                heard += &if *client { talk.client(piece) } else { talk.server(piece) };
                rest = behind;
            }
            prop_assert_eq!(heard, whole.to_string());
        }
    }

    #[test]
    fn anything_may_be_said(said in prop::collection::vec((any::<bool>(), "[A-Z0-9 |,:\r\n-]{0,40}"), 0..40)) {
        let mut talk = Talk::v6();
        for (client, text) in said {
            let text = text.replace(" EP", "\r\nEPSV\r\n");
            if client { talk.client(&text) } else { talk.server(&text) };
        }
        prop_assert!(talk.held.iter().all(|held| held.len() <= LINE_MAX));
    }
}
