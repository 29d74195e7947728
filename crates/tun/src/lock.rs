//! The lock that keeps a second process from joining a device.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use fordway_net::ProcessLock;

use crate::error::Error;

/// Takes the lock of the interface name `name` in the calling thread's network namespace. The kernel gives it back when
/// the process ends, however it ends.
pub(crate) fn lock(run_dir: &Path, name: &str) -> Result<ProcessLock, Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Lock { path, source }
    };
    let namespace = Path::new("/proc/thread-self/ns/net");
    let inode = namespace.metadata().map_err(failed(namespace))?.ino();
    let dir = run_dir.join("tun");
    DirBuilder::new().recursive(true).mode(0o755).create(&dir).map_err(failed(&dir))?;
    let path = dir.join(format!("{inode}-{name}.lock"));
    ProcessLock::acquire(&path).map_err(|error| match error {
        fordway_net::Error::Locked { path, pid } => {
            Error::Locked { name: name.to_owned(), pid, path }
        }
        fordway_net::Error::File { source, .. } => Error::Lock { path, source },
        other => Error::Lock { path, source: std::io::Error::other(other) },
    })
}
