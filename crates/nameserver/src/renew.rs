//! Answers that are asked for again before they expire, so that clients of popular names never wait.
//!
//! A hit in the last tenth of an answer's life is a reason, if there was one before. What is due waits in a short queue of
//! the thread, whose task makes a bounded number of answers at once; what finds no room expires as usual.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::due::Due;
use super::resolve;
use super::worker::{Worker, encode};
use fordway_serve::{Network, spawn_here};

/// Answers that are being made at once, of each thread.
const AT_ONCE: usize = 64;
/// An answer is made of others that expire within so long of each other.
const MARGIN: Duration = Duration::from_secs(1);

/// Makes what is due; never ends.
pub(super) async fn run(worker: Rc<Worker>) {
    let room = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let due = worker.renewals.next().await;
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let worker = Rc::clone(&worker);
        spawn_here(async move {
            renew(&worker, due).await;
            drop(permit);
        });
    }
}

async fn renew(worker: &Worker, due: Due) {
    let Due { client, key, message, expires } = due;
    let active = worker.shared.active.load_full();
    if !key.is_under(active.settings.policies.of(client).0) {
        // Since then a reload has given the client another policy.
        return;
    }
    let limits = &active.settings.limits;
    let network = Network::of(client, limits.client_len);
    let Some(_place) = worker.shared.queries.take(limits.queries, Some(network), key.name()) else {
        return;
    };
    let flushes = active.ready.flushes();
    let left = Duration::from_millis(expires.saturating_sub(worker.now().millis));
    let made = resolve::resolve(&active, client, &message, left + MARGIN).await;
    let now = worker.now();
    if let Some((ready, true)) = encode(&active, made, now)
        && ready.expires() > expires
    {
        worker.counters().renewed.add(1);
        active.ready.insert(&key, ready, now.millis, flushes);
    }
}

#[cfg(test)]
mod tests;
