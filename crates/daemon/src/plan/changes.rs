//! The changes to the host that a translator needs, in the order in which they are made.

#[cfg(feature = "dstm")]
mod lent;
#[cfg(not(feature = "dstm"))]
#[path = "changes/lent/without.rs"]
mod lent;

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};

use fordway_config::{Attach, Mode, Nat64, Pool4, SoftwireClient, SoftwireEnd, Translator};
use fordway_net::{
    Address, Change, IpNet, Ipv4Net, Ipv6Net, NeighbourProxy, Route, Rule, SysctlKey, table,
};
use fordway_xlat::config::IcmpErrors;

use super::placement::Intent;
use super::pool4;
use super::resolve::{Facts, Uplink};
use super::uplink::Way;
use lent::lent;

/// Octets by which a header grows: 40 of IPv6 instead of 20 of IPv4.
const GROWTH: u32 = 20;

/// Octets by which a softwire's packets grow: a header of IPv6.
const TUNNEL_GROWTH: u32 = 40;

/// Octets of IP and TCP headers in a full-sized segment.
const TCP_V4: u32 = 40;
const TCP_V6: u32 = 60;

/// The rules against loops stand right before the one for the main table (32766), so that an
/// operator's own rules come first.
const GUARD: u32 = 32_764;

/// Base of the groups of interfaces; the interface's index is added, so that packets may go from one
/// translator into another.
const GROUP: u32 = 0x464f_0000;

/// What has to be changed for `config` on an interface of this index, except for the IPv4 routes;
/// `adopted`: it was there before.
pub(crate) fn changes(
    config: &Translator,
    facts: &Facts,
    intent: &Intent,
    ifindex: u32,
    adopted: bool,
) -> fordway_net::Result<Vec<Change>> {
    let device = config.name.as_str();
    let group = GROUP.wrapping_add(ifindex);
    // What silencing does to an interface can't be undone without traces, so others' are left.
    let mut changes = if adopted { Vec::new() } else { silence(device)? };
    changes.extend(interface(config, group, facts)?);
    changes.extend(forwarding(config, facts)?);
    if facts.own_icmp_source4 {
        changes.extend(pool4::believe(device, facts)?);
    }
    // The kernel engine's programs see by themselves that a packet is back.
    if !intent.is_kernel() {
        changes.extend(guard(config, group));
    }
    changes.extend(routes(config, facts));
    if let (Some(uplink), Some(v6)) = (&facts.uplink, facts.resolved.clat_v6)
        && uplink.answers
    {
        changes.extend(answer(uplink, v6.into())?);
    }
    if let (Some(uplink), Attach::Uplink) = (&facts.uplink, facts.resolved.attach)
        && uplink.rp_filter
    {
        // What the programs there make of IPv6 packets arrives from all of the Internet.
        let key = SysctlKey::conf_v4(&uplink.name, "rp_filter")?;
        changes.push(Change::sysctl(key, "2"));
    }
    Ok(changes)
}

/// The routes that lead IPv4 to the translator: into its interface, or with `way` past it and out of the
/// uplink, where programs wait.
pub(crate) fn routes_v4(config: &Translator, facts: &Facts, way: Option<&Way>) -> Vec<Change> {
    let growth = if config.softwire().is_some() { TUNNEL_GROWTH } else { GROWTH };
    let mtu4 = facts.resolved.mtu6 - growth;
    // A route's MTU has the kernel cut packets without DF, and answer those with DF.
    let mut mtu = Some(mtu4);
    let stateless = matches!(config.mode, Mode::Siit(_) | Mode::Clat(_));
    if stateless && answers_too_big(config) {
        // RFC 7915 section 4.1: who translates without state does both. Of an echo request or of a datagram without
        // checksum that the kernel has cut, no fragment could be translated (section 1.2).
        mtu = Some(facts.resolved.mtu6);
    }
    let (nets, source) = match &config.mode {
        Mode::Siit(_) => {
            // Mappings that cover each other need only the shortest one's route.
            let v4 = config.eam.iter().map(fordway_xlat::addr::Eam::v4);
            let dynamic4 = config.dynamic4().into_iter().flat_map(|dynamic4| &dynamic4.pool);
            let v4 = v4.chain(config.routes4.iter().copied()).chain(dynamic4.copied());
            (Ipv4Net::aggregate(&v4.collect()), None)
        }
        Mode::Nat64(nat64) => (Ipv4Net::aggregate(&pool4(nat64, facts)), None),
        Mode::Clat(clat) => (config.routes4.clone(), Some(IpAddr::V4(clat.v4))),
        Mode::Softwire(softwire) => match &softwire.end {
            SoftwireEnd::Tep { bindings, .. } => {
                // Packets without DF come whole; the tunnel packets are cut (RFC 2473 section 7.2).
                mtu = None;
                let v4 = bindings.iter().map(|binding| Ipv4Net::from(binding.v4));
                let v4 = v4.chain(config.routes4.iter().copied());
                (Ipv4Net::aggregate(&v4.collect()), None)
            }
            SoftwireEnd::Client(client) => match source(client) {
                Some(v4) => (config.routes4.clone(), Some(IpAddr::V4(v4))),
                None => (Vec::new(), None),
            },
        },
    };
    let route = |net: Ipv4Net| {
        let device = way.map_or(config.name.as_str(), |way| way.device.as_str());
        let mut route = Route::new(IpNet::V4(net), device);
        route.gateway = way.and_then(|way| way.gateway).map(IpAddr::V6);
        route.metric = config.metric;
        route.source = source;
        route.mtu = mtu;
        route.advmss = Some(mtu4 - TCP_V4);
        Change::Route(route)
    };
    nets.into_iter().map(route).collect()
}

/// Whether the translator sends an ICMP error for a packet with DF that does not fit.
fn answers_too_big(config: &Translator) -> bool {
    config.icmp_source4.is_some() && config.icmp_errors != IcmpErrors::Off
}

/// The source address of this host's packets: the leased address, or the early one where the lease is shared or absent.
fn source(client: &SoftwireClient) -> Option<Ipv4Addr> {
    client.v4.filter(|_| client.ports.is_none() || client.early.is_none()).or(client.early)
}

/// The networks of pool4 and of the BIB. An address of the host itself has its route already.
fn pool4(nat64: &Nat64, facts: &Facts) -> Vec<Ipv4Net> {
    let pools = nat64.pools.iter().flat_map(|pool| &pool.pool4).flat_map(Pool4::networks);
    let bib = nat64.bib.iter().map(|bib| Ipv4Net::from(bib.v4.0));
    let mut nets = Vec::new();
    let bound = nat64.nat_pt.iter().flat_map(fordway_config::NatPt::networks);
    for net in pools.chain(bib).chain(bound) {
        nets.extend(without(net, &facts.own_v4));
    }
    nets
}

/// What of a network is none of these addresses, as few networks as can be.
fn without(net: Ipv4Net, own: &BTreeSet<Ipv4Addr>) -> Vec<Ipv4Net> {
    if !own.iter().any(|address| net.contains(address)) {
        return vec![net];
    }
    // A single address ends it.
    match net.subnets(net.prefix_len() + 1) {
        Ok(halves) => halves.flat_map(|half| without(half, own)).collect(),
        Err(_) => Vec::new(),
    }
}

/// No link-local address and no multicast: there is no neighbour, and the kernel's own messages
/// (router solicitations, multicast reports) would only be dropped and counted.
///
/// On a host that forwards already the interface was born into the routers' group. It leaves when it
/// does not forward, and in version 1 of the protocol (RFC 2710) without a word.
pub(crate) fn silence(device: &str) -> fordway_net::Result<Vec<Change>> {
    Ok(vec![
        Change::sysctl(SysctlKey::conf_v6(device, "addr_gen_mode")?, "1"),
        Change::sysctl(SysctlKey::conf_v6(device, "force_mld_version")?, "1"),
        Change::sysctl(SysctlKey::conf_v6(device, "forwarding")?, "0"),
        Change::NoMulticast { device: device.to_owned() },
    ])
}

/// The interface itself.
fn interface(config: &Translator, group: u32, facts: &Facts) -> fordway_net::Result<Vec<Change>> {
    let device = config.name.as_str();
    let owned = || device.to_owned();
    // What comes out of the interface has sources that the main table may know no way back to: the
    // Internet's where a native default route is better than the CLAT's. Loose checking (2) wins
    // over strict checking of `all` (1), since the greater of both counts.
    let rp_filter = if facts.rp_filter_off { "0" } else { "2" };
    // Between one process and the next no process has the device open, so it has no carrier; the kernel engine goes on.
    let linkdown = "ignore_routes_with_linkdown";
    Ok(vec![
        Change::sysctl(SysctlKey::conf_v4(device, "rp_filter")?, rp_filter),
        Change::sysctl(SysctlKey::conf_v4(device, linkdown)?, "0"),
        Change::sysctl(SysctlKey::conf_v6(device, linkdown)?, "0"),
        Change::Group { device: owned(), group },
        Change::Mtu { device: owned(), mtu: facts.resolved.mtu6 },
        // The driver of a TUN device drops what does not fit; it never makes the sender wait.
        Change::QueueLength { device: owned(), length: config.queue_length },
        Change::Up { device: owned() },
    ])
}

/// Forwarding between the interface and the others.
fn forwarding(config: &Translator, facts: &Facts) -> fordway_net::Result<Vec<Change>> {
    let mut changes = Vec::new();
    for device in &facts.ra_devices {
        changes.push(Change::sysctl(SysctlKey::conf_v6(device, "accept_ra")?, "2"));
    }
    changes.push(Change::sysctl(SysctlKey::forwarding_v6(), "1"));
    changes.push(Change::sysctl(SysctlKey::conf_v6(config.name.as_str(), "forwarding")?, "1"));
    // A CLAT for this host alone, or a softwire's client, delivers IPv4 locally; it makes the host no IPv4 router.
    if config.serves_others() {
        changes.push(Change::sysctl(SysctlKey::forwarding_v4(), "1"));
    }
    Ok(changes)
}

/// Policy rules against loops: for packets from the interface, routes into it do not count; without another route they
/// are rejected. They are dear: the kernel has a short way to routes where nobody has made rules.
fn guard(config: &Translator, group: u32) -> Vec<Change> {
    let device = config.name.as_str();
    let rule = |v6: bool, refuse: bool| {
        let (priority, table) =
            if refuse { (GUARD + 1, Rule::REFUSE) } else { (GUARD, table::MAIN) };
        let mut rule = Rule::new(v6, priority, table);
        rule.iif = Some(device.to_owned());
        rule.suppress_group = (!refuse).then_some(group);
        Change::Rule(rule)
    };
    let v6 = [rule(true, false), rule(true, true)];
    // From one client of a tunnel end point to another, IPv4 may (RFC 7596 section 6.2): it comes back as IPv6.
    if config.softwire().is_some() {
        return v6.to_vec();
    }
    [rule(false, false), rule(false, true)].into_iter().chain(v6).collect()
}

/// Addresses of the interface and IPv6 routes into it.
fn routes(config: &Translator, facts: &Facts) -> Vec<Change> {
    let device = config.name.as_str();
    let mtu6 = facts.resolved.mtu6;
    let v6_route = |net: Ipv6Net| {
        let mut route = Route::new(IpNet::V6(net), device);
        route.metric = config.metric;
        route.mtu = Some(mtu6);
        route.advmss = Some(mtu6 - TCP_V6);
        Change::Route(route)
    };
    match &config.mode {
        Mode::Siit(_) | Mode::Nat64(_) => {
            config.pool6().iter().map(|pool6| v6_route(pool6.net())).collect()
        }
        Mode::Softwire(softwire) => {
            let own = match &softwire.end {
                SoftwireEnd::Tep { .. } => softwire.locals(),
                SoftwireEnd::Client(_) => facts.resolved.clat_v6.into_iter().collect(),
            };
            let v4 = softwire.client().and_then(|client| client.v4);
            let address = v4.map(|v4| Change::Address(Address::new(device, IpNet::V4(v4.into()))));
            let lent = softwire.client().into_iter().flat_map(|client| lent(device, client));
            let routes = own.into_iter().map(|v6| v6_route(v6.into()));
            address.into_iter().chain(lent).chain(routes).collect()
        }
        Mode::Clat(clat) => {
            let address = Address::new(device, IpNet::V4(clat.v4.into()));
            let v6 = facts.resolved.clat_v6.map(Ipv6Net::from);
            let eam = config.eam.iter().map(fordway_xlat::addr::Eam::v6);
            let routes = v6.into_iter().chain(eam).map(v6_route);
            std::iter::once(Change::Address(address)).chain(routes).collect()
        }
    }
}

/// A neighbour proxy for the translator's own address on the uplink (RFC 4389, RFC 4861 section 7.2.8).
fn answer(uplink: &Uplink, v6: IpAddr) -> fordway_net::Result<Vec<Change>> {
    let delay: SysctlKey = format!("net/ipv6/neigh/{}/proxy_delay", uplink.name).parse()?;
    Ok(vec![
        // Only interfaces that forward answer for others.
        Change::sysctl(SysctlKey::conf_v6(&uplink.name, "forwarding")?, "1"),
        Change::sysctl(SysctlKey::conf_v6(&uplink.name, "proxy_ndp")?, "1"),
        // Proxies wait up to 0.8 s by default, to let the true owner answer first. There is none.
        Change::sysctl(delay, "0"),
        Change::NeighbourProxy(NeighbourProxy::new(&uplink.name, v6)),
    ])
}

/// The interface outlives the process, for the kernel engine goes on.
pub(crate) fn keep(name: &str) -> Change {
    Change::Interface { device: name.to_owned() }
}

/// Of several changes of one thing only the last.
pub(crate) fn last_of_each(changes: Vec<Change>) -> Vec<Change> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut kept: Vec<Option<Change>> = Vec::with_capacity(changes.len());
    for change in changes {
        if let Some(earlier) = places.insert(change.key(), kept.len()) {
            kept[earlier] = None;
        }
        kept.push(Some(change));
    }
    kept.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests;
