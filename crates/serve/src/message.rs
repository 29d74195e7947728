//! Sockets for IPv6 messages with their source, destination and interface: raw ICMPv6 and UDP.

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

/// A socket of the network namespace of the thread that opened it. It does not block.
#[derive(Debug)]
pub struct MessageSocket {
    socket: Socket,
}

/// Where a received message came from, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Octets of the message.
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

impl MessageSocket {
    /// Opens a raw socket for received ICMPv6 messages of these types; needs CAP_NET_RAW. The types are the first octets
    /// of messages.
    ///
    /// What it sends has hop limit 255, and the kernel fills in the checksum; what it receives has a checksum that the
    /// kernel found right.
    pub fn icmp6(kinds: &[u8]) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
        // Before anything else: what comes in until then is read and passed over by the caller.
        socket.attach_filter(&only(kinds))?;
        socket.set_unicast_hops_v6(255)?;
        socket.set_multicast_hops_v6(255)?;
        Self::of(socket)
    }

    /// Opens a UDP port, which other servers of the host may share, and receives from the groups that it joins. Ports
    /// below 1024 need CAP_NET_BIND_SERVICE.
    pub fn udp(port: u16) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_only_v6(true)?;
        socket.set_reuse_address(true)?;
        socket.set_multicast_all_v6(false)?;
        let socket = Self::of(socket)?;
        let any = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0);
        socket.socket.bind(&SockAddr::from(any))?;
        Ok(socket)
    }

    fn of(socket: Socket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
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

    /// Sends a message out of the interface that the scope of `to` names, from `source`, which need not be an address of
    /// the host any more if [`MessageSocket::any_source`] was called.
    pub fn send_from(&self, message: &[u8], source: Ipv6Addr, to: SocketAddrV6) -> io::Result<()> {
        let info = libc::in6_pktinfo {
            ipi6_addr: libc::in6_addr { s6_addr: source.octets() },
            ipi6_ifindex: to.scope_id(),
        };
        let to = SockaddrIn6::from(to);
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

impl AsFd for MessageSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for MessageSocket {
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
