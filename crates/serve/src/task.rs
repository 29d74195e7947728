//! Tasks of a thread.

use std::pin::Pin;

use tokio::task::{JoinHandle, spawn_local};

/// Starts a task on this thread, within its [`tokio::task::LocalSet`]. The future is boxed, or all of tokio's code for tasks
/// would be compiled for each sort of future.
pub fn spawn_here(future: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    spawn_boxed(Box::pin(future))
}

fn spawn_boxed(future: Pin<Box<dyn Future<Output = ()>>>) -> JoinHandle<()> {
    spawn_local(future)
}
