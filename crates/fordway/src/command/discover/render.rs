//! What was found and tried, in words and as JSON.

use std::fmt::Write;
use std::time::Duration;

use fordway_daemon::output::{FAINT, GOOD, STRONG, joined};
use fordway_discovery::{
    Device, DeviceReport, Found, Prefix, Report, Said, ServerReport, Source, Validation, elapsed,
    remaining,
};
use serde::Serialize;

/// The prefixes that are known, the best first, with what makes them what they are.
pub(super) fn known(found: &Found, report: &Report) -> String {
    let mut text = String::new();
    for prefix in &report.prefixes {
        let used = is_used(found, prefix);
        let _ = match used {
            true => writeln!(text, "{STRONG}{}{STRONG:#}  {GOOD}used{GOOD:#}", prefix.pool6),
            false => writeln!(
                text,
                "{STRONG}{}{STRONG:#}  {FAINT}not used: {}{FAINT:#}",
                prefix.pool6,
                why_not(found, report, prefix)
            ),
        };
        let _ = writeln!(text, "  from       {}", origin(prefix));
        if prefix.validation != Validation::NotNeeded {
            let _ = writeln!(text, "  validated  {}", validated(&prefix.validation));
        }
        if let Some(until) = prefix.until {
            let left = humantime::format_duration(whole(remaining(until)));
            let _ = match prefix.stale {
                true => {
                    writeln!(text, "  until      {left} from now: over, but no resolver answers")
                }
                false => writeln!(text, "  until      {left} from now, unless it is said again"),
            };
        }
    }
    text
}

/// What was asked and heard, where that gave nothing.
pub(super) fn tried(report: &Report, hears: bool) -> String {
    let mut text = String::new();
    for one in &report.devices {
        let _ = writeln!(text, "{STRONG}{}{STRONG:#}  {}", one.device.name, state(one));
        if !one.up {
            continue;
        }
        for router in &one.routers {
            let what = match router.pref64.is_empty() {
                true => "without PREF64",
                false => "with PREF64",
            };
            let ago = humantime::format_duration(whole(elapsed(router.heard)));
            let _ = writeln!(text, "  router {}: {what}, heard {ago} ago", router.router);
        }
        if one.routers.is_empty() && hears {
            let plural = if one.solicitations == 1 { "" } else { "s" };
            let sent = one.solicitations;
            let _ = writeln!(
                text,
                "  no router advertisement ({sent} router solicitation{plural} sent)"
            );
        }
        for server in &one.resolvers {
            let _ = writeln!(text, "  resolver {}: {}", server.server, said(server));
        }
    }
    if !report.resolvers.is_empty() {
        let _ = writeln!(text, "{STRONG}/etc/resolv.conf{STRONG:#}");
        for server in &report.resolvers {
            let _ = writeln!(text, "  resolver {}: {}", server.server, said(server));
        }
    }
    text
}

/// What a person can do who needs a prefix.
pub(super) fn advice(report: &Report, hears: bool) -> String {
    let devices = || report.devices.iter();
    let servers = || devices().flat_map(|one| &one.resolvers).chain(&report.resolvers);
    if !devices().any(|one| one.up) {
        return "no interface can pass packets; see: ip link".to_owned();
    }
    if !devices().any(|one| one.up && one.used) {
        return "no interface has an IPv6 default route, so nothing could be translated; name one with \
                --device to look at it all the same"
            .to_owned();
    }
    if servers().next().is_none() {
        let heard = if hears {
            "no router had PREF64 or named a resolver"
        } else {
            "run as root to hear routers"
        };
        return format!("{heard}, and /etc/resolv.conf has none");
    }
    let says =
        |wanted: fn(&Said) -> bool| servers().filter_map(|one| one.said.as_ref()).any(wanted);
    if !hears {
        return "run as root to hear router advertisements, too".to_owned();
    }
    if servers().all(|one| one.asked == 0) {
        return "no resolver was asked: the interface has no IPv6 address yet, or the time was too \
                short; see --timeout"
            .to_owned();
    }
    if !says(|said| !matches!(said, Said::Failed(_))) {
        return "no resolver answers; is the network complete? See: ip -6 route, resolvectl"
            .to_owned();
    }
    "the network has no translator, or does not say so; if you know its prefix: fordway clat --pref64 \
     PREFIX"
        .to_owned()
}

/// Whether the same prefixes are used for the same reasons, lifetimes aside.
pub(super) fn same(one: &Found, other: &Found) -> bool {
    let timeless = |found: &Found| -> Vec<Prefix> {
        found.prefixes.iter().map(|prefix| Prefix { until: None, ..prefix.clone() }).collect()
    };
    timeless(one) == timeless(other)
}

fn is_used(found: &Found, prefix: &Prefix) -> bool {
    let is_it = |one: &Prefix| {
        (one.pool6, one.source, &one.device) == (prefix.pool6, prefix.source, &prefix.device)
    };
    found.prefixes.iter().any(is_it)
}

fn why_not(found: &Found, report: &Report, prefix: &Prefix) -> String {
    let name = prefix.device.as_ref().map_or("", |device: &Device| device.name.as_str());
    let mut devices =
        report.devices.iter().filter(|one| Some(&one.device) == prefix.device.as_ref());
    if devices.any(|one| !one.used) {
        return format!("{name} has no IPv6 default route");
    }
    let advertised = |one: &Prefix| {
        one.device == prefix.device && matches!(one.source, Source::RouterAdvertisement { .. })
    };
    if found.prefixes.iter().any(advertised) {
        return format!("on {name} a router advertisement has one, which goes first");
    }
    "others go first".to_owned()
}

fn origin(prefix: &Prefix) -> String {
    let on = match &prefix.device {
        Some(device) => format!(" on {}", device.name),
        None => String::new(),
    };
    match prefix.source {
        Source::Configured => "the configuration".to_owned(),
        Source::RouterAdvertisement { router } => {
            format!("router {router}{on}: PREF64 in its advertisement (RFC 8781)")
        }
        Source::Dns { server } => format!("resolver {server}{on}: ipv4only.arpa (RFC 7050)"),
    }
}

fn validated(validation: &Validation) -> String {
    match validation {
        Validation::NotTried => "no: no domain is trusted (--trust)".to_owned(),
        Validation::SecureChannel => "yes: by a secure channel".to_owned(),
        Validation::Dnssec { name } => format!("yes: {name} has its address, by DNSSEC"),
        Validation::Failed(why) => format!("no: {why}"),
        Validation::NotNeeded => "not needed".to_owned(),
    }
}

fn state(one: &DeviceReport) -> &'static str {
    match (one.up, one.used, one.addressed) {
        (false, ..) => "down",
        (_, false, _) => "up, but no IPv6 default route leads that way",
        (_, _, false) => "up, but without an IPv6 address",
        _ => "up",
    }
}

fn said(server: &ServerReport) -> String {
    match (&server.said, server.knows_name) {
        (None, _) if server.asked == 0 => "not asked".to_owned(),
        (None, _) => "has not answered yet".to_owned(),
        (Some(Said::Prefixes(prefixes)), _) => joined(prefixes),
        (Some(Said::OtherAddresses(address)), _) => format!(
            "{address} for ipv4only.arpa, in which there is no 192.0.0.170: does it answer whatever it is \
             asked?"
        ),
        (Some(Said::Nothing { .. }), Some(true)) => {
            "knows ipv4only.arpa, but no IPv6 address for it: it is no DNS64 server".to_owned()
        }
        (Some(Said::Nothing { name_exists: false }), _) => {
            "says that there is no ipv4only.arpa (NXDOMAIN)".to_owned()
        }
        (Some(Said::Nothing { name_exists: true }), _) => {
            "has no address of ipv4only.arpa at all (NODATA)".to_owned()
        }
        (Some(Said::Failed(failure)), _) => failure.to_string(),
    }
}

fn whole(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs())
}

/// The result for programs.
#[derive(Debug, Serialize)]
pub(super) struct Json {
    /// The prefix to use where one is enough.
    preferred: Option<String>,
    /// All that are known, the best first.
    prefixes: Vec<JsonPrefix>,
    devices: Vec<JsonDevice>,
    /// Those of the host's configuration.
    resolvers: Vec<JsonResolver>,
    /// Whether router advertisements were listened to.
    listens: bool,
}

#[derive(Debug, Serialize)]
struct JsonPrefix {
    prefix: String,
    used: bool,
    source: &'static str,
    /// The router or the resolver.
    from: Option<String>,
    device: Option<String>,
    seconds_left: Option<u64>,
    validated: bool,
    validation: String,
    stale: bool,
}

#[derive(Debug, Serialize)]
struct JsonDevice {
    device: String,
    up: bool,
    addressed: bool,
    default_route_metric: Option<u32>,
    used: bool,
    solicitations: u32,
    routers: Vec<JsonRouter>,
    resolvers: Vec<JsonResolver>,
}

#[derive(Debug, Serialize)]
struct JsonRouter {
    router: String,
    default_router: bool,
    pref64: Vec<String>,
    rdnss: Vec<String>,
    seconds_ago: u64,
}

#[derive(Debug, Serialize)]
struct JsonResolver {
    resolver: String,
    asked: u32,
    said: String,
}

impl Json {
    pub(super) fn new(found: &Found, report: &Report, hears: bool) -> Json {
        let device = |one: &DeviceReport| JsonDevice {
            device: one.device.name.clone(),
            up: one.up,
            addressed: one.addressed,
            default_route_metric: one.default_route,
            used: one.used,
            solicitations: one.solicitations,
            routers: one
                .routers
                .iter()
                .map(|router| JsonRouter {
                    router: router.router.to_string(),
                    default_router: router.default_router,
                    pref64: router.pref64.iter().map(ToString::to_string).collect(),
                    rdnss: router.rdnss.iter().map(ToString::to_string).collect(),
                    seconds_ago: elapsed(router.heard).as_secs(),
                })
                .collect(),
            resolvers: one.resolvers.iter().map(JsonResolver::new).collect(),
        };
        Json {
            preferred: found.preferred(None).map(|prefix| prefix.pool6.to_string()),
            prefixes: report.prefixes.iter().map(|one| JsonPrefix::new(found, one)).collect(),
            devices: report.devices.iter().map(device).collect(),
            resolvers: report.resolvers.iter().map(JsonResolver::new).collect(),
            listens: hears,
        }
    }
}

impl JsonPrefix {
    fn new(found: &Found, prefix: &Prefix) -> JsonPrefix {
        let (source, from) = match prefix.source {
            Source::Configured => ("configured", None),
            Source::RouterAdvertisement { router } => {
                ("router_advertisement", Some(router.to_string()))
            }
            Source::Dns { server } => ("dns", Some(server.to_string())),
        };
        JsonPrefix {
            prefix: prefix.pool6.to_string(),
            used: is_used(found, prefix),
            source,
            from,
            device: prefix.device.as_ref().map(|device| device.name.clone()),
            seconds_left: prefix.until.map(|until| remaining(until).as_secs()),
            validated: matches!(
                prefix.validation,
                Validation::Dnssec { .. } | Validation::SecureChannel
            ),
            validation: validated(&prefix.validation),
            stale: prefix.stale,
        }
    }
}

impl JsonResolver {
    fn new(server: &ServerReport) -> JsonResolver {
        JsonResolver {
            resolver: server.server.to_string(),
            asked: server.asked,
            said: said(server),
        }
    }
}

#[cfg(test)]
mod tests;
