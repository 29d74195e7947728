//! The lock that keeps a second process from joining a device.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::Error;

/// Holds the lock of one interface name in one network namespace.
///
/// The kernel gives the lock back when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct DeviceLock {
    _file: File,
    path: PathBuf,
}

impl DeviceLock {
    /// Takes the lock of `name` in the calling thread's network namespace.
    pub(crate) fn acquire(run_dir: &Path, name: &str) -> Result<Self, Error> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Lock { path, source }
        };
        let namespace = Path::new("/proc/thread-self/ns/net");
        let inode = namespace.metadata().map_err(failed(namespace))?.ino();
        let dir = run_dir.join("tun");
        DirBuilder::new().recursive(true).mode(0o755).create(&dir).map_err(failed(&dir))?;
        let path = dir.join(format!("{inode}-{name}.lock"));
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                // Whoever may read it may lock it, and keep the daemon from starting.
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&path)
                .map_err(failed(&path))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    return Err(Error::Locked {
                        name: name.to_owned(),
                        pid: read_pid(&mut file),
                        path,
                    });
                }
                Err(error) => return Err(failed(&path)(error.into())),
            }
            // The holder before us removes the file at its end: what we locked
            // may no longer be what others find under the path.
            if !is_current(&file, &path).map_err(failed(&path))? {
                continue;
            }
            write_pid(&mut file).map_err(failed(&path))?;
            return Ok(Self { _file: file, path });
        }
    }
}

impl Drop for DeviceLock {
    fn drop(&mut self) {
        // Still locked: nobody else can have it. A file that stays behind does
        // no harm.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn is_current(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match path.symlink_metadata() {
        Ok(theirs) => Ok(ours.ino() == theirs.ino() && ours.dev() == theirs.dev()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_the_owner_can_open_a_lock() {
        let dir = std::env::temp_dir().join(format!("fordway-lock-{}", std::process::id()));
        let lock = DeviceLock::acquire(&dir, "siit0").unwrap();
        let mode = lock.path.metadata().unwrap().permissions().mode();
        drop(lock);
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(mode & 0o777, 0o600);
    }
}
