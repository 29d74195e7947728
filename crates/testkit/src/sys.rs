//! The system calls of the test kit: network namespaces, packet sockets, interface settings.
//!
//! All unsafe code of this crate is here.

use std::ffi::{c_int, c_short, c_void};
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Octets of the virtio-net header that packet sockets put in front of packets.
pub const VNET_LEN: usize = 10;

/// Puts the calling thread into a new network namespace. It lives as long as the thread does.
pub fn enter_new_namespace() -> io::Result<()> {
    // SAFETY: takes no pointers; only the calling thread changes its namespace.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    Ok(())
}

/// Makes a command's process end when the thread that starts it does.
pub fn end_with_parent(command: &mut Command) {
    // SAFETY: the closure runs between fork and exec and makes one system call, nothing else; that call
    // takes no pointers.
    unsafe {
        command.pre_exec(|| {
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM))?;
            Ok(())
        });
    }
}

/// Asks a process to end.
pub fn terminate(child: &Child) {
    // SAFETY: takes no pointers; the process is our child and has not been waited for, so the number is
    // still its own.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
}

/// Sets the MTU of an interface and brings it up.
pub fn bring_up(interface: &str, mtu: u32) -> io::Result<()> {
    // SAFETY: takes no pointers; the descriptor is owned at once.
    let socket =
        unsafe { owned(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0))? };
    let mut request = request(interface)?;
    request.ifr_ifru.ifru_mtu = mtu as c_int;
    ioctl(&socket, libc::SIOCSIFMTU as _, &mut request)?;
    ioctl(&socket, libc::SIOCGIFFLAGS as _, &mut request)?;
    // SAFETY: SIOCGIFFLAGS has just written this member; every bit pattern is a value of it.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as c_short;
    ioctl(&socket, libc::SIOCSIFFLAGS as _, &mut request)
}

/// The index of an interface.
pub fn interface_index(interface: &str) -> io::Result<c_int> {
    // SAFETY: as in `bring_up`.
    let socket =
        unsafe { owned(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0))? };
    let mut request = request(interface)?;
    ioctl(&socket, libc::SIOCGIFINDEX as _, &mut request)?;
    // SAFETY: SIOCGIFINDEX has just written this member.
    Ok(unsafe { request.ifr_ifru.ifru_ifindex })
}

/// A packet socket on one interface, with virtio-net headers both ways. It does not see what goes out
/// through the interface, only what comes in from it.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens it on the interface with this index.
    pub fn open(index: c_int) -> io::Result<PacketSocket> {
        PacketSocket::open_for(index, libc::ETH_P_ALL as u16)
    }

    /// As [`open`](PacketSocket::open), for packets of one protocol (an EtherType): it sees them where
    /// the stack does, behind the programs at the interface's ingress.
    pub fn open_for(index: c_int, protocol: u16) -> io::Result<PacketSocket> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: takes no pointers; the descriptor is owned at once. Protocol 0: it receives nothing
        // before it is bound to the interface.
        let fd = unsafe { owned(libc::socket(libc::AF_PACKET, kind, 0))? };
        let socket = PacketSocket(fd);
        socket.option(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        socket.option(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        // A hundred fragments at once must fit.
        socket.option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 16 << 20)?;
        socket.option(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 16 << 20)?;
        // SAFETY: all octets zero is a value of this struct of integers.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = index;
        // SAFETY: the pointer is to a whole sockaddr_ll, whose length is given.
        check(unsafe {
            libc::bind(
                socket.0.as_raw_fd(),
                (&raw const address).cast(),
                mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        })?;
        Ok(socket)
    }

    /// Sends a packet out through the interface.
    pub fn send(&self, header: &[u8; VNET_LEN], packet: &[u8]) -> io::Result<()> {
        let message = [&header[..], packet].concat();
        // SAFETY: the pointer is to `message`, whose length is given.
        let sent = unsafe {
            libc::send(self.0.as_raw_fd(), message.as_ptr().cast::<c_void>(), message.len(), 0)
        };
        check(sent as c_int)?;
        Ok(())
    }

    /// Takes a packet that came in from the interface; `None`: there is none.
    pub fn receive(&self) -> io::Result<Option<([u8; VNET_LEN], Vec<u8>)>> {
        let mut buffer = vec![0u8; VNET_LEN + 70_000];
        // SAFETY: the pointer is to `buffer`, whose length is given.
        let len = unsafe {
            libc::recv(
                self.0.as_raw_fd(),
                buffer.as_mut_ptr().cast::<c_void>(),
                buffer.len(),
                libc::MSG_DONTWAIT,
            )
        };
        match check(len as c_int) {
            Ok(len) => buffer.truncate(len as usize),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        let packet = buffer.split_off(VNET_LEN.min(buffer.len()));
        let header = buffer.try_into().map_err(|_| io::ErrorKind::UnexpectedEof)?;
        Ok(Some((header, packet)))
    }

    fn option(&self, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
        // SAFETY: the pointer is to `value`, whose length is given.
        check(unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                mem::size_of::<c_int>() as libc::socklen_t,
            )
        })?;
        Ok(())
    }
}

fn request(interface: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all octets zero is a value of this struct of integers and unions of integers.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    // The last octet stays zero.
    if interface.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as _;
    }
    Ok(request)
}

fn ioctl(socket: &OwnedFd, number: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the interface requests used here read and write one `ifreq`.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), number, request) })?;
    Ok(())
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// # Safety
///
/// `fd` is negative, or a descriptor that nobody else owns.
unsafe fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    check(fd)?;
    // SAFETY: it is not negative, so by the contract it is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
