//! What exists under an interface's name, asked over netlink.
//!
//! Not asked of /sys: a mounted /sys may show another network namespace than the one the thread is in.

use std::io;

use fordway_net::{Link, Netlink, Tun};

/// Whether a TUN interface `name` is there and some process has it open, in the calling thread's network namespace. Not
/// known of single-queue interfaces, for which it is `false`.
///
/// Errors: what the system reports.
pub fn is_open(name: &str) -> io::Result<bool> {
    let link = probe(name)?;
    let tun = link.and_then(|link| link.tun);
    Ok(matches!(tun, Some(Tun { tap: false, open_queues: 1.., .. })))
}

/// Looks `name` up in the calling thread's network namespace.
pub(crate) fn probe(name: &str) -> io::Result<Option<Link>> {
    Netlink::open().and_then(|mut netlink| netlink.find_link(name)).map_err(system)
}

/// What the system reported.
pub(crate) fn system(error: fordway_net::Error) -> io::Error {
    error.errno().map_or_else(|| io::Error::other(error), io::Error::from_raw_os_error)
}
