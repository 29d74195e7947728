//! Reading `[[advertise]]`.

use std::net::Ipv6Addr;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use fordway_xlat::addr::Pool6;
use fordway_xlat::config::IPV6_MIN_MTU;
use hickory_proto::rr::Name;
use ipnet::Ipv6Net;
use toml::Spanned;

use super::{Advertise, AdvertisedRoute, Preference};
use crate::diagnostic::Sink;
use crate::dns64::read::inner;
use crate::name::InterfaceName;
use crate::section::{Problems, Section, Value};
use crate::sections::{Table, set, tables};
use crate::value;

type Parsed<T> = Result<T, Problems>;

/// An entry as read, with the places that checks point at.
pub(crate) struct Draft {
    advertise: Option<Advertise>,
    pub(crate) device: Option<Spanned<InterfaceName>>,
    pub(crate) prefixes: Vec<Spanned<Ipv6Net>>,
    pub(crate) rdnss: Vec<Spanned<Ipv6Addr>>,
    pub(crate) dnssl: Vec<Spanned<Name>>,
    pub(crate) pref64: Vec<Spanned<Pool6>>,
    pub(crate) routes: Vec<Spanned<Ipv6Net>>,
    pub(crate) places: Places,
}

/// Where keys stand that are held against others.
pub(crate) struct Places {
    pub(crate) preferred: Option<Range<usize>>,
    pub(crate) dns_lifetime: Option<Range<usize>>,
    pub(crate) pref64_lifetime: Option<Range<usize>>,
    pub(crate) lifetime: Option<Range<usize>>,
    pub(crate) min_interval: Option<Range<usize>>,
    pub(crate) other: Option<Range<usize>>,
}

impl Draft {
    /// The entry as far as it is complete.
    pub(crate) fn advertise(&self) -> Option<&Advertise> {
        self.advertise.as_ref()
    }

    pub(crate) fn finish(self) -> Option<Advertise> {
        self.advertise
    }
}

pub(crate) const PREFERENCES: [(&str, Preference); 3] =
    [("low", Preference::Low), ("medium", Preference::Medium), ("high", Preference::High)];

/// RFC 4861 section 6.2.1: MaxRtrAdvInterval.
const INTERVAL: RangeInclusive<Duration> = Duration::from_secs(4)..=Duration::from_secs(1800);

/// The same: the least MinRtrAdvInterval.
pub(crate) const MIN_INTERVAL: Duration = Duration::from_secs(3);

/// The same, as RFC 8319 section 4 has raised it: AdvDefaultLifetime.
const LIFETIME: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(65_535);

/// What 32 bits of seconds hold short of infinity.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64 - 1);

/// RFC 8781 section 4: 13 bits of eight seconds each.
const PREF64_LIFETIME: Duration = Duration::from_secs(8 * 0x1fff);

/// RFC 4861 section 6.2.1: AdvReachableTime.
const REACHABLE: Duration = Duration::from_secs(3600);

pub(crate) fn advertise((table, span): Table<'_, '_>, sink: &mut Sink) -> Draft {
    let mut section = Section::new("[[advertise]]", table, span);
    let help = "write the device of the clients' link, such as device = \"lan0\"";
    let device = section.require(sink, "device", help, value::name);
    let prefix = "write a list of prefixes such as [\"2001:db8:1::/64\"]";
    let prefixes = section.read(sink, "prefix", |v| value::list(v, prefix, value::prefix6));
    let rdnss = "write a list of addresses such as [\"2001:db8:1::1\"]";
    let rdnss = section.read(sink, "rdnss", |v| value::list(v, rdnss, value::server6));
    let dnssl = "write a list of names such as [\"example.net\"]";
    let dnssl = section.read(sink, "dnssl", |v| value::list(v, dnssl, value::dns_name));
    let pref64 = "write a list of prefixes such as [\"64:ff9b::/96\"]";
    let pref64 = section.read(sink, "pref64", |v| value::list(v, pref64, value::pool6));
    let mut a = Advertise {
        device: device.as_ref().map_or_else(InterfaceName::placeholder, |it| it.get_ref().clone()),
        prefixes: prefixes.as_ref().map(|it| inner(it.get_ref())),
        on_link: true,
        autonomous: true,
        valid: Duration::from_secs(24 * 3600),
        preferred: Duration::from_secs(4 * 3600),
        rdnss: rdnss.as_ref().map(|it| inner(it.get_ref())),
        dnssl: dnssl.as_ref().map(|it| inner(it.get_ref())).unwrap_or_default(),
        dns_lifetime: None,
        pref64: pref64.as_ref().map(|it| inner(it.get_ref())),
        pref64_lifetime: None,
        routes: Vec::new(),
        mtu: None,
        lifetime: None,
        interval: Duration::from_secs(600),
        min_interval: None,
        preference: Preference::default(),
        managed: false,
        other: None,
        hop_limit: 64,
        reachable: Duration::ZERO,
        retrans: Duration::ZERO,
        source_link_layer: true,
        dhcpv6: false,
        manage: true,
    };
    let places = values(&mut section, sink, &mut a);
    let tables = section.read(sink, "route", |v| tables(v, "[[advertise.route]]"));
    let tables = tables.map(Spanned::into_inner).unwrap_or_default();
    let mut routes = Vec::new();
    for (read, span) in tables.into_iter().filter_map(|table| route(table, sink)) {
        routes.push(Spanned::new(span, read.prefix));
        a.routes.push(read);
    }
    section.finish(sink);
    Draft {
        advertise: device.is_some().then_some(a),
        device,
        prefixes: list(prefixes),
        rdnss: list(rdnss),
        dnssl: list(dnssl),
        pref64: list(pref64),
        routes,
        places,
    }
}

/// Reads a `[[advertise.route]]`, and gives the place of its prefix.
fn route((table, span): Table<'_, '_>, sink: &mut Sink) -> Option<(AdvertisedRoute, Range<usize>)> {
    let mut section = Section::new("[[advertise.route]]", table, span);
    let help = "write where the route leads, such as prefix = \"2001:db8:64::/48\"";
    let prefix = section.require(sink, "prefix", help, value::prefix6);
    let mut preference = Preference::default();
    set(&mut preference, section.read(sink, "preference", |v| value::choice(v, &PREFERENCES)));
    let range = Duration::from_secs(1)..=FOREVER;
    let lifetime = section.read(sink, "lifetime", |v| value::auto_or(v, |v| whole(v, range)));
    section.finish(sink);
    let (span, prefix) = (prefix.as_ref()?.span(), prefix?.into_inner());
    let lifetime = lifetime.and_then(Spanned::into_inner);
    Some((AdvertisedRoute { prefix, preference, lifetime }, span))
}

/// Reads the keys of one value each.
fn values(section: &mut Section<'_, '_>, sink: &mut Sink, a: &mut Advertise) -> Places {
    set(&mut a.on_link, section.read(sink, "on_link", value::boolean));
    set(&mut a.autonomous, section.read(sink, "autonomous", value::boolean));
    let second = Duration::from_secs(1);
    set(&mut a.valid, section.read(sink, "valid", |v| whole(v, second..=FOREVER)));
    let preferred = section.read(sink, "preferred", |v| whole(v, Duration::ZERO..=FOREVER));
    let at_preferred = preferred.as_ref().map(Spanned::span);
    match preferred {
        None => a.preferred = a.preferred.min(a.valid),
        preferred => set(&mut a.preferred, preferred),
    }
    let or_auto = |v: &Value<'_>, range| value::auto_or(v, |v| whole(v, range));
    let dns_lifetime = section.read(sink, "dns_lifetime", |v| or_auto(v, second..=FOREVER));
    let at_dns = written(dns_lifetime.as_ref());
    set(&mut a.dns_lifetime, dns_lifetime);
    let pref64_lifetime =
        section.read(sink, "pref64_lifetime", |v| or_auto(v, second..=PREF64_LIFETIME));
    let at_pref64 = written(pref64_lifetime.as_ref());
    set(&mut a.pref64_lifetime, pref64_lifetime);
    let mtu = |v: &Value<'_>| match v.get_ref().as_str() {
        Some("off") => Ok(None),
        _ => value::octets(v, i64::from(IPV6_MIN_MTU)..=65_535).map(Some),
    };
    set(&mut a.mtu, section.read(sink, "mtu", mtu));
    let lifetime = section.read(sink, "lifetime", |v| or_auto(v, LIFETIME));
    let at_lifetime = written(lifetime.as_ref());
    set(&mut a.lifetime, lifetime);
    set(&mut a.interval, section.read(sink, "interval", |v| whole(v, INTERVAL)));
    let longest = Duration::from_secs(1350);
    let min_interval = section.read(sink, "min_interval", |v| or_auto(v, MIN_INTERVAL..=longest));
    let at_min = written(min_interval.as_ref());
    set(&mut a.min_interval, min_interval);
    let preference = section.read(sink, "preference", |v| value::choice(v, &PREFERENCES));
    set(&mut a.preference, preference);
    set(&mut a.managed, section.read(sink, "managed", value::boolean));
    let other = section.read(sink, "other", |v| value::auto_or(v, value::boolean));
    let at_other = written(other.as_ref());
    set(&mut a.other, other);
    // The range lies within u8.
    let hop_limit = |v: &Value<'_>| Ok(value::integer(v, 0..=255, "")? as u8);
    set(&mut a.hop_limit, section.read(sink, "hop_limit", hop_limit));
    let reachable =
        section.read(sink, "reachable", |v| value::duration(v, Duration::ZERO..=REACHABLE));
    set(&mut a.reachable, reachable);
    let retrans = section.read(sink, "retrans", |v| value::duration(v, Duration::ZERO..=REACHABLE));
    set(&mut a.retrans, retrans);
    set(&mut a.source_link_layer, section.read(sink, "source_link_layer", value::boolean));
    set(&mut a.dhcpv6, section.read(sink, "dhcpv6", value::boolean));
    set(&mut a.manage, section.read(sink, "manage", value::boolean));
    Places {
        preferred: at_preferred,
        dns_lifetime: at_dns,
        pref64_lifetime: at_pref64,
        lifetime: at_lifetime,
        min_interval: at_min,
        other: at_other,
    }
}

/// A duration of whole seconds: there is no place for parts of one.
fn whole(v: &Value<'_>, range: RangeInclusive<Duration>) -> Parsed<Duration> {
    let duration = value::duration(v, range)?;
    if duration.subsec_nanos() == 0 {
        return Ok(duration);
    }
    let help = format!("write \"{}s\"", duration.as_secs());
    Err(crate::section::Problem::new(v.span(), "parts of a second can't be told", help).into())
}

/// The place of a key that does not leave the choice.
fn written<T>(read: Option<&Spanned<Option<T>>>) -> Option<Range<usize>> {
    read.filter(|read| read.get_ref().is_some()).map(Spanned::span)
}

fn list<T>(read: Option<Spanned<Vec<T>>>) -> Vec<T> {
    read.map(Spanned::into_inner).unwrap_or_default()
}
