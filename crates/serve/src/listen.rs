//! Sockets of which each thread of a service has its own.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// How long nothing is taken when the system has no room for connections.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket that does not block, for an address to [bind](Socket::bind) to.
///
/// With SO_REUSEPORT, the kernel spreads clients over the threads that have a socket of the address each. The address may
/// come later: with its device, or when duplicate address detection is over. `[::]` means IPv6 only.
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

/// Gives every connection that comes to `take`; never ends. `service` names the service in the log.
pub async fn accept(
    listener: &tokio::net::TcpListener,
    service: &str,
    take: impl Fn(tokio::net::TcpStream, SocketAddr),
) {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, PermissionDenied};
    loop {
        match listener.accept().await.map_err(|error| (error.kind(), error)) {
            Ok((stream, peer)) => take(stream, peer),
            // Errors of the connection that was to be taken (accept(2)).
            Err((ConnectionAborted | ConnectionReset | Interrupted | PermissionDenied, _)) => {}
            Err((_, error)) => {
                tracing::debug!("a listener of the {service} takes no connection: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
