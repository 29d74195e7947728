//! What `forward` asks of the host: direct forwarding is not to bypass rules unasked, and what is translated in place is not to
//! be dropped behind the programs.

use std::cmp::max;
use std::collections::BTreeSet;

use fordway_config::{Forwarding, Pool4, Translator};
use fordway_control::KernelWarning;
use fordway_net::{Netlink, SysctlKey, sysctl};

use super::resolve::{hosts_v4, own_icmp_source4, v4};
use crate::failure::Failure;

/// What to do about rules that would be bypassed.
const BYPASS_HINT: &str = "write forward = \"stack\", or bypass_nftables = true if these rules need not see \
                           translated packets";

/// Refuses what the host, as it is, does not permit.
pub(crate) fn check(config: &Translator) -> Result<(), Failure> {
    match objection(config) {
        Some(it) => Err(Failure::failed(format!("{}: {}", config.name, it.text)).hint(it.advice)),
        None => Ok(()),
    }
}

/// What speaks against the configured forwarding at the ingress of devices.
pub(crate) fn objection(config: &Translator) -> Option<KernelWarning> {
    match config.forward {
        Forwarding::Stack => None,
        Forwarding::InPlace => loss(config),
        Forwarding::Direct if config.bypass_nftables => None,
        Forwarding::Direct => bypass(fordway_net::rules_for_forwarded()),
    }
}

/// Rules for forwarded packets that direct forwarding bypasses, without having been told to.
fn bypass(found: fordway_net::Result<BTreeSet<String>>) -> Option<KernelWarning> {
    let text = match found {
        Ok(rules) if rules.is_empty() => return None,
        Ok(rules) => format!("bypasses {}", Vec::from_iter(rules).join(", ")),
        Err(error) => format!("may bypass rules, which can't be listed: {error}"),
    };
    let text = format!("forward = \"direct\" {text}");
    Some(KernelWarning { about: "bypass".to_owned(), text, advice: BYPASS_HINT.to_owned() })
}

/// Why the kernel would drop packets that arrive from devices as packets of the other family.
fn loss(config: &Translator) -> Option<KernelWarning> {
    let (why, advice) = match why_lost(config) {
        Ok(found) => found?,
        Err(failure) => (failure.line(), "mend what keeps the settings from being read".to_owned()),
    };
    let text = format!("forward = \"in-place\": translated packets would be lost: {why}");
    let advice = format!("{advice}; or write forward = \"stack\"");
    Some(KernelWarning { about: "loss".to_owned(), text, advice })
}

/// The first reason, and what to do about it.
fn why_lost(config: &Translator) -> Result<Option<(String, String)>, Failure> {
    let addresses = Netlink::open()?.addresses(None)?;
    let own = hosts_v4(config, &addresses);
    let shared = config.nat64().is_some_and(|nat64| {
        let ranges = nat64.pools.iter().flat_map(|pool| &pool.pool4).flat_map(Pool4::networks);
        let bib = nat64.bib.iter().map(|bib| bib.v4.0.into());
        let mut nets = ranges.chain(bib);
        !nat64.interfaces().is_empty() || nets.any(|net| own.iter().any(|it| net.contains(it)))
    });
    if shared || own_icmp_source4(config, &addresses) {
        let what = if shared { "pool4" } else { "icmp_source4" };
        let why = format!("{what} has an address of this host, which may not arrive from a device");
        return Ok(Some((why, format!("take other addresses for {what}"))));
    }
    let read = |key: fordway_net::Result<SysctlKey>| sysctl::read(&key?);
    let forwards = read(Ok(SysctlKey::forwarding_v4()))? == "1";
    for device in config.devices.iter().map(|name| name.as_str()) {
        // The greater of both counts. A loose filter lets nothing in by a device that has no IPv4 address.
        let of_all = read(SysctlKey::conf_v4("all", "rp_filter"))?;
        let filter = max(of_all, read(SysctlKey::conf_v4(device, "rp_filter"))?);
        let mut here = addresses.iter().filter(|address| address.device == device);
        let lets_in = if here.any(|address| v4(address).is_some()) { "2" } else { "0" };
        if filter.as_str() == "1" || filter.as_str() > lets_in {
            let why = format!("the reverse path filter of {device} is {filter}");
            let off = format!("net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.{device}.rp_filter=0");
            let advice = match lets_in {
                "0" => format!("give {device} an IPv4 address, or sysctl -w {off}"),
                _ => format!("sysctl -w net.ipv4.conf.{device}.rp_filter=2"),
            };
            return Ok(Some((why, advice)));
        }
        if read(SysctlKey::conf_v6(device, "disable_ipv6"))? == "1" {
            let key = format!("net.ipv6.conf.{device}.disable_ipv6");
            return Ok(Some((format!("{key} is 1"), format!("sysctl -w {key}=0"))));
        }
        if forwards && read(SysctlKey::conf_v4(device, "forwarding"))? == "0" {
            let key = format!("net.ipv4.conf.{device}.forwarding");
            return Ok(Some((format!("{key} is 0"), format!("sysctl -w {key}=1"))));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bypassed_rules_are_told() {
        assert_eq!(bypass(Ok(BTreeSet::new())), None);
        let rules = BTreeSet::from(["chain forward of nftables table inet filter".to_owned()]);
        let found = bypass(Ok(rules)).expect("a warning");
        assert!(
            found.text.contains("bypasses chain forward of nftables table inet filter"),
            "{found:?}"
        );
        let unknown = bypass(Err(fordway_net::Error::NoDevice("eth0".to_owned())));
        assert!(unknown.expect("a warning").text.contains("can't be listed"));
    }
}
