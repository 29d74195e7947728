//! Requests from the threads that serve the daemon's sockets. These threads have no capabilities; they parse requests and
//! hand over typed values.

use std::io;

use tokio::sync::{mpsc, oneshot};
use tracing::error;

use super::handle::Handle;

/// Requests that may be queued; the sender of a further one waits.
const WAITING: usize = 16;

/// Something that the daemon's own thread is to do.
type Work = Box<dyn FnOnce(&Handle) + Send>;

/// Sends requests to the daemon's own thread. Clones send to the same thread.
#[derive(Clone, Debug)]
pub(crate) struct Requests(mpsc::Sender<Work>);

/// Receives the requests that [`Requests`] sends.
pub(crate) struct RequestQueue(mpsc::Receiver<Work>);

/// The two ends of a queue of requests.
pub(crate) fn channel() -> (Requests, RequestQueue) {
    let (requests, queue) = mpsc::channel(WAITING);
    (Requests(requests), RequestQueue(queue))
}

impl Requests {
    /// Runs `work` on the daemon's thread, between other requests, and waits for its result.
    ///
    /// # Errors
    ///
    /// The daemon ends, or `work` has panicked.
    pub(crate) async fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Handle) -> T + Send + 'static,
    ) -> io::Result<T> {
        let gone = || io::Error::other("the daemon does not answer");
        let (reply, answer) = oneshot::channel();
        let work = move |daemon: &Handle| {
            // The client may have gone.
            let _ = reply.send(work(daemon));
        };
        self.0.send(Box::new(work)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())
    }
}

impl RequestQueue {
    /// Carries out requests one after the other, for ever.
    pub(crate) async fn serve(mut self, daemon: Handle) {
        while let Some(work) = self.0.recv().await {
            let daemon = daemon.clone();
            // In a task, so that a panic ends this request only.
            if let Err(failed) = tokio::task::spawn_local(async move { work(&daemon) }).await {
                error!("a request has failed: {failed}");
            }
        }
    }
}
