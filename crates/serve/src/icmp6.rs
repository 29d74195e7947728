//! A raw socket for Neighbor Discovery: one kind of ICMPv6 message in, any out.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use nix::libc;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn6, recvmsg, sendmsg, setsockopt,
    sockopt::Ipv6RecvPacketInfo,
};
use socket2::{Domain, Protocol, SockAddr, SockFilter, Socket, Type};

/// Longest message that is read, in octets: what fits a packet of 64 KiB.
pub const MESSAGE_MAX: usize = 65_536;

/// A raw ICMPv6 socket for messages of one type, of the network namespace of the thread that
/// opened it.
///
/// What it sends has hop limit 255, and the kernel fills in the checksum; what it receives has a
/// checksum that the kernel found right. It does not block.
#[derive(Debug)]
pub struct Icmp6Socket {
    socket: Socket,
}

/// Where a received message came from, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Octets of the message, from the ICMPv6 type on.
    pub len: usize,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
    /// Index of the interface it came in at.
    pub device: u32,
    /// Hop limit it came with.
    pub hop_limit: u8,
}

impl Icmp6Socket {
    /// Opens a socket for received messages of the type `kind`; needs CAP_NET_RAW.
    pub fn open(kind: u8) -> io::Result<Self> {
        Self::open_any(&[kind])
    }

    /// Opens a socket for received messages of these types; needs CAP_NET_RAW.
    pub fn open_any(kinds: &[u8]) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
        socket.set_nonblocking(true)?;
        // Before anything else: what comes in until then is read and passed over by the caller.
        socket.attach_filter(&only(kinds))?;
        socket.set_unicast_hops_v6(255)?;
        socket.set_multicast_hops_v6(255)?;
        socket.set_multicast_loop_v6(false)?;
        socket.set_recv_hoplimit_v6(true)?;
        setsockopt(&socket, Ipv6RecvPacketInfo, &true)?;
        Ok(Self { socket })
    }

    /// Joins a multicast group on the interface `device`.
    pub fn join(&self, group: Ipv6Addr, device: u32) -> io::Result<()> {
        self.socket.join_multicast_v6(&group, device)
    }

    /// Leaves a multicast group on the interface `device`.
    pub fn leave(&self, group: Ipv6Addr, device: u32) -> io::Result<()> {
        self.socket.leave_multicast_v6(&group, device)
    }

    /// Sends a message out of the interface `device`, from the address that the kernel chooses for
    /// it, which is link-local for link-local destinations.
    pub fn send(&self, message: &[u8], to: Ipv6Addr, device: u32) -> io::Result<()> {
        let to = SockAddr::from(SocketAddrV6::new(to, 0, 0, device));
        self.socket.send_to(message, &to)?;
        Ok(())
    }

    /// Sends a message from `source`, which need not be an address of the host any more if
    /// [`Icmp6Socket::any_source`] was called.
    pub fn send_from(
        &self,
        message: &[u8],
        source: Ipv6Addr,
        to: Ipv6Addr,
        device: u32,
    ) -> io::Result<()> {
        let info = libc::in6_pktinfo {
            ipi6_addr: libc::in6_addr { s6_addr: source.octets() },
            ipi6_ifindex: device,
        };
        let to = SockaddrIn6::from(SocketAddrV6::new(to, 0, 0, device));
        let parts = [IoSlice::new(message)];
        let control = [ControlMessage::Ipv6PacketInfo(&info)];
        sendmsg(self.socket.as_raw_fd(), &parts, &control, MsgFlags::empty(), Some(&to))?;
        Ok(())
    }

    /// Lets messages be sent from addresses that the host does not have.
    pub fn any_source(&self) -> io::Result<()> {
        self.socket.set_freebind_v6(true)
    }

    /// Receives a message; `WouldBlock` if there is none. `None`: one of which the kernel did not
    /// say where it came from, which is to be passed over.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        let mut parts = [IoSliceMut::new(buffer)];
        let mut control = nix::cmsg_space!(libc::in6_pktinfo, libc::c_int);
        let message = recvmsg::<SockaddrIn6>(
            self.socket.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            MsgFlags::empty(),
        )?;
        let (mut info, mut hops) = (None, None);
        if let Ok(controls) = message.cmsgs() {
            for control in controls {
                match control {
                    ControlMessageOwned::Ipv6PacketInfo(found) => info = Some(found),
                    ControlMessageOwned::Ipv6HopLimit(found) => hops = u8::try_from(found).ok(),
                    _ => {}
                }
            }
        }
        let whole = !message.flags.contains(MsgFlags::MSG_TRUNC);
        let (Some(source), Some(info), Some(hop_limit), true) =
            (message.address, info, hops, whole)
        else {
            return Ok(None);
        };
        Ok(Some(Received {
            len: message.bytes,
            source: source.ip(),
            destination: Ipv6Addr::from(info.ipi6_addr.s6_addr),
            device: info.ipi6_ifindex,
            hop_limit,
        }))
    }
}

impl AsFd for Icmp6Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Icmp6Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// A filter that lets through messages whose first octet is one of `kinds`, whole.
fn only(kinds: &[u8]) -> Vec<SockFilter> {
    // Classic BPF: load an octet, jump if it equals the constant, return a length.
    const LOAD_OCTET: u16 = 0x30;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let mut program = vec![SockFilter::new(LOAD_OCTET, 0, 0, 0)];
    for kind in kinds {
        program.push(SockFilter::new(JUMP_IF_EQUAL, 0, 1, u32::from(*kind)));
        program.push(SockFilter::new(RETURN, 0, 0, u32::MAX));
    }
    program.push(SockFilter::new(RETURN, 0, 0, 0));
    program
}
