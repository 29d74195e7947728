//! The member of a cluster, started behind the engine of the translator that gateways share.
//!
//! It runs on a thread without privileges, since it reads what other gateways and servers of the store send; one more
//! thread, with privileges, keeps the announced routes.

use std::sync::{Arc, mpsc};

use fordway_clusterd::{Announced, Member, Tables, TablesSettings};
use tokio::sync::Notify;
use tracing::{error, info};

use super::Seat;
use crate::apply::cluster::Part;
use crate::apply::privilege;
use crate::apply::running::Running;
use crate::apply::stateful::grace;
use crate::failure::Failure;

/// Starts the member, for the translator that all gateways share.
pub(in super::super) fn start(part: &Part, running: &[Running]) -> Result<Option<Seat>, Failure> {
    let shared = running.iter().find(|one| one.config.nat64().is_some());
    let Some(shared) = shared else { return Ok(None) };
    let wake = Arc::new(Notify::new());
    let (engine, stats) = (shared.engine.tables(), Arc::default());
    let settings = TablesSettings {
        replicated: part.replicated,
        wake: Arc::clone(&wake),
        owners: Arc::clone(&part.owners),
        stats: Arc::clone(&stats),
        ways: shared.ways(),
        programs: shared.has_maps().then_some(grace as fn()),
    };
    let failed = |error: &dyn std::fmt::Display| Failure::failed(format!("[cluster]: {error}"));
    let tables = privilege::without((), |()| Tables::start(engine, settings));
    let tables = tables.map_err(|(failure, _)| failure)?.map_err(|error| failed(&error))?;
    let data = Announced::new(tables, part.announcement.clone())?;
    let (member, gateways) = (part.member.clone(), part.gateways.clone());
    let (tell, told) = mpsc::sync_channel(1);
    privilege::apart("fordway-cluster", move || async move {
        let made = Member::new(member, data, wake).await;
        let (member, handle) = match made {
            Ok(made) => made,
            Err(error) => return drop(tell.send(Err(error))),
        };
        let seat = Seat::new(gateways, handle, stats);
        let end = seat.end();
        if tell.send(Ok(seat)).is_err() {
            return;
        }
        let how = member.run().await;
        match &how {
            Ok(how) => info!("cluster: ended ({how:?})"),
            Err(why) => error!("cluster: {why}; nothing is translated"),
        }
        end.tell(&how);
    })?;
    let seat = told.recv().map_err(|_| Failure::failed("[cluster]: the member panicked"))?;
    seat.map(Some).map_err(|error| failed(&error))
}
