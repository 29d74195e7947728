//! Router advertisements on one device (RFC 4861), as configured: `[[advertise]]`.

pub(crate) mod check;
mod service;

use std::net::Ipv6Addr;
use std::time::Duration;

use fordway_dns64::ndp::Preference;
use fordway_xlat::addr::Pool6;
use fordway_xlat::config::IPV6_MIN_MTU;
use hickory_proto::rr::Name;
use ipnet::Ipv6Net;

use crate::keys::common::{DNS_NAME, INTERFACE, POOL6, PREFIX6, SERVER6};
use crate::keys::form::{
    BOOLEAN, Choice, Given, Octets, Time, integer, list, octets, or, seconds, some, time,
};
use crate::keys::keys;
use crate::name::InterfaceName;
use service::{CAPTIVE_PORTAL, DOHPATH};

pub(crate) use service::{is_literal, portal_host};

/// RFC 4861 section 6.2.1: the least MinRtrAdvInterval.
const MIN_INTERVAL: Duration = Duration::from_secs(3);

/// Lifetimes: what 32 bits of seconds hold short of infinity.
const FOREVER: u64 = u32::MAX as u64 - 1;
const LIFETIME: Time = seconds(1, FOREVER);

const MTU: Octets<u32> = octets(IPV6_MIN_MTU as i64..=65_535);

/// RFC 4861 section 6.2.1: AdvReachableTime, in milliseconds.
const REACHABLE: Time = time(0, 3_600_000);

const PREFERENCE: Choice<Preference> =
    Choice(&[("low", Preference::Low), ("medium", Preference::Medium), ("high", Preference::High)]);

const DEVICE: &str = "write the device of the clients' link, such as device = \"lan0\"";
const PREFIXES: &str = "write a list of prefixes such as [\"2001:db8:1::/64\"]";
const ADDRESSES: &str = "write a list of addresses such as [\"2001:db8:1::1\"]";
const NAMES: &str = "write a list of names such as [\"example.net\"]";
const POOLS: &str = "write a list of prefixes such as [\"64:ff9b::/96\"]";
const ADN: &str =
    "write the name of the resolver's certificate, such as name = \"dns.example.net\"";
const PROTOCOLS: &str = "write protocols such as alpn = [\"dot\", \"h2\"]";
const ROUTE: &str = "write where the route leads, such as prefix = \"2001:db8:64::/48\"";

keys! {
    /// One `[[advertise]]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Advertise {
        /// The device. It need not be there yet
        device: InterfaceName = INTERFACE, needed(InterfaceName::placeholder(), DEVICE);
        /// Prefixes of the link. Without it, the /64s of the device's global addresses, followed as they come and go
        prefixes("prefix"): Option<Vec<Ipv6Net>> = Given(list(PREFIX6, PREFIXES)), or(None, "those of the device");
        /// Hosts reach each other directly in these prefixes
        on_link: bool = BOOLEAN, or(true);
        /// Hosts make addresses in these prefixes (RFC 4862), which then have 64 bits
        autonomous: bool = BOOLEAN, or(true);
        /// How long these addresses stay valid without another advertisement
        valid: Duration = LIFETIME, or(Duration::from_secs(24 * 3600));
        /// How long hosts use them for new connections; at most `valid`
        preferred: Duration = seconds(0, FOREVER), or(valid.min(Duration::from_secs(4 * 3600)), "`\"4h\"`");
        /// DNS servers (RFC 8106). Without it, those addresses of `[dns64] listen` with port 53 that the device has, else
        /// those that other devices have
        rdnss: Option<Vec<Ipv6Addr>> = Given(list(SERVER6, ADDRESSES)), or(None, "where `[dns64]` listens");
        /// Domains in which hosts look for names (RFC 8106)
        dnssl: Vec<Name> = list(DNS_NAME, NAMES), or(Vec::new());
        /// Lifetime of DNS servers and domains. `auto`: three intervals
        dns_lifetime: Option<Duration> = or("auto", LIFETIME), or(None);
        /// Translation prefixes (RFC 8781), by which hosts find the translator without asking the DNS
        pref64: Option<Vec<Pool6>> = Given(list(POOL6, POOLS)), or(None, "those of `[dns64]`, else of the translators");
        /// Their lifetime (RFC 8781 section 4: 13 bits of eight seconds each). `auto`: three intervals
        pref64_lifetime: Option<Duration> = or("auto", seconds(1, 8 * 0x1fff)), or(None);
        /// The link's MTU
        mtu: Option<u32> = or("off", MTU), or(None);
        /// How long hosts keep this router as a default router; `0s`: it is none. `auto`: three intervals (RFC 8319
        /// section 4)
        lifetime: Option<Duration> = or("auto", seconds(0, 65_535)), or(None);
        /// Longest time between unsolicited advertisements
        interval: Duration = seconds(4, 1800), or(Duration::from_secs(600));
        /// Shortest time between them, at most three quarters of `interval`. `auto`: a third of `interval`
        min_interval: Option<Duration> = or("auto", seconds(MIN_INTERVAL.as_secs(), 1350)), or(None);
        /// Preference among default routers (RFC 4191)
        preference: Preference = PREFERENCE, or(Preference::Medium);
        /// Hosts get addresses by DHCPv6, of a server of your choice
        managed: bool = BOOLEAN, or(false);
        /// Hosts ask by DHCPv6 for the rest. `auto`: with `dhcpv6`
        other: Option<bool> = or("auto", BOOLEAN), or(None);
        /// Hop limit that hosts begin with; 0: not told
        hop_limit: u8 = integer(0..=255, ""), or(64);
        /// How long a neighbour counts as reachable; 0: not told
        reachable: Duration = REACHABLE, or(Duration::ZERO);
        /// Time between neighbour solicitations; 0: not told
        retrans: Duration = REACHABLE, or(Duration::ZERO);
        /// The router's link-layer address goes with it, so that hosts need not ask
        source_link_layer: bool = BOOLEAN, or(true);
        /// Answer such questions: DNS servers and domains by stateless DHCPv6 (RFC 8415 section 18.3.6), for hosts that do
        /// not take them from advertisements
        dhcpv6: bool = BOOLEAN, or(false);
        /// Make the host forward what comes in on the device, unless `lifetime` is 0, and take that back at the end. Devices
        /// that have their own routes from router advertisements keep them. `false`: leave the host alone; where it does
        /// not forward, it is advertised as no default router
        manage: bool = BOOLEAN, or(true);
        /// Where hosts learn whether they have to log in first (RFC 8910): the URI of the portal's API (RFC 8908), by
        /// `https` and with a name; or `"urn:ietf:params:capport:unrestricted"`, which says that there is no portal. With
        /// `dhcpv6` by DHCPv6, too
        captive_portal: Option<String> = Given(CAPTIVE_PORTAL), or(None);
        /// Accept an address in the place of the name in `captive_portal`, against the advice of RFC 8910 section 2
        captive_portal_literal: bool = BOOLEAN, or(false);
        /// Encrypted DNS resolvers (RFC 9463). With `dhcpv6` by DHCPv6, too
        dnr: Vec<AdvertisedResolver>, tables("[[advertise.dnr]]");
        /// Routes through this router beside the default one (RFC 4191)
        routes("route"): Vec<AdvertisedRoute>, tables("[[advertise.route]]");
    }
}

keys! {
    /// `[[advertise.route]]`: a route through this router (RFC 4191 section 2.3).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct AdvertisedRoute {
        /// Where to
        prefix: Ipv6Net = PREFIX6, needed(Ipv6Net::default(), ROUTE);
        /// Preference among routes to the same prefix
        preference: Preference = PREFERENCE, or(Preference::Medium);
        /// Its lifetime. `auto`: three intervals
        lifetime: Option<Duration> = or("auto", LIFETIME), or(None);
    }
}

keys! {
    /// `[[advertise.dnr]]`: an encrypted DNS resolver (RFC 9463).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct AdvertisedResolver {
        /// Its name: hosts check its certificate by it
        name: Name = DNS_NAME, needed(Name::root(), ADN);
        /// Its addresses, 16 at most. Without any, hosts look the name up, and ask the DNS how to reach it (RFC 9461)
        addresses: Vec<Ipv6Addr> = list(SERVER6, ADDRESSES), or(Vec::new());
        /// How it is asked: over TLS (`dot`), QUIC (`doq`), HTTPS with HTTP/2 (`h2`) or HTTP/3 (`h3`)
        alpn: Vec<&'static str> = some(ALPN, PROTOCOLS), or(vec!["dot"]);
        /// Its port. `auto`: that of the protocol, 853 or 443
        port: Option<u16> = or("auto", integer(1..=65_535, "")), or(None);
        /// Path of DNS over HTTPS, as a URI template with the variable `dns` (RFC 8484)
        dohpath: String = DOHPATH, or("/dns-query{?dns}".to_owned());
        /// The lowest number is asked first
        priority: u16 = integer(1..=65_535, ""), or(1);
        /// Its lifetime in advertisements. `auto`: three intervals
        lifetime: Option<Duration> = or("auto", LIFETIME), or(None);
    }
}

const ALPN: Choice<&'static str> =
    Choice(&[("dot", "dot"), ("doq", "doq"), ("h2", "h2"), ("h3", "h3")]);

impl Advertise {
    /// Whether hosts get other configuration by DHCPv6.
    #[must_use]
    pub fn other(&self) -> bool {
        self.dhcpv6 || self.other == Some(true)
    }
}
