//! Lock files, which the kernel unlocks when their process ends, however it
//! ends.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::{Error, Result};

/// A lock on the content of a directory, held for a moment.
#[derive(Debug)]
pub(crate) struct BriefLock {
    _file: File,
}

impl BriefLock {
    /// Waits for the lock.
    pub(crate) fn acquire(path: &Path) -> Result<Self> {
        let file = open(path).map_err(Error::file("open", path))?;
        loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(Self { _file: file }),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Error::file("lock", path)(error.into())),
            }
        }
    }
}

/// A lock held for as long as a process is the owner of something. The file
/// tells the process and goes with the lock.
#[derive(Debug)]
pub(crate) struct OwnerLock {
    _file: File,
    path: PathBuf,
}

impl OwnerLock {
    /// Takes the lock, or tells that another process has it (and which, where
    /// the file says).
    pub(crate) fn acquire(path: &Path) -> Result<std::result::Result<Self, Option<u32>>> {
        loop {
            let mut file = open(path).map_err(Error::file("open", path))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(Err(read_pid(&mut file))),
                Err(error) => return Err(Error::file("lock", path)(error.into())),
            }
            // The holder before us removes the file at its end: what we locked
            // may no longer be what others find under the path.
            if !is_current(&file, path).map_err(Error::file("look at", path))? {
                continue;
            }
            write_pid(&mut file).map_err(Error::file("write", path))?;
            return Ok(Ok(Self { _file: file, path: path.to_owned() }));
        }
    }
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        // Still locked: nobody else can have it. A file that stays behind does
        // no harm.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
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
