//! IPv4 through an IPv6 network: a tunnel end point in the box in the middle, and the client's end of the tunnel
//! (RFC 2473). The end point has the client's binding beforehand (RFC 7596), or the client asks for an address with
//! its first packet (DSTM). With two hops the hosts of a link share that address, which the kernel's NAT44 in the client's box gives them
//! (RFC 7596 section 5.1).

mod dstm;

use std::path::Path;

use fordway_data::addresses::{BOUND_V4, CLAT_V6, TUNNEL_END_V6};
use fordway_data::spec::{Kind, MechanismSpec};
use serde_json::{Value, json};

use super::fordway::{self, DEVICES, Fordway, entries};
use super::{Availability, Context, Counted, Deployed, Mechanism, nftables};
use crate::backend::Place;
use crate::error::Result;
use crate::topology::Network;

/// The client's end of the tunnel.
const DEVICE: &str = "softwire0";

/// One implementation at both ends.
pub(super) struct Softwire(Fordway);

impl Softwire {
    /// The gateway at both ends.
    pub(super) fn new(fordway: Option<&Path>) -> Self {
        Self(Fordway { program: fordway.map(Path::to_path_buf) })
    }
}

/// The arm as that of the end in the middle: an uplink is the client's, so there it stands at its interface.
fn end_point(arm: &MechanismSpec) -> MechanismSpec {
    attached(arm, |attach| if attach == "uplink" { "interface" } else { attach })
}

/// The arm as that of the client. The ingress is the end point's: with it the client stands at its uplink, and one that
/// asks for its address, which has no choice, at its interface.
fn client(arm: &MechanismSpec) -> MechanismSpec {
    let client = attached(arm, |attach| match (attach, arm.kind) {
        ("ingress" | "in-place" | "direct", Kind::Softwire) => "uplink",
        ("ingress" | "in-place" | "direct", _) => "interface",
        _ => attach,
    });
    MechanismSpec { entries: None, ..client }
}

fn attached(arm: &MechanismSpec, place: impl Fn(&str) -> &str) -> MechanismSpec {
    let attach = arm.attach.as_deref().map(|attach| place(attach).to_owned());
    MechanismSpec { attach, ..arm.clone() }
}

/// Options that say where the end point stands.
fn place(arm: &MechanismSpec) -> Vec<&str> {
    let mut options: Vec<&str> = Vec::new();
    if let Some(attach) = arm.attach.as_deref() {
        options.extend(fordway::at(attach));
        if fordway::point(attach).0 == "ingress" {
            options.extend(DEVICES);
        }
    }
    options
}

/// Options of the end point, which knows the client's binding.
fn bound(arm: &MechanismSpec) -> Vec<String> {
    let binding = format!("{BOUND_V4}={CLAT_V6}");
    let mut options = vec!["softwire", "--local", TUNNEL_END_V6, "--binding", &binding];
    options.extend(["--engine", engine(arm)]);
    options.extend(place(arm));
    options.into_iter().map(str::to_owned).collect()
}

fn engine(arm: &MechanismSpec) -> &str {
    arm.engine.as_deref().unwrap_or("auto")
}

impl Mechanism for Softwire {
    fn availability(&self, kind: Kind) -> Availability {
        if let Some(hint) = nftables::missing().filter(|_| kind == Kind::Softwire) {
            return Availability::Missing { hint };
        }
        self.0.availability(kind)
    }

    fn deploy(&self, context: Context<'_>) -> Result<Deployed> {
        let host = context.network.host.as_ref().ok_or_else(|| super::no_middle(context.spec))?;
        let (spec, asking) = (end_point(context.spec), client(context.spec));
        let near = &context.network.client;
        let names = ["tep", "client"].map(|part| format!("{}-{part}", context.name));
        let at_host = Context { name: &names[0], spec: &spec, ..context };
        let at_client = Context { name: &names[1], spec: &asking, ..context };
        let (tep, client) = if context.spec.kind == Kind::Dstm {
            let key = dstm::key(at_host)?;
            let tep = self.0.run(at_host, host, dstm::server(at_host, &key))?;
            (tep, self.0.run(at_client, near, dstm::client(&asking, &key))?)
        } else {
            let tep = self.0.run(at_host, host, bound(&spec))?;
            entries::fill(at_host, host, &tep)?;
            (tep, self.0.deploy(at_client)?)
        };
        let mut config = format!("{}\n{}", client.config, tep.config);
        let argv = [&client.argv[..], &[";".to_owned()], &tep.argv[..]].concat();
        let mut reader = Vec::new();
        if context.network.has_hosts_behind() {
            config.push_str(&nftables::masquerade(context.backend, near, DEVICE, context.name)?);
            reader = nftables::reader(context.backend, near);
        }
        Ok(Deployed { config, argv, reader, parts: vec![client, tep], ..Deployed::default() })
    }

    fn runs(&self, deployed: &Deployed, spec: &MechanismSpec) -> Result<Option<String>> {
        let client = self.0.runs(&deployed.parts[0], &client(spec))?;
        let tep = self.0.runs(&deployed.parts[1], &end_point(spec))?;
        Ok(client.zip(tep).map(|(client, tep)| format!("client: {client}; end point: {tep}")))
    }

    fn counters(&self, deployed: &Deployed) -> Result<Option<Value>> {
        let client = self.0.counters(&deployed.parts[0])?;
        let tep = self.0.counters(&deployed.parts[1])?;
        let nat = match deployed.reader.is_empty() {
            true => None,
            false => nftables::counters(deployed)?,
        };
        let told = client.is_some() || tep.is_some();
        Ok(told.then(|| json!({ "client": client, "tep": tep, "nat": nat })))
    }

    fn created(&self, before: &Value, after: &Value) -> Option<u64> {
        nftables::created(&before["nat"], &after["nat"])
    }

    fn tracks_connections(&self, kind: Kind) -> bool {
        kind == Kind::Softwire
    }

    fn tracks_at<'a>(&self, _spec: &MechanismSpec, network: &'a Network) -> Option<&'a Place> {
        network.has_hosts_behind().then_some(&network.client)
    }

    /// What passed both ends, so the lesser count of the two; and what either dropped.
    fn read(&self, before: &Value, after: &Value, to_v6: bool) -> Option<Counted> {
        // What the one wraps up in IPv6, the other takes out again.
        let client = self.0.read(&before["client"], &after["client"], to_v6)?;
        let tep = self.0.read(&before["tep"], &after["tep"], !to_v6)?;
        Some(client.and(tep))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fordway_data::spec::Experiment;

    #[test]
    fn each_end_stands_where_it_can() {
        let experiment = Experiment::find("interop-mechanisms").unwrap();
        let arm = experiment.mechanism("softwire-fordway-interface").unwrap();
        let at_uplink = MechanismSpec { attach: Some("uplink".into()), ..arm.clone() };
        assert_eq!(end_point(&at_uplink).attach.as_deref(), Some("interface"));
        let at_ingress = MechanismSpec { attach: Some("ingress".into()), ..arm.clone() };
        assert!(
            bound(&end_point(&at_ingress))
                .join(" ")
                .contains("--attach ingress --device to-client")
        );
        assert_eq!(client(&at_ingress).attach.as_deref(), Some("uplink"));
        let direct = MechanismSpec { attach: Some("direct".into()), ..arm.clone() };
        let argv = bound(&end_point(&direct)).join(" ");
        assert!(argv.contains("--attach ingress --forward direct --device to-client"), "{argv}");
        assert_eq!(client(&direct).attach.as_deref(), Some("uplink"));
        for attach in [at_ingress, direct] {
            let asking = MechanismSpec { kind: Kind::Dstm, ..attach };
            assert_eq!(client(&asking).attach.as_deref(), Some("interface"));
        }
        let user = MechanismSpec { engine: Some("user".into()), attach: None, ..arm.clone() };
        assert_eq!(end_point(&user).attach, None);
    }

    #[test]
    fn both_ends_count() {
        let stats = |up: u64, down: u64| {
            json!({"translators": [{"drops": {"queue_full": 0},
                "v4_to_v6": {"octets": up * 100, "packets": up},
                "v6_to_v4": {"octets": down * 100, "packets": down}}]})
        };
        let both = Softwire::new(None);
        let before = json!({"client": stats(0, 0), "tep": stats(0, 0)});
        let after = json!({"client": stats(10, 7), "tep": stats(8, 9)});
        assert_eq!(both.read(&before, &after, true).unwrap().packets, 9);
        assert_eq!(both.read(&before, &after, false).unwrap().packets, 7);
        assert_eq!(both.read(&before, &json!({}), true), None);
    }
}
