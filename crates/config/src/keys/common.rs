//! Forms of values that several sections have.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use fordway_xlat::addr::Pool6;
use fordway_xlat::{IcmpErrors, TrafficClass};
use hickory_proto::rr::Name;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde_json::json;
use toml::Value as Toml;

use super::form::{Given, Integer, List, Or, Plain, integer, list, or, text};
use super::{Key, Keys, Section, Written};
use crate::diagnostic::Sink;
use crate::name::InterfaceName;
use crate::problem::{Problem, Problems, Value};
use crate::value;

pub(crate) const INTERFACE: Plain<InterfaceName> =
    text(value::name, ("interface name", "interface names", "DEV"));
pub(crate) const NAME: Plain<InterfaceName> =
    text(value::translator_name, ("name", "names", "NAME"));
pub(crate) const POOL6: Plain<Pool6> = text(value::pool6, ("prefix", "prefixes", "PREFIX"));
pub(crate) const PREFIX4: Plain<Ipv4Net> =
    text(value::prefix4, ("IPv4 network", "IPv4 networks", "NET"));
pub(crate) const PREFIX6: Plain<Ipv6Net> =
    text(value::prefix6, ("IPv6 prefix", "IPv6 prefixes", "PREFIX"));
pub(crate) const NET: Plain<IpNet> = text(value::net, ("network", "networks", "NET"));
pub(crate) const HOST4: Plain<Ipv4Addr> =
    text(value::host4, ("IPv4 address", "IPv4 addresses", "ADDR"));
pub(crate) const HOST6: Plain<Ipv6Addr> =
    text(value::host6, ("IPv6 address", "IPv6 addresses", "ADDR"));
pub(crate) const SERVER6: Plain<Ipv6Addr> =
    text(value::server6, ("IPv6 address", "IPv6 addresses", "ADDR"));
pub(crate) const SOCKET: Plain<SocketAddr> =
    text(value::socket_address, ("address with port", "addresses with port", "ADDR:PORT"));

/// A name of the DNS.
pub(crate) const DNS_NAME: Plain<Name> = Plain {
    write: |name| value::name_text(name).into(),
    ..text(value::dns_name, ("name", "names", "NAME"))
};

/// An absolute path.
pub(crate) const fn file(read: fn(&Value<'_>) -> Result<PathBuf, Problems>) -> Plain<PathBuf> {
    Plain {
        read,
        write: |path| path.to_string_lossy().into_owned().into(),
        named: ("absolute path", "absolute paths", "FILE"),
        schema: || json!({"type": "string", "pattern": "^/"}),
    }
}

/// An address to listen on, with the port that it has unless another is written.
pub(crate) const fn listen(
    read: fn(&Value<'_>) -> Result<SocketAddr, Problems>,
) -> Plain<SocketAddr> {
    text(read, ("address, with port or without", "addresses, with port or without", "ADDR"))
}

/// Threads; `auto`: one for each processor.
pub(crate) const THREADS: Or<Integer<usize>> = or("auto", integer(1..=64, ""));

/// Whom something is for; `local`: who is in a network of the host's, and the host itself.
pub(crate) const ALLOW: Or<List<Plain<IpNet>>> =
    or("local", list(NET, "write \"local\", or a list of networks such as [\"2001:db8:1::/64\"]"));

/// A rate; `unlimited`: none.
pub(crate) const RATE: Plain<Option<u32>> = Plain {
    read: value::rate,
    write: |rate| rate.map_or("unlimited".to_owned(), |rate| format!("{rate}/s")).into(),
    named: ("rate, `\"unlimited\"`", "rates", "RATE"),
    schema: || json!({"type": "string", "pattern": "^(unlimited|[0-9]+ */s)$"}),
};

/// A routing table that is none of the kernel's own.
pub(crate) const TABLE: Plain<u32> = Plain {
    read: routing_table,
    write: |table| Toml::Integer((*table).into()),
    named: ("1 to 4294967295 but 253 to 255", "", "NUMBER"),
    schema: || json!({"type": "integer", "minimum": 1, "maximum": u32::MAX}),
};

fn routing_table(v: &Value<'_>) -> Result<u32, Problems> {
    let number = value::integer(v, 1..=i64::from(u32::MAX), "")?;
    match number {
        _ if is_kernels(number as u32) => {
            let message = format!("{number} is a table of the kernel's own");
            let help = "write another number, or leave it out";
            Err(Problem::new(v.span(), message, help).into())
        }
        // The range lies within the type.
        _ => Ok(number as u32),
    }
}

/// Whether a routing table is one of the kernel's own: `default`, `main`, `local`.
pub(crate) fn is_kernels(table: u32) -> bool {
    (253..=255).contains(&table)
}

/// Leading bits of an IPv6 address that name a client network.
pub(crate) const CLIENT_LEN: Integer<u8> = integer(32..=128, "bits");

/// Leading bits of an IPv4 address that name one.
pub(crate) const CLIENT_LEN4: Integer<u8> = integer(8..=32, "bits");

/// Type of Service and Traffic Class.
pub(crate) const TRAFFIC_CLASS: Plain<TrafficClass> = Plain {
    read: |value| match value.get_ref().as_integer() {
        // The range lies within u8.
        Some(_) => value::integer(value, 0..=255, "").map(|octet| TrafficClass::Set(octet as u8)),
        None => value::choice(value, &[("copy", TrafficClass::Copy)]),
    },
    write: |class| match class {
        TrafficClass::Copy => "copy".into(),
        TrafficClass::Set(octet) => Toml::Integer((*octet).into()),
    },
    named: ("`\"copy\"`, 0 to 255", "", "OCTET"),
    schema: || json!({"anyOf": [{"const": "copy"}, {"type": "integer", "minimum": 0, "maximum": 255}]}),
};

/// The two keys of the rate of ICMP errors.
const ICMP_ERRORS: Plain<IcmpErrors> = Plain {
    read: value::icmp_errors,
    write: |errors| match errors {
        IcmpErrors::Off => "off".into(),
        IcmpErrors::Unlimited => "unlimited".into(),
        IcmpErrors::Limited { per_second, .. } => format!("{per_second}/s").into(),
    },
    named: ("rate, `\"unlimited\"`, `\"off\"`", "", "RATE"),
    schema: || json!({"type": "string", "pattern": "^(off|unlimited|[0-9]+ */s)$"}),
};

const BURST: Given<Integer<u32>> = Given(integer(1..=1_000_000, ""));

impl Keys for IcmpErrors {
    fn read(section: &mut Section<'_, '_>, sink: &mut Sink) -> (IcmpErrors, bool) {
        use super::form::Form;
        let errors = section.read(sink, "icmp_errors", |v| ICMP_ERRORS.read(v));
        let written = section.read(sink, "icmp_errors_burst", |v| BURST.read(v));
        let mut errors = errors.map_or_else(IcmpErrors::default, toml::Spanned::into_inner);
        match (&mut errors, written) {
            (IcmpErrors::Limited { burst, .. }, written) => {
                let usual = match IcmpErrors::default() {
                    IcmpErrors::Limited { burst, .. } => burst,
                    IcmpErrors::Off | IcmpErrors::Unlimited => 1,
                };
                *burst = written.and_then(toml::Spanned::into_inner).unwrap_or(usual);
            }
            (IcmpErrors::Off | IcmpErrors::Unlimited, Some(written)) => {
                let message = "`icmp_errors_burst` has no effect without a rate";
                let help = "write a rate such as icmp_errors = \"1000/s\", or leave the burst out";
                sink.warn(written.span(), message, help);
            }
            (IcmpErrors::Off | IcmpErrors::Unlimited, None) => {}
        }
        (errors, true)
    }

    fn write(&self, to: &mut Written) {
        use super::form::Form;
        to.put_some("icmp_errors", ICMP_ERRORS.write(self));
        if let IcmpErrors::Limited { burst, .. } = self {
            to.put_some("icmp_errors_burst", BURST.write(&Some(*burst)));
        }
    }

    fn keys() -> Vec<Key> {
        vec![
            Key::new(
                "icmp_errors",
                &ICMP_ERRORS,
                "`\"1000/s\"`".to_owned(),
                "How many are sent at most, over all queues",
            ),
            Key::new("icmp_errors_burst", &BURST, "`100`".to_owned(), "How many at once"),
        ]
    }
}
