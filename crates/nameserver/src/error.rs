//! Errors of the server.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use fordway_resolver as upstream;

/// Why a server can't be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A socket could not be opened. The kind of the source tells: `AddrInUse`, `PermissionDenied`, `AddrNotAvailable`.
    #[error("can't listen on {address} ({transport}): {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// `UDP` or `TCP`.
        transport: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The upstream servers, or what is needed to ask them.
    #[error(transparent)]
    Upstream(#[from] upstream::Error),
    /// A certificate or its key is of no use.
    #[error(transparent)]
    Certificate(#[from] fordway_certificates::Error),
    /// The file with the secrets of server cookies is not as it should be.
    #[error("{}: {reason}", path.display())]
    CookieSecret {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The system has no random octets.
    #[error("no random octets: {0}")]
    Random(#[source] io::Error),
    /// A thread could not be started.
    #[error("can't start a thread of the DNS64 server: {0}")]
    Thread(#[source] io::Error),
    /// [`Server::replace`](super::Server::replace) can't change this; start another server, then stop this one.
    #[error("a running server can't change `{0}`")]
    Fixed(&'static str),
}
