//! The certificate for clients that speak TLS, read again when its files change.

use std::fmt::{self, Display};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::error::Error;
use super::settings::Tls;
use super::worker::Transport;

/// How often the files are looked at.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// The certificate of a server. Connections take the one that is loaded when they begin.
pub(super) struct Certificate {
    files: Tls,
    loaded: Arc<ArcSwap<CertifiedKey>>,
    by_tls: TlsAcceptor,
    by_https: TlsAcceptor,
    watched: Mutex<Watched>,
    pub(super) reloaded: AtomicU64,
    pub(super) failed: AtomicU64,
}

/// What the files looked like.
struct Watched {
    /// When they were read.
    read: [Stamp; 2],
    /// At the last look.
    seen: [Stamp; 2],
}

/// What changes when a file does: device, inode, size, time of the last change in seconds and nanoseconds. `None`: there
/// is no file. A link counts as the file to which it leads.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

/// Gives clients what is loaded at this moment.
#[derive(Debug)]
struct Loaded(Arc<ArcSwap<CertifiedKey>>);

impl ResolvesServerCert for Loaded {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl Certificate {
    /// Reads a certificate and its key.
    pub(super) fn new(files: &Tls) -> Result<Self, Error> {
        let before = stamps(files);
        let loaded = Arc::new(ArcSwap::from_pointee(read(files)?));
        let acceptor =
            |alpn: &[u8]| acceptor(&loaded, alpn).map_err(|it| bad(&files.certificate, it));
        Ok(Certificate {
            files: files.clone(),
            by_tls: acceptor(b"dot")?,
            by_https: acceptor(b"h2")?,
            loaded,
            watched: Mutex::new(Watched { read: before, seen: before }),
            reloaded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    /// What takes connections.
    pub(super) fn acceptor(&self, transport: Transport) -> &TlsAcceptor {
        if transport == Transport::Https { &self.by_https } else { &self.by_tls }
    }

    /// Looks at the files, and reads them if they have changed and were the same at the last look: a certificate and its
    /// key may be written one after the other. If they are of no use, those that were read before stay, and the log says
    /// why. It waits for disks.
    pub(super) fn look(&self) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamps(&self.files);
        if now == watched.read || now != watched.seen {
            watched.seen = now;
            return;
        }
        watched.read = now;
        match read(&self.files) {
            Ok(loaded) => {
                self.loaded.store(Arc::new(loaded));
                self.reloaded.fetch_add(1, Ordering::Relaxed);
                tracing::info!("dns64: the changed certificate is in use");
            }
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                tracing::error!(
                    "{error}; the certificate that was read before stays in use. Write certificate and key whole, with \
                     permission for this program to read them"
                );
            }
        }
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("files", &self.files).finish_non_exhaustive()
    }
}

fn read(files: &Tls) -> Result<CertifiedKey, Error> {
    let certificates: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(&files.certificate)
            .and_then(Iterator::collect)
            .map_err(|error| bad(&files.certificate, error))?;
    if certificates.is_empty() {
        return Err(bad(&files.certificate, "no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| bad(&files.key, error))?;
    CertifiedKey::from_der(certificates, key, &ring::default_provider())
        .map_err(|error| bad(&files.certificate, error))
}

fn acceptor(
    loaded: &Arc<ArcSwap<CertifiedKey>>,
    alpn: &[u8],
) -> Result<TlsAcceptor, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Loaded(Arc::clone(loaded))));
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn stamps(files: &Tls) -> [Stamp; 2] {
    [&files.certificate, &files.key].map(|path| {
        let it = fs::metadata(path).ok()?;
        Some((it.dev(), it.ino(), it.size(), it.mtime(), it.mtime_nsec()))
    })
}

fn bad(path: &Path, reason: impl Display) -> Error {
    Error::Certificate { path: path.to_owned(), reason: reason.to_string() }
}
