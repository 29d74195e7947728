//! The control socket's file: accessible to its owner alone, replaced if its daemon is dead, refused if it runs.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::failure::Failure;

/// Removes the socket's file at the end.
#[derive(Debug)]
pub(crate) struct Guard {
    socket: PathBuf,
    /// Locked as long as the daemon lives, however it ends.
    _lock: File,
}

/// Listens on `socket`, which only its owner may use.
///
/// A file that a dead daemon left is replaced. Whether the other is dead is told by a lock beside
/// the socket, so that two that start at once can't both win.
pub(crate) fn listen(socket: &Path) -> Result<(UnixListener, Guard), Failure> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        Failure::failed(format!("cannot {what} the control socket {}: {error}", socket.display()))
            .hint("name another with --socket or [control] socket")
    };
    // Before anything is made.
    if SocketAddr::from_pathname(socket).is_err() {
        return Err(failed("listen on", &"a socket's path has at most 107 octets"));
    }
    if let Some(parent) = socket.parent() {
        let mut dir = DirBuilder::new();
        dir.recursive(true).mode(0o755);
        dir.create(parent).map_err(|error| failed("make the folder of", &error))?;
    }
    let lock = lock(socket)?;
    match std::fs::symlink_metadata(socket) {
        // A mistyped path must not delete a file.
        Ok(found) if !found.file_type().is_socket() => {
            return Err(failed("make", &"there is a file of this name, and it is no socket"));
        }
        // The socket of a program that does not lock it.
        Ok(_) if !is_dead(socket) => {
            return Err(failed("replace", &"another program listens on it"));
        }
        _ => {}
    }
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(failed("replace", &error));
        }
        _ => {}
    }
    // The file is never open to others, not even between making it and changing its mode. The
    // process has one thread at this time, so no other file is affected.
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(socket);
    rustix::process::umask(before);
    let listener = bound.map_err(|error| failed("listen on", &error))?;
    listener.set_nonblocking(true).map_err(|error| failed("listen on", &error))?;
    Ok((listener, Guard { socket: socket.to_owned(), _lock: lock }))
}

/// Whether a socket has no listener any more.
fn is_dead(socket: &Path) -> bool {
    let connected = UnixStream::connect(socket);
    connected.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

fn lock(socket: &Path) -> Result<File, Failure> {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    let path = PathBuf::from(path);
    let failed = |error: &dyn std::fmt::Display| {
        Failure::failed(format!("cannot lock {}: {error}", path.display()))
    };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        // In a folder where others may write, the name may lead anywhere.
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(&path)
        .map_err(|error| failed(&error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let _ = file.take(16).read_to_string(&mut pid);
            let pid = pid.trim().parse::<u32>().map_or(String::new(), |pid| format!(" {pid}"));
            return Err(Failure::failed(format!(
                "the control socket {} belongs to a running daemon, process{pid}",
                socket.display()
            ))
            .hint("stop that one, or name another socket with --socket or [control] socket"));
        }
        Err(TryLockError::Error(error)) => return Err(failed(&error)),
    }
    file.set_len(0).map_err(|error| failed(&error))?;
    writeln!(file, "{}", std::process::id()).map_err(|error| failed(&error))?;
    Ok(file)
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The lock's file stays: removing it would let two daemons lock two files of one name.
        let _ = std::fs::remove_file(&self.socket);
    }
}
