//! A mechanism on another host: the lab's end there deploys it, and is asked about it.

use std::sync::Arc;

use fordway_data::spec::{Kind, MechanismSpec};
use serde_json::Value;

use super::orders::{Deploy, Order, Placed};
use super::{Far, Held};
use crate::backend::Place;
use crate::error::{LabError, Result};
use crate::mechanism::{Availability, Context, Counted, Deployed, Forget, Mechanism, Memory, Room};
use crate::topology::Network;

/// One part of an arm, there.
pub(crate) struct There {
    /// The host.
    pub(crate) host: Arc<Far>,
    /// The implementation: it reads what counters say.
    pub(crate) own: Box<dyn Mechanism>,
    /// The arm that the network is for.
    pub(crate) arm: MechanismSpec,
    /// Whether veth devices keep their offloads.
    pub(crate) offloads: bool,
}

/// What a mechanism is called there.
fn handle(deployed: &Deployed) -> Result<u64> {
    let held = deployed.far.as_ref();
    held.map(|held| held.handle()).ok_or_else(|| LabError::Usage("it is not deployed there".into()))
}

/// A mechanism without what is measured on it, which the other host neither knows nor needs.
fn bare(spec: &MechanismSpec) -> MechanismSpec {
    MechanismSpec { metrics: Vec::new(), ..spec.clone() }
}

impl Mechanism for There {
    fn availability(&self, kind: Kind) -> Availability {
        self.own.availability(kind)
    }

    fn deploy(&self, context: Context<'_>) -> Result<Deployed> {
        let client = &context.network.client.0;
        let order = Order::Deploy(Box::new(Deploy {
            prefix: client.strip_suffix("client").unwrap_or(client).to_owned(),
            offloads: self.offloads,
            arm: bare(&self.arm),
            spec: bare(context.spec),
            name: context.name.to_owned(),
            sessions: context.room.sessions,
            pin: context.backend.pin().cloned(),
        }));
        let Placed { handle, config, argv } = self.host.ask(order)?;
        let logs = (context.name.to_owned(), context.logs.to_path_buf());
        let held = Held { host: self.host.clone(), handle, logs };
        Ok(Deployed { far: Some(Box::new(held)), config, argv, ..Deployed::default() })
    }

    fn runs(&self, deployed: &Deployed, spec: &MechanismSpec) -> Result<Option<String>> {
        self.host.ask(Order::Runs { handle: handle(deployed)?, spec: Box::new(bare(spec)) })
    }

    fn counters(&self, deployed: &Deployed) -> Result<Option<Value>> {
        self.host.ask(Order::Counters { handle: handle(deployed)? })
    }

    fn read(&self, before: &Value, after: &Value, to_v6: bool) -> Option<Counted> {
        self.own.read(before, after, to_v6)
    }

    fn created(&self, before: &Value, after: &Value) -> Option<u64> {
        self.own.created(before, after)
    }

    fn asked(&self, before: &Value, after: &Value) -> Option<u64> {
        self.own.asked(before, after)
    }

    fn requests(&self, before: &Value, after: &Value) -> Option<u64> {
        self.own.requests(before, after)
    }

    fn tracks_connections(&self, kind: Kind) -> bool {
        self.own.tracks_connections(kind)
    }

    fn tracks_at<'a>(&self, spec: &MechanismSpec, network: &'a Network) -> Option<&'a Place> {
        self.own.tracks_at(spec, network)
    }

    fn table_limit(&self, kind: Kind, room: Room) -> Option<u64> {
        self.own.table_limit(kind, room)
    }

    fn forget<'a>(&self, context: Context<'a>) -> Forget<'a> {
        self.own.forget(context)
    }

    fn memory(&self, deployed: &Deployed) -> Option<Memory> {
        // What cannot be told is none, as on one machine.
        self.host.ask(Order::Memory { handle: handle(deployed).ok()? }).ok().flatten()
    }
}
