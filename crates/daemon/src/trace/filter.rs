//! Which packets are wanted: `udp and host 198.51.100.1 and port 53`.

use std::net::IpAddr;
use std::str::FromStr;

use fordway_bpf::Outcome;
use ipnet::IpNet;

use fordway_control::Glimpse;

/// Conditions that must all hold. An empty filter takes every packet of the translator's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    Tcp,
    Udp,
    Icmp,
    Host(IpAddr),
    Net(IpNet),
    Port(u16),
    Outcome(Kind),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Translated,
    Passed,
    Dropped,
    Unmatched,
}

/// What is wrong with a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FilterError(String);

/// How filters are written.
pub const SYNTAX: &str = "write tcp, udp, icmp, host ADDR, net PREFIX, port NUMBER, or outcome \
                                 translated|passed|dropped|unmatched, joined by and";

impl Filter {
    /// Whether a packet is wanted. Addresses and ports count on either side, before translation and
    /// after it.
    pub(crate) fn takes(&self, outcome: Outcome, packets: &[&Glimpse]) -> bool {
        let kind = Kind::of(outcome);
        // What is none of the translator's is told only to those who ask for it.
        let asks = |term: &Term| matches!(term, Term::Outcome(_));
        (kind != Kind::Unmatched || self.0.iter().any(asks))
            && self.0.iter().all(|term| match term {
                Term::Outcome(wanted) => kind == *wanted,
                term => packets.iter().any(|packet| term.matches(packet)),
            })
    }
}

impl Kind {
    fn of(outcome: Outcome) -> Kind {
        match outcome {
            Outcome::Translated => Kind::Translated,
            Outcome::PassedOn(_) | Outcome::HandedOver => Kind::Passed,
            Outcome::Dropped(_) => Kind::Dropped,
            Outcome::Unmatched => Kind::Unmatched,
        }
    }
}

impl Term {
    fn matches(&self, packet: &Glimpse) -> bool {
        let ends = [packet.source, packet.destination];
        match self {
            Term::Tcp => packet.is_tcp(),
            Term::Udp => packet.is_udp(),
            Term::Icmp => packet.is_icmp(),
            Term::Host(host) => ends.contains(host),
            Term::Net(net) => ends.iter().any(|end| net.contains(end)),
            Term::Port(port) => {
                [packet.source_port, packet.destination_port].contains(&Some(*port))
            }
            Term::Outcome(_) => true,
        }
    }

    fn parse<'t>(word: &str, words: &mut impl Iterator<Item = &'t str>) -> Result<Term, String> {
        let mut value =
            |what: &str| words.next().ok_or_else(|| format!("behind \"{word}\" {what} is missing"));
        Ok(match word {
            "tcp" => Term::Tcp,
            "udp" => Term::Udp,
            "icmp" => Term::Icmp,
            "host" => {
                let text = value("an address")?;
                Term::Host(text.parse().map_err(|_| format!("\"{text}\" is no address"))?)
            }
            "net" => {
                let text = value("a prefix")?;
                Term::Net(text.parse().map_err(|_| format!("\"{text}\" is no prefix"))?)
            }
            "port" => {
                let text = value("a number")?;
                Term::Port(text.parse().map_err(|_| format!("\"{text}\" is no port"))?)
            }
            "outcome" => Term::Outcome(match value("an outcome")? {
                "translated" => Kind::Translated,
                "passed" => Kind::Passed,
                "dropped" => Kind::Dropped,
                "unmatched" => Kind::Unmatched,
                other => return Err(format!("\"{other}\" is no outcome")),
            }),
            other => return Err(format!("\"{other}\" is not understood")),
        })
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Filter, FilterError> {
        let mut words = text.split_whitespace();
        let mut terms = Vec::new();
        while let Some(word) = words.next() {
            terms.push(Term::parse(word, &mut words).map_err(FilterError)?);
            match words.next() {
                None => return Ok(Filter(terms)),
                Some("and") => {}
                Some(other) => {
                    return Err(FilterError(format!("\"and\" is missing before \"{other}\"")));
                }
            }
        }
        if terms.is_empty() {
            Ok(Filter::default())
        } else {
            Err(FilterError("nothing follows the last \"and\"".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use fordway_bpf::PassReason;

    use super::*;

    fn glimpse() -> Glimpse {
        Glimpse {
            source: "192.0.0.1".parse().unwrap(),
            destination: "198.51.100.1".parse().unwrap(),
            protocol: 17,
            source_port: Some(1234),
            destination_port: Some(53),
            icmp: None,
            later_fragment: false,
        }
    }

    #[test]
    fn all_conditions_must_hold() {
        for (text, wanted) in [
            ("", true),
            ("udp", true),
            ("tcp", false),
            ("icmp", false),
            ("udp and port 53", true),
            ("port 1234 and host 198.51.100.1", true),
            ("udp and port 54", false),
            ("host 198.51.100.2", false),
            ("net 198.51.100.0/24 and outcome passed", true),
            ("net 2001:db8::/32", false),
            ("outcome dropped", false),
        ] {
            let filter: Filter = text.parse().unwrap();
            let outcome = Outcome::PassedOn(PassReason::Hairpin);
            assert_eq!(filter.takes(outcome, &[&glimpse()]), wanted, "{text}");
        }
    }

    #[test]
    fn addresses_count_before_and_after_and_strangers_on_request() {
        let after = Glimpse { source: "2001:db8::1".parse().unwrap(), ..glimpse() };
        let filter: Filter = "host 2001:db8::1".parse().unwrap();
        assert!(filter.takes(Outcome::Translated, &[&glimpse(), &after]));
        assert!(!Filter::default().takes(Outcome::Unmatched, &[&glimpse()]));
        let filter: Filter = "outcome unmatched".parse().unwrap();
        assert!(filter.takes(Outcome::Unmatched, &[&glimpse()]));
    }

    #[test]
    fn errors_show_the_wrong_word() {
        for (text, error) in [
            ("tpc", "\"tpc\" is not understood"),
            ("host", "behind \"host\" an address is missing"),
            ("host nobody", "\"nobody\" is no address"),
            ("port 70000", "\"70000\" is no port"),
            ("net 192.0.2.0", "\"192.0.2.0\" is no prefix"),
            ("outcome lost", "\"lost\" is no outcome"),
            ("tcp port 80", "\"and\" is missing before \"port\""),
            ("tcp and", "nothing follows the last \"and\""),
        ] {
            assert_eq!(text.parse::<Filter>().unwrap_err().to_string(), error, "{text}");
        }
    }
}
