//! ICMPv4 errors about datagrams to servers, for the clients that have sent them.

use std::io::IoSliceMut;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;

use nix::libc;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg};
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover};

use super::super::core::{Core, Key};
use super::super::icmp::{IcmpError, Quoted};
use super::Udp;

/// Errors that are read before other work is done.
const TURN: usize = 16;

/// Octets of a datagram that an error quotes at most; more than fits into the error for the client.
const QUOTED: usize = 1232;

/// An error of a socket's queue.
struct Queued {
    server: SocketAddrV4,
    /// The router or server that sent it; `None`: this host.
    router: Option<Ipv4Addr>,
    kind: u8,
    code: u8,
    /// The MTU, in octets, if it is about that.
    mtu: u32,
    octets: usize,
}

impl Udp {
    /// Reads the errors of a client's IPv4 socket.
    pub(super) fn hear_errors(&mut self, key: Key, core: &mut Core) {
        let mut room = [0; QUOTED];
        for _ in 0..TURN {
            let Some(mapping) = self.mappings.get_mut(key) else { return };
            let Some(queued) = read(&mapping.socket, &mut room) else { return };
            let Some(queued) = queued else { continue };
            let Some(session) = self.sessions.get(&(key, queued.server)) else { continue };
            let Some(trouble) = IcmpError::of(queued.kind, queued.code, queued.mtu) else {
                continue;
            };
            if (queued.kind, queued.code) == TOO_BIG {
                core.counters.udp_too_big.add(1);
                if queued.mtu < LEAST_MTU4 && !mapping.cut {
                    // No client may be asked for packets as short as that (RFC 8200 section 5).
                    mapping.cut = true;
                    let _ = set_ip_mtu_discover(&mapping.socket, Ipv4PathMtuDiscovery::WANT);
                    continue;
                }
            }
            let octets = &room[..queued.octets];
            let about = Quoted { client: mapping.client, asked: session.asked, octets };
            let sent = self.errors.send(&core.settings, trouble, queued.router, about, core.now);
            core.count_icmp(sent);
        }
    }
}

/// Destination unreachable, fragmentation needed (RFC 792).
const TOO_BIG: (u8, u8) = (3, 4);

/// 1280 octets over IPv6 are as many as this over IPv4.
const LEAST_MTU4: u32 = 1260;

/// The next error; `Some(None)`: one without meaning for a client.
fn read(socket: &impl AsRawFd, room: &mut [u8]) -> Option<Option<Queued>> {
    let mut parts = [IoSliceMut::new(room)];
    // The control messages of each datagram come first.
    let mut control = nix::cmsg_space!(libc::sock_extended_err, libc::sockaddr_in, [u8; 64]);
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let message =
        recvmsg::<SockaddrIn>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags).ok()?;
    let server = message.address.map(|it| SocketAddrV4::new(it.ip(), it.port()));
    let octets = message.bytes;
    let mut found = None;
    for control in message.cmsgs().ok()? {
        if let ControlMessageOwned::Ipv4RecvErr(error, router) = control {
            found = Some((error, router));
        }
    }
    let (Some(server), Some((error, router))) = (server, found) else { return Some(None) };
    let local = error.ee_origin == libc::SO_EE_ORIGIN_LOCAL;
    if local && error.ee_errno != libc::EMSGSIZE as u32 {
        return Some(None);
    }
    if !local && error.ee_origin != libc::SO_EE_ORIGIN_ICMP {
        return Some(None);
    }
    let (kind, code) = if local { TOO_BIG } else { (error.ee_type, error.ee_code) };
    let router = router.map(|it| Ipv4Addr::from(u32::from_be(it.sin_addr.s_addr)));
    let router = router.filter(|router| !local && !router.is_unspecified());
    Some(Some(Queued { server, router, kind, code, mtu: error.ee_info, octets }))
}
