//! The changes that an entry of the configuration means on this host, in the order in which they are made: modes nat44
//! and dual-stack, router advertisements, transport relays.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use fordway_config::{
    Advertise, Config, DualStack, Forward, ForwardProtocol, Inbound, InterfaceName, Nat44,
    Nat44Lifetimes, Pool4Source,
};
use fordway_net::{
    Address, Change, Intercept, IpNet, Ipv4Net, Nat44 as Table, Nat44Choice, Nat44Forward,
    Nat44Pool, Netlink, SysctlKey,
};

use super::changes::last_of_each;
use super::resolve::{self, v4};
use crate::failure::Failure;

/// An entry of the configuration that wants something of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Nat44(Nat44),
    DualStack(DualStack),
    /// A device where router advertisements are sent: what comes in there is forwarded.
    Router(InterfaceName),
    /// A transport relay, to whose sockets packets are led.
    Relay(Intercept),
}

/// In front of the names of devices and relays: the owners of their changes in the ledger. Too long to be translators'.
const ROUTER: &str = "router-advertisements.";
const RELAY: &str = "transport-relay.";

impl Entry {
    /// Those of a configuration, but for relays, which have sockets.
    pub(crate) fn all(config: &Config) -> Vec<Entry> {
        let router = config.advertise.iter().filter(|it| forwards_for(it));
        let router = router.map(|it| Entry::Router(it.device.clone()));
        let nat44 = config.nat44.iter().cloned().map(Entry::Nat44);
        let dual_stack = config.dual_stack.iter().cloned().map(Entry::DualStack);
        router.chain(nat44).chain(dual_stack).collect()
    }

    /// The owners of a configuration, relays among them.
    pub(crate) fn owners(config: &Config) -> BTreeSet<String> {
        let relays = config.trt.iter().map(|trt| format!("{RELAY}{}", trt.name));
        Entry::all(config).iter().map(Entry::owner).chain(relays).collect()
    }

    /// The owner of its changes in the ledger.
    pub(crate) fn owner(&self) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        match self {
            Entry::Nat44(_) | Entry::DualStack(_) => self.name().to_owned(),
            Entry::Router(device) => {
                let device = device.as_str().chars();
                ROUTER.chars().chain(device.map(|c| if plain(c) { c } else { '_' })).collect()
            }
            Entry::Relay(relay) => format!("{RELAY}{}", relay.name),
        }
    }

    /// Its name in the log.
    pub(crate) fn name(&self) -> &str {
        match self {
            Entry::Nat44(nat44) => nat44.name.as_str(),
            Entry::DualStack(dual_stack) => dual_stack.name.as_str(),
            Entry::Router(device) => device.as_str(),
            Entry::Relay(relay) => &relay.name,
        }
    }

    /// What stands in front of its errors.
    pub(crate) fn title(&self) -> String {
        let section = match self {
            Entry::Nat44(_) | Entry::DualStack(_) => "",
            Entry::Router(_) => "[[advertise]] ",
            Entry::Relay(_) => "[[trt]] ",
        };
        format!("{section}{}: ", self.name())
    }

    /// Whether its changes depend on the host at any time. Those of a router depend on it when its device appears; those
    /// of a relay do not.
    pub(crate) fn follows_host(&self) -> bool {
        matches!(self, Entry::Nat44(_) | Entry::DualStack(_))
    }
}

/// A default router has to forward (RFC 4861 section 6.2.2); one that only announces prefixes does not.
fn forwards_for(advertise: &Advertise) -> bool {
    advertise.manage && !advertise.lifetime().is_zero()
}

/// Numbers of transport protocols.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// What an entry means.
pub(crate) struct Plan {
    pub(crate) changes: Vec<Change>,
    /// Devices of the entry that are not there.
    pub(crate) absent: Vec<String>,
}

/// Looks at the host, and changes nothing.
/// `earlier`: what is in force for it.
pub(crate) fn plan(
    config: &Config,
    entry: &Entry,
    earlier: &[Change],
    netlink: &mut Netlink,
) -> Result<Plan, Failure> {
    let plan = match entry {
        Entry::Nat44(entry) => nat44(entry, netlink),
        Entry::DualStack(entry) => dual_stack(config, entry, earlier, netlink),
        Entry::Router(device) => router(config, device.as_str(), netlink),
        Entry::Relay(relay) => Ok(Plan { changes: relay.changes(), absent: Vec::new() }),
    }?;
    Ok(Plan { changes: last_of_each(plan.changes), ..plan })
}

/// The table first: nothing may leave untranslated. Forwarding last.
fn nat44(entry: &Nat44, netlink: &mut Netlink) -> Result<Plan, Failure> {
    let (there, absent) = sort(entry.uplinks.iter().chain(&entry.devices), netlink)?;
    let present = netlink.addresses(None)?;
    let pool = if entry.assign { outer_addresses(entry) } else { Vec::new() };
    let uplink = entry.uplinks.first().filter(|it| there.contains(&it.as_str()));
    let given = uplink.map_or(Vec::new(), |uplink| assigned(&pool, uplink.as_str(), &present));
    // Whatever addresses the uplinks have beside those.
    let own = present.iter().filter(|it| {
        let is_given =
            |change: &Change| matches!(change, Change::Address(one) if one.same_object(it));
        entry.uplinks.iter().any(|name| name.as_str() == it.device) && !given.iter().any(is_given)
    });
    let own = own.filter_map(v4);
    let mut changes = vec![Change::Nat44(table(entry, &own.collect::<Vec<_>>()))];
    if let Some(lifetimes) = entry.lifetimes {
        changes.extend(timeouts(lifetimes)?);
    }
    changes.extend(given);
    changes.push(Change::sysctl(SysctlKey::forwarding_v4(), "1"));
    Ok(Plan { changes, absent })
}

/// The nftables table; `outer`: the addresses of the uplinks.
pub(crate) fn table(entry: &Nat44, outer: &[Ipv4Addr]) -> Table {
    let names = |devices: &[InterfaceName]| devices.iter().map(ToString::to_string).collect();
    let limit = |number: u32| Some(number).filter(|number| *number > 0);
    let (mut pools, mut ports) = (Vec::new(), None);
    for pool in &entry.pool4 {
        let range = (pool.ports.low, pool.ports.high);
        match pool.source {
            Pool4Source::Addresses { first, last } => {
                pools.push(Nat44Pool { first, last, ports: range });
            }
            Pool4Source::Interface(_) => ports = Some(range),
        }
    }
    Table {
        name: entry.name.to_string(),
        clients: entry.clients.clone(),
        devices: names(&entry.devices),
        uplinks: names(&entry.uplinks),
        pools,
        ports,
        choice: Nat44Choice { persistent: entry.persistent, random: entry.random_ports },
        netmap: entry.netmap.clone(),
        forwards: entry.forwards.iter().flat_map(|it| forwards(it, outer)).collect(),
        hairpin: entry.hairpin,
        drop_unsolicited: entry.inbound == Inbound::Drop,
        mss_clamp: entry.mss_clamp,
        most_sessions: limit(entry.quotas.sessions),
        most_per_second: limit(entry.quotas.new_per_second),
        log: entry.log,
        waits: false,
    }
}

/// A forwarded port at each of its outer addresses.
fn forwards(forward: &Forward, outer: &[Ipv4Addr]) -> Vec<Nat44Forward> {
    let addresses = match forward.address {
        Some(address) => vec![address],
        None => outer.to_vec(),
    };
    let protocol = match forward.protocol {
        ForwardProtocol::Tcp => TCP,
        ForwardProtocol::Udp => UDP,
    };
    let at =
        |address| Nat44Forward { protocol, outside: (address, forward.port), inside: forward.to };
    addresses.into_iter().map(at).collect()
}

/// Conntrack's timeouts. It knows more states than the RFCs.
fn timeouts(lifetimes: Nat44Lifetimes) -> Result<Vec<Change>, Failure> {
    let seconds = |time: std::time::Duration| time.as_secs().to_string();
    let udp = [("udp_timeout", lifetimes.udp), ("udp_timeout_stream", lifetimes.udp)];
    let icmp = [("icmp_timeout", lifetimes.icmp)];
    let established = [("tcp_timeout_established", lifetimes.tcp_est)];
    let transitory = ["syn_sent", "syn_recv", "fin_wait", "close_wait", "last_ack", "time_wait"];
    let transitory = transitory.map(|state| (format!("tcp_timeout_{state}"), lifetimes.tcp_trans));
    let fixed = udp.into_iter().chain(icmp).chain(established);
    let all = fixed.map(|(name, time)| (name.to_owned(), time)).chain(transitory);
    all.map(|(name, time)| {
        let key: SysctlKey = format!("net/netfilter/nf_conntrack_{name}").parse()?;
        Ok(Change::sysctl(key, &seconds(time)))
    })
    .collect()
}

/// The addresses that hosts get, and at which they are reached.
fn outer_addresses(entry: &Nat44) -> Vec<Ipv4Addr> {
    let pools = entry.pool4.iter().flat_map(fordway_config::Pool4::networks);
    let mapped = entry.netmap.iter().map(|(_, outside)| *outside);
    let mut all: Vec<Ipv4Addr> = pools.chain(mapped).flat_map(each).collect();
    all.extend(entry.forwards.iter().filter_map(|it| it.address));
    all.sort_unstable();
    all.dedup();
    all
}

/// Pool addresses on the uplink, so that the host answers ARP for them; without those that the host has already.
fn assigned(pool: &[Ipv4Addr], uplink: &str, present: &[Address]) -> Vec<Change> {
    let wanted = |it: &Ipv4Addr| Address::new(uplink, IpNet::V4((*it).into()));
    let has = |it: &&Ipv4Addr| {
        present.iter().any(|one| v4(one) == Some(**it) && !one.same_object(&wanted(it)))
    };
    pool.iter().filter(|it| !has(it)).map(|it| Change::Address(wanted(it))).collect()
}

/// The addresses of a network, its first and last too: they are given to hosts one by one.
fn each(net: Ipv4Net) -> impl Iterator<Item = Ipv4Addr> {
    (net.network().to_bits()..=net.broadcast().to_bits()).map(Ipv4Addr::from_bits)
}

/// Both families between the devices.
fn dual_stack(
    config: &Config,
    entry: &DualStack,
    earlier: &[Change],
    netlink: &mut Netlink,
) -> Result<Plan, Failure> {
    let (there, absent) = sort(entry.devices.iter(), netlink)?;
    let advertises = |name: &String| config.advertise.iter().any(|it| it.device.as_str() == name);
    let mut changes = Vec::new();
    for (device, net) in entry.addresses.iter().filter(|(it, _)| there.contains(&it.as_str())) {
        changes.push(Change::Address(Address::new(device.as_str(), *net)));
    }
    // A device that has no such route for a while is still one where routers tell them.
    let listens = |it: &&Change| {
        matches!(it, Change::Sysctl { key, .. }
            if key.device().is_some_and(|name| !advertises(&name.to_owned()))
                && key.to_string().ends_with(".accept_ra"))
    };
    changes.extend(earlier.iter().filter(listens).cloned());
    let listens = listening(config, netlink)?;
    changes.extend(listens.into_iter().filter(|it| !earlier.contains(it)));
    changes.push(Change::sysctl(SysctlKey::forwarding_v4(), "1"));
    changes.push(Change::sysctl(SysctlKey::forwarding_v6(), "1"));
    for device in there {
        changes.push(Change::sysctl(SysctlKey::conf_v4(device, "forwarding")?, "1"));
        changes.push(Change::sysctl(SysctlKey::conf_v6(device, "forwarding")?, "1"));
    }
    Ok(Plan { changes, absent })
}

/// Forwarding on a device, if it is there.
fn router(config: &Config, device: &str, netlink: &mut Netlink) -> Result<Plan, Failure> {
    let absent = Vec::new();
    if netlink.find_link(device)?.is_none() {
        return Ok(Plan { changes: Vec::new(), absent });
    }
    let mut changes = listening(config, netlink)?;
    changes.push(Change::sysctl(SysctlKey::forwarding_v6(), "1"));
    changes.push(Change::sysctl(SysctlKey::conf_v6(device, "forwarding")?, "1"));
    Ok(Plan { changes, absent })
}

/// What keeps the routes that other routers announce: a host that becomes a router would lose them.
fn listening(config: &Config, netlink: &mut Netlink) -> Result<Vec<Change>, Failure> {
    let advertises = |name: &String| config.advertise.iter().any(|it| it.device.as_str() == name);
    let devices = resolve::ra_devices(netlink, None, None)?;
    let others = devices.iter().filter(|it| !advertises(it));
    let listen =
        |device: &String| Ok(Change::sysctl(SysctlKey::conf_v6(device, "accept_ra")?, "2"));
    others.map(listen).collect()
}

/// Which of these devices are there, and which are not.
fn sort<'a>(
    devices: impl Iterator<Item = &'a InterfaceName>,
    netlink: &mut Netlink,
) -> Result<(Vec<&'a str>, Vec<String>), Failure> {
    let (mut there, mut absent) = (Vec::new(), Vec::new());
    for device in devices {
        match netlink.find_link(device.as_str())? {
            Some(_) => there.push(device.as_str()),
            None => absent.push(device.to_string()),
        }
    }
    Ok((there, absent))
}
