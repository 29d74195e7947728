//! A stateful gateway whose sessions another one is told of, to go on with them: both are a cluster, with one server of NATS, in the boxes
//! `host` and `standby`. All shards are those of the gateway in `host`. If the other one takes over, next hops move to it by VRRP, and
//! the store is with it, since it would be gone otherwise; of three servers two would remain.

mod conntrackd;
mod joold;
mod vrrp;

use std::fs::{Permissions, create_dir_all};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use fordway_data::addresses::{STANDBY_LINK_V4, STANDBY_LINK_V6};
use fordway_data::spec::{Kind, MechanismSpec, Standby as Role};
use serde_json::Value;

use super::fordway::{Fordway, ask, nat64};
use super::{Availability, Context, Counted, Deployed, Mechanism, Memory, run_dir};
use crate::backend::{Place, must};
use crate::error::{LabError, Result};
use crate::process::{self, Output, find_program};

/// Server of the store.
const NATS: &str = "nats-server";
/// Names of both gateways.
const NAMES: [&str; 2] = ["host.example", "standby.example"];
/// What shards they want: the standby wants none.
const WEIGHTS: [u16; 2] = [10_000, 1];
/// The cluster's key, which says where shards belong: by one of 150 keys a shard would be the standby's in spite of the weights.
const KEY: &str = "000102030405060708090a0b0c0d0e0f";
/// The default.
const TTL: Duration = Duration::from_millis(500);
/// How long both may take to find each other.
const JOINED: Duration = Duration::from_secs(20);
/// So long after it has taken its shards a gateway leaves new flows to its user engine (docs/cluster.md).
const QUIET: Duration = Duration::from_secs(1);

pub(super) use conntrackd::Pair;
pub(super) use joold::Joold;

/// The gateway, twice.
pub(super) struct Standby {
    fordway: Fordway,
    role: Role,
}

impl Standby {
    pub(super) fn new(fordway: Option<&Path>, role: Role) -> Self {
        Self { fordway: Fordway { program: fordway.map(Path::to_path_buf) }, role }
    }

    /// The server of the store, in a box.
    fn store(context: Context<'_>, place: &Place, number: usize) -> Result<Deployed> {
        let folder = run_dir(context).join("store").display().to_string();
        let config = format!(
            "server_name: lab\nlisten: \"[{}]:4222\"\njetstream {{ store_dir: \"{folder}\" }}\n",
            STANDBY_LINK_V6[number]
        );
        let file =
            context.backend.deploy(&format!("{}-store.conf", context.name), config.as_bytes())?;
        let argv = [NATS, "-c", &file.display().to_string()].map(str::to_owned);
        let log = context.logs.join(format!("{}-store.log", context.name));
        let daemon = context.backend.run(Some(place), &argv, Output::Log(&log))?;
        Ok(Deployed { config, argv: argv.into(), daemon: Some(daemon), ..Deployed::default() })
    }

    /// Starts one of both.
    fn gateway(
        &self,
        context: Context<'_>,
        place: &Place,
        own: usize,
        keys: &Path,
    ) -> Result<Deployed> {
        let store = STANDBY_LINK_V6[store_at(context.spec)];
        let config = nat64::table(context.spec, context.room) + &cluster(own, store, keys);
        let argv = self.fordway.by_file(context, "cluster", &config)?;
        self.fordway.started(context, place, argv, config)
    }
}

/// Where the store is: 0 with the gateway, 1 with the standby.
fn store_at(spec: &MechanismSpec) -> usize {
    usize::from(spec.standby == Some(Role::TakesOver))
}

/// The cluster, for one of both.
fn cluster(own: usize, store: &str, keys: &Path) -> String {
    let keys = keys.display();
    let name = NAMES[own];
    let ttl = process::patience(TTL).as_millis();
    let mut text = format!(
        "[cluster]\nname='{name}'\nttl='{ttl}ms'\nreplicate=['tcp', 'udp', 'icmp']\nkey_file='{keys}/key'\ncertificate='{keys}/{name}.pem'\n\
         key='{keys}/{name}.key'\nauthority='{keys}/authority.pem'\n\
         [cluster.store]\nservers=['nats://[{store}]:4222']\nreplicas=1\n"
    );
    for number in 0..NAMES.len() {
        let (name, weight) = (NAMES[number], WEIGHTS[number]);
        let (v6, v4) = (STANDBY_LINK_V6[number], STANDBY_LINK_V4[number]);
        text += &format!(
            "[[cluster.gateway]]\nnumber={number}\nname='{name}'\naddress='{v6}'\nnext_hop4='{v4}'\nweight={weight}\n"
        );
    }
    text
}

/// Writes the cluster's key and makes both gateways' certificates, as docs/cluster.md does.
fn keys(context: Context<'_>, host: &Place, folder: &Path) -> Result<()> {
    create_dir_all(folder).map_err(LabError::file(folder))?;
    std::fs::set_permissions(folder, Permissions::from_mode(0o700))
        .map_err(LabError::file(folder))?;
    let path = |name: &str, ending| folder.join(format!("{name}.{ending}")).display().to_string();
    let (authority, its_key) = (path("authority", "pem"), path("authority", "key"));
    let new = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    let new: Vec<&str> = new.split(' ').collect();
    let own = ["-subj", "/CN=lab", "-keyout", &its_key, "-out", &authority];
    must(context.backend, host, &[&new[..], &own].concat())?;
    for name in NAMES {
        let (key, certificate) = (path(name, "key"), path(name, "pem"));
        let (subject, names) = (format!("/CN={name}"), format!("subjectAltName=DNS:{name}"));
        let signed = ["-CA", &authority, "-CAkey", &its_key, "-subj", &subject, "-addext", &names];
        let what = ["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", &key];
        let argv = [&new[..], &signed, &what, &["-out", &certificate]].concat();
        must(context.backend, host, &argv)?;
    }
    let key = folder.join("key");
    std::fs::write(&key, KEY).map_err(LabError::file(&key))
}

/// What is missing until all shards are this gateway's, and the other one could go on with them.
fn missing(status: Option<&Value>) -> Option<String> {
    let Some(shards) = status.and_then(|it| it["shards"].as_array()).filter(|it| !it.is_empty())
    else {
        return Some("the gateway does not say how its shards are".into());
    };
    let is_covered = |it: &&Value| it["role"] == "owner" && it["covered"] == true;
    let rest: Vec<&Value> = shards.iter().filter(|it| !is_covered(it)).collect();
    let first = rest.first()?;
    Some(format!(
        "{} of {} shards are not held and covered, the first: {first}",
        rest.len(),
        shards.len()
    ))
}

impl Mechanism for Standby {
    fn availability(&self, kind: Kind) -> Availability {
        let moves = (self.role == Role::TakesOver).then_some(vrrp::KEEPALIVED);
        let mut needs = [NATS, "openssl"].into_iter().chain(moves);
        match needs.find(|program| find_program(program).is_none()) {
            Some(package) => Availability::Missing { hint: format!("apt-get install {package}") },
            None => self.fordway.availability(kind),
        }
    }

    fn deploy(&self, context: Context<'_>) -> Result<Deployed> {
        let none = || super::no_middle(context.spec);
        let host = context.network.host.as_ref().ok_or_else(none)?;
        let beside = context.network.standby.as_ref().ok_or_else(none)?;
        let folder = run_dir(context).join("keys");
        keys(context, host, &folder)?;
        let at = store_at(context.spec);
        let store = Self::store(context, [host, beside][at], at)?;
        let name = format!("{}-standby", context.name);
        let standby = self.gateway(Context { name: &name, ..context }, beside, 1, &folder)?;
        let mut owner = self.gateway(context, host, 0, &folder)?;
        owner.parts = vec![standby, store];
        if self.role == Role::TakesOver {
            owner.parts.extend(vrrp::start(context, [host, beside])?);
        }
        let mut lack = None;
        let ready = process::poll(JOINED, || {
            lack = missing(ask(&owner, "cluster status").as_ref());
            (owner.gone() || lack.is_none()).then_some(())
        })?;
        if ready.is_none() {
            return Err(LabError::NotReady {
                mechanism: context.spec.name.clone(),
                why: format!(
                    "the cluster of both gateways is not complete: {}",
                    lack.unwrap_or_default()
                ),
            });
        }
        std::thread::sleep(QUIET);
        Ok(owner)
    }

    fn runs(&self, deployed: &Deployed, spec: &MechanismSpec) -> Result<Option<String>> {
        self.fordway.runs(deployed, spec)
    }

    fn ran(&self, status: &Value, spec: &MechanismSpec) -> Result<()> {
        self.fordway.ran(status, spec)
    }

    fn counters(&self, deployed: &Deployed) -> Result<Option<Value>> {
        self.fordway.counters(deployed)
    }

    fn read(&self, before: &Value, after: &Value, to_v6: bool) -> Option<Counted> {
        self.fordway.read(before, after, to_v6)
    }

    fn created(&self, before: &Value, after: &Value) -> Option<u64> {
        self.fordway.created(before, after)
    }

    fn memory(&self, deployed: &Deployed) -> Option<Memory> {
        self.fordway.memory(deployed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_have_one_cluster_and_one_name_each() {
        let of = |own| -> toml::Table {
            toml::from_str(&cluster(own, STANDBY_LINK_V6[1], Path::new("/k"))).unwrap()
        };
        let (first, second) = (of(0), of(1));
        let [a, b] = [&first, &second].map(|table| table["cluster"].as_table().unwrap());
        assert_eq!(a["store"]["servers"][0].as_str(), Some("nats://[2001:db8:6::2]:4222"));
        assert_eq!((a["name"].as_str(), b["name"].as_str()), (Some(NAMES[0]), Some(NAMES[1])));
        assert_eq!((&a["gateway"], &a["store"]), (&b["gateway"], &b["store"]));
    }

    #[test]
    fn a_gateway_is_ready_when_its_standby_could_go_on_with_every_shard() {
        let of = |role, covered| {
            missing(Some(&json!({"shards": [
                {"role": "owner", "covered": true}, {"role": role, "covered": covered}]})))
        };
        assert_eq!(of("owner", true), None);
        assert!(of("owner", false).unwrap().starts_with("1 of 2 shards are not held and covered"));
        assert!(of("ready", true).unwrap().contains("ready"));
        for none in [None, Some(&Value::Null), Some(&json!({"shards": []}))] {
            assert!(missing(none).unwrap().contains("does not say"));
        }
    }
}
