//! What has to go together in router advertisements.

use std::time::Duration;

use fordway_xlat::addr::Pool6;
use hickory_proto::rr::Name;
use ipnet::Ipv6Net;
use toml::Spanned;

use super::{Advertise, is_literal, portal_host};
use crate::diagnostic::Sink;
use crate::findings::{duplicates, no_effect, twice, well_known_prefix};
use crate::keys::Read;
use crate::name::InterfaceName;

/// What the rest of the file has.
pub(crate) struct Surroundings<'a> {
    /// Translation prefixes of the translators and of `[dns64]`.
    pub(crate) prefixes: &'a [Pool6],
    /// The names of the translators.
    pub(crate) translators: Vec<&'a Spanned<InterfaceName>>,
    /// The uplinks of CLATs.
    pub(crate) uplinks: Vec<&'a InterfaceName>,
}

/// Checks all entries.
pub(crate) fn advertise(drafts: &[Read<Advertise>], around: &Surroundings<'_>, sink: &mut Sink) {
    devices(drafts, around, sink);
    for draft in drafts {
        let Read { value: advertise, at, .. } = draft;
        duplicates(
            "prefix",
            &at.each("prefix", advertise.prefixes.as_deref().unwrap_or_default()),
            sink,
        );
        duplicates(
            "rdnss",
            &at.each("rdnss", advertise.rdnss.as_deref().unwrap_or_default()),
            sink,
        );
        let pref64 = at.each("pref64", advertise.pref64.as_deref().unwrap_or_default());
        duplicates("pref64", &pref64, sink);
        routes(draft, sink);
        resolvers(draft, sink);
        captive_portal(draft, sink);
        duplicate_names("dnssl", &at.each("dnssl", &advertise.dnssl), sink);
        well_known_prefix(&pref64, sink);
        unknown_prefixes(&pref64, around.prefixes, sink);
        if draft.complete {
            prefixes(draft, sink);
            times(draft, sink);
            other(draft, sink);
        }
    }
}

fn devices(drafts: &[Read<Advertise>], around: &Surroundings<'_>, sink: &mut Sink) {
    let devices: Vec<_> =
        drafts.iter().filter_map(|draft| draft.at.of("device", &draft.value.device)).collect();
    for (first, second) in twice(&devices, |device| device) {
        let message = format!("`device`: {} has router advertisements already", second.get_ref());
        let help = "write all that is to be advertised there into one [[advertise]]";
        sink.error(second.span(), message, help).beside(first.span(), "here");
    }
    let help = "write the device of the clients' link";
    for device in &devices {
        let name = device.get_ref();
        if let Some(translator) = around.translators.iter().find(|it| it.get_ref() == name) {
            let message = format!("`device`: {name} is a translator: there are no hosts on it");
            sink.error(device.span(), message, help).beside(translator.span(), "here");
        }
        if around.uplinks.contains(&name) {
            let message = format!(
                "`device`: {name} is a CLAT's uplink, where another router advertises itself"
            );
            sink.warn(device.span(), message, help);
        }
    }
}

fn duplicate_names(key: &str, names: &[Spanned<Name>], sink: &mut Sink) {
    for (first, second) in twice(names, |name| name) {
        let message = format!("`{key}`: this name is listed twice");
        sink.error(second.span(), message, "leave one out").beside(first.span(), "here first");
    }
}

/// Hosts would send to a prefix that is not translated.
fn unknown_prefixes(pref64: &[Spanned<Pool6>], known: &[Pool6], sink: &mut Sink) {
    for pref64 in pref64 {
        if !known.is_empty() && !known.contains(pref64.get_ref()) {
            let message = format!(
                "`pref64`: neither a translator here nor [dns64] has the prefix {}",
                pref64.get_ref()
            );
            let help = "right where another host translates it; else leave pref64 out, and it follows \
                        the translators";
            sink.warn(pref64.span(), message, help);
        }
    }
}

fn prefixes(draft: &Read<Advertise>, sink: &mut Sink) {
    let Read { value: advertise, at, .. } = draft;
    let link_local = Ipv6Net::new_assert(std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10);
    for prefix in at.each("prefix", advertise.prefixes.as_deref().unwrap_or_default()) {
        let net = *prefix.get_ref();
        if link_local.contains(&net) || net.addr().is_multicast() || net.prefix_len() == 0 {
            let message = format!("`prefix`: {net} is no prefix of a link's");
            let help =
                "write the network of the device's global address, such as \"2001:db8:1::/64\"";
            sink.error(prefix.span(), message, help);
        } else if advertise.autonomous && net.prefix_len() != 64 {
            let message =
                format!("`prefix`: hosts make addresses in a /64 (RFC 4862), and {net} is none");
            sink.error(prefix.span(), message, "write a /64, or autonomous = false");
        } else if !advertise.autonomous && !advertise.on_link {
            let message = format!("`prefix`: nothing is said of {net}");
            let help = "write on_link = true or autonomous = true, or leave the prefix out";
            sink.warn(prefix.span(), message, help);
        }
    }
    if let Some(span) = at.key("preferred").filter(|_| advertise.preferred > advertise.valid) {
        let valid = humantime::format_duration(advertise.valid);
        let message = format!("`preferred` is longer than `valid`, which is {valid}");
        sink.error(span, message, "RFC 4861 section 4.6.2: write a shorter one");
    }
}

fn routes(draft: &Read<Advertise>, sink: &mut Sink) {
    let routes = draft.value.routes.iter().zip(draft.at.tables("route"));
    let routes: Vec<_> = routes.filter_map(|(route, at)| at.of("prefix", &route.prefix)).collect();
    duplicates("prefix", &routes, sink);
    for route in routes.iter().filter(|route| route.get_ref().prefix_len() == 0) {
        let message = "`prefix`: the default route is told by `lifetime` and `preference`";
        sink.error(route.span(), message, "leave this route out");
    }
}

/// RFC 9463: one option for each name; what hosts are told besides the name goes with addresses.
fn resolvers(draft: &Read<Advertise>, sink: &mut Sink) {
    let resolvers: Vec<_> = draft.value.dnr.iter().zip(draft.at.tables("dnr")).collect();
    let names: Vec<_> = resolvers.iter().filter_map(|(it, at)| at.of("name", &it.name)).collect();
    duplicate_names("name", &names, sink);
    for (resolver, at) in resolvers {
        let addresses = at.each("addresses", &resolver.addresses);
        duplicates("addresses", &addresses, sink);
        if let Some(first) = addresses.get(16) {
            let message = "`addresses`: a resolver is told with 16 addresses at most";
            sink.error(first.span(), message, "leave this one out, and those behind it");
        }
        let repeated = |(number, it): (usize, &&str)| resolver.alpn[..number].contains(it);
        if let Some(span) = at.key("alpn")
            && resolver.alpn.iter().enumerate().any(repeated)
        {
            sink.error(span, "`alpn`: a protocol is listed twice", "leave one out");
        }
        let has_http = resolver.alpn.iter().any(|it| matches!(*it, "h2" | "h3"));
        for key in ["alpn", "port", "dohpath"] {
            let Some(span) = at.key(key) else { continue };
            if resolver.addresses.is_empty() {
                let message =
                    format!("`{key}` has no effect without `addresses`: hosts ask the DNS");
                no_effect(span, &message, sink);
            } else if key == "dohpath" && !has_http {
                no_effect(span, "`dohpath` has no effect without h2 or h3 in `alpn`", sink);
            }
        }
    }
}

fn captive_portal(draft: &Read<Advertise>, sink: &mut Sink) {
    let Read { value: advertise, at, .. } = draft;
    let Some(span) = at.key("captive_portal") else { return };
    let host = advertise.captive_portal.as_deref().and_then(portal_host);
    if let Some(host) = host.filter(|it| is_literal(it) && !advertise.captive_portal_literal) {
        let message =
            format!("`captive_portal`: {host} is an address, which few certificates have");
        let help = "RFC 8910 section 2: write a name; or captive_portal_literal = true, if the portal has such \
                    a certificate";
        sink.error(span.clone(), message, help);
    }
}

/// RFC 4861 section 6.2.1.
fn times(draft: &Read<Advertise>, sink: &mut Sink) {
    let Read { value: advertise, at, .. } = draft;
    let show = |time: Duration| humantime::format_duration(time).to_string();
    let interval = advertise.interval;
    let longest = Duration::from_secs(interval.as_secs() * 3 / 4).max(super::MIN_INTERVAL);
    let is_long = advertise.min_interval.is_some_and(|time| time > longest);
    if let Some(span) = at.key("min_interval").filter(|_| is_long) {
        let message = format!(
            "`min_interval`: at most three quarters of interval, which is {}",
            show(interval)
        );
        let help = format!("RFC 4861 section 6.2.1: write at most \"{}\"", show(longest));
        sink.error(span, message, help);
    }
    // `auto` is three intervals.
    let is_short = |time: Option<Duration>| time.is_some_and(|time| time < interval);
    if let Some(span) = at.key("lifetime")
        && advertise.lifetime != Some(Duration::ZERO)
        && is_short(advertise.lifetime)
    {
        let message = format!(
            "`lifetime`: this router would be forgotten between two advertisements, up to {} apart",
            show(interval)
        );
        let help =
            format!("write at least \"{}\", or \"0s\" for no default router", show(interval));
        sink.error(span, message, help);
    }
    for (key, time) in
        [("dns_lifetime", advertise.dns_lifetime), ("pref64_lifetime", advertise.pref64_lifetime)]
    {
        if let Some(span) = at.key(key).filter(|_| is_short(time)) {
            let message = format!(
                "`{key}`: it would be forgotten between two advertisements, up to {} apart",
                show(interval)
            );
            sink.warn(span.clone(), message, format!("write at least \"{}\"", show(interval)));
        }
    }
}

fn other(draft: &Read<Advertise>, sink: &mut Sink) {
    let Read { value: advertise, at, .. } = draft;
    let Some(span) = at.key("other") else { return };
    if advertise.dhcpv6 && advertise.other == Some(false) {
        let message = "`other`: hosts are told to ask for what `dhcpv6` answers all the same";
        sink.warn(span.clone(), message, "leave it out, or write dhcpv6 = false");
    }
    if advertise.managed && advertise.other == Some(true) {
        let message = "`other` has no effect: managed includes it (RFC 4861 section 4.2)";
        no_effect(span, message, sink);
    }
}
