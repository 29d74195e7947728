//! What the log says of a translator's set-up.

use fordway_config::Translator;
use fordway_tun::Device;
use tracing::{info, warn};

use crate::plan::resolve::Facts;

pub(crate) fn device(device: &Device, own: bool, queues: usize) {
    let name = device.name();
    let kind = match (device.adopted(), own) {
        (false, _) => "new",
        (true, true) => "surviving",
        (true, false) => "existing",
    };
    let queues = if queues == 1 { "1 queue".to_owned() } else { format!("{queues} queues") };
    info!("{name}: {kind} interface, {queues}, offloads: {}", device.offloads().granted);
    if !device.offloads().refused().is_empty() {
        warn!(
            "{name}: the kernel refuses some offloads ({}); packets come in smaller pieces, and \
             throughput is lower",
            device.offloads().refused()
        );
    }
    if device.single_queue() {
        warn!(
            "{name}: the interface was made with one queue, so one thread translates; for more, \
             make it with: ip tuntap add dev {name} mode tun multi_queue vnet_hdr"
        );
    }
}

pub(crate) fn facts(config: &Translator, facts: &Facts) {
    let name = config.name.as_str();
    info!("{name}: IPv6 path MTU {} ({})", facts.resolved.mtu6, facts.mtu_from);
    if let Some(softwire) = config.softwire() {
        let own = facts.resolved.clat_v6.map_or("none".to_owned(), |own| own.to_string());
        let bindings = softwire.bindings(facts.resolved.clat_v6).len();
        let role = if softwire.client().is_some() { "client" } else { "tunnel end point" };
        match &facts.uplink {
            Some(uplink) if uplink.answers => {
                info!(
                    "{name}: {role} at {own}, answered for on {}; bindings: {bindings}",
                    uplink.name
                );
            }
            _ => info!("{name}: {role} at {own}, which must be routed here; bindings: {bindings}"),
        }
    }
    let Some(clat) = config.clat() else { return };
    let v6 = facts.resolved.clat_v6.map_or("none".to_owned(), |v6| v6.to_string());
    let from = if clat.v6.is_some() { "" } else { " (made from the uplink's /64)" };
    match &facts.uplink {
        Some(uplink) => info!("{name}: CLAT {} is {v6}{from} on {}", clat.v4, uplink.name),
        None => warn!(
            "{name}: CLAT {} is {v6}{from}; no uplink is known, so neighbours are not answered: \
             the address must be routed here",
            clat.v4
        ),
    }
}
