//! CLAT by TAYGA, configured as in study A: one static map, the well-known prefix. And NAT64 as in study
//! B: TAYGA gives every IPv6 host an IPv4 address, nftables hides all of them behind one.

use std::time::Duration;

use fordway_data::addresses::{
    BETWEEN_V4, CLAT_V4, CLAT_V6, GATEWAY_V6, NAT64_POOL6, ROUTER_V4, ROUTER_V6,
};
use fordway_data::spec::Kind;
use serde_json::Value;

use super::{Availability, Context, Deployed, Mechanism, Memory, nftables};
use crate::backend::{Place, must};
use crate::error::Result;
use crate::host::memory;
use crate::process::{Output, find_program};

/// The `tayga` program.
pub(super) struct Tayga;

/// TAYGA before 0.9.3 does not know the option and does not hold 192.0.0.0/24 for non-global.
fn knows_wkpf_strict() -> bool {
    let Some(program) = find_program("tayga") else { return false };
    let bytes = std::fs::read(program).unwrap_or_default();
    bytes.windows(11).any(|w| w == b"wkpf-strict")
}

fn config(kind: Kind, pref64: &str, wkpf_strict: bool) -> String {
    let (device, own, prefix, mapping) = match kind {
        Kind::Nat64 => ("nat64", GATEWAY_V6, NAT64_POOL6, format!("dynamic-pool {BETWEEN_V4}")),
        _ => ("clat0", ROUTER_V6, pref64, format!("map {CLAT_V4} {CLAT_V6}")),
    };
    let mut text = format!(
        "tun-device {device}\n\
         ipv4-addr {ROUTER_V4}\n\
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
        let mut config = config(kind, context.network.pref64, knows_wkpf_strict());
        let file =
            context.backend.deploy(&format!("{}-tayga.conf", context.name), config.as_bytes())?;
        let file = file.display().to_string();
        let place = context.network.translator(context.spec);
        must(context.backend, place, &["tayga", "-c", &file, "--mktun"])?;
        let mut reader = Vec::new();
        if kind == Kind::Nat64 {
            configure_gateway(context, place)?;
            config.push_str(&nftables::masquerade(context.backend, place, context.name)?);
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

    fn memory(&self, deployed: &Deployed) -> Option<Memory> {
        let own = memory::anonymous(deployed.daemon.as_ref()?.pid())?;
        Some(Memory { growing: own + memory::slab()?, ..Memory::default() })
    }
}

/// Routes of a gateway: what is for IPv4 hosts goes into the device, and what comes back to the addresses
/// that stand for IPv6 hosts does, too.
fn configure_gateway(context: Context<'_>, place: &Place) -> Result<()> {
    for line in [
        "ip link set nat64 up",
        &format!("ip -6 route add {NAT64_POOL6} dev nat64"),
        &format!("ip route add {BETWEEN_V4} dev nat64"),
    ] {
        must(context.backend, place, &line.split(' ').collect::<Vec<&str>>())?;
    }
    Ok(())
}

/// Addresses and routes of a CLAT whose program only makes the device.
///
/// The IPv4 route knows that 20 octets are added on the way, as a careful operator sets it up.
pub(super) fn configure_tun(context: Context<'_>) -> Result<()> {
    let commands = [
        "link set clat0 up".to_owned(),
        format!("addr add {CLAT_V4}/32 dev clat0"),
        "route add default dev clat0 mtu 1480 advmss 1440".into(),
        format!("route add {CLAT_V6}/128 dev clat0"),
    ];
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

    #[test]
    fn the_option_is_written_only_for_versions_that_know_it() {
        assert!(config(Kind::Clat, PREF64, true).ends_with("wkpf-strict no\n"));
        assert!(!config(Kind::Clat, PREF64, false).contains("wkpf"));
        assert!(config(Kind::Clat, PREF64, false).contains("map 192.0.0.1 2001:db8:1::c\n"));
    }

    #[test]
    fn a_gateway_gives_every_host_an_address() {
        let text = config(Kind::Nat64, PREF64, false);
        assert!(text.contains("dynamic-pool 198.19.0.0/16\n") && !text.contains("map "), "{text}");
    }
}
