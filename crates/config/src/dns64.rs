//! The DNS64 server (RFC 6147), as configured: `[dns64]`, its `[[dns64.forward]]` and its `[[dns64.policy]]`.

pub(crate) mod check;
pub(crate) mod upstream;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use fordway_dns64::{MAPPED, Rebinding, Reverse};
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
    BOOLEAN, Choice, Form, Given, Integer, List, Memory, OneOr, Plain, integer, list, octets, or,
    seconds, some, text, texts, time,
};
use crate::keys::keys;
use crate::problem::{Problem, Problems, Value};
use crate::value;

/// The port of DNS.
const PORT: u16 = 53;
/// That of DNS over TLS, and that of HTTPS.
const PORT_TLS: u16 = 853;
const PORT_HTTPS: u16 = 443;

/// Answers in a second to one client network, and at once.
const RATE_DEFAULT: u32 = 5000;
const MAX_BURST: u32 = 1_000_000;

const BURST: Integer<u32> = integer(1..=MAX_BURST as i64, "");

fn usual_burst(rate: Option<u32>) -> u32 {
    rate.unwrap_or(RATE_DEFAULT).saturating_mul(2).min(MAX_BURST)
}

/// Addresses that count as private.
fn usual_private() -> Vec<IpNet> {
    Rebinding::USUAL.iter().filter_map(|net| net.parse().ok()).collect()
}

const LISTEN: Plain<SocketAddr> = listen(|v| value::listen(v, PORT));
const LISTEN_TLS: Plain<SocketAddr> = listen(|v| value::listen(v, PORT_TLS));
const LISTEN_HTTPS: Plain<SocketAddr> = listen(|v| value::listen(v, PORT_HTTPS));
const ADDRESSES_TLS: &str = "write addresses of this host such as listen_tls = [\"2001:db8:1::1\"]";
const ADDRESSES_HTTPS: &str =
    "write addresses of this host such as listen_https = [\"2001:db8:1::1\"]";
const ADDRESSES: &str =
    "write addresses of this host such as listen = [\"2001:db8:1::1\", \"::1\"]";
const SERVERS: &str =
    "write servers such as upstream = [\"192.0.2.53\", \"tls://2001:db8::53#dns.example\"]";
const CLIENTS: &str = "write whom it is for, such as client = [\"2001:db8:5::/48\"]";
const PRIVATE: &str = "write a list of networks such as [\"192.168.0.0/16\", \"fc00::/7\"]";
const DOMAINS: &str = "write names such as domain = [\"corp.example\", \"2.0.192.in-addr.arpa\"]";
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
        /// Addresses to listen on for DNS over TLS (RFC 7858), with port 853 unless another is written
        listen_tls: Vec<SocketAddr> = list(LISTEN_TLS, ADDRESSES_TLS), or(Vec::new());
        /// Addresses to listen on for DNS over HTTPS (RFC 8484), with port 443 unless another is written: HTTP/2, path
        /// `/dns-query`
        listen_https: Vec<SocketAddr> = list(LISTEN_HTTPS, ADDRESSES_HTTPS), or(Vec::new());
        /// Certificate for both and those that vouch for it, in PEM. It is read again when the files change
        certificate: Option<PathBuf> = Given(file(|v| value::file(v, "/etc/fordway/dns.pem"))), or(None);
        /// Key of the certificate, in PEM
        key: Option<PathBuf> = Given(file(|v| value::file(v, "/etc/fordway/dns.key"))), or(None);
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
        /// Take private addresses of public names out of answers, before anything is synthesised of them (DNS rebinding). What
        /// is left is answered, with the extended error Blocked
        rebind_protection: bool = BOOLEAN, or(false);
        /// Addresses that count as private. An IPv4 network stands for IPv6 addresses with its addresses in a translation
        /// prefix, and for those of 6to4 and Teredo, too
        rebind_private: Vec<IpNet> = list(NET, PRIVATE), or(usual_private(), "private, shared, link-local and loopback addresses");
        /// Names that may have private addresses, with all names below them
        rebind_exempt: Vec<Name> = EXEMPT, or(Vec::new());
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
        /// Ask again for what is asked for in the last tenth of its time in the cache, if it was before: clients of popular
        /// names never wait. Not for what lives less than 10 s
        prefetch: bool = BOOLEAN, or(true);
        /// Answers that have expired are given for so long, with a TTL of 30 s, if no server answers, or none within
        /// `stale_after` (RFC 8767). Servers that have failed are asked again after 30 s
        serve_stale: Option<Duration> = or("off", seconds(60, 7 * 86_400)), or(None);
        /// With `serve_stale`: how long servers may take
        stale_after: Duration = time(100, 10_000), or(Duration::from_millis(1800));
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
        /// DNS cookies (RFC 7873): clients that show the server's are not limited by `rate`, for their addresses are not forged;
        /// upstream servers are shown theirs, too
        cookies: bool = BOOLEAN, or(true);
        /// Secrets of server cookies (RFC 9018), 32 hexadecimal digits a line: the first makes cookies, all check them. For
        /// several servers behind one address; a reload reads the file again
        cookie_secret: Option<PathBuf> = Given(file(|v| value::file(v, "/etc/fordway/cookie.secret"))),
            or(None, "drawn at each start, another one each day");
        /// Longest answer over UDP, whatever the client says it takes. The default passes every IPv6 path in one piece
        udp_size: u16 = octets(512..=4096), or(1232);
        /// What bounds clients
        limits: Limits, flat();
        /// Names that have servers of their own
        forwards("forward"): Vec<Dns64Forward>, tables("[[dns64.forward]]");
        /// What differs for some clients
        policies("policy"): Vec<Dns64Policy>, tables("[[dns64.policy]]");
    }
}

impl Dns64 {
    /// All addresses at which it takes connections.
    pub(crate) fn connections(&self) -> impl Iterator<Item = &SocketAddr> {
        self.listen.iter().chain(&self.listen_tls).chain(&self.listen_https)
    }

    /// Certificate and key of clients that speak TLS.
    #[must_use]
    pub fn tls(&self) -> Option<(&PathBuf, &PathBuf)> {
        self.certificate.as_ref().zip(self.key.as_ref())
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
    /// `[[dns64.forward]]`: names that have servers of their own.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Dns64Forward {
        /// Names, each with all below it; of several that a name is in, the longest counts. An alias (CNAME) that leads out of
        /// them, or into them, is followed at the servers of the name that it leads to
        domains("domain"): Vec<Name> = OneOr(some(DNS_NAME, DOMAINS)), needed(Vec::new(), DOMAINS);
        /// Servers that questions for these names are passed on to, as in `[dns64]`
        upstream: Vec<Server> = some(UPSTREAM, SERVERS), needed(Vec::new(), SERVERS);
        /// Whether addresses are synthesised for these names. Without it, as `exempt` says
        synthesise: Option<bool> = Given(BOOLEAN), or(None, "as for other names");
        /// `true`: these names may not have private addresses either, if `rebind_protection` of `[dns64]` is on
        rebind_protection: bool = BOOLEAN, or(false);
        /// `false`: answers are not validated, whatever `[dns64]` says: for names that the public DNS does not know, or knows
        /// otherwise (RFC 7646)
        validate: bool = BOOLEAN, or(true);
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
