//! Where packets are handed over to other gateways: for each of them an interface, and a table that leads from there to it.
//!
//! ```text
//! user engine ──► fwgwN ──► rule "iif fwgwN" ──► table N: default by the gateway's next hop
//! ```

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fordway_cluster::Member;
use fordway_clusterd::Owners;
use fordway_config::{Cluster, ClusterGateway};
use fordway_engine::HandOver;
use fordway_net::{
    Change, IpNet, Ipv4Net, Ipv6Net, Netlink, Route, RouteFilter, RouteKind, Rule, SysctlKey, table,
};
use fordway_tun::{Device, OpenOptions, Queue, SendOutcome, VnetHeader};

use super::Part;
use crate::failure::Failure;
use crate::plan::changes::silence;
use crate::plan::resolve::Facts;

/// Before the rules against loops.
const PRIORITY: u32 = 32_763;

/// How another gateway is reached.
#[derive(Clone, Debug)]
pub(super) struct Hop {
    member: Member,
    next: Vec<IpAddr>,
    table: u32,
}

impl Hop {
    /// To a gateway of the cluster.
    pub(super) fn to(gateway: &ClusterGateway, cluster: &Cluster) -> Hop {
        let v6 = gateway.next_hop6().map(IpAddr::V6);
        Hop {
            member: Member(gateway.number),
            next: v6.into_iter().chain(gateway.next_hop4().map(IpAddr::V4)).collect(),
            table: cluster.table_of(gateway),
        }
    }

    fn device(&self) -> String {
        format!("fwgw{}", self.member.0)
    }

    fn changes(&self, facts: &Facts, connected: &[Route]) -> Result<Vec<Change>, Failure> {
        let device = self.device();
        let mut changes = silence(&device)?;
        // Sources are anywhere. As of the translator's own interface.
        let rp_filter = if facts.rp_filter_off { "0" } else { "2" };
        changes.push(Change::sysctl(SysctlKey::conf_v4(&device, "rp_filter")?, rp_filter));
        changes.push(Change::Mtu { device: device.clone(), mtu: facts.resolved.mtu6 });
        changes.push(Change::Up { device: device.clone() });
        changes.push(Change::sysctl(SysctlKey::conf_v6(&device, "forwarding")?, "1"));
        for next in &self.next {
            let all = match next {
                IpAddr::V6(_) => IpNet::V6(Ipv6Net::default()),
                IpAddr::V4(_) => IpNet::V4(Ipv4Net::default()),
            };
            let leads = |route: &&Route| route.destination.contains(next);
            let found = connected.iter().filter(leads);
            let found = found.max_by_key(|route| route.destination.prefix_len());
            let out = found.and_then(|route| route.device.as_deref()).ok_or_else(|| {
                Failure::failed(format!("[[cluster.gateway]]: no interface's network has {next}"))
                    .hint("next_hop and next_hop4 are addresses on a segment that all gateways are on")
            })?;
            let (gateway, table) = (Some(*next), self.table);
            changes.push(Change::Route(Route { gateway, table, ..Route::new(all, out) }));
            let rule = Rule::new(next.is_ipv6(), PRIORITY, self.table);
            changes.push(Change::Rule(Rule { iif: Some(device.clone()), ..rule }));
        }
        Ok(changes)
    }
}

/// Ways to all other gateways.
#[derive(Debug)]
pub(crate) struct Crossings {
    pub(crate) hand_over: Arc<dyn HandOver>,
    /// What they need of the host.
    pub(crate) changes: Vec<Change>,
    /// The indices of the interfaces.
    pub(crate) ways: BTreeMap<Member, u32>,
}

/// The way to another gateway. The interface goes with it.
#[derive(Debug)]
struct Crossing {
    member: Member,
    _device: Device,
    queues: Vec<Mutex<Queue>>,
}

#[derive(Debug)]
struct All {
    owners: Arc<Owners>,
    crossings: Vec<Crossing>,
}

impl HandOver for All {
    fn hand_over(&self, queue: usize, shard: u16, header: &VnetHeader, packet: &[u8]) -> bool {
        let owner = self.owners.of(shard);
        let Some(to) = self.crossings.iter().find(|to| Some(to.member) == owner) else {
            return false;
        };
        // Each thread has a queue of its own.
        let Some(queue) = to.queues.get(queue % to.queues.len().max(1)) else { return false };
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(queue.send(header, packet), Ok(SendOutcome::Sent))
    }

    fn is_own(&self, shard: u16) -> bool {
        self.owners.is_own(shard)
    }

    /// After that time a sender of TCP repeats a packet.
    fn patience(&self) -> Duration {
        Duration::from_millis(200)
    }
}

impl Part {
    /// Opens the ways to all other gateways, for an engine of so many queues.
    pub(crate) fn cross(
        &self,
        queues: usize,
        run_dir: &Path,
        facts: &Facts,
    ) -> Result<Crossings, Failure> {
        let options = OpenOptions {
            queues,
            run_dir: run_dir.to_owned(),
            adopt: false,
            ..OpenOptions::default()
        };
        let filter = RouteFilter { table: Some(table::MAIN), ..RouteFilter::default() };
        let mut connected = Netlink::open()?.routes(filter)?;
        connected.retain(|route| route.gateway.is_none() && route.kind == RouteKind::Unicast);
        let (mut crossings, mut changes, mut ways) = (Vec::new(), Vec::new(), BTreeMap::new());
        for hop in &self.hops {
            let (device, queues) = Device::open(&hop.device(), &options)?;
            ways.insert(hop.member, device.ifindex());
            let queues = queues.into_iter().map(Mutex::new).collect();
            crossings.push(Crossing { member: hop.member, _device: device, queues });
            changes.extend(hop.changes(facts, &connected)?);
        }
        let all = All { owners: Arc::clone(&self.owners), crossings };
        Ok(Crossings { hand_over: Arc::new(all), changes, ways })
    }
}
