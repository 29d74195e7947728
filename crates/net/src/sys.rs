//! Raw system calls. The only unsafe code of the crate is here and below.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::c_int;

pub(crate) mod datagrams;
pub(crate) mod ethtool;
pub(crate) mod packet;
pub(crate) mod stream;

/// `SO_NETNS_COOKIE` (Linux 5.14), not among libc's constants.
const SO_NETNS_COOKIE: c_int = 71;

/// Moves the calling thread into a new network namespace.
pub(crate) fn new_network_namespace() -> io::Result<()> {
    // SAFETY: takes no pointer. CLONE_NEWNET changes nothing that other threads share: it is the thread's own
    // reference to its namespace that is replaced.
    done(unsafe { libc::unshare(libc::CLONE_NEWNET) })
}

/// The cookie of the network namespace that a socket belongs to: a number that no other namespace has until the next
/// start of the host.
pub(crate) fn namespace_cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut cookie = [0; size_of::<u64>()];
    option(socket, libc::SOL_SOCKET, SO_NETNS_COOKIE, &mut cookie)?;
    Ok(u64::from_ne_bytes(cookie))
}

/// Reads a socket option into `value`, and returns its length.
fn option(
    socket: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    value: &mut [u8],
) -> io::Result<usize> {
    let mut length = value.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` octets to `value`, which is that long, and writes `length`; both
    // outlive the call. The descriptor is borrowed, hence open.
    done(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    })?;
    Ok(length as usize)
}

/// Sets a socket option.
fn set_option<T>(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads as many octets from `value` as the length says, which are its own, and what `value`
    // points at as long as the call lasts. The descriptor is borrowed, hence open.
    done(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
}

/// What a system call returns: -1 and an error number, or something else.
fn done(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
