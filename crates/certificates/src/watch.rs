//! Certificates whose files are watched.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, TryLockError};

use arc_swap::ArcSwap;
use fordway_counters::SharedCounter;
use tokio_rustls::TlsAcceptor;

use super::{Certificate, Error, Files, Loaded, bad, config, read};

/// The certificates of a server. Connections take those that are loaded when they begin.
pub struct Certificates {
    files: Vec<Files>,
    loaded: Arc<ArcSwap<Loaded>>,
    watched: Mutex<Vec<Watched>>,
    /// What became of changes.
    pub counts: Arc<Counts>,
}

/// How often files have changed, from the first settings with certificates on.
#[derive(Debug, Default)]
pub struct Counts {
    /// Those that are in use.
    pub reloaded: SharedCounter,
    /// Those that were of no use.
    pub failed: SharedCounter,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("files", &self.files).finish_non_exhaustive()
    }
}

/// One certificate and its key, and what their files looked like.
struct Watched {
    certificate: Certificate,
    /// When they were read.
    read: [Stamp; 2],
    /// At the last look.
    seen: [Stamp; 2],
}

/// What changes when a file does: device, inode, size, and the times of the last change of its data and of its inode, in
/// seconds and nanoseconds. The latter changes with a file that is written by a tool that keeps the former. `None`: there
/// is no file. A link, such as one of a Kubernetes secret, counts as the file to which it leads.
type Stamp = Option<(u64, u64, u64, [i64; 4])>;

impl Certificates {
    /// Reads certificates; `None`: there are none. Goes on with the counts of `before`. A client that asks for no name, or
    /// for one that no certificate has, gets the first.
    ///
    /// # Errors
    /// The file that is of no use, and why.
    pub fn new(files: &[Files], before: Option<&Certificates>) -> Result<Option<Self>, Error> {
        let watch = |files: &Files| {
            let seen = stamps(files);
            Ok(Watched { certificate: read(files)?, read: seen, seen })
        };
        let watched = files.iter().map(watch).collect::<Result<Vec<_>, Error>>()?;
        let Some(loaded) = Loaded::of(&watched) else { return Ok(None) };
        Ok(Some(Certificates {
            files: files.to_vec(),
            loaded: Arc::new(ArcSwap::from_pointee(loaded)),
            watched: Mutex::new(watched),
            counts: before.map_or_else(Arc::default, |it| Arc::clone(&it.counts)),
        }))
    }

    /// What accepts connections of clients that speak one of these protocols (ALPN), the first before the others.
    ///
    /// # Errors
    /// The first certificate, and why it can't be used.
    pub fn acceptor(&self, protocols: &[&str]) -> Result<TlsAcceptor, Error> {
        let first = self.files.first().map_or(Path::new(""), |it| &it.certificate);
        let config = config(&self.loaded, protocols).map_err(|error| bad(first, error))?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Looks at the files, and reads those that have changed and were the same at the last look: a certificate and its
    /// key may be written one after the other. If they are of no use, what was read of them before stays, and the log says
    /// why; others are not held up by them. It waits for disks; while another look does, it does nothing.
    pub fn look(&self) {
        let mut watched = match self.watched.try_lock() {
            Ok(watched) => watched,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let mut is_new = false;
        for (files, it) in self.files.iter().zip(watched.iter_mut()) {
            let now = stamps(files);
            let rests = now == it.seen;
            it.seen = now;
            if now == it.read || !rests {
                continue;
            }
            it.read = now;
            match read(files) {
                Ok(certificate) => {
                    it.certificate = certificate;
                    is_new = true;
                    self.counts.reloaded.count();
                    tracing::info!("{} has changed and is in use", files.certificate.display());
                }
                Err(error) => {
                    self.counts.failed.count();
                    tracing::error!(
                        "{error}; the certificate that was read before stays in use. Write certificate and key whole, \
                         with permission for this program to read them"
                    );
                }
            }
        }
        if is_new && let Some(loaded) = Loaded::of(&watched) {
            self.loaded.store(Arc::new(loaded));
        }
    }
}

impl Loaded {
    /// The certificates of all files; the first of a name is taken. `None`: there are none.
    fn of(watched: &[Watched]) -> Option<Loaded> {
        let default = Arc::clone(&watched.first()?.certificate.0);
        let mut by_name = HashMap::new();
        for Watched { certificate: (key, names), .. } in watched {
            for name in names {
                by_name.entry(name.clone()).or_insert_with(|| Arc::clone(key));
            }
        }
        Some(Loaded { default, by_name })
    }
}

fn stamps(files: &Files) -> [Stamp; 2] {
    [&files.certificate, &files.key].map(|path| {
        let it = fs::metadata(path).ok()?;
        let times = [it.mtime(), it.mtime_nsec(), it.ctime(), it.ctime_nsec()];
        Some((it.dev(), it.ino(), it.size(), times))
    })
}

#[cfg(test)]
mod tests;
