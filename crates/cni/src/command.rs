//! The commands of the specification.

use std::net::Ipv6Addr;

use fordway_bpf::{Pod, Pods};
use fordway_net::{Ipv4Net, Ipv6Net, NetNs};
use fordway_xlat::Config;
use fordway_xlat::addr::{Eam, EamTable, Pool6};
use serde_json::{Value, json};

use crate::network::PodNetwork;
use crate::node::Node;
use crate::pod::{self, V4, Wanted};
use crate::request::{Attachment, VERSIONS};
use crate::{Code, Command, Failure, Request, Result, Steps, address, prefix};

/// Octets of the longest IP packet: lengths are compared with the device's MTU alone.
const NO_LIMIT: u32 = 65_535;

/// Carries a command out. Returns what is to be printed on standard output, or nothing.
///
/// # Errors
///
/// Any of [`Code`]. An ADD that has failed has left nothing, unless `steps` ended it.
pub fn answer(request: &Request, mut steps: Steps) -> Result<Option<String>> {
    match request.command {
        Command::Add => add(request, &mut steps).map(|result| Some(result.to_string())),
        Command::Del => del(request, &mut steps).map(|()| None),
        Command::Check => check(request).map(|()| None),
        Command::Gc => gc(request).map(|()| None),
        Command::Status => status(request).map(|()| None),
    }
}

/// The answer to VERSION, whose input has the key `cniVersion` alone, or is empty.
#[must_use]
pub fn versions(input: &[u8]) -> String {
    let asked: Value = serde_json::from_slice(input).unwrap_or_default();
    let version = asked["cniVersion"].as_str().unwrap_or(VERSIONS[VERSIONS.len() - 1]);
    json!({ "cniVersion": version, "supportedVersions": VERSIONS }).to_string()
}

/// An address to which packets are discarded (RFC 6666).
const NOBODY: Ipv6Addr = Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0);

/// What belongs to one pod.
struct Subject<'a> {
    request: &'a Request,
    attachment: &'a Attachment,
    node: Node,
}

impl<'a> Subject<'a> {
    fn of(request: &'a Request) -> Result<Self> {
        let missing = || Failure::new(Code::Environment, "no container is named");
        let attachment = request.attachment.as_ref().ok_or_else(missing)?;
        Ok(Subject { request, attachment, node: Node::current()? })
    }

    fn key(&self) -> u64 {
        self.attachment.key(&self.request.network.name)
    }

    /// The pod's own address, from the previous result; `None`: it has IPv4.
    fn address(&self) -> Result<Option<Ipv6Net>> {
        let previous = self.request.network.previous.as_ref().ok_or_else(|| {
            Failure::new(Code::Configuration, "there is no prevResult")
                .details("fordway-cni is a chained plugin: list it after the one that gives pods their addresses")
        })?;
        Ok(match PodNetwork::of(previous, &self.attachment.interface)? {
            PodNetwork::HasIpv4 => None,
            PodNetwork::Ipv6Only(address) => Some(address),
        })
    }

    fn namespace(&self) -> Result<NetNs> {
        let path = self.request.netns.as_deref();
        let missing = || Failure::new(Code::Environment, "CNI_NETNS is not set");
        pod::open(path.ok_or_else(missing)?, &self.node)
    }

    fn clat(&self, pod: Ipv6Net) -> Result<Ipv6Addr> {
        address::derive(pod, self.request.network.own.clat_prefix)
    }

    fn prefix(&self) -> Result<Pool6> {
        prefix::find(self.request, &self.node)
    }

    fn wanted(&self, pod: Ipv6Net) -> Result<Wanted<'a>> {
        Ok(Wanted {
            interface: &self.attachment.interface,
            key: self.key(),
            clat: self.clat(pod)?,
            prefix: self.prefix()?,
        })
    }

    fn entry(&self, pod: Ipv6Net, clat: Ipv6Addr, programs: u64) -> Pod {
        Pod {
            key: self.key(),
            clat,
            address: pod.addr(),
            network: self.request.network.number(),
            programs,
            container: self.attachment.container.chars().take(fordway_bpf::POD_NAME_MAX).collect(),
            interface: self.attachment.interface.clone(),
        }
    }
}

/// The programs' configuration.
fn config(prefix: Pool6, allow_private: bool) -> Result<Config> {
    // Each pod's own address is in its entry; no packet is for this one (RFC 6666).
    let eam = Eam::new(Ipv4Net::from(V4), Ipv6Net::from(NOBODY));
    let table = eam.and_then(|eam| EamTable::new([eam]));
    let table = table.map_err(|error| Failure::new(Code::Configuration, error.to_string()))?;
    Ok(Config {
        pool6: vec![prefix],
        eam: table,
        mtu6: NO_LIMIT,
        lowest_ipv6_mtu: NO_LIMIT,
        allow_private,
        ipv4_translatable: false,
        hairpin: false,
        ..Config::default()
    })
}

fn add(request: &Request, steps: &mut Steps) -> Result<Value> {
    let subject = Subject::of(request)?;
    let previous = request.network.previous.clone().unwrap_or_default();
    let Some(pod) = subject.address()? else { return Ok(previous) };
    fordway_bpf::probe()?;
    let namespace = subject.namespace()?;
    let wanted = subject.wanted(pod)?;
    match make(&subject, &wanted, pod, &namespace, steps) {
        Ok(()) => Ok(previous),
        Err(failure) if failure.code == Code::Interrupted => Err(failure),
        Err(failure) => {
            // The first error is the one to report.
            let _ = remove(&subject, Some(&namespace), &mut Steps::all());
            Err(failure)
        }
    }
}

fn make(
    subject: &Subject<'_>,
    wanted: &Wanted<'_>,
    pod: Ipv6Net,
    namespace: &NetNs,
    steps: &mut Steps,
) -> Result<()> {
    let network = &subject.request.network;
    let link_layer_len = namespace.run(|| pod::link_layer_len(wanted.interface))??;
    steps.next("the pod's entry")?;
    let programs = subject.node.enter(
        |pods: &Pods| {
            let config = config(wanted.prefix, network.own.allow_private)?;
            Ok(pods.programs(&config, link_layer_len)?)
        },
        |programs| subject.entry(pod, wanted.clat, programs.id),
    )?;
    steps.next("the node's route")?;
    Node::route(pod.addr(), wanted.clat)?;
    namespace.run(|| wanted.make(&programs, steps))??;
    if subject.node.has(&subject.entry(pod, wanted.clat, programs.id))? {
        return Ok(());
    }
    Err(Failure::new(Code::Later, "the pod's entry was removed while the pod was made"))
}

/// Removes what a pod may have: first what others may use, and the entry last, which tells where to look. Without an entry
/// there is no route: another pod may have the address since.
fn remove(subject: &Subject<'_>, namespace: Option<&NetNs>, steps: &mut Steps) -> Result<()> {
    let interface = &subject.attachment.interface;
    let pods = subject.node.pods()?;
    let entry = pods.map(|pods| pods.get(subject.key())).transpose()?.flatten();
    let routed = entry.map(|(pod, _)| pod.clat);
    let derived = || subject.clat(subject.address().ok().flatten()?).ok();
    let clat = routed.or_else(derived);
    let was_begun = routed.is_some();
    let clear = |it: &NetNs| it.run(|| pod::clear(interface, clat, was_begun, steps))?;
    let cleared = namespace.map_or(Ok(()), clear);
    if cleared.as_ref().is_err_and(|failure| failure.code == Code::Interrupted) {
        return cleared;
    }
    if let Some(clat) = routed {
        steps.next("removing the node's route")?;
        Node::unroute(clat)?;
    }
    steps.next("removing the pod's entry")?;
    subject.node.leave(&[subject.key()])?;
    cleared
}

fn del(request: &Request, steps: &mut Steps) -> Result<()> {
    let subject = Subject::of(request)?;
    // DEL has to succeed where things are missing already.
    let namespace = subject.namespace().ok();
    remove(&subject, namespace.as_ref(), steps)
}

fn check(request: &Request) -> Result<()> {
    let subject = Subject::of(request)?;
    let Some(pod) = subject.address()? else { return Ok(()) };
    let wanted = subject.wanted(pod)?;
    let namespace = subject.namespace()?;
    let link_layer_len = namespace.run(|| pod::link_layer_len(wanted.interface))??;
    let config = config(wanted.prefix, request.network.own.allow_private)?;
    let id = fordway_bpf::pod_programs_id(&config, link_layer_len)?;
    let mut wrong = Vec::new();
    let pods = subject.node.pods()?;
    let entry = pods.as_ref().map(|pods| pods.get(subject.key())).transpose()?.flatten();
    match entry {
        None => wrong.push("the pod has no entry".to_owned()),
        Some((entry, _)) if entry != subject.entry(pod, wanted.clat, id) => {
            wrong.push(
                "the pod was made with another prefix, another address or another version of the plugin, \
                 or has lost its programs"
                    .to_owned(),
            );
        }
        Some(_) => {}
    }
    let programs = pods.map(|pods| pods.pinned(id)).transpose()?.flatten();
    if !Node::is_routed(pod.addr(), wanted.clat)? {
        wrong.push(format!("the node has no route to the CLAT's address {}", wanted.clat));
    }
    wrong.extend(namespace.run(|| wanted.check(programs.as_ref()))??);
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Code::Changed, "the pod's CLAT is not as it was made")
        .details(wrong.join("; ")))
}

fn gc(request: &Request) -> Result<()> {
    let node = Node::current()?;
    let Some(pods) = node.pods()? else { return node.leave(&[]) };
    let network = request.network.number();
    let is_valid =
        |key: u64| request.network.valid.as_ref().is_none_or(|valid| valid.contains(&key));
    let mut gone = Vec::new();
    for (pod, _) in pods.list()? {
        if pod.network == network && !is_valid(pod.key) {
            Node::unroute(pod.clat)?;
            gone.push(pod.key);
        }
    }
    node.leave(&gone)
}

fn status(request: &Request) -> Result<()> {
    let probed = fordway_bpf::probe();
    let node = Node::current()?;
    // Pins that somebody has removed: the stubs of these pods lead nowhere.
    if let Some(pods) = node.pods()? {
        let listed = pods.list()?;
        let lost = listed.iter().filter(|(pod, _)| !pods.has_programs(pod.programs)).count();
        if lost > 0 {
            let what = format!("{lost} pods have lost their programs");
            return Err(Failure::new(Code::Limited, what).details("recreate these pods"));
        }
    }
    probed?;
    let found = prefix::find(request, &node);
    found.map(drop).map_err(|failure| Failure { code: Code::NotAvailable, ..failure })
}
