//! Certificates whose files are watched.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio_rustls::TlsAcceptor;

use super::super::error::Error;
use super::super::settings::Tls;
use super::{Loaded, acceptor_of, bad};

/// The certificates of a proxy. Connections take those that are loaded when they begin.
pub(in super::super) struct Certificates {
    files: Vec<Tls>,
    loaded: Arc<ArcSwap<Loaded>>,
    pub(in super::super) acceptor: TlsAcceptor,
    watched: Mutex<Watched>,
    pub(in super::super) reloaded: AtomicU64,
    pub(in super::super) failed: AtomicU64,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("files", &self.files).finish_non_exhaustive()
    }
}

/// What files looked like.
#[derive(Debug)]
struct Watched {
    /// When they were read.
    read: Vec<Stamp>,
    /// At the last look.
    seen: Vec<Stamp>,
}

/// What changes when a file does: device, inode, size, time of the last change in seconds and nanoseconds. `None`: there
/// is no file. A link, such as one of a Kubernetes secret, counts as the file to which it leads.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

impl Certificates {
    /// Reads certificates; `None`: there are none in the settings.
    pub(in super::super) fn new(files: &[Tls], http2: bool) -> Result<Option<Self>, Error> {
        let before = stamps(files);
        let Some(loaded) = Loaded::read(files)? else { return Ok(None) };
        let loaded = Arc::new(ArcSwap::from_pointee(loaded));
        let first = files.first().map_or(Path::new(""), |it| &it.certificate);
        let acceptor = acceptor_of(&loaded, http2).map_err(|error| bad(first, error))?;
        Ok(Some(Certificates {
            files: files.to_vec(),
            loaded,
            acceptor,
            watched: Mutex::new(Watched { read: before.clone(), seen: before }),
            reloaded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }))
    }

    /// Looks at the files, and reads them if they have changed and were the same at the last look: a certificate and its
    /// key may be written one after the other. If they are of no use, those that were read before stay, and the log says
    /// why. It waits for disks.
    pub(in super::super) fn look(&self) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamps(&self.files);
        if now == watched.read {
            watched.seen = now;
            return;
        }
        if now != watched.seen {
            watched.seen = now;
            return;
        }
        watched.read = now;
        let loaded = Loaded::read(&self.files);
        match loaded {
            Ok(Some(loaded)) => {
                self.loaded.store(Arc::new(loaded));
                self.reloaded.fetch_add(1, Ordering::Relaxed);
                tracing::info!("changed certificates are in use");
            }
            Ok(None) => {}
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                tracing::error!(
                    "{error}; the certificates that were read before stay in use. Write certificate and key whole, with \
                     permission for this program to read them"
                );
            }
        }
    }
}

fn stamps(files: &[Tls]) -> Vec<Stamp> {
    let stamp = |path: &Path| {
        let it = fs::metadata(path).ok()?;
        Some((it.dev(), it.ino(), it.size(), it.mtime(), it.mtime_nsec()))
    };
    files.iter().flat_map(|it| [stamp(&it.certificate), stamp(&it.key)]).collect()
}

#[cfg(test)]
mod tests;
