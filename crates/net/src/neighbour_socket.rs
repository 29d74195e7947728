//! Neighbor Discovery as it lies on a link: what the kernel neither sends nor tells by itself.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::sys::packet;
use crate::{Error, Result};

/// `ETH_P_IPV6`.
const IPV6: u16 = 0x86dd;

/// ICMPv6 types (RFC 4861 sections 4.3 and 4.4).
const SOLICITATION: u32 = 135;
const ADVERTISEMENT: u32 = 136;

/// A packet that was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Octets of the packet, from the IPv6 header on.
    pub len: usize,
    /// Index of the interface that it came from.
    pub index: u32,
    /// The sender's link-layer address.
    pub sender: [u8; 6],
}

/// Sends IPv6 packets with a source that is no address of the host, and hears neighbor solicitations and
/// advertisements that others send: for duplicate address detection (RFC 4862 section 5.4) of addresses that the host
/// only answers for.
///
/// It belongs to the network namespace of the thread that opened it, needs `CAP_NET_RAW` to be opened and nothing
/// afterwards. It does not block, and hears nothing until it is told to. Only for links with Ethernet addresses. A
/// [`NeighbourReceiver`] receives the packets, so that a thread without capabilities can parse them.
#[derive(Debug)]
pub struct NeighbourSocket {
    socket: OwnedFd,
    /// The groups that it has joined.
    groups: Vec<(u32, [u8; 6])>,
}

impl NeighbourSocket {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// [`Error::Socket`], with `EPERM` without the privilege.
    pub fn open() -> Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Of no protocol: nothing is received before it is bound.
        let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, None)
            .map_err(|error| failed("open a packet socket")(error.into()))?;
        Ok(Self { socket, groups: Vec::new() })
    }

    /// Hears what is sent on the interface `index` from now on, to `groups` too.
    ///
    /// # Errors
    ///
    /// [`Error::Socket`], with `ENODEV` if there is no such interface.
    pub fn listen(&mut self, index: u32, groups: &[[u8; 6]]) -> Result<()> {
        self.silence();
        let failed = || failed("listen to neighbours");
        packet::bind(self.socket.as_fd(), index, IPV6).map_err(failed())?;
        for group in groups {
            packet::member(self.socket.as_fd(), index, *group, true).map_err(failed())?;
            self.groups.push((index, *group));
        }
        packet::filter(self.socket.as_fd(), &neighbour_messages()).map_err(failed())
    }

    /// Hears nothing any more.
    pub fn silence(&mut self) {
        // If it fails, the socket gets more messages than it needs.
        let _ = packet::filter(self.socket.as_fd(), &[step(libc::BPF_RET, 0, 0, 0)]);
        for (index, group) in std::mem::take(&mut self.groups) {
            // With the interface its groups are gone.
            let _ = packet::member(self.socket.as_fd(), index, group, false);
        }
        let mut octets = [0; 16];
        while packet::receive(self.socket.as_fd(), &mut octets).is_ok() {}
    }

    /// Sends a packet, which begins with its IPv6 header, out of the interface `index` to the link-layer address
    /// `to`.
    ///
    /// # Errors
    ///
    /// [`Error::Socket`].
    pub fn send(&self, packet: &[u8], index: u32, to: [u8; 6]) -> Result<()> {
        packet::send(self.socket.as_fd(), packet, index, IPV6, to)
            .map_err(failed("send to neighbours"))
    }

    /// What receives what this one listens to. There may be several; each packet goes to one of them.
    ///
    /// # Errors
    ///
    /// [`Error::Socket`]: there are no more descriptors.
    pub fn receiver(&self) -> Result<NeighbourReceiver> {
        let socket = self.socket.try_clone().map_err(failed("share a packet socket"))?;
        Ok(NeighbourReceiver { socket })
    }
}

/// Receives what a [`NeighbourSocket`] listens to. Needs no privilege.
#[derive(Debug)]
pub struct NeighbourReceiver {
    socket: OwnedFd,
}

impl NeighbourReceiver {
    /// The next packet, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Socket`], with `ENETDOWN` when the interface goes down; what comes afterwards is heard again.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Option<Heard>> {
        match packet::receive(self.socket.as_fd(), buffer) {
            Ok((len, index, sender)) => Ok(Some(Heard { len, index, sender })),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(failed("listen to neighbours")(error)),
        }
    }
}

impl AsFd for NeighbourReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for NeighbourReceiver {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

fn failed(operation: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Socket { operation, source }
}

/// Next Header ICMPv6, Hop Limit 255, type solicitation or advertisement.
fn neighbour_messages() -> [libc::sock_filter; 9] {
    let load = |offset| step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, offset);
    // `there` and `else`: how many steps are passed over.
    let equal =
        |value, there, or| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, there, or, value);
    let end = |octets| step(libc::BPF_RET | libc::BPF_K, 0, 0, octets);
    [
        load(6),
        equal(58, 0, 6),
        load(7),
        equal(255, 0, 4),
        load(40),
        equal(SOLICITATION, 1, 0),
        equal(ADVERTISEMENT, 0, 1),
        end(u32::MAX),
        end(0),
    ]
}

fn step(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    // Codes have 16 bits.
    libc::sock_filter { code: code as u16, jt, jf, k }
}
