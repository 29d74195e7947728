//! Values that the configuration leaves open and the host decides. Reads the host, changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fordway_config::{
    Attach, Clat, InterfaceName, Nat64, Pref64, Resolved, Softwire, SoftwireEnd, Source6,
    Translator,
};
use fordway_net::{Address, IpNet, Link, Netlink, RouteFilter, SysctlKey, sysctl};
use fordway_xlat::addr::classify::{illegal_v4, illegal_v6};

use super::clat_address;
use super::softwire;
use crate::failure::Failure;

/// Path MTU where nothing tells another, in octets: Ethernet's.
const DEFAULT_MTU: u32 = 1500;

/// Queues at most where the configuration says nothing. More than this many copies of one engine
/// are rarely kept busy by one interface, and each costs memory.
const MAX_AUTO_QUEUES: usize = 8;

/// The protocol number of routes that router advertisements made (`RTPROT_RA`).
const PROTOCOL_RA: u8 = 9;

/// An IPv4 address to ask the way to `pref64` with (RFC 7050 section 2.2, the well-known one).
pub(crate) const PROBE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 170);

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// For the core.
    pub(crate) resolved: Resolved,
    /// Where the path MTU comes from, in words.
    pub(crate) mtu_from: String,
    /// A CLAT's way into the IPv6 network, or a softwire's.
    pub(crate) uplink: Option<Uplink>,
    /// Interfaces that take router advertisements and would stop doing so once the host forwards.
    pub(super) ra_devices: BTreeSet<String>,
    /// The host's own IPv4 addresses, where some of them may be the translator's too.
    pub(crate) own_v4: BTreeSet<Ipv4Addr>,
    /// `icmp_source4` is an address of the host.
    pub(crate) own_icmp_source4: bool,
    /// Addresses of the devices that pool4 names.
    pub(crate) device_v4: BTreeMap<String, Vec<Ipv4Addr>>,
    /// `net.ipv4.conf.all.rp_filter` is 0: reverse path filtering is each interface's own matter.
    pub(crate) rp_filter_off: bool,
}

/// A CLAT's device towards the IPv6 network, or a softwire's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uplink {
    /// Its name.
    pub(crate) name: String,
    /// The translator's own IPv6 address is in a network of this link, so a neighbour proxy must answer for it.
    pub(crate) answers: bool,
    /// Reverse path filtering is on there.
    pub(super) rp_filter: bool,
}

impl Uplink {
    /// The uplink of a translator with the address `v6`.
    pub(super) fn new(link: &Link, v6: Ipv6Addr, addresses: &[Address]) -> Result<Uplink, Failure> {
        Ok(Uplink {
            name: link.name.clone(),
            answers: answers(link, v6, addresses),
            rp_filter: filters(&link.name)?,
        })
    }
}

/// The number of queues to ask for: by default one for every two processors, for whatever goes through
/// a queue costs the kernel's routing as much again; for a gateway two at least.
///
/// Measured on two processors with one TCP flow: one queue carried more than two did, because the two
/// directions of a flow may meet on different queues, whose threads then compete with the programs. With 300
/// flows through a gateway, two carried more than one.
pub(crate) fn queues(config: &Translator) -> usize {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let is_host = config.clat().is_some() || config.softwire().and_then(Softwire::client).is_some();
    config.queues.unwrap_or(queues_of(available, is_host))
}

fn queues_of(processors: usize, is_host: bool) -> usize {
    let least = if is_host { 1 } else { processors.min(2) };
    (processors / 2).clamp(least, MAX_AUTO_QUEUES)
}

/// Resolves all of them. `queues`: the number of queues of the device.
pub(crate) fn resolve(
    netlink: &mut Netlink,
    config: &Translator,
    queues: usize,
) -> Result<Facts, Failure> {
    let addresses = netlink.addresses(None)?;
    let own = config.name.as_str();
    let (mut uplink, mut clat_v6) = (None, None);
    if let Some(clat) = config.clat() {
        let link = find_uplink(netlink, clat.uplink.as_ref(), probe(clat), own)?;
        let v6 = clat_v6_address(config, clat, link.as_ref(), &addresses)?;
        clat_v6 = Some(v6);
        uplink = link.map(|link| Uplink::new(&link, v6, &addresses)).transpose()?;
    }
    if let Some(own) = softwire::own(netlink, config, &addresses)? {
        (uplink, clat_v6) = (own.uplink, Some(own.v6));
    }
    let (mtu6, mtu_from) = match config.mtu {
        Some(mtu) => (mtu, "the configuration".to_owned()),
        None => find_mtu(netlink, config, uplink.as_ref())?,
    };
    let icmp_source6 = match config.icmp_source6 {
        Source6::Off => None,
        Source6::Address(address) => Some(address),
        Source6::Auto => host_address(netlink, config, &addresses)?.filter(|a| Some(*a) != clat_v6),
    };
    let client = config.softwire().and_then(Softwire::client).is_some();
    let host_of = (config.clat().is_some() || client).then_some(own);
    let ra_devices = ra_devices(netlink, host_of, uplink.as_ref())?;
    let own_v4 = hosts_v4(config, &addresses);
    let device_v4 = device_v4(config, &addresses);
    let own_icmp_source4 = own_icmp_source4(config, &addresses);
    Ok(Facts {
        resolved: Resolved { mtu6, icmp_source6, clat_v6, queues, attach: Attach::Interface },
        mtu_from,
        uplink,
        ra_devices,
        own_v4,
        own_icmp_source4,
        device_v4,
        rp_filter_off: sysctl::read(&SysctlKey::conf_v4("all", "rp_filter")?)? == "0",
    })
}

/// An address of a device, if it is IPv4.
pub(crate) fn v4(address: &Address) -> Option<Ipv4Addr> {
    match address.address.addr() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

/// The host's IPv4 addresses, for a translator that may share them.
pub(crate) fn hosts_v4(config: &Translator, addresses: &[Address]) -> BTreeSet<Ipv4Addr> {
    if config.nat64().is_none() {
        return BTreeSet::new();
    }
    others(config, addresses).filter_map(v4).collect()
}

/// Whether ICMPv4 errors have an address of the host as their source. The kernel takes such packets for forged when they
/// arrive from an interface.
pub(crate) fn own_icmp_source4(config: &Translator, addresses: &[Address]) -> bool {
    let source = config.icmp_source4;
    source.is_some() && others(config, addresses).any(|address| v4(address) == source)
}

/// Addresses of other interfaces than the translator's: what that one has is there for the kernel's sake.
fn others<'a>(config: &Translator, addresses: &'a [Address]) -> impl Iterator<Item = &'a Address> {
    let own = config.name.to_string();
    addresses.iter().filter(move |address| address.device != own)
}

/// The addresses that a device named by pool4 has, without those that are only of its link.
pub(crate) fn device_v4(
    config: &Translator,
    addresses: &[Address],
) -> BTreeMap<String, Vec<Ipv4Addr>> {
    let devices = config.nat64().map(Nat64::interfaces).unwrap_or_default();
    let of = |device: &str| {
        let here = addresses.iter().filter(|address| address.device == device);
        let mut all: Vec<Ipv4Addr> =
            here.filter_map(v4).filter(|it| illegal_v4(*it).is_none()).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    devices.into_iter().map(|device| (device.to_string(), of(device.as_str()))).collect()
}

/// The configured uplink, or the device that the route to `to` leads out of, unless that is the translator's `own`.
pub(super) fn find_uplink(
    netlink: &mut Netlink,
    configured: Option<&InterfaceName>,
    to: Option<Ipv6Addr>,
    own: &str,
) -> Result<Option<Link>, Failure> {
    if let Some(name) = configured {
        return Ok(Some(netlink.link(name.as_str())?));
    }
    let Some(to) = to else { return Ok(None) };
    match netlink.next_hop(to.into())? {
        Some(hop) if hop.device != own => Ok(netlink.find_link(&hop.device)?),
        _ => Ok(None),
    }
}

/// An address behind the PLAT.
fn probe(clat: &Clat) -> Option<Ipv6Addr> {
    Some(clat.pref64.fixed()?.embed(PROBE_V4))
}

/// The prefix, for people.
pub(crate) fn prefix_name(clat: &Clat) -> String {
    match &clat.pref64 {
        Pref64::Fixed(pref64) => pref64.to_string(),
        Pref64::Auto => "auto".to_owned(),
    }
}

fn clat_v6_address(
    config: &Translator,
    clat: &Clat,
    uplink: Option<&Link>,
    addresses: &[Address],
) -> Result<Ipv6Addr, Failure> {
    let v6 = match (clat.v6, uplink) {
        (Some(v6), _) => v6,
        (None, None) => {
            return Err(Failure::failed(format!(
                "{}: there is no route to {}, so no uplink whose network the CLAT could take its \
                 IPv6 address from",
                config.name,
                prefix_name(clat)
            ))
            .hint("bring the IPv6 network up first, or give v6 (--v6 ADDR), or uplink"));
        }
        (None, Some(link)) => probe(clat)
            .and_then(|plat| clat_address::derive(config.name.as_str(), link, addresses, plat))
            .ok_or_else(|| {
                Failure::failed(format!(
                    "{}: {} has no global IPv6 address with a /64, so there is no network to take \
                     the CLAT's IPv6 address from",
                    config.name, link.name
                ))
                .hint("wait for the address, or give v6 (--v6 ADDR) with one that is routed here")
            })?,
    };
    let hint = "give the CLAT an address of its own: v6 (--v6 ADDR)";
    refuse_hosts_own(config, ("the CLAT's IPv6 address", v6), hint, addresses)?;
    Ok(v6)
}

/// Refuses an address of the translator that the host has itself: the host would take the packets for its own before
/// routing sees them.
pub(super) fn refuse_hosts_own(
    config: &Translator,
    (what, v6): (&str, Ipv6Addr),
    hint: &str,
    addresses: &[Address],
) -> Result<(), Failure> {
    match addresses.iter().find(|it| it.address.addr() == IpAddr::V6(v6)) {
        None => Ok(()),
        Some(taken) => {
            let (name, device) = (&config.name, &taken.device);
            let text = format!("{name}: {what} {v6} is the host's own, on {device}");
            Err(Failure::failed(text).hint(hint))
        }
    }
}

/// Whether the kernel filters by reverse path on this device: the greater of both settings counts.
pub(crate) fn filters(device: &str) -> Result<bool, Failure> {
    let off = |name: &str| -> fordway_net::Result<bool> {
        Ok(sysctl::read(&SysctlKey::conf_v4(name, "rp_filter")?)? == "0")
    };
    Ok(!(off("all")? && off(device)?))
}

/// Whether neighbours on the link will solicit `v6`.
pub(crate) fn answers(link: &Link, v6: Ipv6Addr, addresses: &[Address]) -> bool {
    // Links without link-layer addresses (PPP, mobile modems) have no neighbour discovery.
    let asked = !link.hardware_address.is_empty() && !link.loopback;
    asked && addresses.iter().any(|it| it.device == link.name && is_on_link(it, v6))
}

/// Whether `v6` is in the network of an address.
pub(super) fn is_on_link(address: &Address, v6: Ipv6Addr) -> bool {
    matches!(address.address, IpNet::V6(net) if net.prefix_len() < 128 && net.contains(&v6))
}

/// How many of the ways to the IPv6 side are looked at for the path MTU.
const WAYS: usize = 1024;

/// The path MTU: of the uplink, or the least of the ways to the IPv6 side (RFC 7915 section 4.2).
fn find_mtu(
    netlink: &mut Netlink,
    config: &Translator,
    uplink: Option<&Uplink>,
) -> Result<(u32, String), Failure> {
    let own = config.name.as_str();
    let destinations: Vec<Ipv6Addr> =
        match (config.clat(), config.softwire().map(|softwire| &softwire.end)) {
            (Some(clat), _) => probe(clat).into_iter().collect(),
            (_, Some(SoftwireEnd::Client(client))) => vec![client.remote],
            (_, Some(SoftwireEnd::Tep { bindings, .. })) => {
                bindings.iter().map(|it| it.remote).take(WAYS).collect()
            }
            _ => config.eam.iter().map(|eam| eam.v6().addr()).take(WAYS).collect(),
        };
    let mut least: Option<(u32, String)> = None;
    for destination in destinations {
        // The host's own addresses are reached without a packet on any wire.
        let hop = netlink.next_hop(destination.into())?;
        let hop = hop.filter(|hop| hop.device != own && hop.device != "lo");
        if let Some(hop) = hop
            && least.as_ref().is_none_or(|(mtu, _)| hop.mtu < *mtu)
        {
            least = Some((hop.mtu, hop.device));
        }
    }
    let found = match (least, uplink) {
        (Some(least), _) => Some(least),
        (None, Some(uplink)) => Some((netlink.link(&uplink.name)?.mtu, uplink.name.clone())),
        (None, None) => None,
    };
    match found {
        // An interface whose MTU is below 1280 has no IPv6 (RFC 8200 section 5).
        Some((mtu, device)) if mtu >= fordway_xlat::config::IPV6_MIN_MTU => {
            Ok((mtu.min(65_535), format!("the route through {device}")))
        }
        _ => Ok((DEFAULT_MTU, "the default, since no route tells".to_owned())),
    }
}

/// The host's preferred global address towards the IPv6 side.
fn host_address(
    netlink: &mut Netlink,
    config: &Translator,
    addresses: &[Address],
) -> Result<Option<Ipv6Addr>, Failure> {
    let destination = match config.clat() {
        Some(clat) => probe(clat),
        None => config.eam.first().map(|eam| eam.v6().addr()),
    };
    let chosen = match destination {
        Some(destination) => netlink.next_hop(destination.into())?.and_then(|hop| hop.source),
        None => None,
    };
    let all = addresses.iter().filter(|address| !address.deprecated).map(|a| a.address.addr());
    let usable = |address: IpAddr| match address {
        IpAddr::V6(address) if illegal_v6(address).is_none() => Some(address),
        _ => None,
    };
    Ok(chosen.and_then(usable).or_else(|| all.into_iter().find_map(usable)))
}

/// RFC 4862 hosts take router advertisements, routers do not: Linux stops doing so on interfaces with
/// `accept_ra` 1 once they forward, and with that loses its default route. With 2 they go on.
///
/// Devices with 2 already are included: it may be the change of an earlier run or of another daemon, which this one needs
/// as long as it runs.
///
/// The host of the CLAT `host_of` is no router: on any device, also on those to come (`default`), it goes on as
/// before.
pub(super) fn ra_devices(
    netlink: &mut Netlink,
    host_of: Option<&str>,
    uplink: Option<&Uplink>,
) -> Result<BTreeSet<String>, Failure> {
    let all_forward = sysctl::read(&SysctlKey::forwarding_v6())? != "0";
    let uplink = uplink.map(|uplink| uplink.name.clone());
    let filter = RouteFilter { protocol: Some(PROTOCOL_RA), ..RouteFilter::default() };
    let routes = netlink.routes(filter)?.into_iter();
    let devices = routes.filter_map(|route| route.device).chain(uplink.clone());
    let links = if host_of.is_some() { netlink.links()? } else { Vec::new() };
    let others = links.into_iter().filter(|link| !link.loopback).map(|link| link.name);
    let others = others.filter(|name| Some(name.as_str()) != host_of);
    let default = host_of.map(|_| "default".to_owned());
    let devices = devices.chain(others).chain(default);
    let read = |device: &str, field: &str| {
        SysctlKey::conf_v6(device, field).and_then(|key| sysctl::read(&key)).unwrap_or_default()
    };
    let named = |device: &String| match read(device, "accept_ra").as_str() {
        "2" => true,
        // It will begin to forward.
        "1" => {
            let begins = !all_forward || uplink.as_ref() == Some(device);
            begins && read(device, "forwarding") == "0"
        }
        _ => false,
    };
    Ok(devices.collect::<BTreeSet<String>>().into_iter().filter(named).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_has_two_queues_where_there_are_two_processors() {
        let gateway = [1, 2, 3, 4, 6, 64].map(|processors| queues_of(processors, false));
        assert_eq!(gateway, [1, 2, 2, 2, 3, 8]);
        let host = [1, 2, 3, 4, 6, 64].map(|processors| queues_of(processors, true));
        assert_eq!(host, [1, 1, 1, 2, 3, 8]);
    }
}
