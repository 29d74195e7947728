//! Errors of the proxy.

use std::io;
use std::net::SocketAddr;

use super::settings::LogTarget;
use fordway_resolver as upstream;

/// Why a proxy can't be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A socket could not be opened.
    #[error("can't listen on {address} (TCP): {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// Names can't be looked up as the settings say.
    #[error(transparent)]
    Resolver(#[from] upstream::Error),
    /// A certificate or key is of no use.
    #[error(transparent)]
    Certificate(#[from] fordway_certificates::Error),
    /// The access log can't be opened.
    #[error("the access log {} can't be opened: {source}", show(target))]
    Log {
        /// Where it was to be.
        target: LogTarget,
        /// The system's error.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("can't start a thread of the proxy: {0}")]
    Thread(#[source] io::Error),
    /// [`Server::replace`](super::Server::replace) can't change this; start another server, then stop this one.
    #[error("a running proxy can't change `{0}`")]
    Fixed(&'static str),
}

fn show(target: &LogTarget) -> String {
    match target {
        LogTarget::Stdout => "on standard output".to_owned(),
        LogTarget::File(path) => path.display().to_string(),
    }
}
