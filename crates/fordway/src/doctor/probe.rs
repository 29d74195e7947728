//! Echo requests, and whatever answers them.

use std::io;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::{Duration, Instant};

use fordway_wire::icmp::{HEADER_LEN, IcmpHeader, v6};
use fordway_wire::ipv6::{self, Ipv6Header};
use fordway_wire::protocol;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recvfrom, sendto,
    socket_with, sockopt,
};

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The destination answered.
    Reply,
    /// A router's MTU is smaller.
    TooBig(u32),
    /// A router let the hop limit end.
    HopLimit,
    /// It can't be delivered: the code of RFC 4443 section 3.1.
    Unreachable(u8),
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Who sent it.
    pub(super) from: Ipv6Addr,
    /// The number of the request.
    pub(super) sequence: u16,
    pub(super) kind: Kind,
}

/// A raw ICMPv6 socket. Needs `CAP_NET_RAW`.
pub(super) struct Prober {
    socket: OwnedFd,
    id: u16,
    sequence: u16,
}

impl Prober {
    pub(super) fn open() -> io::Result<Prober> {
        let socket = socket_with(
            AddressFamily::INET6,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(ipproto::ICMPV6),
        )?;
        let turn = Some(Duration::from_millis(50));
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, turn)?;
        let id = getrandom::u32().map_err(io::Error::other)? as u16;
        Ok(Prober { socket, id, sequence: 0 })
    }

    /// Sends one request of `octets` with its IPv6 header. Gives its number.
    pub(super) fn send(&mut self, to: Ipv6Addr, hop_limit: u8, octets: usize) -> io::Result<u16> {
        self.sequence = self.sequence.wrapping_add(1);
        sockopt::set_ipv6_unicast_hops(&self.socket, Some(hop_limit))?;
        let length = octets.saturating_sub(ipv6::HEADER_LEN).max(HEADER_LEN);
        let mut message = vec![0u8; length];
        message[0] = v6::ECHO_REQUEST;
        message[4..6].copy_from_slice(&self.id.to_be_bytes());
        message[6..8].copy_from_slice(&self.sequence.to_be_bytes());
        // The kernel computes the checksum of ICMPv6 (RFC 3542 section 3.1).
        let to = SocketAddrV6::new(to, 0, 0, 0);
        sendto(&self.socket, &message, SendFlags::empty(), &to)?;
        Ok(self.sequence)
    }

    /// Waits for answers to this prober's requests until `enough` says so, or the time is over.
    pub(super) fn gather(
        &self,
        wait: Duration,
        enough: impl Fn(&[Answer]) -> bool,
    ) -> io::Result<Vec<Answer>> {
        let deadline = Instant::now() + wait;
        let mut answers = Vec::new();
        let mut buffer = [0u8; 2048];
        while Instant::now() < deadline && !enough(&answers) {
            let (length, from) = match recvfrom(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((length, _, from)) => (length, from),
                Err(Errno::AGAIN | Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let Some(Ok(from)) = from.map(SocketAddrV6::try_from) else { continue };
            if let Some((sequence, kind)) = read(&buffer[..length], self.id) {
                answers.push(Answer { from: *from.ip(), sequence, kind });
            }
        }
        Ok(answers)
    }

    /// One request, repeated twice if nothing answers: its first answer.
    pub(super) fn ask(&mut self, to: Ipv6Addr, octets: usize) -> io::Result<Option<Answer>> {
        for _ in 0..3 {
            let sequence = self.send(to, 64, octets)?;
            let is_ours = |answer: &Answer| answer.sequence == sequence;
            let answers = self.gather(Duration::from_millis(700), |all| all.iter().any(is_ours))?;
            if let Some(answer) = answers.into_iter().find(is_ours) {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }
}

/// The number of the request that a message belongs to, and what it says; `None`: not about ours.
fn read(message: &[u8], id: u16) -> Option<(u16, Kind)> {
    let header = IcmpHeader::parse(message)?;
    let kind = match header.kind {
        v6::ECHO_REPLY => return Some((echo(&header, id)?, Kind::Reply)),
        v6::PACKET_TOO_BIG => Kind::TooBig(header.rest),
        v6::TIME_EXCEEDED => Kind::HopLimit,
        v6::UNREACHABLE => Kind::Unreachable(header.code),
        _ => return None,
    };
    let quoted = Ipv6Header::parse(&message[HEADER_LEN..]).ok()?;
    let inner = IcmpHeader::parse(&message[HEADER_LEN + ipv6::HEADER_LEN..])?;
    let is_echo = quoted.next_header == protocol::ICMPV6 && inner.kind == v6::ECHO_REQUEST;
    Some((is_echo.then(|| echo(&inner, id))??, kind))
}

/// The number of an echo message of ours.
fn echo(header: &IcmpHeader, id: u16) -> Option<u16> {
    ((header.rest >> 16) as u16 == id).then_some(header.rest as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Vec<u8> {
        let mut inner = vec![0x60, 0, 0, 0, 0, 8, protocol::ICMPV6, 64];
        inner.extend([0; 32]);
        inner.extend([v6::ECHO_REQUEST, 0, 0, 0, 0x12, 0x34, 0, 7]);
        inner
    }

    #[test]
    fn replies_and_errors_name_their_request() {
        assert_eq!(
            read(&[v6::ECHO_REPLY, 0, 0, 0, 0x12, 0x34, 0, 7], 0x1234),
            Some((7, Kind::Reply))
        );
        let error = |kind: u8, code: u8| {
            let mut message = vec![kind, code, 0, 0, 0, 0, 5, 20];
            message.extend(request());
            read(&message, 0x1234)
        };
        assert_eq!(error(v6::PACKET_TOO_BIG, 0), Some((7, Kind::TooBig(1300))));
        assert_eq!(error(v6::TIME_EXCEEDED, 0), Some((7, Kind::HopLimit)));
        assert_eq!(error(v6::UNREACHABLE, 1), Some((7, Kind::Unreachable(1))));
    }

    #[test]
    fn what_is_not_ours_or_cut_short_is_passed_over() {
        assert_eq!(read(&[v6::ECHO_REPLY, 0, 0, 0, 0x12, 0x35, 0, 7], 0x1234), None);
        let mut message = vec![v6::TIME_EXCEEDED, 0, 0, 0, 0, 0, 0, 0];
        message.extend(request());
        for length in 0..message.len() {
            assert_eq!(read(&message[..length], 0x1234), None, "{length}");
        }
        message[8 + 6] = 17;
        assert_eq!(read(&message, 0x1234), None);
    }
}
