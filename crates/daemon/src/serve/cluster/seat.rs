//! A gateway's seat in its cluster.

mod decide;
mod join;
mod shown;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fordway_cluster::Command;
use fordway_clusterd::{Ended, Error, Handle, Overview};
use fordway_control::{
    ClusterChange, ClusterPhase, ClusterState, ClusterStats, ClusterStatus, GatewayRow,
};
use fordway_counters::cluster::SharedTablesStats;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::apply::cluster::Gateways;
use crate::failure::Failure;
pub(super) use join::start;

/// Time that a member has for an answer.
const ANSWER: Duration = Duration::from_secs(5);
/// How long a gateway that ends waits for others to take its shards.
const LEAVE: Duration = Duration::from_secs(10);
/// How long routers have, after the routes of a gateway that has left are gone, to send nothing to it any more. What still comes is
/// handed over.
const HEARD: Duration = Duration::from_secs(1);
/// Between two looks meanwhile.
const LOOK: Duration = Duration::from_millis(10);

/// A gateway's seat in its cluster. Clones are the same one. The member goes on until the last one is dropped.
#[derive(Clone)]
pub(crate) struct Seat(Arc<Shared>);

struct Shared {
    gateways: Gateways,
    member: Handle,
    tables: Arc<SharedTablesStats>,
    /// How the member has ended.
    ended: Arc<OnceLock<Result<Ended, String>>>,
}

/// Told how a member has ended.
pub(crate) struct End(Arc<OnceLock<Result<Ended, String>>>);

impl Drop for End {
    fn drop(&mut self) {
        // Only a panic has told nothing before.
        let _ = self.0.set(Err("a fault in Fordway: its thread has ended".to_owned()));
    }
}

impl End {
    /// What the member's `run` has returned.
    pub(crate) fn tell(&self, how: &Result<Ended, Error>) {
        let how = how.as_ref().map_or_else(|error| Err(error.to_string()), |ended| Ok(*ended));
        // A member ends once.
        let _ = self.0.set(how);
    }
}

impl Seat {
    /// The seat of a member. A thread that scans the data path's tables keeps `tables` up to date.
    pub(crate) fn new(gateways: Gateways, member: Handle, tables: Arc<SharedTablesStats>) -> Seat {
        Seat(Arc::new(Shared { gateways, member, tables, ended: Arc::default() }))
    }

    /// Where to tell how the member has ended. It does not keep the member going.
    pub(crate) fn end(&self) -> End {
        End(Arc::clone(&self.0.ended))
    }

    /// Whether the member has ended by a fault, or since another process is in this one's place.
    pub(in crate::serve) fn failed(&self) -> bool {
        has_failed(self.0.ended.get())
    }

    /// Has the gateway leave the cluster, and waits until it has: others have its shards then, and routers know it.
    pub(super) async fn leave(&self) {
        let Shared { member, ended, .. } = &*self.0;
        let left = async {
            if member.command(Command::Leave).await {
                info!("cluster: giving all shards to other gateways; another signal ends the wait");
                while ended.get().is_none() {
                    sleep(LOOK).await;
                }
            }
        };
        if timeout(LEAVE, left).await.is_err() {
            warn!("cluster: others have not taken all shards within {} s", LEAVE.as_secs());
        } else if matches!(ended.get(), Some(Ok(Ended::Left))) {
            sleep(HEARD).await;
        }
    }

    /// The cluster, as this gateway sees it.
    pub(super) async fn status(&self) -> Result<ClusterStatus, Failure> {
        let Shared { gateways, tables, ended, .. } = &*self.0;
        Ok(match self.overview().await? {
            Some(overview) => shown::status(&overview, gateways, tables.get()),
            None => over(gateways, ended.get()),
        })
    }

    /// Has the gateway do something. Gives what was done, or begun, in words.
    pub(super) async fn change(&self, change: &ClusterChange) -> Result<String, Failure> {
        let Shared { gateways, member, .. } = &*self.0;
        let overview = self.overview().await?.ok_or_else(takes_no_part)?;
        let (command, text) = decide::command(change, &overview, gateways)?;
        let given = timeout(ANSWER, member.command(command)).await.map_err(|_| silent())?;
        if given { Ok(text) } else { Err(takes_no_part()) }
    }

    /// How the member stands; `None`: it has ended.
    async fn overview(&self) -> Result<Option<Overview>, Failure> {
        timeout(ANSWER, self.0.member.overview()).await.map_err(|_| silent())
    }
}

/// Whether a member that has ended so can't go on by itself, nor by a command.
fn has_failed(how: Option<&Result<Ended, String>>) -> bool {
    matches!(how, Some(Err(_) | Ok(Ended::Replaced)))
}

/// The cluster, as one sees it who has ended.
fn over(gateways: &Gateways, how: Option<&Result<Ended, String>>) -> ClusterStatus {
    let (phase, error) = match how {
        Some(Ok(Ended::Left)) => (ClusterPhase::Left, None),
        Some(Ok(Ended::Replaced)) => (ClusterPhase::Replaced, None),
        Some(Err(error)) => (ClusterPhase::Failed, Some(error.clone())),
        Some(Ok(Ended::Released)) | None => {
            (ClusterPhase::Failed, Some("the daemon is about to end".to_owned()))
        }
    };
    let name = gateways.name(gateways.me);
    let state = ClusterState { name, phase, error, ..ClusterState::default() };
    let rows = gateways.names.iter().map(|(member, name)| GatewayRow {
        name: name.clone(),
        this: *member == gateways.me,
        ..GatewayRow::default()
    });
    ClusterStatus {
        stats: ClusterStats { state, ..ClusterStats::default() },
        gateways: rows.collect(),
        shards: Vec::new(),
    }
}

fn takes_no_part() -> Failure {
    Failure::failed("this gateway takes no part in its cluster any more")
        .hint("fordway cluster status says why; a restart of the daemon joins again")
}

fn silent() -> Failure {
    Failure::failed("this gateway's part in the cluster does not answer in time")
        .hint("the host is too busy, or the daemon's log says more")
}

/// Why there is none.
pub(super) fn missing() -> Failure {
    Failure::failed("this daemon is in no cluster").hint("its configuration has no [cluster]")
}
