//! What only the kernel knows of a TCP connection.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// Whether the next octet to be read is the one that the peer has marked as urgent.
///
/// # Errors
///
/// The system's.
pub fn at_urgent_mark(socket: impl AsFd) -> io::Result<bool> {
    /// Not among libc's constants.
    const SIOCATMARK: libc::c_ulong = 0x8905;
    Ok(number(socket, SIOCATMARK)? != 0)
}

/// Octets that were sent and that the peer has not acknowledged yet.
///
/// # Errors
///
/// The system's.
pub fn unacknowledged(socket: impl AsFd) -> io::Result<usize> {
    Ok(usize::try_from(number(socket, libc::TIOCOUTQ)?).unwrap_or(0))
}

/// Asks a socket for an int.
fn number(socket: impl AsFd, request: libc::c_ulong) -> io::Result<libc::c_int> {
    let mut number: libc::c_int = 0;
    // SAFETY: both requests write one int to the address they are given, which is that of `number`, and it outlives
    // the call. The descriptor is borrowed, hence open.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), request as _, &raw mut number) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(number) }
}

/// Lets a listening socket keep the headers of each SYN for [`syn_traffic_class`].
///
/// # Errors
///
/// The system's.
pub fn keep_syn(socket: impl AsFd) -> io::Result<()> {
    const TCP_SAVE_SYN: libc::c_int = 27;
    set(socket, libc::IPPROTO_TCP, TCP_SAVE_SYN, 1)
}

/// Lets a datagram socket tell which datagrams came in fragments, in [`Told::fragmented`](super::datagrams::Told).
///
/// # Errors
///
/// The system's.
pub fn tell_fragmented(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_IPV6, super::datagrams::IPV6_RECVFRAGSIZE, 1)
}

fn set(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the option takes an int, whose address and length are given; the kernel only reads it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The Traffic Class of the SYN over IPv6 that an accepted connection began with; the headers are then forgotten.
/// `None`: it is not known, since the listening socket was not asked to keep it or the SYN was answered by a cookie.
///
/// # Errors
///
/// The system's.
pub fn syn_traffic_class(socket: impl AsFd) -> io::Result<Option<u8>> {
    const TCP_SAVED_SYN: libc::c_int = 28;
    let mut headers = [0u8; 256];
    let mut length = headers.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` octets to `headers`, which is that long, and writes `length`; both
    // outlive the call. The descriptor is borrowed, hence open.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_SAVED_SYN,
            headers.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let class =
        (length as usize >= 40 && headers[0] >> 4 == 6).then(|| headers[0] << 4 | headers[1] >> 4);
    Ok(class)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use fordway_testhost::poll;

    use super::*;

    #[test]
    fn a_connection_tells_of_its_syn_and_of_its_octets() {
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let before = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (first, _) = listener.accept().unwrap();
        assert_eq!(syn_traffic_class(&first).unwrap(), None);
        drop(before);
        keep_syn(&listener).unwrap();
        let mut out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut into, _) = listener.accept().unwrap();
        assert_eq!(syn_traffic_class(&into).unwrap(), Some(0));
        assert_eq!(syn_traffic_class(&into).unwrap(), None, "it is told once");
        out.write_all(b"12345").unwrap();
        let mut octets = [0; 5];
        into.read_exact(&mut octets).unwrap();
        assert!(!at_urgent_mark(&into).unwrap());
        poll("what was read is acknowledged", || {
            (unacknowledged(&out).unwrap() == 0).then_some(())
        });
    }
}
