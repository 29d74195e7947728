//! Which destinations clients may reach.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use fordway_xlat::addr::Pool6;
use ipnet::IpNet;

use super::address::{forms, is_special};
use super::authority::{Authority, Host};
use fordway_serve::Acl;

/// A set of ports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ports(pub Vec<RangeInclusive<u16>>);

impl Ports {
    /// Whether a port is in it.
    pub fn contains(&self, port: u16) -> bool {
        self.0.iter().any(|range| range.contains(&port))
    }
}

/// What a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destination {
    /// This name alone.
    Name(String),
    /// Names below this one, without itself: `*.example.net`.
    Below(String),
    /// Addresses.
    Net(IpNet),
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destination::Name(name) => f.write_str(name),
            Destination::Below(name) => write!(f, "*.{name}"),
            Destination::Net(net) => write!(f, "{net}"),
        }
    }
}

impl Destination {
    fn has_name(&self, name: &str) -> bool {
        match self {
            Destination::Name(own) => own == name,
            Destination::Below(parent) => {
                name.strip_suffix(parent.as_str()).is_some_and(|front| front.ends_with('.'))
            }
            Destination::Net(_) => false,
        }
    }
}

/// A rule; the first one that fits decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Clients it is for; `None`: all.
    pub clients: Option<Acl>,
    /// Destinations it is about; empty: all.
    pub to: Vec<Destination>,
    /// Ports it is about; `None`: all.
    pub ports: Option<Ports>,
    /// Whether it allows.
    pub allow: bool,
}

/// All rules, and the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// In order.
    pub rules: Vec<Rule>,
    /// Whether destinations without a rule are allowed. Addresses of a host, a link or a site never are.
    pub default: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { rules: Vec::new(), default: true }
    }
}

impl Rules {
    /// Whether a rule refuses the name of a destination, so that it need not be looked up.
    pub(super) fn refuses_name(&self, client: IpAddr, to: &Authority) -> bool {
        let Host::Name(name) = &to.host else { return false };
        for rule in self.rules.iter().filter(|rule| rule.is_for(client, to.port)) {
            if rule.to.is_empty() || rule.to.iter().any(|it| it.has_name(name)) {
                return !rule.allow;
            }
            // That depends on the address.
            if rule.to.iter().any(|it| matches!(it, Destination::Net(_))) {
                return false;
            }
        }
        !self.default
    }

    /// Whether a client may reach this address of a destination.
    ///
    /// An address of one host, one link or one site (or one with such an IPv4 address in it) needs a rule that allows
    /// the address by a prefix: a rule that allows its name is not enough, for the owner of a name decides where it
    /// points. `is_own`: the address, or the IPv4 address in it, is this host's own, which is treated alike.
    pub(super) fn allows(
        &self,
        client: IpAddr,
        to: &Authority,
        address: IpAddr,
        is_own: bool,
        pref64: &[Pool6],
    ) -> bool {
        let forms = forms(address, pref64);
        let forms = || forms.iter().flatten();
        let is_special = |form: &IpAddr| is_own || is_special(*form);
        let name = match &to.host {
            Host::Name(name) => Some(name),
            Host::Address(_) => None,
        };
        for rule in self.rules.iter().filter(|rule| rule.is_for(client, to.port)) {
            let nets = || {
                rule.to.iter().filter_map(|it| match it {
                    Destination::Net(net) => Some(net),
                    _ => None,
                })
            };
            let covers = |form: &IpAddr| nets().any(|net| net.contains(form));
            let fits = rule.to.is_empty()
                || forms().any(covers)
                || name.is_some_and(|name| rule.to.iter().any(|it| it.has_name(name)));
            if fits {
                return rule.allow && forms().all(|form| !is_special(form) || covers(form));
            }
        }
        self.default && !forms().any(is_special)
    }
}

impl Rule {
    fn is_for(&self, client: IpAddr, port: u16) -> bool {
        self.clients.as_ref().is_none_or(|clients| clients.contains(client))
            && self.ports.as_ref().is_none_or(|ports| ports.contains(port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(texts: &[&str]) -> Vec<Destination> {
        let one = |text: &&str| match text.strip_prefix("*.") {
            Some(parent) => Destination::Below(parent.to_owned()),
            None => match text.parse() {
                Ok(net) => Destination::Net(net),
                Err(_) => Destination::Name((*text).to_owned()),
            },
        };
        texts.iter().map(one).collect()
    }

    fn rule(allow: bool, texts: &[&str]) -> Rule {
        Rule { clients: None, to: to(texts), ports: None, allow }
    }

    fn allows(rules: &Rules, authority: &str, address: &str) -> bool {
        let authority = Authority::parse(authority, Some(80)).unwrap();
        let client = "2001:db8:c::1".parse().unwrap();
        rules.allows(client, &authority, address.parse().unwrap(), false, &[])
    }

    fn refuses(rules: &Rules, authority: &str) -> bool {
        let authority = Authority::parse(authority, Some(80)).unwrap();
        rules.refuses_name("2001:db8:c::1".parse().unwrap(), &authority)
    }

    #[test]
    fn without_rules_all_but_special_addresses() {
        let rules = Rules::default();
        assert!(allows(&rules, "example.net", "192.0.2.1"));
        assert!(allows(&rules, "[2001:db8::1]", "2001:db8::1"));
        assert!(!allows(&rules, "example.net", "127.0.0.1"));
        assert!(!allows(&rules, "example.net", "64:ff9b::10.0.0.1"));
        assert!(!refuses(&rules, "example.net"));
    }

    #[test]
    fn names_and_wildcards() {
        let rules =
            Rules { rules: vec![rule(false, &["bad.example", "*.worse.example"])], default: true };
        for (name, refused) in [
            ("bad.example", true),
            ("BAD.example.", true),
            ("not.bad.example", false),
            ("notbad.example", false),
            ("worse.example", false),
            ("a.worse.example", true),
            ("a.b.worse.example", true),
            ("aworse.example", false),
        ] {
            assert_eq!(refuses(&rules, name), refused, "{name}");
            assert_eq!(allows(&rules, name, "192.0.2.1"), !refused, "{name}");
        }
    }

    #[test]
    fn a_name_that_is_allowed_opens_no_special_address() {
        let rules = Rules { rules: vec![rule(true, &["*.example.net"])], default: false };
        assert!(allows(&rules, "a.example.net", "192.0.2.1"));
        assert!(!allows(&rules, "a.example.net", "127.0.0.1"));
        assert!(!allows(&rules, "other.example", "192.0.2.1"));
        assert!(refuses(&rules, "other.example"));
        let all = Rules { rules: vec![rule(true, &[])], default: false };
        assert!(!allows(&all, "a.example.net", "::ffff:127.0.0.1"));
    }

    #[test]
    fn a_prefix_does_and_for_each_address_that_is_meant() {
        let rules =
            Rules { rules: vec![rule(true, &["10.1.0.0/16", "64:ff9b::/96"])], default: true };
        assert!(allows(&rules, "intra.example", "10.1.2.3"));
        assert!(allows(&rules, "intra.example", "64:ff9b::10.1.2.3"));
        assert!(!allows(&rules, "intra.example", "10.2.0.1"));
        // The prefix of the translator alone says nothing about what lies behind it.
        assert!(!allows(&rules, "intra.example", "64:ff9b::127.0.0.1"));
    }

    #[test]
    fn the_hosts_own_addresses_need_a_prefix_too() {
        let rules = Rules { rules: vec![rule(true, &["2001:db8:2::/64"])], default: true };
        let client = "2001:db8:c::1".parse().unwrap();
        for (address, allowed) in [("2001:db8:1::1", false), ("2001:db8:2::1", true)] {
            let to = Authority::parse(&format!("[{address}]"), Some(80)).unwrap();
            let address = address.parse().unwrap();
            assert_eq!(rules.allows(client, &to, address, true, &[]), allowed, "{address}");
        }
        // One that a translator brings back.
        let behind = "64:ff9b::192.0.2.1".parse().unwrap();
        let to = Authority::parse("own.example", Some(80)).unwrap();
        assert!(!Rules::default().allows(client, &to, behind, true, &[]));
    }

    #[test]
    fn a_prefix_refuses_in_every_form() {
        let rules = Rules { rules: vec![rule(false, &["198.51.100.0/24"])], default: true };
        for address in ["198.51.100.1", "64:ff9b::198.51.100.1", "::ffff:198.51.100.1"] {
            assert!(!allows(&rules, "example.net", address), "{address}");
        }
        assert!(!refuses(&rules, "example.net"), "only its address says");
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let ports = Ports(vec![443..=443]);
        let narrow = Rule { ports: Some(ports), ..rule(true, &["*.example.net"]) };
        let others = Rule {
            clients: Some(Acl::new(["2001:db8:d::/48".parse().unwrap()])),
            ..rule(true, &[])
        };
        let rules = Rules { rules: vec![narrow, others, rule(false, &["*.net"])], default: true };
        assert!(allows(&rules, "a.example.net:443", "192.0.2.1"));
        assert!(!allows(&rules, "a.example.net:80", "192.0.2.1"));
        assert!(allows(&rules, "a.example.org:80", "192.0.2.1"));
    }
}
