//! TLS towards clients: its certificate, and the protocols that clients speak inside.

use std::fmt;
use std::sync::Arc;

use fordway_certificates::{Certificates, Files};
use tokio_rustls::TlsAcceptor;

use super::error::Error;
use super::sockets::Transport;

/// What accepts connections, with the certificate of this moment.
pub(super) struct Tls {
    pub(super) certificates: Arc<Certificates>,
    by_tls: TlsAcceptor,
    by_https: TlsAcceptor,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.certificates.fmt(f)
    }
}

impl Tls {
    /// `None`: there is no certificate. Follows on `before`.
    pub(super) fn new(files: Option<&Files>, before: Option<&Tls>) -> Result<Option<Self>, Error> {
        let before = before.map(|it| &*it.certificates);
        let files = files.map(std::slice::from_ref).unwrap_or_default();
        let Some(certificates) = Certificates::new(files, before)? else { return Ok(None) };
        Ok(Some(Tls {
            by_tls: certificates.acceptor(&["dot"])?,
            by_https: certificates.acceptor(&["h2"])?,
            certificates: Arc::new(certificates),
        }))
    }

    /// What accepts connections of a transport.
    pub(super) fn acceptor(&self, transport: Transport) -> &TlsAcceptor {
        if transport == Transport::Https { &self.by_https } else { &self.by_tls }
    }
}
