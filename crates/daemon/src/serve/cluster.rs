//! What clients ask about the cluster that the daemon is in, and what they want of it.
//!
//! The gateway's seat in the cluster answers from a thread of its own, so its answers are waited for on the threads of those who
//! ask, not on the daemon's.

#[cfg(feature = "cluster")]
mod seat;
#[cfg(not(feature = "cluster"))]
#[path = "cluster/without.rs"]
mod seat;

use std::io;

use fordway_control::{ClusterChange, ClusterStatus, Stats, Status};

use super::handle::Handle;
use super::requests::Requests;
use crate::failure::Failure;

pub(crate) use seat::Seat;

impl Handle {
    /// Whether a cluster shares a translator.
    pub(super) fn is_shared(&self, name: &str) -> bool {
        let state = self.state();
        let of_cluster = state.config.clustered().map(|(_, shared, _)| shared.name.as_str());
        state.translators.context.part.is_some() && of_cluster == Some(name)
    }

    /// Takes the seat in the cluster that the configuration names, if it does.
    pub(crate) fn join_cluster(&self) -> Result<(), Failure> {
        let state = &mut *self.state();
        let Some(part) = state.translators.context.part.clone() else { return Ok(()) };
        state.cluster = seat::start(&part, &state.translators.running)?;
        Ok(())
    }

    /// Gives it up: others have its shards then.
    pub(crate) async fn leave_cluster(&self) {
        let seat = self.state().cluster.take();
        if let Some(seat) = seat {
            seat.leave().await;
        }
    }

    fn seat(&self) -> Result<Seat, Failure> {
        self.state().cluster.clone().ok_or_else(seat::missing)
    }
}

/// The cluster, as this gateway sees it.
pub(super) async fn status(requests: &Requests) -> io::Result<Result<ClusterStatus, Failure>> {
    Ok(match requests.submit(Handle::seat).await? {
        Ok(seat) => seat.status().await,
        Err(failure) => Err(failure),
    })
}

/// Has the gateway do something. Gives what was done, or begun, in words.
pub(super) async fn change(
    requests: &Requests,
    change: ClusterChange,
) -> io::Result<Result<String, Failure>> {
    Ok(match requests.submit(Handle::seat).await? {
        Ok(seat) => seat.change(&change).await,
        Err(failure) => Err(failure),
    })
}

/// What the daemon runs, its seat included.
pub(super) async fn with_status(requests: &Requests) -> io::Result<Status> {
    let (status, seat) = requests.submit(|daemon| (daemon.status(), daemon.seat().ok())).await?;
    let cluster = told(seat).await.map(|cluster| cluster.stats.state);
    Ok(Status { cluster, ..status })
}

/// What the daemon has counted, its seat included.
pub(crate) async fn with_stats(requests: &Requests) -> io::Result<Stats> {
    let (stats, seat) = requests.submit(|daemon| (daemon.stats(), daemon.seat().ok())).await?;
    let cluster = told(seat).await.map(|cluster| cluster.stats);
    Ok(Stats { cluster, ..stats })
}

/// What the daemon waits for before it does all of its work, in words.
pub(crate) async fn waits_for(requests: &Requests) -> io::Result<Vec<String>> {
    let (mut waits, seat) =
        requests.submit(|daemon| (daemon.waits_for(), daemon.seat().ok())).await?;
    let state = told(seat).await.map(|cluster| cluster.stats.state);
    if let Some(state) = state.filter(|state| !state.translates()) {
        waits.push(format!("cluster: this gateway has no lease ({})", state.phase.word()));
    }
    Ok(waits)
}

/// What a seat tells. One that does not answer must not keep the rest back.
async fn told(seat: Option<Seat>) -> Option<ClusterStatus> {
    seat?.status().await.inspect_err(|failure| tracing::warn!("{}", failure.line())).ok()
}
