//! What the threads in front of the daemon ask it. They serve its sockets without any capability: they read requests, and
//! what they hand over is what they have understood.

use std::io;

use tokio::sync::{mpsc, oneshot};
use tracing::error;

use super::handle::Handle;

/// How many requests wait; whoever has a further one waits himself.
const WAITING: usize = 16;

/// Something that the daemon's own thread is to do.
type Work = Box<dyn FnOnce(&Handle) + Send>;

/// The way to the daemon's own thread. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Requests(mpsc::Sender<Work>);

/// Its other end.
pub(crate) struct RequestQueue(mpsc::Receiver<Work>);

/// Both ends.
pub(crate) fn channel() -> (Requests, RequestQueue) {
    let (requests, queue) = mpsc::channel(WAITING);
    (Requests(requests), RequestQueue(queue))
}

impl Requests {
    /// Has `work` done between other requests, and waits for what comes of it.
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
            // Whoever has asked may have gone.
            let _ = reply.send(work(daemon));
        };
        self.0.send(Box::new(work)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())
    }
}

impl RequestQueue {
    /// Does what is asked, one after the other, for ever.
    pub(crate) async fn serve(mut self, daemon: Handle) {
        while let Some(work) = self.0.recv().await {
            let daemon = daemon.clone();
            // In a task, so that one that panics is the last of nobody else.
            if let Err(failed) = tokio::task::spawn_local(async move { work(&daemon) }).await {
                error!("a request has not been carried out: {failed}");
            }
        }
    }
}
