//! The files of the control socket, for its owner alone, and of the socket for reading beside it, for a group too. They are
//! replaced if their daemon is dead; a daemon that runs is refused.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError, set_permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use fordway_control::read_socket;
use rustix::fs::{AtFlags, Gid, Mode, OFlags};
use tracing::warn;

use crate::failure::Failure;

/// Removes the sockets' files at the end.
#[derive(Debug)]
pub(crate) struct Guard {
    sockets: Vec<PathBuf>,
    /// Locked as long as the daemon lives, however it ends.
    _lock: File,
}

/// What the daemon listens on.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) control: UnixListener,
    /// For members of a group, who may read.
    pub(crate) read: Option<UnixListener>,
}

/// Listens on `control`, which only its owner may use, and on the socket for reading if `readers` is a group.
///
/// Files that a dead daemon left are replaced. A lock beside the socket, which every daemon holds until it ends, shows whether
/// the daemon that made it is dead; of two that start at once, one gets the lock.
pub(crate) fn listen(
    control: &Path,
    readers: Option<Readers>,
) -> Result<(Listeners, Guard), Failure> {
    // Before anything is made.
    check_length(control)?;
    if let Some(parent) = control.parent() {
        let mut dir = DirBuilder::new();
        dir.recursive(true).mode(0o755);
        let made = dir.create(parent);
        made.map_err(|error| failed(control, "make the folder of", &error))?;
    }
    let lock = lock(control)?;
    let mut guard = Guard { sockets: Vec::new(), _lock: lock };
    let listener = bind(control)?;
    guard.sockets.push(control.to_owned());
    let read = match readers {
        None => None,
        Some(Readers { group, is_named }) => {
            let socket = read_socket(control);
            let listener = bind(&socket)?;
            match open_to(&socket, group) {
                Ok(()) => {
                    guard.sockets.push(socket);
                    Some(listener)
                }
                Err(error) => {
                    let _ = std::fs::remove_file(&socket);
                    let failure = failed(&socket, "give a group access to", &error);
                    if is_named {
                        return Err(failure);
                    }
                    // Nobody has asked for it. Without CAP_CHOWN there is no socket for reading.
                    warn!("{}", failure.line());
                    None
                }
            }
        }
    };
    Ok((Listeners { control: listener, read }, guard))
}

/// A group whose members may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Readers {
    group: u32,
    /// The configuration names it.
    is_named: bool,
}

/// Lets a group use a socket that was bound here, and nothing that somebody has put in its place since.
fn open_to(socket: &Path, group: u32) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(socket, flags, Mode::empty())?);
    let found = file.metadata()?;
    let is_ours = found.uid() == rustix::process::geteuid().as_raw() && found.nlink() == 1;
    if !found.file_type().is_socket() || !is_ours {
        return Err(io::Error::other("it was replaced"));
    }
    rustix::fs::chownat(&file, "", None, Some(Gid::from_raw(group)), AtFlags::EMPTY_PATH)?;
    // The link leads to what is open, whatever has the socket's name. Linux before 6.6 has no other way.
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    set_permissions(open, Permissions::from_mode(0o660))
}

/// The group whose members may read; `None`: there is none. `wanted` is its number, or its name in /etc/group; without it,
/// the group `fordway` if there is one.
pub(crate) fn readers(wanted: Option<&str>) -> Result<Option<Readers>, Failure> {
    let readers = |group| Readers { group, is_named: wanted.is_some() };
    if let Some(number) = wanted.and_then(|wanted| wanted.parse().ok()) {
        return Ok(Some(readers(number)));
    }
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    match (group_of(&groups, wanted.unwrap_or("fordway")), wanted) {
        (None, Some(name)) => {
            Err(Failure::failed(format!("there is no group {name}, as [control] read_group says"))
                .hint(format!(
                    "groupadd --system {name}, or leave read_group out; a group that is not in /etc/group has a \
                     number (getent group {name})"
                )))
        }
        (group, _) => Ok(group.map(readers)),
    }
}

/// The number of a group in a file as /etc/group is.
fn group_of(groups: &str, name: &str) -> Option<u32> {
    let mut lines = groups.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| {
        (fields.next() == Some(name)).then(|| fields.nth(1)).flatten()?.parse().ok()
    })
}

fn failed(socket: &Path, what: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::failed(format!("cannot {what} the control socket {}: {error}", socket.display()))
        .hint("name another with --socket or [control] socket")
}

fn check_length(socket: &Path) -> Result<(), Failure> {
    match SocketAddr::from_pathname(socket) {
        Ok(_) => Ok(()),
        Err(_) => Err(failed(socket, "listen on", &"a socket's path has at most 107 octets")),
    }
}

/// Listens on a socket that only its owner may use.
fn bind(socket: &Path) -> Result<UnixListener, Failure> {
    check_length(socket)?;
    let failed = |what: &str, error: &dyn std::fmt::Display| failed(socket, what, error);
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
    Ok(listener)
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
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
        .open(&path)
        .map_err(|error| failed(&error))?;
    let found = file.metadata().map_err(|error| failed(&error))?;
    if !found.is_file() || found.nlink() > 1 {
        return Err(failed(&"it is no regular file with one name"));
    }
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
        for socket in &self.sockets {
            let _ = std::fs::remove_file(socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_a_number_or_is_not_there() {
        let groups = "root:x:0:\nfordways:x:7:\nfordway:x:998:alice,bob\nbroken\nworse:x:many:\n";
        let number = |name| group_of(groups, name);
        assert_eq!(number("fordway"), Some(998));
        assert_eq!(number("root"), Some(0));
        for missing in ["ford", "broken", "worse", "x", ""] {
            assert_eq!(number(missing), None, "{missing}");
        }
        assert_eq!(readers(Some("998")).unwrap(), Some(Readers { group: 998, is_named: true }));
        let error = readers(Some("no-such-group")).unwrap_err().line();
        assert!(error.contains("no group no-such-group"), "{error}");
    }

    /// Who may write to the folder can replace a socket after it was bound, with what leads to a file of others.
    #[test]
    fn what_was_put_in_the_place_of_a_socket_is_not_opened_to_readers() {
        let dir = tempfile::TempDir::new().unwrap();
        let (socket, theirs) = (dir.path().join("read.sock"), dir.path().join("theirs.sock"));
        // Any group is possible for root, and one's own for others.
        let group = rustix::process::getegid().as_raw();
        let rights = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let _bound = [bind(&socket).unwrap(), bind(&theirs).unwrap()];
        open_to(&socket, group).unwrap();
        assert_eq!(rights(&socket), 0o660);
        std::fs::remove_file(&socket).unwrap();
        std::os::unix::fs::symlink(&theirs, &socket).unwrap();
        assert!(open_to(&socket, group).is_err());
        std::fs::remove_file(&socket).unwrap();
        std::fs::hard_link(&theirs, &socket).unwrap();
        assert!(open_to(&socket, group).is_err());
        assert_eq!(rights(&theirs), 0o600);
    }
}
