//! The changes that an entry of mode nat44 means: the table, connection tracking's timeouts, addresses, forwarding.

use std::net::Ipv4Addr;
use std::time::Duration;

use fordway_config::{Forward, InterfaceName, Nat44, Nat44Lifetimes, Pool4Source};
use fordway_net::{
    Address, Change, IpNet, Ipv4Net, Nat44 as Table, Nat44Choice, Nat44Forward, Nat44Pool, Netlink,
    SysctlKey,
};

use super::{Plan, sort};
use crate::failure::Failure;
use crate::plan::resolve::v4;

/// The table first: nothing may leave untranslated. Forwarding last.
pub(super) fn plan(entry: &Nat44, netlink: &mut Netlink) -> Result<Plan, Failure> {
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
fn table(entry: &Nat44, outer: &[Ipv4Addr]) -> Table {
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
        drop_unsolicited: entry.drop_unsolicited,
        mss_clamp: entry.mss_clamp,
        most_sessions: limit(entry.quotas.sessions),
        most_per_second: limit(entry.quotas.new_per_second),
        log: entry.log,
        own: false,
        waits: false,
    }
}

/// A forwarded port at each of its outer addresses.
fn forwards(forward: &Forward, outer: &[Ipv4Addr]) -> Vec<Nat44Forward> {
    let addresses = match forward.address {
        Some(address) => vec![address],
        None => outer.to_vec(),
    };
    let protocol = forward.protocol.number();
    let at =
        |address| Nat44Forward { protocol, outside: (address, forward.port), inside: forward.to };
    addresses.into_iter().map(at).collect()
}

/// Conntrack's timeouts. It knows more states than the RFCs.
fn timeouts(lifetimes: Nat44Lifetimes) -> Result<Vec<Change>, Failure> {
    let seconds = |time: Duration| time.as_secs().to_string();
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
