//! Sockets of which each thread of a service has its own.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};

/// A socket that does not block, for an address to [bind](Socket::bind) to.
///
/// With SO_REUSEPORT, the kernel spreads clients over the threads that have a socket of the address each. The address may
/// come later: with its device, or when duplicate address detection is over. `[::]` means IPv6 only.
///
/// # Errors
///
/// The system's.
pub fn socket(address: SocketAddr, kind: Type) -> io::Result<Socket> {
    let protocol = if kind == Type::STREAM { Protocol::TCP } else { Protocol::UDP };
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_port(true)?;
    match address {
        SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
        SocketAddr::V6(_) => {
            socket.set_only_v6(true)?;
            socket.set_freebind_v6(true)?;
        }
    }
    Ok(socket)
}

/// A TCP listener of one thread, as [`socket`]; `set` sets options that connections inherit.
///
/// # Errors
///
/// The system's.
pub fn listener(
    address: SocketAddr,
    backlog: i32,
    set: impl FnOnce(&Socket) -> io::Result<()>,
) -> io::Result<std::net::TcpListener> {
    let socket = socket(address, Type::STREAM)?;
    // Connections of a server that has ended do not keep the next one from its port.
    socket.set_reuse_address(true)?;
    set(&socket)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    Ok(socket.into())
}
