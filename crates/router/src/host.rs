//! The host's side: sockets, and what netlink says of devices.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Instant;

use dhcproto::v6::{CLIENT_PORT, SERVER_PORT};
use fordway_net::{Link, Netlink, SysctlKey, sysctl};
use nix::libc;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn6, recvmsg, sendmsg, setsockopt,
    sockopt::Ipv6RecvPacketInfo,
};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::content::{Facts, is_global};

/// Longest DHCPv6 message that is read, in octets: a request has no more in it than its client.
pub(super) const REQUEST_MAX: usize = 1500;

/// What netlink says of all devices at one moment.
#[derive(Debug)]
pub(super) struct Host {
    links: BTreeMap<String, Link>,
    addresses: Vec<fordway_net::AddressV6>,
    at: Instant,
}

impl Host {
    pub(super) fn read(netlink: &mut Netlink) -> fordway_net::Result<Host> {
        let links = netlink.links()?.into_iter().map(|link| (link.name.clone(), link));
        let links = links.collect();
        let addresses = netlink.addresses_v6()?;
        Ok(Host { links, addresses, at: Instant::now() })
    }

    /// What is so of the device `name`; `None` if there is no such interface.
    pub(super) fn facts(&self, name: &str) -> Option<Facts> {
        let link = self.links.get(name)?;
        let (own, others): (Vec<_>, Vec<_>) =
            self.addresses.iter().copied().partition(|it| it.index == link.index);
        let elsewhere = others.iter().filter(|it| !it.duplicate).map(|it| it.address.addr());
        Some(Facts {
            index: link.index,
            running: link.up && link.running,
            mtu: link.mtu,
            hardware_address: link.hardware_address.clone(),
            forwarding: forwards(name),
            addresses: own,
            elsewhere: elsewhere.filter(|it| is_global(*it)).collect(),
            at: self.at,
        })
    }

    /// A link-layer address by which the host can be told from others: one given by a maker rather
    /// than one made up, of the device that came first.
    pub(super) fn hardware_address(&self) -> Option<[u8; 6]> {
        let of = |link: &Link| <[u8; 6]>::try_from(link.hardware_address.as_slice()).ok();
        let candidates = self.links.values().filter(|link| !link.loopback);
        candidates
            .filter_map(|link| Some((of(link)?, link.index)))
            .filter(|(address, _)| *address != [0; 6])
            .min_by_key(|(address, index)| (address[0] & 2 != 0, *index))
            .map(|(address, _)| address)
    }
}

/// Whether IPv6 packets that come in at `device` are forwarded, and its neighbours are told that this
/// is a router.
pub(super) fn forwards(device: &str) -> bool {
    let on = |key: SysctlKey| sysctl::read(&key).is_ok_and(|value| value != "0");
    on(SysctlKey::forwarding_v6()) && SysctlKey::conf_v6(device, "forwarding").is_ok_and(on)
}

/// The socket of the DHCPv6 server, for all devices. It does not block.
#[derive(Debug)]
pub(super) struct DhcpSocket {
    socket: Socket,
}

/// Where a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Octets of the message.
    pub(super) len: usize,
    pub(super) source: Ipv6Addr,
    pub(super) destination: Ipv6Addr,
    /// Index of the interface it came in at.
    pub(super) device: u32,
}

impl DhcpSocket {
    /// Opens port 547; needs CAP_NET_BIND_SERVICE.
    pub(super) fn open() -> io::Result<DhcpSocket> {
        let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        socket.set_only_v6(true)?;
        // Another server may serve other devices of the host.
        socket.set_reuse_address(true)?;
        // Only of groups that this socket joined.
        socket.set_multicast_all_v6(false)?;
        socket.set_multicast_loop_v6(false)?;
        setsockopt(&socket, Ipv6RecvPacketInfo, &true)?;
        let any = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, SERVER_PORT, 0, 0);
        socket.bind(&SockAddr::from(any))?;
        Ok(DhcpSocket { socket })
    }

    pub(super) fn join(&self, group: Ipv6Addr, device: u32) -> io::Result<()> {
        self.socket.join_multicast_v6(&group, device)
    }

    pub(super) fn leave(&self, group: Ipv6Addr, device: u32) -> io::Result<()> {
        self.socket.leave_multicast_v6(&group, device)
    }

    /// Receives a message; `WouldBlock` if there is none. `None`: a longer one, or one from nowhere.
    pub(super) fn recv(&self, buffer: &mut [u8]) -> io::Result<Option<Request>> {
        let mut parts = [IoSliceMut::new(buffer)];
        let mut control = nix::cmsg_space!(libc::in6_pktinfo);
        let message = recvmsg::<SockaddrIn6>(
            self.socket.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            MsgFlags::empty(),
        )?;
        let info = message.cmsgs().ok().and_then(|mut controls| {
            controls.find_map(|control| match control {
                ControlMessageOwned::Ipv6PacketInfo(info) => Some(info),
                _ => None,
            })
        });
        let whole = !message.flags.contains(MsgFlags::MSG_TRUNC);
        let (Some(source), Some(info), true) = (message.address, info, whole) else {
            return Ok(None);
        };
        Ok(Some(Request {
            len: message.bytes,
            source: source.ip(),
            destination: Ipv6Addr::from(info.ipi6_addr.s6_addr),
            device: info.ipi6_ifindex,
        }))
    }

    /// Sends a reply to a client.
    pub(super) fn send(
        &self,
        message: &[u8],
        source: Ipv6Addr,
        client: Ipv6Addr,
        device: u32,
    ) -> io::Result<()> {
        let info = libc::in6_pktinfo {
            ipi6_addr: libc::in6_addr { s6_addr: source.octets() },
            ipi6_ifindex: device,
        };
        let client = SockaddrIn6::from(SocketAddrV6::new(client, CLIENT_PORT, 0, device));
        let parts = [IoSlice::new(message)];
        let control = [ControlMessage::Ipv6PacketInfo(&info)];
        sendmsg(self.socket.as_raw_fd(), &parts, &control, MsgFlags::empty(), Some(&client))?;
        Ok(())
    }
}

impl AsFd for DhcpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for DhcpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
