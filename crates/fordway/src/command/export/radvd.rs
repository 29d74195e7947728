//! radvd.conf.

use fordway_router::{Device, Preference, Prefixes};

use super::{Plan, Text, joined, on_off, servers};

/// The first version with `nat64prefix` and `AdvCaptivePortalAPI`.
const NAT64PREFIX: (u32, u32) = (2, 20);
/// Most servers in one RDNSS definition.
const SERVERS: usize = 3;
/// The longest router lifetime it takes.
const LONGEST: u16 = 9000;

pub(super) fn write(plan: &Plan, version: (u32, u32)) -> String {
    let mut text = Text::new("#", "radvd");
    for device in &plan.devices {
        text.line("");
        text.block(format!("interface {} {{", device.device), "};", |text| {
            interface(device, text);
            prefixes(device, text);
            for route in &device.routes {
                text.block(format!("route {} {{", route.prefix), "};", |text| {
                    text.line(format!("AdvRoutePreference {};", preference(route.preference)));
                    let lifetime = seconds(device.option_lifetime(route.lifetime));
                    text.line(format!("AdvRouteLifetime {lifetime};"));
                });
            }
            dns(device, text);
            pref64(device, version, text);
            newer(device, version, text);
        });
    }
    text.lines
}

fn interface(device: &Device, text: &mut Text) {
    text.line("AdvSendAdvert on;");
    text.line("IgnoreIfMissing on;");
    text.line(format!("MaxRtrAdvInterval {};", device.interval.as_secs()));
    text.line(format!("MinRtrAdvInterval {};", device.min_interval().as_secs()));
    let lifetime = device.router_lifetime();
    if lifetime > LONGEST {
        text.line(format!("# {lifetime} seconds in fordway's file; radvd has at most {LONGEST}."));
    }
    text.line(format!("AdvDefaultLifetime {};", lifetime.min(LONGEST)));
    text.line(format!("AdvDefaultPreference {};", preference(device.preference)));
    text.line(format!("AdvManagedFlag {};", on_off(device.managed)));
    text.line(format!("AdvOtherConfigFlag {};", on_off(device.other)));
    if device.dhcpv6 {
        text.line("# DHCPv6 is another program's: fordway export kea.");
    }
    text.line(format!("AdvCurHopLimit {};", device.hop_limit));
    text.line(format!("AdvReachableTime {};", device.reachable));
    text.line(format!("AdvRetransTimer {};", device.retrans));
    text.line(format!("AdvSourceLLAddress {};", on_off(device.source_link_layer)));
    if let Some(mtu) = device.mtu {
        text.line(format!("AdvLinkMTU {mtu};"));
    }
}

fn prefixes(device: &Device, text: &mut Text) {
    let listed = match &device.prefixes {
        Prefixes::Listed(listed) => joined(listed.iter().map(ipnet::Ipv6Net::trunc), " "),
        Prefixes::OfDevice => {
            text.line("# All /64s of the device's own addresses.");
            "::/64".to_owned()
        }
    };
    for prefix in listed.split_whitespace() {
        text.block(format!("prefix {prefix} {{"), "};", |text| {
            text.line(format!("AdvOnLink {};", on_off(device.on_link)));
            text.line(format!("AdvAutonomous {};", on_off(device.autonomous)));
            text.line(format!("AdvValidLifetime {};", seconds(device.valid)));
            text.line(format!("AdvPreferredLifetime {};", seconds(device.preferred)));
            text.line("DeprecatePrefix on;");
        });
    }
}

fn dns(device: &Device, text: &mut Text) {
    let lifetime = seconds(device.option_lifetime(device.rdnss_lifetime));
    let (servers, others) = servers(device);
    if others {
        text.line(format!(
            "# [dns64] listens on all addresses: write one of {}'s here.",
            device.device
        ));
        text.line("# RDNSS ADDRESS { };");
    }
    for some in servers.chunks(SERVERS) {
        text.block(format!("RDNSS {} {{", joined(some, " ")), "};", |text| {
            text.line(format!("AdvRDNSSLifetime {lifetime};"));
            text.line("FlushRDNSS on;");
        });
    }
    if !device.dnssl.is_empty() {
        let names = joined(device.dnssl.iter().map(super::name), " ");
        text.block(format!("DNSSL {names} {{"), "};", |text| {
            text.line(format!("AdvDNSSLLifetime {lifetime};"));
            text.line("FlushDNSSL on;");
        });
    }
}

fn pref64(device: &Device, version: (u32, u32), text: &mut Text) {
    if device.pref64.is_empty() {
        return;
    }
    let lifetime = device.option_lifetime(device.pref64_lifetime).min(65_528);
    let (known, mark) = match version >= NAT64PREFIX {
        true => (
            "radvd knows this from version 2.20 on; fordway export radvd --for 2.19 leaves it out.",
            "",
        ),
        false => ("Needs radvd 2.20 or later: hosts don't hear of the NAT64 prefix.", "# "),
    };
    text.line(format!("# {known}"));
    for prefix in &device.pref64 {
        text.line(format!("{mark}nat64prefix {prefix} {{"));
        text.line(format!("{mark}    AdvValidLifetime {lifetime};"));
        text.line(format!("{mark}}};"));
    }
}

/// What has come late, or not at all.
fn newer(device: &Device, version: (u32, u32), text: &mut Text) {
    if let Some(uri) = &device.captive_portal {
        let mark = if version >= NAT64PREFIX { "" } else { "# Needs radvd 2.20 or later: " };
        text.line(format!("{mark}AdvCaptivePortalAPI \"{uri}\";"));
    }
    for resolver in &device.dnr {
        let name = super::name(&resolver.name);
        text.line(format!(
            "# Not possible with radvd: the encrypted DNS resolver {name} (RFC 9463)."
        ));
    }
}

fn preference(preference: Preference) -> &'static str {
    match preference {
        Preference::Low => "low",
        Preference::Medium => "medium",
        Preference::High => "high",
    }
}

fn seconds(lifetime: u32) -> String {
    if lifetime == u32::MAX { "infinity".to_owned() } else { lifetime.to_string() }
}
