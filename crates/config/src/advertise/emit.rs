//! `[[advertise]]` as TOML.

use std::time::Duration;

use serde::Serialize;

use super::read::PREFERENCES;
use super::{Advertise, AdvertisedRoute};
use crate::emit::{WordOrBool, WordOrNumber, strings, word};
use crate::value::name_text;

/// Absent options are left out; all other keys are always written.
#[derive(Serialize)]
pub(crate) struct AdvertiseTable {
    device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<Vec<String>>,
    on_link: bool,
    autonomous: bool,
    valid: String,
    preferred: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rdnss: Option<Vec<String>>,
    dnssl: Vec<String>,
    dns_lifetime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pref64: Option<Vec<String>>,
    pref64_lifetime: String,
    mtu: WordOrNumber,
    lifetime: String,
    interval: String,
    min_interval: String,
    preference: &'static str,
    managed: bool,
    other: WordOrBool,
    hop_limit: u8,
    reachable: String,
    retrans: String,
    source_link_layer: bool,
    dhcpv6: bool,
    manage: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    route: Vec<RouteTable>,
}

#[derive(Serialize)]
struct RouteTable {
    prefix: String,
    preference: &'static str,
    lifetime: String,
}

fn time(time: Duration) -> String {
    humantime::format_duration(time).to_string()
}

fn or_auto(it: Option<Duration>) -> String {
    it.map_or("auto".to_owned(), time)
}

impl RouteTable {
    fn of(route: &AdvertisedRoute) -> RouteTable {
        RouteTable {
            prefix: route.prefix.to_string(),
            preference: word(&PREFERENCES, route.preference),
            lifetime: or_auto(route.lifetime),
        }
    }
}

impl AdvertiseTable {
    pub(crate) fn of(advertise: &Advertise) -> AdvertiseTable {
        AdvertiseTable {
            device: advertise.device.to_string(),
            prefix: advertise.prefixes.as_ref().map(|prefixes| strings(prefixes)),
            on_link: advertise.on_link,
            autonomous: advertise.autonomous,
            valid: time(advertise.valid),
            preferred: time(advertise.preferred),
            rdnss: advertise.rdnss.as_ref().map(|rdnss| strings(rdnss)),
            dnssl: advertise.dnssl.iter().map(name_text).collect(),
            dns_lifetime: or_auto(advertise.dns_lifetime),
            pref64: advertise.pref64.as_ref().map(|pref64| strings(pref64)),
            pref64_lifetime: or_auto(advertise.pref64_lifetime),
            mtu: advertise.mtu.map_or(WordOrNumber::Word("off"), WordOrNumber::Number),
            lifetime: or_auto(advertise.lifetime),
            interval: time(advertise.interval),
            min_interval: or_auto(advertise.min_interval),
            preference: word(&PREFERENCES, advertise.preference),
            managed: advertise.managed,
            other: advertise.other.map_or(WordOrBool::Word("auto"), WordOrBool::Bool),
            hop_limit: advertise.hop_limit,
            reachable: time(advertise.reachable),
            retrans: time(advertise.retrans),
            source_link_layer: advertise.source_link_layer,
            dhcpv6: advertise.dhcpv6,
            manage: advertise.manage,
            route: advertise.routes.iter().map(RouteTable::of).collect(),
        }
    }
}
