//! Raw system calls. The only unsafe code of the crate is here and below.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

pub(crate) mod datagrams;
pub(crate) mod ethtool;
pub(crate) mod packet;
pub(crate) mod stream;

/// `SO_NETNS_COOKIE` (Linux 5.14), not among libc's constants.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// Moves the calling thread into a new network namespace.
pub(crate) fn new_network_namespace() -> io::Result<()> {
    // SAFETY: takes no pointer. CLONE_NEWNET changes nothing that other threads share: it is the
    // thread's own reference to its namespace that is replaced.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The cookie of the network namespace that a socket belongs to: a number that
/// no other namespace has until the next start of the host.
pub(crate) fn namespace_cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut cookie = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` octets to `cookie`, which is
    // that long and takes any value, and writes `length`; both outlive the
    // call. The descriptor is borrowed, hence open.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(cookie)
}
