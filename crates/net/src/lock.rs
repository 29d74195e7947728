//! Lock files, which the kernel unlocks when their process ends, however it ends.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::folder::Folder;
use crate::{Error, Result};

/// How long a lock file may name no process.
const LOOK: Duration = Duration::from_secs(1);

/// A lock on what several processes change, held for a moment.
#[derive(Debug)]
pub struct BriefLock {
    _file: File,
}

impl BriefLock {
    /// Waits for the lock whose file is `path`, in a folder that exists. The holder may remove the file.
    ///
    /// # Errors
    ///
    /// [`Error::File`].
    pub fn acquire(path: &Path) -> Result<Self> {
        let (folder, name) = place(path).map_err(Error::file("open", path))?;
        Self::acquire_in(&folder, name)
    }

    /// As [`BriefLock::acquire`], of a file in a folder.
    pub(crate) fn acquire_in(folder: &Folder, name: &OsStr) -> Result<Self> {
        let path = &folder.path().join(name);
        loop {
            let file = folder.open_or_make_file(name).map_err(Error::file("open", path))?;
            match flock(&file, FlockOperation::LockExclusive) {
                Ok(()) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(Error::file("lock", path)(error.into())),
            }
            if folder.names(name, &file).map_err(Error::file("look at", path))? {
                return Ok(Self { _file: file });
            }
        }
    }
}

/// A lock held for as long as a process has something to itself. The file tells the process and goes with the lock.
#[derive(Debug)]
pub struct ProcessLock {
    _file: File,
    folder: Folder,
    name: OsString,
}

impl ProcessLock {
    /// Takes the lock whose file is `path`, in a folder that exists.
    ///
    /// Files of the same kind beside it, left by processes that were killed, are removed.
    ///
    /// # Errors
    ///
    /// [`Error::Locked`] if another process has it; [`Error::File`].
    pub fn acquire(path: &Path) -> Result<Self> {
        let (folder, name) = place(path).map_err(Error::file("open", path))?;
        Self::acquire_in(folder, name)
    }

    /// As [`ProcessLock::acquire`], of a file in a folder.
    pub(crate) fn acquire_in(folder: Folder, name: &OsStr) -> Result<Self> {
        let path = &folder.path().join(name);
        let deadline = Instant::now() + LOOK;
        loop {
            let mut file = folder.open_or_make_file(name).map_err(Error::file("open", path))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::INTR) => continue,
                Err(Errno::WOULDBLOCK) => {
                    let pid = read_pid(&mut file);
                    if pid.is_some_and(is_running) || Instant::now() >= deadline {
                        return Err(Error::Locked { path: path.to_owned(), pid });
                    }
                    // No running process is named in the file. Another process is testing whether the lock is stale,
                    // or has just taken it and writes its number next.
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
                Err(error) => return Err(Error::file("lock", path)(error.into())),
            }
            if folder.names(name, &file).map_err(Error::file("look at", path))? {
                write_pid(&mut file).map_err(Error::file("write", path))?;
                remove_dead_beside(&folder, name);
                return Ok(Self { _file: file, folder, name: name.to_owned() });
            }
        }
    }
}

impl Drop for ProcessLock {
    fn drop(&mut self) {
        // The lock is still held, so no other process has the file. If it stays behind, the next process removes it.
        let _ = self.folder.remove(&self.name);
    }
}

/// The folder and the name of a file. The folder may be a symbolic link, the file may not.
fn place(path: &Path) -> io::Result<(Folder, &OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    Ok((Folder::open(path.parent().unwrap_or(Path::new("")))?, name))
}

/// Removes files of locks that no process holds. They do no harm, so a failure to remove one is no error.
fn remove_dead_beside(folder: &Folder, name: &OsStr) {
    let Ok(entries) = fs::read_dir(folder.path()) else { return };
    let extension = |name: &OsStr| Path::new(name).extension().map(OsStr::to_owned);
    for other in entries.filter_map(|entry| Some(entry.ok()?.file_name())) {
        if other == name || extension(&other) != extension(name) {
            continue;
        }
        let Ok(file) = folder.open_file(&other) else { continue };
        let is_free = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        // The holder before may have removed its file, and another process may have made a new one.
        if is_free && folder.names(&other, &file).unwrap_or(false) {
            let _ = folder.remove(&other);
        }
    }
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn is_running(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    #[test]
    fn a_lock_is_for_one_and_only_its_owner_can_open_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("one.lock");
        let lock = ProcessLock::acquire(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let error = ProcessLock::acquire(&path).unwrap_err();
        let own = std::process::id();
        assert!(matches!(error, Error::Locked { pid: Some(pid), .. } if pid == own), "{error}");
        drop(lock);
        assert!(!path.exists());
        ProcessLock::acquire(&path).unwrap();
    }

    #[test]
    fn what_root_makes_in_a_services_folder_belongs_to_the_service() {
        if !fordway_testhost::is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(dir.path(), Some(12345), Some(12346)).unwrap();
        let path = dir.path().join("one.lock");
        let lock = ProcessLock::acquire(&path).unwrap();
        let made = path.metadata().unwrap();
        assert_eq!((made.uid(), made.gid()), (12345, 12346));
        drop(lock);
    }

    #[test]
    fn who_looks_whether_a_lock_is_dead_keeps_nobody_from_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("one.lock");
        let look = File::create(&path).unwrap();
        flock(&look, FlockOperation::LockExclusive).unwrap();
        thread::scope(|scope| {
            let lock = scope.spawn(|| ProcessLock::acquire(&path));
            let descriptors = || {
                fs::read_dir("/proc/self/fd")
                    .unwrap()
                    .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok())
            };
            while !lock.is_finished() && descriptors().filter(|target| *target == path).count() < 2
            {
                thread::yield_now();
            }
            fs::remove_file(&path).unwrap();
            drop(look);
            assert!(lock.join().unwrap().is_ok());
        });
    }

    #[test]
    fn files_of_killed_processes_are_removed_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let held = ProcessLock::acquire(&path("held.lock")).unwrap();
        for name in ["killed.lock", "other.json"] {
            fs::write(path(name), "4000000\n").unwrap();
        }
        let lock = ProcessLock::acquire(&path("new.lock")).unwrap();
        assert!(!path("killed.lock").exists());
        assert!(path("other.json").exists() && path("held.lock").exists());
        drop((held, lock));
    }
}
