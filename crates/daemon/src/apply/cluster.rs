//! A gateway's part in its cluster: what its translator needs before it starts. The member is started behind it
//! (`serve/cluster`).

mod crossing;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use fordway_bpf::ShardGates;
use fordway_cluster::{Member, Settings};
use fordway_clusterd::{
    Announcement, ChannelSettings, Login, MemberSettings, Owners, PeerSettings, StoreSettings,
};
use fordway_config::{Cluster, ClusterLogin, Config, Engine, Nat64, Translator};
use fordway_xlat::nat64::Shards;
use fordway_xlat::nat64::replica::Replicated;
use ipnet::Ipv6Net;
use tracing::debug;

use crate::failure::Failure;
use crate::pins;
pub(crate) use crossing::Crossings;

/// Records of a shard that wait for acknowledgement at most.
const QUEUE: usize = 100_000;
/// One of so many shards moves away at a time: of several, each stands still for as long as all of them take.
const MOVES: u16 = 64;

/// The gateways of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Gateways {
    /// This one.
    pub(crate) me: Member,
    /// Their names.
    pub(crate) names: BTreeMap<Member, String>,
}

impl Gateways {
    pub(crate) fn name(&self, member: Member) -> String {
        let name = self.names.get(&member).cloned();
        name.unwrap_or_else(|| format!("number {}", member.0))
    }

    pub(crate) fn named(&self, name: &str) -> Result<Member, Failure> {
        let mut all = self.names.iter();
        all.find(|(_, it)| *it == name).map(|(member, _)| *member).ok_or_else(|| {
            let names = self.names.values().map(String::as_str).collect::<Vec<_>>().join(", ");
            Failure::failed(format!("no gateway is called {name}"))
                .hint(format!("the configuration has {names}"))
        })
    }
}

/// What a gateway of a cluster is told.
#[derive(Debug)]
pub(crate) struct Part {
    shards: Arc<Shards>,
    /// Their words, where programs in the kernel can read them.
    gates: Option<Arc<ShardGates>>,
    pub(crate) owners: Arc<Owners>,
    pub(crate) replicated: Replicated,
    pub(crate) gateways: Gateways,
    pub(crate) member: MemberSettings,
    pub(crate) announcement: Announcement,
    hops: Vec<crossing::Hop>,
}

impl Part {
    /// Reads what the configuration's files and the host say. `None`: there is no cluster.
    pub(crate) fn read(config: &Config) -> Result<Option<Arc<Part>>, Failure> {
        let Some((cluster, shared, nat64)) = config.clustered() else { return Ok(None) };
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim();
        let this = cluster.this(host).ok_or_else(|| {
            Failure::failed(format!("none of the cluster's gateways is this host, {host}")).hint(
                "write name = \"...\" into [cluster], one of the names of [[cluster.gateway]]",
            )
        })?;
        let key = key(&cluster.key_file)?;
        let map = cluster
            .shard_map(nat64, key)
            .map_err(|error| Failure::failed(format!("[cluster]: {error}")))?;
        let gates = gates(shared)?;
        let me = Member(this.number);
        let others = || cluster.gateways.iter().filter(|it| it.number != this.number);
        let names = cluster.gateways.iter().map(|it| (Member(it.number), it.name.clone()));
        let member = MemberSettings {
            protocol: Settings {
                me,
                host: machine(),
                process: getrandom::u64()?,
                weight: this.weight,
                shards: cluster.shards,
                key,
                config: cluster.hash(nat64, key),
                fencing: cluster.fencing,
                timing: cluster.timing(),
                queue: QUEUE,
                moves: cluster.shards.div_ceil(MOVES).into(),
            },
            store: store(cluster),
            channel: ChannelSettings {
                name: this.name.clone(),
                listen: this.address,
                peers: others()
                    .map(|it| PeerSettings {
                        member: Member(it.number),
                        name: it.name.clone(),
                        address: it.address,
                    })
                    .collect(),
                ca: cluster.authority.clone(),
                certificate: cluster.certificate.clone(),
                key: cluster.key.clone(),
            },
        };
        Ok(Some(Arc::new(Part {
            shards: Arc::new(match &gates {
                Some(gates) => Shards::with(map.clone(), Arc::clone(gates)),
                None => Shards::new(map.clone()),
            }),
            gates,
            owners: Arc::new(Owners::unknown(me, cluster.shards)),
            replicated: cluster.replicate,
            gateways: Gateways { me, names: names.collect::<BTreeMap<_, _>>() },
            member,
            announcement: Announcement {
                table: cluster.route_table,
                shards: map,
                pool6: pool6(nat64),
            },
            hops: others().map(|it| crossing::Hop::to(it, cluster)).collect(),
        })))
    }

    /// The shards of its translator's tables.
    pub(crate) fn shards(&self) -> Arc<Shards> {
        Arc::clone(&self.shards)
    }

    /// What programs in the kernel read of them.
    pub(crate) fn gates(&self) -> Option<Arc<ShardGates>> {
        self.gates.clone()
    }

    /// Pins it beside tables. `adopted`: they are those of an earlier process, and so are the epochs.
    pub(crate) fn keep_gates(&self, pins: &Path, adopted: bool) -> Result<(), Failure> {
        let Some(gates) = &self.gates else { return Ok(()) };
        if !adopted {
            (0..self.shards.number()).for_each(|shard| self.shards.set_epoch(shard, 0));
        }
        Ok(gates.pin(pins)?)
    }
}

/// A map for the words of shards, where programs are to read them. One that an earlier run has left is emptied: its programs
/// translate nothing from then on.
fn gates(shared: &Translator) -> Result<Option<Arc<ShardGates>>, Failure> {
    let name = shared.name.as_str();
    let opened = match shared.engine {
        Engine::User => return Ok(None),
        Engine::Kernel | Engine::Auto => ShardGates::open(&pins::dir(name)?),
    };
    match opened {
        Ok(gates) => Ok(Some(Arc::new(gates))),
        Err(error) if shared.engine == Engine::Kernel => {
            Err(Failure::from(error).prefix(&format!("{name}: ")))
        }
        Err(error) => {
            debug!("{name}: {error}");
            Ok(None)
        }
    }
}

fn pool6(nat64: &Nat64) -> Vec<Ipv6Net> {
    nat64.pool6.iter().map(|pool6| pool6.net()).collect()
}

fn store(cluster: &Cluster) -> StoreSettings {
    let store = &cluster.store;
    StoreSettings {
        servers: store.servers.clone(),
        bucket: store.bucket.clone(),
        replicas: store.replicas,
        login: match store.login.clone() {
            ClusterLogin::None => Login::None,
            ClusterLogin::Credentials(file) => Login::Credentials(file),
            ClusterLogin::Nkey(file) => Login::Nkey(file),
            ClusterLogin::Password(user, file) => Login::Password(user, file),
        },
        ca: store.authority.clone(),
        certificate: store.tls().map(|(certificate, key)| (certificate.clone(), key.clone())),
    }
}

/// The cluster's key: 32 hexadecimal digits.
fn key(file: &Path) -> Result<[u64; 2], Failure> {
    let shown = file.display();
    let text = fs::read_to_string(file)
        .map_err(|error| Failure::failed(format!("[cluster] key_file: {shown}: {error}")))?;
    let text = text.trim();
    let is_key = text.len() == 32 && text.bytes().all(|octet| octet.is_ascii_hexdigit());
    let key = u128::from_str_radix(text, 16).ok().filter(|_| is_key);
    let key = key.ok_or_else(|| {
        Failure::failed(format!("[cluster] key_file: {shown} has no 32 hexadecimal digits"))
            .hint(format!("make one, and copy it to all gateways: openssl rand -hex 16 >{shown}"))
    })?;
    Ok([(key >> 64) as u64, key as u64])
}

/// The host's identity: of the machine, or of this boot where it has none.
fn machine() -> u128 {
    let read = |file| {
        let text = fs::read_to_string(file).ok()?;
        u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()
    };
    read("/etc/machine-id").or_else(|| read("/proc/sys/kernel/random/boot_id")).unwrap_or(0)
}
