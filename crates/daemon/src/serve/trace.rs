//! A trace that a client asks for.

use fordway_control::TraceLine;
use tokio::sync::{mpsc, oneshot};

use super::handle::Handle;
use crate::apply::tracing::{Listener, WAITING};
use crate::failure::Failure;
use crate::trace::Filter;

/// A listener's end. Dropping it ends the listening, and with the last one the tracing.
pub(crate) struct Subscription {
    pub(crate) lines: mpsc::Receiver<TraceLine>,
    _listening: oneshot::Sender<()>,
}

impl Handle {
    /// Lets a translator's packets be told, from now on.
    pub(crate) fn trace(&self, name: &str, filter: Filter) -> Result<Subscription, Failure> {
        let number = self.next_number();
        let (sender, lines) = mpsc::channel(WAITING);
        let listener = Listener { number, filter, lines: sender };
        let subscribed = self.with(name, |one| one.subscribe(listener));
        subscribed.unwrap_or_else(|| Err(self.unknown(name)))?;
        let (listening, gone) = oneshot::channel::<()>();
        let (daemon, name) = (self.clone(), name.to_owned());
        tokio::task::spawn_local(async move {
            // Nothing is ever sent: it ends when the listener's end is dropped.
            let _ = gone.await;
            daemon.with(&name, |one| one.unsubscribe(number));
        });
        Ok(Subscription { lines, _listening: listening })
    }
}
