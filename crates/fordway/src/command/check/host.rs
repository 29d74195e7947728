//! What of a configuration does not fit this host as it is now. The file may be for another host, or for this one at
//! another time: these are no errors.

use std::collections::BTreeSet;
use std::net::IpAddr;

use fordway_config::{Config, InterfaceName};
use fordway_net::Netlink;

/// Sentences, in the order of the file.
pub(super) fn doubts(config: &Config) -> Vec<String> {
    // Nothing to ask the host for.
    let of_kernel = !config.nat44.is_empty() || !config.dual_stack.is_empty();
    let serves = config.dns64.is_some() || !config.proxies.is_empty();
    if !serves && config.advertise.is_empty() && !of_kernel {
        return Vec::new();
    }
    let Ok(mut netlink) = Netlink::open() else { return Vec::new() };
    let (Ok(addresses), Ok(links)) = (netlink.addresses(None), netlink.links()) else {
        return Vec::new();
    };
    let addresses: BTreeSet<IpAddr> = addresses.iter().map(|it| it.address.addr()).collect();
    let links: BTreeSet<String> = links.into_iter().map(|link| link.name).collect();
    sentences(config, &addresses, &links)
}

fn sentences(
    config: &Config,
    addresses: &BTreeSet<IpAddr>,
    links: &BTreeSet<String>,
) -> Vec<String> {
    let dns64 = config.dns64.iter().flat_map(|dns64| &dns64.listen).map(|it| ("[dns64]", it.ip()));
    let proxies = config.proxies.iter().flat_map(|proxy| &proxy.listen);
    let listen = dns64.chain(proxies.map(|it| ("[[proxy]]", it.ip())));
    let elsewhere = |(_, it): &(&str, IpAddr)| {
        !it.is_unspecified() && !it.is_loopback() && !addresses.contains(it)
    };
    let listen = listen.filter(elsewhere).map(|(section, address)| {
        format!(
            "{section} listen: {address} is not an address of this host now; no client can ask there until it is"
        )
    });
    let absent = config.advertise.iter().filter(|it| !links.contains(it.device.as_str()));
    let absent = absent
        .map(|it| format!("[[advertise]]: there is no interface {} on this host now", it.device));
    listen.chain(absent).chain(devices_of_kernel(config, links)).collect()
}

/// Devices of modes nat44 and dual-stack that are not there. A translator of the same file makes its own.
fn devices_of_kernel(config: &Config, links: &BTreeSet<String>) -> Vec<String> {
    let nat44 = config.nat44.iter();
    let nat44 =
        nat44.flat_map(|it| it.uplinks.iter().chain(&it.devices).map(move |one| (&it.name, one)));
    let dual_stack = config.dual_stack.iter();
    let dual_stack = dual_stack.flat_map(|it| it.devices.iter().map(move |one| (&it.name, one)));
    let made = |device: &InterfaceName| config.translators.iter().any(|it| it.name == *device);
    let absent = nat44
        .chain(dual_stack)
        .filter(|(_, device)| !links.contains(device.as_str()) && !made(device));
    absent
        .map(|(name, device)| format!("{name}: there is no interface {device} on this host now"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_named() {
        let text = "[dns64]\nlisten = ['::1', '2001:db8:1::1', '192.0.2.1']\n\
                    upstream = ['192.0.2.53']\npool6 = ['64:ff9b::/96']\n\
                    [[advertise]]\ndevice = 'lan0'\n[[advertise]]\ndevice = 'lan1'\n";
        let config = fordway_config::parse("test", text).unwrap().config;
        let addresses = BTreeSet::from(["192.0.2.1".parse().unwrap()]);
        let links = BTreeSet::from(["lan1".to_owned()]);
        let said = sentences(&config, &addresses, &links);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains("2001:db8:1::1") && said[1].contains("lan0"), "{said:?}");
        let text = "[[translator]]\nname = 'n'\nmode = 'nat44'\nclients = ['198.51.100.0/24']\n\
                    uplink = 'wan0'\ndevices = ['lan1', 'siit0']\n[[translator]]\nname = 'siit0'\n\
                    mode = 'siit'\npool6 = ['2001:db8:64::/96']\n";
        let config = fordway_config::parse("test", text).unwrap().config;
        let expected = "n: there is no interface wan0 on this host now";
        assert_eq!(sentences(&config, &addresses, &links), [expected]);
    }
}
