//! dnsmasq.conf: router advertisements and stateless DHCPv6.

use fordway_router::{Device, Preference, Prefixes};

use super::{Plan, Text, joined, servers};

pub(super) fn write(plan: &Plan) -> String {
    let mut text = Text::new("#", "dnsmasq");
    text.line("# No DNS: dnsmasq has no DNS64.");
    text.line("port=0");
    text.line("enable-ra");
    for device in &plan.devices {
        interface(device, &mut text);
    }
    text.lines
}

fn interface(device: &Device, text: &mut Text) {
    let name = &device.device;
    text.line("");
    text.line(format!("interface={name}"));
    let mtu = device.mtu.map_or_else(|| "mtu:off,".to_owned(), |mtu| format!("mtu:{mtu},"));
    let preference = match device.preference {
        Preference::Low => "low,",
        Preference::Medium => "",
        Preference::High => "high,",
    };
    let (interval, lifetime) = (device.interval.as_secs(), device.router_lifetime());
    text.line(format!("ra-param={name},{mtu}{preference}{interval},{lifetime}"));
    ranges(device, text);
    dns(device, text);
    impossible(device, text);
}

fn ranges(device: &Device, text: &mut Text) {
    let mode = match (device.dhcpv6, device.other) {
        (true, _) => "ra-stateless",
        // It sets O only where it answers DHCPv6 itself.
        (false, _) => "ra-only",
    };
    let off_link = if device.on_link { "" } else { ",off-link" };
    text.line("# One lifetime for both, valid and preferred.");
    let lifetime = match device.preferred {
        u32::MAX => "infinite".to_owned(),
        0 => "deprecated".to_owned(),
        seconds => seconds.to_string(),
    };
    match &device.prefixes {
        Prefixes::OfDevice => {
            let name = &device.device;
            text.line(format!("dhcp-range=::,constructor:{name},{mode}{off_link},64,{lifetime}"));
        }
        Prefixes::Listed(listed) => {
            for prefix in listed {
                let (net, len) = (prefix.network(), prefix.prefix_len());
                if len < 64 {
                    text.line(format!("# {prefix} can't be: dnsmasq takes /64 and longer."));
                    continue;
                }
                text.line(format!("dhcp-range={net},{mode}{off_link},{len},{lifetime}"));
            }
            text.line("# It advertises these only while the device has an address in them.");
        }
    }
}

fn dns(device: &Device, text: &mut Text) {
    let (servers, others) = servers(device);
    let tag = &device.device;
    if others {
        text.line("# [::] stands for an address of the device.");
    }
    let all = servers.iter().map(|it| format!("[{it}]")).chain(others.then(|| "[::]".to_owned()));
    let all = joined(all, ",");
    if !all.is_empty() {
        text.line(format!("dhcp-option=tag:{tag},option6:dns-server,{all}"));
    }
    if !device.dnssl.is_empty() {
        let names = joined(device.dnssl.iter().map(super::name), ",");
        text.line(format!("dhcp-option=tag:{tag},option6:domain-search,{names}"));
    }
    if device.dhcpv6 {
        text.line(format!("dhcp-option=tag:{tag},option6:information-refresh-time,1h"));
    }
}

/// What it has no word for.
fn impossible(device: &Device, text: &mut Text) {
    let mut lacks = |what: String| text.line(format!("# Not possible with dnsmasq: {what}."));
    if !device.pref64.is_empty() {
        let prefixes = joined(&device.pref64, ", ");
        lacks(format!("the NAT64 prefix {prefixes} in advertisements (RFC 8781)"));
    }
    if let Some(uri) = &device.captive_portal {
        lacks(format!("the captive portal {uri} in advertisements (RFC 8910)"));
    }
    if !device.dnr.is_empty() {
        let names = joined(device.dnr.iter().map(|it| super::name(&it.name)), ", ");
        lacks(format!("the encrypted DNS resolvers {names} in advertisements (RFC 9463)"));
    }
    if !device.routes.is_empty() {
        lacks(format!("routes ({})", joined(device.routes.iter().map(|it| it.prefix), ", ")));
    }
    if !device.autonomous {
        lacks("prefixes of which hosts make no addresses, without giving them some".to_owned());
    }
    if device.managed {
        lacks("addresses by another DHCPv6 server (M)".to_owned());
    }
    if device.other && !device.dhcpv6 {
        lacks("configuration by another DHCPv6 server (O)".to_owned());
    }
    if device.hop_limit != 64 || device.reachable != 0 || device.retrans != 0 {
        lacks("another hop limit than 64, reachable time, retransmission timer".to_owned());
    }
}
