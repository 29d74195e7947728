//! Sends packets that have waited for an address.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use socket2::{Domain, Protocol, Socket, Type};

/// IPPROTO_RAW: packets are written with their headers.
const RAW: i32 = 255;

/// A raw socket for whole IPv4 packets, which leave by one device.
#[derive(Debug)]
pub struct Injector(Socket);

impl Injector {
    /// Opens it. Needs CAP_NET_RAW.
    pub fn open(device: &str) -> io::Result<Injector> {
        let socket = Socket::new(Domain::IPV4, Type::RAW.nonblocking(), Some(Protocol::from(RAW)))?;
        socket.bind_device(Some(device.as_bytes()))?;
        Ok(Injector(socket))
    }

    /// Sends a whole packet; it passes routing and netfilter as any other of this host.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if this is no IPv4 packet, or the system's.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        let header = packet.get(..20).filter(|header| header[0] >> 4 == 4);
        let header = header.ok_or(io::ErrorKind::InvalidInput)?;
        let to = Ipv4Addr::new(header[16], header[17], header[18], header[19]);
        self.0.send_to(packet, &SocketAddrV4::new(to, 0).into()).map(drop)
    }
}
