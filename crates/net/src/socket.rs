//! The ports that sockets of this host wait on.

use std::net::{IpAddr, Ipv4Addr};

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_sock_diag::inet::nlas::Nla;
use netlink_packet_sock_diag::inet::{
    ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags,
};
use netlink_packet_sock_diag::{AF_INET, AF_INET6, SockDiagMessage};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use crate::netlink::{connect, exchange};
use crate::{Error, Result};

/// A transport protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    /// Its number in an IPv4 header.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => libc::IPPROTO_TCP as u8,
            Self::Udp => libc::IPPROTO_UDP as u8,
        }
    }

    /// Its name in small letters.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// A socket that receives IPv4 packets from any host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BoundSocket {
    /// The protocol.
    pub transport: Transport,
    /// The address; 0.0.0.0 stands for all of the host's.
    pub address: Ipv4Addr,
    /// The port.
    pub port: u16,
}

/// Lists sockets of the calling thread's network namespace: TCP ones that listen, and UDP ones that are bound and not
/// connected. Each once, in order. IPv6 sockets that take IPv4, too, are among them. A protocol that the kernel tells
/// nothing of is left out.
///
/// # Errors
///
/// [`Error::Netlink`], [`Error::Answer`].
pub fn bound_sockets() -> Result<Vec<BoundSocket>> {
    let mut sockets = Vec::new();
    for transport in [Transport::Tcp, Transport::Udp] {
        for family in [AF_INET, AF_INET6] {
            match list(family, transport) {
                Ok(found) => sockets.extend(found),
                Err(error) if error.errno() == Some(libc::ENOENT) => {}
                Err(error) => return Err(error),
            }
        }
    }
    sockets.sort_unstable();
    sockets.dedup();
    Ok(sockets)
}

/// Asks on a socket of its own.
fn list(family: u8, transport: Transport) -> Result<Vec<BoundSocket>> {
    let operation = || format!("list {} sockets", transport.label());
    let request = InetRequest {
        family,
        protocol: transport.number(),
        extensions: ExtensionFlags::empty(),
        // A UDP socket that is not connected is "closed".
        states: match transport {
            Transport::Tcp => StateFlags::LISTEN,
            Transport::Udp => StateFlags::CLOSE,
        },
        socket_id: if family == AF_INET { SocketId::new_v4() } else { SocketId::new_v6() },
    };
    let socket =
        connect(NETLINK_SOCK_DIAG).map_err(|source| Error::netlink(operation(), source))?;
    let request = SockDiagMessage::InetRequest(request);
    let (answers, _) = exchange(&socket, request, NLM_F_DUMP, 1, &operation)?;
    let found = answers.iter().filter_map(|answer| match answer {
        SockDiagMessage::InetResponse(response) => into_socket(response, transport),
        _ => None,
    });
    Ok(found.collect())
}

/// The IPv4 side of a socket, if it has one and has a port.
fn into_socket(response: &InetResponse, transport: Transport) -> Option<BoundSocket> {
    let id = &response.header.socket_id;
    let only_v6 = response.nlas.iter().any(|it| matches!(it, Nla::SkV6Only(true)));
    let address = match id.source_address {
        IpAddr::V4(address) => address,
        IpAddr::V6(address) if address.is_unspecified() && !only_v6 => Ipv4Addr::UNSPECIFIED,
        IpAddr::V6(address) => address.to_ipv4_mapped()?,
    };
    (id.source_port != 0).then_some(BoundSocket { transport, address, port: id.source_port })
}
