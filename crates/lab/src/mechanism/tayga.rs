//! CLAT by TAYGA, configured as in study A: one static map, the well-known prefix. NAT64 as in study
//! B: TAYGA gives every IPv6 host an IPv4 address, nftables hides all of them behind one. And SIIT in the box in the middle.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use fordway_data::addresses::{
    APP_V4, BESIDE_V4, BETWEEN_V4, CLAT_V4, CLAT_V6, FLOWS_V4, GATEWAY_V6, LAN_V6, NAT64_POOL6,
    ROUTER_V4, ROUTER_V6, SERVER_V4, SERVER_V6, SIIT_POOL6,
};
use fordway_data::spec::{Kind, MechanismSpec};
use fordway_procedures::frame::TRANSLATION;
use serde_json::Value;

use super::{Availability, Context, Deployed, Mechanism, Memory, nftables};
use crate::backend::{Place, must};
use crate::error::Result;
use crate::host::memory;
use crate::process::{Output, find_program};
use crate::topology::{Network, widest_mtu};

/// The `tayga` program.
pub(super) struct Tayga;

/// TAYGA before 0.9.3 does not know the option and does not hold 192.0.0.0/24 for non-global.
fn knows_wkpf_strict() -> bool {
    let Some(program) = find_program("tayga") else { return false };
    let bytes = std::fs::read(program).unwrap_or_default();
    bytes.windows(11).any(|w| w == b"wkpf-strict")
}

/// The addresses that a CLAT translates, and its own: with two hops the application has a link of its own behind the CLAT's box.
pub(super) fn clat_addresses(hops: u8) -> (&'static str, &'static str) {
    if hops == 2 { (ROUTER_V4, BESIDE_V4) } else { (CLAT_V4, ROUTER_V4) }
}

/// A line for each host behind a CLAT's box: TAYGA before 0.9.3 maps no networks.
fn maps(behind: bool) -> String {
    let hosts = (0..256).map(|number: u32| (number << 8) | FLOWS_V4.to_bits());
    let app = APP_V4.parse::<Ipv4Addr>().ok().map(Ipv4Addr::to_bits);
    let all = app.into_iter().chain(hosts).filter(|_| behind).map(|host| {
        let v6 = Ipv6Addr::from_bits(LAN_V6.to_bits() | u128::from(host));
        format!("\nmap {} {v6}", Ipv4Addr::from_bits(host))
    });
    all.collect()
}

fn config(spec: &MechanismSpec, pref64: &str, wkpf_strict: bool) -> String {
    let (host, router) = match spec.kind {
        Kind::Clat => clat_addresses(spec.hops),
        _ => (CLAT_V4, ROUTER_V4),
    };
    let (device, own, prefix, mapping) = match spec.kind {
        Kind::Nat64 => ("nat64", GATEWAY_V6, NAT64_POOL6, format!("dynamic-pool {BETWEEN_V4}")),
        Kind::Siit => ("siit0", GATEWAY_V6, SIIT_POOL6, format!("map {SERVER_V4} {SERVER_V6}")),
        _ => {
            let map = format!("map {host} {CLAT_V6}{}", maps(spec.hops == 2));
            ("clat0", ROUTER_V6, pref64, map)
        }
    };
    let mut text = format!(
        "tun-device {device}\n\
         ipv4-addr {router}\n\
         ipv6-addr {own}\n\
         prefix {prefix}\n\
         {mapping}\n"
    );
    if wkpf_strict {
        // RFC 6052 section 3.1 forbids the server's non-global address in the well-known prefix.
        text.push_str("wkpf-strict no\n");
    }
    text
}

impl Mechanism for Tayga {
    fn availability(&self, kind: Kind) -> Availability {
        if let Some(hint) = nftables::missing().filter(|_| kind == Kind::Nat64) {
            return Availability::Missing { hint };
        }
        Availability::of_package("TAYGA", "tayga", &["tayga"])
    }

    fn deploy(&self, context: Context<'_>) -> Result<Deployed> {
        let kind = context.spec.kind;
        let mut config = config(context.spec, context.network.pref64, knows_wkpf_strict());
        let file =
            context.backend.deploy(&format!("{}-tayga.conf", context.name), config.as_bytes())?;
        let file = file.display().to_string();
        let place = context.network.translator(context.spec);
        must(context.backend, place, &["tayga", "-c", &file, "--mktun"])?;
        let mut reader = Vec::new();
        if kind == Kind::Siit {
            configure_siit(context, place)?;
        } else if kind == Kind::Nat64 {
            configure_gateway(context, place)?;
            let hidden = nftables::masquerade(context.backend, place, "to-iperf", context.name)?;
            config.push_str(&hidden);
            reader = nftables::reader(context.backend, place);
        } else {
            configure_tun(context)?;
        }
        let argv: Vec<String> = ["tayga", "-n", "-c", &file].map(str::to_owned).into();
        let log = context.logs.join(format!("{}-tayga.log", context.name));
        let daemon = context.backend.run(Some(place), &argv, Output::Log(&log))?;
        Ok(Deployed { daemon: Some(daemon), config, argv, reader, ..Deployed::default() })
    }

    fn counters(&self, deployed: &Deployed) -> Result<Option<Value>> {
        // It has none of its own; as a gateway it has those of its second step.
        if deployed.reader.is_empty() { Ok(None) } else { nftables::counters(deployed) }
    }

    fn created(&self, before: &Value, after: &Value) -> Option<u64> {
        nftables::created(before, after)
    }

    fn tracks_connections(&self, kind: Kind) -> bool {
        kind == Kind::Nat64
    }

    fn tracks_at<'a>(&self, spec: &MechanismSpec, network: &'a Network) -> Option<&'a Place> {
        network.host.as_ref().filter(|_| spec.kind == Kind::Nat64)
    }

    fn memory(&self, deployed: &Deployed) -> Option<Memory> {
        let own = memory::anonymous(deployed.daemon.as_ref()?.pid())?;
        Some(Memory { growing: own + memory::slab()?, ..Memory::default() })
    }
}

/// Routes of a gateway: what is for IPv4 hosts goes into the device, and what comes back to the addresses
/// that stand for IPv6 hosts does, too.
fn configure_gateway(context: Context<'_>, place: &Place) -> Result<()> {
    for line in [
        &format!("ip link set nat64 up mtu {}", context.network.widest_mtu()),
        &format!("ip -6 route replace {NAT64_POOL6} dev nat64"),
        &format!("ip route replace {BETWEEN_V4} dev nat64"),
    ] {
        must(context.backend, place, &line.split(' ').collect::<Vec<&str>>())?;
    }
    Ok(())
}

/// Routes of a stateless gateway: the server's IPv4 address, and the prefix of IPv4 hosts.
fn configure_siit(context: Context<'_>, place: &Place) -> Result<()> {
    for line in [
        "ip link set siit0 up",
        &format!("ip -6 route replace {SIIT_POOL6} dev siit0"),
        &format!("ip route replace {SERVER_V4} dev siit0"),
    ] {
        must(context.backend, place, &line.split(' ').collect::<Vec<&str>>())?;
    }
    Ok(())
}

/// Addresses and routes of a CLAT whose program only makes the device.
///
/// The IPv4 route knows that 20 octets are added on the way, as a careful operator sets it up.
pub(super) fn configure_tun(context: Context<'_>) -> Result<()> {
    let widest = context.network.widest_mtu();
    // The link of hosts behind the box is no wider than others.
    let mtu = (widest - TRANSLATION).min(widest_mtu(false));
    let mut commands = vec![
        format!("link set clat0 up mtu {widest}"),
        format!("route replace default dev clat0 mtu {mtu} advmss {}", mtu - 40),
        format!("route replace {CLAT_V6}/128 dev clat0"),
    ];
    if context.spec.hops == 2 {
        commands.push(format!("route replace {LAN_V6}/96 dev clat0"));
    } else {
        commands.push(format!("addr replace {CLAT_V4}/32 dev clat0"));
    }
    let file = context
        .backend
        .deploy(&format!("{}-tun.ip", context.name), (commands.join("\n") + "\n").as_bytes())?;
    let argv = ["ip".to_owned(), "-batch".into(), file.display().to_string()];
    context
        .backend
        .run(Some(&context.network.client), &argv, Output::Keep)?
        .wait(Duration::from_secs(10))?
        .ok()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fordway_data::addresses::PREF64;
    use fordway_data::spec::Experiment;

    fn arm(kind: Kind, hops: u8) -> MechanismSpec {
        let experiment = Experiment::find("clat-vs-dual-stack").unwrap();
        MechanismSpec { kind, hops, ..experiment.mechanism("clat-tayga").unwrap().clone() }
    }

    #[test]
    fn the_option_is_written_only_for_versions_that_know_it() {
        let clat = |strict| config(&arm(Kind::Clat, 1), PREF64, strict);
        assert!(clat(true).ends_with("wkpf-strict no\n"));
        assert!(!clat(false).contains("wkpf"));
        assert!(clat(false).contains("map 192.0.0.1 2001:db8:1::c\n"));
    }

    #[test]
    fn every_host_behind_a_clat_has_an_address_of_one_prefix() {
        let text = config(&arm(Kind::Clat, 2), PREF64, false);
        assert_eq!(text.lines().filter(|line| line.starts_with("map ")).count(), 258);
        for line in [
            "ipv4-addr 192.0.0.3",
            "map 192.0.0.2 2001:db8:1::c",
            "map 203.0.113.2 2001:db8:f00:464::cb00:7102",
            "map 198.18.255.0 2001:db8:f00:464::c612:ff00",
        ] {
            assert!(text.lines().any(|own| own == line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_stateless_gateway_maps_the_server() {
        let text = config(&arm(Kind::Siit, 1), PREF64, false);
        assert!(
            text.contains("prefix 2001:db8:64::/96\nmap 198.51.100.2 2001:db8:5::5\n"),
            "{text}"
        );
    }

    #[test]
    fn a_gateway_gives_every_host_an_address() {
        let text = config(&arm(Kind::Nat64, 1), PREF64, false);
        assert!(text.contains("dynamic-pool 198.19.0.0/16\n") && !text.contains("map "), "{text}");
    }
}
