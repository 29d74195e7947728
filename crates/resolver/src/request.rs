//! A question on its way to the task of a connection.

use std::time::Duration;

use tokio::sync::oneshot;

use super::error::AttemptError;

/// After so long without a question a connection is closed (RFC 7766 section 6.2.3).
pub(super) const IDLE: Duration = Duration::from_secs(10);

/// A question to be sent, and where its answer goes.
#[derive(Debug)]
pub(super) struct Request {
    /// The query; its identifier may be changed on the way.
    pub(super) query: Vec<u8>,
    /// The response, under the query's identifier.
    pub(super) answer: oneshot::Sender<Result<Vec<u8>, AttemptError>>,
}
