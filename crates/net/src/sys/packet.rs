//! What packet sockets need beyond what safe interfaces have.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{done, set_option};

/// Octets of an Ethernet address.
pub(crate) const ADDRESS_LEN: usize = 6;

/// Lets only those packets in that `program` accepts.
pub(crate) fn filter(socket: BorrowedFd<'_>, program: &[libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Receives packets of the protocol from the interface `index` from now on.
pub(crate) fn bind(socket: BorrowedFd<'_>, index: u32, protocol: u16) -> io::Result<()> {
    let address = address(index, protocol, [0; ADDRESS_LEN]);
    // SAFETY: the kernel reads as many octets from `address` as the length says, which are its own; it outlives the
    // call. The descriptor is borrowed, hence open.
    done(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    })
}

/// Has the interface `index` take frames to a multicast address in, or no longer.
pub(crate) fn member(
    socket: BorrowedFd<'_>,
    index: u32,
    group: [u8; ADDRESS_LEN],
    joins: bool,
) -> io::Result<()> {
    let mut request = libc::packet_mreq {
        mr_ifindex: index.cast_signed(),
        mr_type: libc::PACKET_MR_MULTICAST as libc::c_ushort,
        mr_alen: ADDRESS_LEN as libc::c_ushort,
        mr_address: [0; 8],
    };
    request.mr_address[..ADDRESS_LEN].copy_from_slice(&group);
    let option = if joins { libc::PACKET_ADD_MEMBERSHIP } else { libc::PACKET_DROP_MEMBERSHIP };
    set_option(socket, libc::SOL_PACKET, option, &request)
}

/// Sends a packet to a link-layer address; the kernel makes the frame's header.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    packet: &[u8],
    index: u32,
    protocol: u16,
    to: [u8; ADDRESS_LEN],
) -> io::Result<()> {
    let address = address(index, protocol, to);
    // SAFETY: the kernel reads `packet.len()` octets from `packet` and as many from `address` as the length says;
    // both outlive the call. The descriptor is borrowed, hence open.
    let result = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            packet.as_ptr().cast(),
            packet.len(),
            libc::MSG_DONTWAIT,
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A packet's length, the interface that it came from, and its sender's link-layer address.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<(usize, u32, [u8; ADDRESS_LEN])> {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut from: libc::sockaddr_ll = unsafe { zeroed() };
    let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `buffer.len()` octets to `buffer` and at most `length` to `from`, which takes
    // any value, and writes `length`; all outlive the call. The descriptor is borrowed, hence open.
    let result = unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            libc::MSG_DONTWAIT,
            (&raw mut from).cast(),
            &raw mut length,
        )
    };
    let Ok(len) = usize::try_from(result) else { return Err(io::Error::last_os_error()) };
    let mut sender = [0; ADDRESS_LEN];
    sender.copy_from_slice(&from.sll_addr[..ADDRESS_LEN]);
    Ok((len, from.sll_ifindex.cast_unsigned(), sender))
}

fn address(index: u32, protocol: u16, to: [u8; ADDRESS_LEN]) -> libc::sockaddr_ll {
    let mut octets = [0; 8];
    octets[..ADDRESS_LEN].copy_from_slice(&to);
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: protocol.to_be(),
        sll_ifindex: index.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: ADDRESS_LEN as libc::c_uchar,
        sll_addr: octets,
    }
}
