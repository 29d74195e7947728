//! Raw system calls: the TUN driver's ioctls. The only unsafe code here.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

pub(crate) use libc::{TUN_F_CSUM, TUN_F_TSO_ECN, TUN_F_TSO4, TUN_F_TSO6, TUN_F_USO4, TUN_F_USO6};

/// `TUNSETIFF`: attaches the descriptor to the interface `name`, which is created if it does not exist. `name` has at
/// most 15 octets.
pub(crate) fn set_iff(fd: BorrowedFd<'_>, name: &str, flags: i32) -> io::Result<()> {
    let mut request = interface_request(name)?;
    // The driver reads the field as 16 unsigned bits; IFF_TUN_EXCL is the top one.
    request.ifr_ifru.ifru_flags = (flags & 0xffff) as u16 as i16;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which `request` is and which outlives the call; the descriptor is
    // borrowed, hence open.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    check(result)
}

/// `TUNSETQUEUE`: attaches or detaches the descriptor's queue.
pub(crate) fn set_queue(fd: BorrowedFd<'_>, attached: bool) -> io::Result<()> {
    let mut request = interface_request("")?;
    let flag = if attached { libc::IFF_ATTACH_QUEUE } else { libc::IFF_DETACH_QUEUE };
    request.ifr_ifru.ifru_flags = flag as i16;
    // SAFETY: TUNSETQUEUE reads one `ifreq`, which `request` is and which outlives the call; the descriptor is
    // borrowed, hence open.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETQUEUE, &raw mut request) };
    check(result)
}

/// `TUNSETVNETHDRSZ`: sets the length of the header in front of each packet.
pub(crate) fn set_vnet_header_size(fd: BorrowedFd<'_>, octets: i32) -> io::Result<()> {
    // SAFETY: TUNSETVNETHDRSZ reads one `int` through the pointer, which outlives the call; the descriptor is borrowed,
    // hence open.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const octets) };
    check(result)
}

/// `TUNSETOFFLOAD`: says what the reader can cope with (`TUN_F_*`).
pub(crate) fn set_offload(fd: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value and touches no memory of ours; the descriptor is borrowed,
    // hence open.
    let result =
        unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(flags)) };
    check(result)
}

/// `TUNSETPERSIST`: whether the interface outlives its last descriptor.
pub(crate) fn set_persist(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    // SAFETY: TUNSETPERSIST takes its argument by value and touches no memory of ours; the descriptor is borrowed,
    // hence open.
    let result = unsafe {
        libc::ioctl(fd.as_raw_fd(), libc::TUNSETPERSIST, libc::c_ulong::from(u32::from(on)))
    };
    check(result)
}

/// An `ifreq` that holds `name` and nothing else.
fn interface_request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is a C structure of integers, arrays and a union of such and a pointer; all octets zero is a
    // valid value of each.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    Ok(request)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
