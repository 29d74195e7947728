//! The DNS64 server (RFC 6147), as configured: `[dns64]` and its `[[dns64.policy]]`.

pub(crate) mod check;
pub(crate) mod upstream;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use fordway_dns64::{MAPPED, Reverse};
use fordway_nameserver::Limits;
use fordway_resolver::Server;
use fordway_xlat::addr::Pool6;
use hickory_proto::rr::Name;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::keys::common::{
    ALLOW, CLIENT_LEN, CLIENT_LEN4, DNS_NAME, NET, POOL6, PREFIX4, PREFIX6, RATE, THREADS, file,
    listen,
};
use crate::keys::form::{
    BOOLEAN, Choice, Form, Given, Integer, List, Memory, Plain, integer, list, octets, or, some,
    text, texts, time,
};
use crate::keys::keys;
use crate::problem::{Problem, Problems, Value};
use crate::value;

/// The port of DNS.
const PORT: u16 = 53;

/// Answers in a second to one client network, and at once.
const RATE_DEFAULT: u32 = 5000;
const MAX_BURST: u32 = 1_000_000;

const BURST: Integer<u32> = integer(1..=MAX_BURST as i64, "");

fn usual_burst(rate: Option<u32>) -> u32 {
    rate.unwrap_or(RATE_DEFAULT).saturating_mul(2).min(MAX_BURST)
}

const LISTEN: Plain<SocketAddr> = listen(|v| value::listen(v, PORT));
const ADDRESSES: &str =
    "write addresses of this host such as listen = [\"2001:db8:1::1\", \"::1\"]";
const SERVERS: &str =
    "write servers such as upstream = [\"192.0.2.53\", \"tls://2001:db8::53#dns.example\"]";
const CLIENTS: &str = "write whom it is for, such as client = [\"2001:db8:5::/48\"]";
const RANGES: &str = "write a list of pairs: [[\"198.51.100.0/24\", \"2001:db8:65::/96\"]]";

const UPSTREAM: Plain<Server> = text(
    |v| value::parsed(v, "a server", SERVERS, upstream::parse),
    ("server", "[servers](#upstream-servers)", "ADDR"),
);

/// An IPv4 network and its prefix.
const RANGE: Plain<(Ipv4Net, Pool6)> = Plain {
    read: range,
    write: |(v4, pool6)| toml::Value::from(vec![v4.to_string(), pool6.to_string()]),
    named: ("pair", "pairs", "V4=PREFIX"),
    schema: || texts(2),
};

fn range(v: &Value<'_>) -> Result<(Ipv4Net, Pool6), Problems> {
    let pair = v.get_ref().as_array().map(|pair| &pair[..]);
    let Some([v4, pool6]) = pair else {
        let message = "this is no pair of an IPv4 network and a translation prefix";
        return Err(Problem::new(v.span(), message, RANGES).into());
    };
    Ok((value::prefix4(v4)?, value::pool6(pool6)?))
}

const POOLS: List<Plain<Pool6>> = some(
    POOL6,
    "write prefixes such as pool6 = [\"64:ff9b::/96\"], or leave it out for those of the translators",
);
const EXCLUDE: List<Plain<Ipv6Net>> =
    list(PREFIX6, "write a list of IPv6 prefixes such as [\"::ffff:0:0/96\"]");
const EXCLUDE_A: List<Plain<Ipv4Net>> =
    list(PREFIX4, "write a list of IPv4 networks such as [\"198.51.100.0/24\"]");
const EXEMPT: List<Plain<Name>> = list(DNS_NAME, "write a list of names such as [\"example.net\"]");

keys! {
    /// `[dns64]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Dns64 {
        /// Addresses to listen on, over UDP and TCP, with port 53 unless another is written. The host need not have an
        /// address yet. `"::"` is all IPv6 addresses and `"0.0.0.0"` all IPv4 addresses
        listen: Vec<SocketAddr> = some(LISTEN, ADDRESSES), needed(Vec::new(), ADDRESSES);
        /// Servers that questions are passed on to, the one that answers fastest first
        upstream: Vec<Server> = some(UPSTREAM, SERVERS), needed(Vec::new(), SERVERS);
        /// CA certificates (PEM) for servers over TLS and HTTPS
        ca: Option<PathBuf> = Given(file(|v| value::file(v, "/etc/ssl/certs/ca-certificates.crt"))),
            or(None, "the system's");
        /// `auto`: one for each processor, 64 at most
        threads: Option<usize> = THREADS, or(None);
        /// Translation prefixes of synthesised addresses: an answer has one address of each for each IPv4 address. Without
        /// it, those of all translators of mode nat64 and siit in the file's order; a reload that changes those changes
        /// these with them
        pool6: Option<Vec<Pool6>> = Given(POOLS), or(None, "those of the translators");
        /// IPv4 networks that have prefixes of their own (RFC 6147 section 5.1.7): `["IPV4", "PREFIX"]`, the longest
        /// network that has an address first; a network may stand in several pairs
        ranges: Vec<(Ipv4Net, Pool6)> = list(RANGE, RANGES), or(Vec::new());
        /// AAAA records that count as none (RFC 6147 section 5.1.4)
        exclude: Vec<Ipv6Net> = EXCLUDE, or(vec![MAPPED]);
        /// IPv4 addresses of which nothing is synthesised
        exclude_a: Vec<Ipv4Net> = EXCLUDE_A, or(Vec::new());
        /// Names for which, and below which, nothing is synthesised
        exempt: Vec<Name> = EXEMPT, or(Vec::new());
        /// Names of synthesised addresses (RFC 6147 section 5.3.1): a CNAME to the name of the IPv4 address, or a name made
        /// here
        reverse: Reverse = Choice(&[("cname", Reverse::Cname), ("local", Reverse::Local)]), or(Reverse::Cname);
        /// With `reverse = "local"`: the domain of the names made here
        reverse_domain: Option<Name> = Given(DNS_NAME), or(None, "`\"nat64.invalid\"`");
        /// Names of the translator, for hosts that look for them (RFC 7050 section 3.1.1)
        nat64_names: Vec<Name> =
            list(DNS_NAME, "write a list of names such as [\"nat64.example.net\"]"), or(Vec::new());
        /// Let 64:ff9b::/96 stand for IPv4 addresses that are not global, against RFC 6052 section 3.1. `auto`: if a
        /// translator does
        allow_private: Option<bool> = or("auto", BOOLEAN), or(None);
        /// Whose questions are answered; all others are refused. `local`: networks that this host has an address in,
        /// followed when they change, and the host itself. A network of everybody is taken with a warning: an open
        /// resolver is used against others (RFC 5358)
        allow: Option<Vec<IpNet>> = ALLOW, or(None);
        /// Validate what upstream servers answer (DNSSEC). What does not validate is not answered
        validate: bool = BOOLEAN, or(false);
        /// Trust anchor: DNSKEY or DS records in a file
        trust_anchor: Option<PathBuf> = Given(file(|v| value::file(v, "/usr/share/dns/root.key"))),
            or(None, "the root's keys, built in");
        /// Memory for answers of upstream servers, and a quarter of it for what was made of them, but for that at least
        /// 1 MiB
        cache: u64 = Memory(1 << 20..=16 << 30), or(32 << 20);
        /// Time that a server has for one try
        timeout: Duration = time(100, 10_000), or(Duration::from_secs(2));
        /// Time after which a question is given up. The default has room for two tries and a half: servers that answer
        /// late are heard while others are asked
        deadline: Duration = time(100, 60_000), or(timeout * 5 / 2, "two and a half of `timeout`");
        /// Tries of one question, over all servers
        attempts: u8 = integer(1..=8, ""), or(3);
        /// Answers over UDP to one client network (`client_len`). Beyond it every other one is an invitation to TCP, the
        /// rest is dropped
        rate: Option<u32> = RATE, or(Some(RATE_DEFAULT));
        /// How many at once
        burst: u32 = BURST, or(usual_burst(rate), "twice the rate"), if(rate.is_some()),
            read(|v| Ok(if rate.is_some() { BURST.read(v)? } else { usual_burst(rate) }));
        /// Longest answer over UDP, whatever the client says it takes. The default passes every IPv6 path in one piece
        udp_size: u16 = octets(512..=4096), or(1232);
        /// What bounds clients
        limits: Limits, flat();
        /// What differs for some clients
        policies("policy"): Vec<Dns64Policy>, tables("[[dns64.policy]]");
    }
}

keys! {
    impl Limits {
        /// TCP connections at once
        "tcp_clients" (connections) = integer(1..=65_535, "");
        /// Time after which a TCP connection without a question is closed
        "tcp_idle" (idle) = time(1_000, 300_000);
        /// Leading bits of an IPv6 address that name a client network, for all limits by client
        "client_len" (client_len.v6) = CLIENT_LEN;
        /// Leading bits of an IPv4 address that name one
        "client_len4" (client_len.v4) = CLIENT_LEN4;
    }
}

keys! {
    /// `[[dns64.policy]]`: what differs for some clients. Where a key is absent, what `[dns64]` says holds.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Dns64Policy {
        /// Networks of clients; the policy with the longest one that has a client is the client's
        clients("client"): Vec<IpNet> = some(NET, CLIENTS), needed(Vec::new(), CLIENTS);
        /// `false`: nothing is synthesised for them
        enable: bool = BOOLEAN, or(true);
        /// As in `[dns64]`, like all that follow
        pool6: Option<Vec<Pool6>> = Given(POOLS), or(None, "as in `[dns64]`");
        /// IPv4 networks that have prefixes of their own
        ranges: Option<Vec<(Ipv4Net, Pool6)>> = Given(list(RANGE, RANGES)), or(None, "as in `[dns64]`");
        /// AAAA records that count as none
        exclude: Option<Vec<Ipv6Net>> = Given(EXCLUDE), or(None, "as in `[dns64]`");
        /// IPv4 addresses of which nothing is synthesised
        exclude_a: Option<Vec<Ipv4Net>> = Given(EXCLUDE_A), or(None, "as in `[dns64]`");
        /// Names for which nothing is synthesised
        exempt: Option<Vec<Name>> = Given(EXEMPT), or(None, "as in `[dns64]`");
    }
}
