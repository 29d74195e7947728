//! ICMPv6 errors for clients whose datagrams can't be passed on.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::time::Instant;

use fordway_wire::ipv6;
use fordway_xlat::IcmpErrors;

use super::settings::Settings;
use fordway_serve::Bucket;
use fordway_serve::message::MessageSocket;

/// What is wrong, as an ICMPv6 message says it (RFC 4443).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IcmpError {
    kind: u8,
    code: u8,
    /// The MTU or the pointer.
    rest: u32,
}

impl IcmpError {
    /// Communication is administratively prohibited.
    pub(super) const PROHIBITED: IcmpError = IcmpError { kind: 1, code: 1, rest: 0 };

    /// Neither a session nor a descriptor is left: an address can't be reached now.
    pub(super) const NO_ROOM: IcmpError = IcmpError { kind: 1, code: 3, rest: 0 };

    /// No IPv6 packet may be asked to be shorter than this (RFC 8200 section 5).
    const LEAST_MTU: u32 = 1280;

    /// What an IPv4 packet may have in one piece, of an IPv6 packet: the header is longer (RFC 7915 section 4.2).
    pub(super) fn too_big(mtu4: u32) -> IcmpError {
        IcmpError { kind: 2, code: 0, rest: mtu4.saturating_add(20).max(IcmpError::LEAST_MTU) }
    }

    /// The counterpart of an ICMPv4 error (RFC 7915 section 4.2); `None`: it has none. `mtu`: of "fragmentation needed".
    pub(super) fn of(kind4: u8, code4: u8, mtu: u32) -> Option<IcmpError> {
        let trouble = |kind, code, rest| Some(IcmpError { kind, code, rest });
        match (kind4, code4) {
            (3, 0 | 1 | 5..=8 | 11 | 12) => trouble(1, 0, 0),
            // Protocol unreachable: the pointer points to the Next Header field.
            (3, 2) => trouble(4, 1, 6),
            (3, 3) => trouble(1, 4, 0),
            (3, 4) => Some(IcmpError::too_big(mtu)),
            (3, 9 | 10 | 13 | 15) => trouble(1, 1, 0),
            (11, code) => trouble(3, code, 0),
            _ => None,
        }
    }
}

/// A client's datagram that an error is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quoted<'a> {
    pub(super) client: SocketAddrV6,
    pub(super) asked: SocketAddrV6,
    /// What it carries, or the beginning of it.
    pub(super) octets: &'a [u8],
}

/// Sends errors.
#[derive(Debug)]
pub(super) struct Errors {
    socket: MessageSocket,
    bucket: Bucket,
    message: Vec<u8>,
}

impl Errors {
    /// `socket`: one that may send from any address.
    pub(super) fn new(socket: MessageSocket) -> Errors {
        Errors { socket, bucket: Bucket::default(), message: Vec::new() }
    }

    /// Sends an error from `router`, a server's or an IPv4 router's; `None`: the address that the client has asked for.
    /// `false`: it was not sent.
    pub(super) fn send(
        &mut self,
        settings: &Settings,
        trouble: IcmpError,
        router: Option<Ipv4Addr>,
        about: Quoted<'_>,
        now: Instant,
    ) -> bool {
        let may_send = match settings.icmp {
            IcmpErrors::Off => false,
            IcmpErrors::Unlimited => true,
            IcmpErrors::Limited { per_second, burst } => self.bucket.take(per_second, burst, now),
        };
        if !may_send {
            return false;
        }
        let source = settings.embedded(router, *about.asked.ip());
        write(&mut self.message, trouble, about);
        // A link-local client is behind the device that it came by.
        let client = SocketAddrV6::new(*about.client.ip(), 0, 0, about.client.scope_id());
        let send = || self.socket.send_from(&self.message, source, client);
        match send() {
            // A pending error of the socket is told once.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => send().is_ok(),
            result => result.is_ok(),
        }
    }
}

/// Octets of an error at most: what passes every path in one piece, less the IPv6 header (RFC 4443 section 2.4 (c)).
const LONGEST: usize = 1240;

/// The message, from the type on. The kernel puts the checksum in.
fn write(message: &mut Vec<u8>, trouble: IcmpError, about: Quoted<'_>) {
    const UDP: u8 = 17;
    const HOP_LIMIT: u8 = 64;
    let length = about.octets.len() as u16 + 8;
    message.clear();
    message.extend([trouble.kind, trouble.code, 0, 0]);
    message.extend(trouble.rest.to_be_bytes());
    message.extend(0x6000_0000u32.to_be_bytes());
    message.extend(length.to_be_bytes());
    message.extend([UDP, HOP_LIMIT]);
    message.extend(about.client.ip().octets());
    message.extend(about.asked.ip().octets());
    debug_assert_eq!(message.len(), 8 + ipv6::HEADER_LEN);
    message.extend(about.client.port().to_be_bytes());
    message.extend(about.asked.port().to_be_bytes());
    message.extend(length.to_be_bytes());
    let sum = checksum(*about.client.ip(), *about.asked.ip(), &message[48..], about.octets);
    message.extend(sum.to_be_bytes());
    message.extend(about.octets);
    message.truncate(LONGEST);
}

/// A UDP checksum; `ports`: the header up to it.
pub(super) fn checksum(from: Ipv6Addr, to: Ipv6Addr, ports: &[u8], octets: &[u8]) -> u16 {
    use fordway_wire::checksum::pseudo_v6;
    let length = octets.len() as u32 + 8;
    let sum = pseudo_v6(from, to, 17, length).add_bytes(ports).add_bytes(octets).finish();
    // RFC 768: 0 is no checksum.
    if sum == 0 { 0xffff } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_counterparts_of_rfc_7915() {
        let of =
            |kind, code, mtu| IcmpError::of(kind, code, mtu).map(|it| (it.kind, it.code, it.rest));
        for (kind4, code4, mtu, expected) in [
            (3, 0, 0, Some((1, 0, 0))),
            (3, 1, 0, Some((1, 0, 0))),
            (3, 2, 0, Some((4, 1, 6))),
            (3, 3, 0, Some((1, 4, 0))),
            (3, 4, 1400, Some((2, 0, 1420))),
            (3, 4, 576, Some((2, 0, 1280))),
            (3, 13, 0, Some((1, 1, 0))),
            (3, 14, 0, None),
            (11, 0, 0, Some((3, 0, 0))),
            (11, 1, 0, Some((3, 1, 0))),
            (5, 0, 0, None),
        ] {
            assert_eq!(of(kind4, code4, mtu), expected, "{kind4}/{code4}");
        }
    }

    #[test]
    fn the_datagram_is_inside_as_the_client_sent_it() {
        let client: SocketAddrV6 = "[2001:db8:1::5]:4000".parse().unwrap();
        let asked: SocketAddrV6 = "[2001:db8:64::c000:207]:53".parse().unwrap();
        let mut message = Vec::new();
        write(&mut message, IcmpError::too_big(1400), Quoted { client, asked, octets: b"hello" });
        assert_eq!(&message[..8], [2, 0, 0, 0, 0, 0, 5, 140]);
        let header = ipv6::Ipv6Header::parse(&message[8..]).unwrap();
        assert_eq!((header.src, header.dst), (*client.ip(), *asked.ip()));
        let udp = &message[48..];
        assert_eq!(udp[..6], [0x0f, 0xa0, 0, 53, 0, 13]);
        assert_eq!(&udp[8..], b"hello");
        let whole =
            fordway_wire::checksum::pseudo_v6(header.src, header.dst, 17, 13).add_bytes(udp);
        assert_eq!(whole.finish(), 0);
        write(&mut message, IcmpError::PROHIBITED, Quoted { client, asked, octets: &[1; 3000] });
        assert_eq!(message.len(), LONGEST);
    }
}
