//! An IPv6-only network whole (RFC 6877): a client-side translator, and a stateful one as its provider side.
//! DNS64 is the arm's name server and stands beside them.

use std::path::Path;

use fordway_data::spec::{Kind, MechanismSpec};
use serde_json::{Value, json};

use super::{Availability, Context, Counted, Deployed, Mechanism, Room};
use crate::backend::Place;
use crate::error::Result;
use crate::topology::Network;

/// One implementation in both roles.
pub(super) struct Xlat464 {
    clat: Box<dyn Mechanism>,
    plat: Box<dyn Mechanism>,
}

impl Xlat464 {
    /// The implementation of this name, twice.
    pub(super) fn new(implementation: &str, fordway: Option<&Path>) -> Result<Self> {
        let of = || super::of(implementation, fordway);
        Ok(Self { clat: of()?, plat: of()? })
    }
}

/// The arm as that of one of its two translators. The kernel engine stands at the interface, if the arm says so, and else where it
/// is fastest: in place at the client's uplink, and at the ingress of the devices of the box in the middle.
fn part(arm: &MechanismSpec, kind: Kind) -> MechanismSpec {
    let attach = match (arm.engine.as_deref(), arm.attach.as_deref(), kind) {
        (Some("kernel"), Some("interface"), _) => Some("interface".to_owned()),
        (Some("kernel"), _, Kind::Clat) => Some("uplink".to_owned()),
        (Some("kernel"), ..) => Some("ingress".to_owned()),
        _ => None,
    };
    MechanismSpec { kind, attach, resolver: None, ..arm.clone() }
}

impl Mechanism for Xlat464 {
    fn availability(&self, _kind: Kind) -> Availability {
        match self.plat.availability(Kind::Nat64) {
            Availability::Ready { .. } => self.clat.availability(Kind::Clat),
            missing @ Availability::Missing { .. } => missing,
        }
    }

    fn deploy(&self, context: Context<'_>) -> Result<Deployed> {
        let deploy = |mechanism: &dyn Mechanism, kind, what: &str| {
            let spec = part(context.spec, kind);
            let name = format!("{}-{what}", context.name);
            mechanism.deploy(Context { spec: &spec, name: &name, ..context })
        };
        let plat = deploy(self.plat.as_ref(), Kind::Nat64, "plat")?;
        let clat = deploy(self.clat.as_ref(), Kind::Clat, "clat")?;
        let config = format!("{}\n{}", clat.config, plat.config);
        let argv = [&clat.argv[..], &[";".to_owned()], &plat.argv[..]].concat();
        Ok(Deployed { config, argv, parts: vec![clat, plat], ..Deployed::default() })
    }

    fn runs(&self, deployed: &Deployed, spec: &MechanismSpec) -> Result<Option<String>> {
        let clat = self.clat.runs(&deployed.parts[0], &part(spec, Kind::Clat))?;
        let plat = self.plat.runs(&deployed.parts[1], &part(spec, Kind::Nat64))?;
        Ok(clat.zip(plat).map(|(clat, plat)| format!("CLAT: {clat}; PLAT: {plat}")))
    }

    fn counters(&self, deployed: &Deployed) -> Result<Option<Value>> {
        let clat = self.clat.counters(&deployed.parts[0])?;
        let plat = self.plat.counters(&deployed.parts[1])?;
        Ok((clat.is_some() || plat.is_some()).then(|| json!({ "clat": clat, "plat": plat })))
    }

    /// What passed both, so the lesser count of the two; and what either dropped.
    fn read(&self, before: &Value, after: &Value, to_v6: bool) -> Option<Counted> {
        // What the one turns into IPv6, the other turns into IPv4.
        let clat = self.clat.read(&before["clat"], &after["clat"], to_v6)?;
        let plat = self.plat.read(&before["plat"], &after["plat"], !to_v6)?;
        Some(clat.and(plat))
    }

    fn created(&self, before: &Value, after: &Value) -> Option<u64> {
        self.plat.created(&before["plat"], &after["plat"])
    }

    fn tracks_connections(&self, _kind: Kind) -> bool {
        self.plat.tracks_connections(Kind::Nat64)
    }

    fn tracks_at<'a>(&self, spec: &MechanismSpec, network: &'a Network) -> Option<&'a Place> {
        self.plat.tracks_at(&part(spec, Kind::Nat64), network)
    }

    fn table_limit(&self, _kind: Kind, room: Room) -> Option<u64> {
        self.plat.table_limit(Kind::Nat64, room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fordway_data::spec::Experiment;

    #[test]
    fn both_translators_run_the_arms_engine_each_in_its_place() {
        let experiment = Experiment::find("clat-vs-dual-stack").unwrap();
        let arm = experiment.mechanism("464xlat-fordway").unwrap();
        let of = |kind| part(arm, kind);
        assert_eq!(of(Kind::Clat).attach.as_deref(), Some("uplink"));
        assert_eq!(of(Kind::Nat64).attach.as_deref(), Some("ingress"));
        let interface = MechanismSpec { attach: Some("interface".into()), ..arm.clone() };
        for kind in [Kind::Clat, Kind::Nat64] {
            assert_eq!(part(&interface, kind).attach.as_deref(), Some("interface"));
        }
        let user = MechanismSpec { engine: Some("user".into()), ..arm.clone() };
        assert_eq!(part(&user, Kind::Clat).attach, None);
    }

    #[test]
    fn both_accounts_count_and_the_lesser_one_is_told() {
        let stats = |up: u64, down: u64| {
            json!({"translators": [{"drops": {"queue_full": 0},
                "v4_to_v6": {"octets": up * 100, "packets": up},
                "v6_to_v4": {"octets": down * 100, "packets": down}}]})
        };
        let both = Xlat464::new("fordway", None).unwrap();
        let before = json!({"clat": stats(0, 0), "plat": stats(0, 0)});
        // Up: the CLAT makes IPv6 of it, the PLAT IPv4.
        let after = json!({"clat": stats(10, 7), "plat": stats(8, 9)});
        assert_eq!(both.read(&before, &after, true).unwrap().packets, 9);
        assert_eq!(both.read(&before, &after, false).unwrap().packets, 7);
        assert_eq!(both.read(&before, &json!({}), true), None);
    }
}
