//! State of a client's port, and of a server that it uses.

use std::net::{Ipv4Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::time::Instant;

use fordway_xlat::TrafficClass;
use nix::sys::socket::{setsockopt, sockopt};
use rustix::io::Errno;
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover, set_ip_recvtos, set_ip_tos};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

use super::super::settings::Settings;
use fordway_serve::{Network, Ticket};

/// A client's port and its IPv4 socket.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) socket: OwnedFd,
    pub(super) client: SocketAddrV6,
    /// The network in whose limit its sessions count.
    pub(super) network: Network,
    pub(super) sessions: usize,
    /// Its datagrams are fragmented where they don't fit, since IPv6 has no path MTU so small.
    pub(super) cut: bool,
}

/// A client's port and a server's.
#[derive(Debug)]
pub(super) struct Session {
    /// The address that the client uses for the server.
    pub(super) asked: SocketAddrV6,
    pub(super) active: Instant,
    pub(super) opened: Instant,
    /// Octets from the server.
    pub(super) down: u64,
    /// When it is checked next.
    pub(super) timer: Option<Instant>,
    /// It counts for the network of its client.
    _ticket: Ticket,
}

impl Session {
    pub(super) fn new(asked: SocketAddrV6, ticket: Ticket, now: Instant) -> Session {
        Session { asked, active: now, opened: now, down: 0, timer: None, _ticket: ticket }
    }
}

/// A socket towards servers.
pub(super) fn socket(settings: &Settings, source: Option<Ipv4Addr>) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    // What IPv6 hosts send is not fragmented on its way, unless they have fragmented it themselves.
    set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO)?;
    setsockopt(&socket, sockopt::Ipv4RecvErr, &true)
        .map_err(|errno| Errno::from_raw_os_error(errno as i32))?;
    match settings.class {
        TrafficClass::Copy => set_ip_recvtos(&socket, true)?,
        TrafficClass::Set(class) => set_ip_tos(&socket, class)?,
    }
    bind(&socket, &SocketAddrV4::new(source.unwrap_or(Ipv4Addr::UNSPECIFIED), 0))?;
    Ok(socket)
}
