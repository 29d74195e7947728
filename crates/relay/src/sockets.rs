//! The sockets of a relay. Taking them needs CAP_NET_ADMIN or CAP_NET_RAW, using them nothing.

use std::io;
use std::net::{Ipv6Addr, SocketAddrV6, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use fordway_net::{keep_syn, tell_fragmented};
use fordway_xlat::TrafficClass;
use nix::sys::socket::{setsockopt, sockopt};
use rustix::io::Errno;
use rustix::net::sockopt as option;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use super::settings::Settings;
use fordway_serve::message::MessageSocket;

/// Connections that wait to be taken. The kernel has at most net.core.somaxconn, and answers what goes beyond with SYN
/// cookies.
const BACKLOG: i32 = 4096;

/// Room for datagrams that wait, in octets.
const RECEIVE_ROOM: usize = 4 << 20;

/// Octets of room for datagrams that leave.
const SEND_ROOM: usize = 1 << 20;

const UDP: i32 = 17;

/// The sockets of a thread.
#[derive(Debug)]
pub(super) struct Sockets {
    pub(super) tcp: Option<TcpListener>,
    pub(super) udp: Option<Datagrams>,
}

/// What a thread needs for datagrams.
#[derive(Debug)]
pub(super) struct Datagrams {
    pub(super) socket: UdpSocket,
    /// Raw, for answers from any address and port.
    pub(super) answers: Socket,
    /// For ICMPv6 errors from any address.
    pub(super) errors: MessageSocket,
}

/// Takes connections to any address, on ::1 and this port; 0: the system chooses.
pub(super) fn tcp(settings: &Settings, port: u16) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_ip_transparent_v6(true)?;
    // Connections that an earlier relay has ended do not keep this one from its port.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    // Connections inherit what the listening socket has.
    socket.set_tcp_nodelay(true)?;
    socket.set_out_of_band_inline(true)?;
    socket.bind(&SocketAddrV6::new(Ipv6Addr::LOCALHOST, port, 0, 0).into())?;
    socket.listen(BACKLOG)?;
    let listener = socket.into();
    follow_settings(&listener, settings)?;
    Ok(listener)
}

/// What new connections of clients inherit of the settings.
pub(super) fn follow_settings(listener: &TcpListener, settings: &Settings) -> io::Result<()> {
    match settings.class {
        TrafficClass::Copy => keep_syn(listener)?,
        TrafficClass::Set(class) => option::set_ipv6_tclass(listener, class.into())?,
    }
    Ok(keepalive(listener, settings.keepalive)?)
}

/// Has the kernel probe a connection that is silent for so long.
pub(super) fn keepalive(socket: impl AsFd, after: Option<Duration>) -> Result<(), Errno> {
    /// Probes that a peer may leave without an answer, and the time between them at most.
    const PROBES: u32 = 5;
    const BETWEEN: Duration = Duration::from_secs(30);
    let socket = socket.as_fd();
    let Some(after) = after else { return option::set_socket_keepalive(socket, false) };
    option::set_tcp_keepidle(socket, after)?;
    option::set_tcp_keepintvl(socket, after.min(BETWEEN))?;
    option::set_tcp_keepcnt(socket, PROBES)?;
    option::set_socket_keepalive(socket, true)
}

/// Takes datagrams to any address, on ::1 and this port; 0: the system chooses.
pub(super) fn udp(port: u16) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_ip_transparent_v6(true)?;
    socket.set_reuse_port(true)?;
    setsockopt(&socket, sockopt::Ipv6OrigDstAddr, &true)?;
    socket.set_recv_tclass_v6(true)?;
    tell_fragmented(&socket)?;
    // Beyond net.core.rmem_max where that is allowed; what the system gives is enough otherwise.
    if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_ROOM).is_err() {
        let _ = socket.set_recv_buffer_size(RECEIVE_ROOM);
    }
    socket.bind(&SocketAddrV6::new(Ipv6Addr::LOCALHOST, port, 0, 0).into())?;
    Ok(socket.into())
}

/// A raw socket for datagrams from any address and port.
pub(super) fn answers() -> io::Result<Socket> {
    let socket = raw()?;
    let _ = socket.set_send_buffer_size(SEND_ROOM);
    // It receives from ::1 alone, so the kernel makes no copies for it.
    let _ = socket.connect(&SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0, 0, 0).into());
    Ok(socket)
}

/// A raw socket for the kernel to find when an ICMPv6 error is about an answer: so it learns path MTUs.
pub(super) fn listens_for_errors() -> io::Result<Socket> {
    let socket = raw()?;
    // The kernel learns path MTUs from errors only if a socket asks for them. They are not read here, so that as few as
    // possible are queued.
    setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?;
    let _ = socket.set_recv_buffer_size(0);
    Ok(socket)
}

fn raw() -> io::Result<Socket> {
    const RETURN: u16 = 0x06;
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::from(UDP)))?;
    socket.set_nonblocking(true)?;
    // Nothing that it receives is queued.
    socket.attach_filter(&[SockFilter::new(RETURN, 0, 0, 0)])?;
    socket.set_freebind_v6(true)?;
    Ok(socket)
}

/// For ICMPv6 errors from any address.
pub(super) fn errors() -> io::Result<MessageSocket> {
    let socket = MessageSocket::icmp6(&[])?;
    socket.any_source()?;
    Ok(socket)
}
