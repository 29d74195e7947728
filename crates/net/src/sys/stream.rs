//! What only the kernel knows of a TCP connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libc::c_int;

use super::{done, option, set_option};

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
fn number(socket: impl AsFd, request: libc::c_ulong) -> io::Result<c_int> {
    let mut number: c_int = 0;
    // SAFETY: both requests write one int to the address they are given, which is that of `number`, and it outlives
    // the call. The descriptor is borrowed, hence open.
    done(unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), request as _, &raw mut number) })?;
    Ok(number)
}

/// Lets a listening socket keep the headers of each SYN for [`syn_traffic_class`].
///
/// # Errors
///
/// The system's.
pub fn keep_syn(socket: impl AsFd) -> io::Result<()> {
    const TCP_SAVE_SYN: c_int = 27;
    set_option::<c_int>(socket.as_fd(), libc::IPPROTO_TCP, TCP_SAVE_SYN, &1)
}

/// Lets a datagram socket tell which datagrams came in fragments, in [`Told::fragmented`](super::datagrams::Told).
///
/// # Errors
///
/// The system's.
pub fn tell_fragmented(socket: impl AsFd) -> io::Result<()> {
    let option = super::datagrams::IPV6_RECVFRAGSIZE;
    set_option::<c_int>(socket.as_fd(), libc::IPPROTO_IPV6, option, &1)
}

/// The Traffic Class of the SYN over IPv6 that an accepted connection began with; the headers are then forgotten.
/// `None`: it is not known, since the listening socket was not asked to keep it or the SYN was answered by a cookie.
///
/// # Errors
///
/// The system's.
pub fn syn_traffic_class(socket: impl AsFd) -> io::Result<Option<u8>> {
    const TCP_SAVED_SYN: c_int = 28;
    let mut headers = [0u8; 256];
    let length = option(socket.as_fd(), libc::IPPROTO_TCP, TCP_SAVED_SYN, &mut headers)?;
    let is_v6 = length >= 40 && headers[0] >> 4 == 6;
    Ok(is_v6.then(|| headers[0] << 4 | headers[1] >> 4))
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
