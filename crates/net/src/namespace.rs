//! Network namespaces.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{Error, Result, sys};

/// What tells one network namespace from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NamespaceId {
    /// Inode of the namespace's file, as `ls -L -i /run/netns/NAME` shows it. The kernel gives it to another
    /// namespace once this one is gone.
    pub inode: u64,
    /// A number never given twice until the host restarts; none before Linux 5.14.
    pub cookie: Option<u64>,
}

impl NamespaceId {
    /// The calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// [`Error::Namespace`] if /proc is not there.
    pub fn current() -> Result<Self> {
        let path = Path::new(CURRENT);
        let failed =
            |source| Error::Namespace { operation: "identify", name: CURRENT.to_owned(), source };
        let inode = path.metadata().map_err(failed)?.ino();
        let cookie = socket(AddressFamily::UNIX, SocketType::DGRAM, None)
            .map_err(io::Error::from)
            .and_then(|socket| sys::namespace_cookie(socket.as_fd()))
            .ok();
        Ok(Self { inode, cookie })
    }
}

impl fmt::Display for NamespaceId {
    /// Fits a file's name: the inode, and the cookie behind a `-`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.inode)?;
        match self.cookie {
            Some(cookie) => write!(f, "-{cookie}"),
            None => Ok(()),
        }
    }
}

const CURRENT: &str = "/proc/thread-self/ns/net";

/// An open network namespace; it lives at least as long as this does.
#[derive(Debug)]
pub struct NetNs {
    file: File,
    name: String,
}

impl NetNs {
    /// The calling thread's namespace.
    ///
    /// # Errors
    ///
    /// [`Error::Namespace`] if /proc is not there.
    pub fn current() -> Result<Self> {
        Self::open_path(Path::new(CURRENT))
    }

    /// Moves the calling thread into a new namespace, with a loopback interface that is down. It vanishes with its
    /// last user. Processes and threads that the thread starts are in it too; other threads stay.
    ///
    /// # Errors
    ///
    /// [`Error::Namespace`], with `EPERM` without CAP_SYS_ADMIN.
    pub fn enter_new() -> Result<()> {
        crate::sys::new_network_namespace().map_err(|source| Error::Namespace {
            operation: "make",
            name: "a new network namespace".to_owned(),
            source,
        })
    }

    /// Opens the namespace `name` that `ip netns add` made; a name with a `/` is taken for a path, such as
    /// `/proc/PID/ns/net`.
    ///
    /// # Errors
    ///
    /// [`Error::Namespace`] if there is none.
    pub fn open(name: &str) -> Result<Self> {
        if name.contains('/') {
            return Self::open_path(Path::new(name));
        }
        Self::open_path(&PathBuf::from("/run/netns").join(name))
    }

    fn open_path(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Ok(Self { file, name }),
            Err(source) => Err(Error::Namespace { operation: "open", name, source }),
        }
    }

    /// Moves the calling thread into the namespace, for good. Threads and processes that it starts are in it too;
    /// other threads stay.
    ///
    /// # Errors
    ///
    /// [`Error::Namespace`], with `EPERM` without CAP_SYS_ADMIN, `EINVAL` if the file is no network namespace.
    pub fn enter(&self) -> Result<()> {
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|error| self.failed("enter", error.into()))
    }

    /// Runs `work` in a thread of its own inside the namespace and returns its result. A panic of `work` is passed
    /// on.
    ///
    /// # Errors
    ///
    /// As [`NetNs::enter`]; `work` has not run then.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter()?;
                Ok(work())
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn failed(&self, operation: &'static str, source: io::Error) -> Error {
        Error::Namespace { operation, name: self.name.clone(), source }
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
