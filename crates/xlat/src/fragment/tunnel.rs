//! Pieces of a super-packet behind an IPv6 header, and of a tunnel packet (RFC 2473 section 7.2).
//!
//! Two cuts, one in the other: a super-packet into the segments that it stands for, and a packet that is longer than the
//! path allows into IPv6 fragments. No device can be told of a tunnelled super-packet, and none makes fragments of UDP
//! datagrams (RFC 7915 section 4.1). The headers of a segment are written anew, its payload stays where it is.

use fordway_wire::checksum::{Sum, pseudo_v4, pseudo_v6};
use fordway_wire::ipv4::{self, Ipv4Header};
use fordway_wire::ipv6::{self, FragmentHeader, Ipv6Header};
use fordway_wire::tcp::{self, flag};
use fordway_wire::{get_u8, get_u16, get_u32, protocol, put_u8, put_u16, put_u32, transport};

use crate::offload::{Gso, GsoKind, segment_header_len};

use super::{FRAGMENT_HEAD, Fragment, HEAD_MAX, take};

/// Octets of the longest IPv4 and TCP headers.
pub(super) const INNER_MAX: usize = 120;

/// Flags of the last segment alone (RFC 9293 section 3.1).
const FIN_PSH: u8 = flag::FIN | flag::PSH;

/// The pieces that are still to be given.
#[derive(Clone, Debug)]
pub(super) struct Tunnelled<'a> {
    outer: Ipv6Header,
    gso: Gso,
    limit: usize,
    identification: u32,
    /// The headers of a super-packet behind the IPv6 header: of UDP, or in a tunnel from the IPv4 header on. Empty if it
    /// is none.
    headers: &'a [u8],
    /// What no segment has taken yet.
    rest: &'a [u8],
    /// How many segments have been taken.
    taken: usize,
    /// A packet that is being cut into fragments.
    cut: Option<Cut<'a>>,
}

#[derive(Clone, Debug)]
struct Cut<'a> {
    rest: &'a [u8],
    fragment: FragmentHeader,
}

impl<'a> Tunnelled<'a> {
    /// `None`: the packet is not what translation makes.
    pub(super) fn new(
        packet: &'a [u8],
        gso: Gso,
        limit: usize,
        identification: u32,
    ) -> Option<Tunnelled<'a>> {
        let outer = Ipv6Header::parse(packet).ok()?;
        let inner = packet.get(ipv6::HEADER_LEN..)?;
        let mut headers = 0;
        if is_datagrams(&outer, gso) {
            headers = transport::UDP_HEADER_LEN;
        } else if gso.kind != GsoKind::None {
            let at = Ipv4Header::parse(inner).ok()?.header_len;
            headers = at + segment_header_len(gso.kind, inner.get(at..)?);
        }
        let (headers, rest) = inner.split_at_checked(headers.min(INNER_MAX))?;
        Some(Tunnelled { outer, gso, limit, identification, headers, rest, taken: 0, cut: None })
    }

    /// The next segment: its headers, and its payload.
    fn segment(&mut self) -> Option<([u8; INNER_MAX], &'a [u8])> {
        let mut headers = [0; INNER_MAX];
        headers[..self.headers.len()].copy_from_slice(self.headers);
        if self.gso.kind == GsoKind::None {
            return take(&mut self.rest, usize::MAX).map(|(body, _)| (headers, body));
        }
        let size = usize::from(self.gso.size).max(1);
        let (body, last) = take(&mut self.rest, size)?;
        let own = &mut headers[..self.headers.len()];
        if is_datagrams(&self.outer, self.gso) {
            write_datagram(own, body, &self.outer);
        } else {
            write_segment(own, body, self.taken, last, self.gso);
        }
        Some((headers, body))
    }

    fn whole(&self, headers: &[u8], body: &'a [u8]) -> Fragment<'a> {
        let payload_len = (headers.len() + body.len()) as u16;
        let mut head = [0; HEAD_MAX];
        let outer = Ipv6Header { payload_len, ..self.outer };
        head[..ipv6::HEADER_LEN].copy_from_slice(&outer.to_bytes());
        let head_len = ipv6::HEADER_LEN + headers.len();
        head[ipv6::HEADER_LEN..head_len].copy_from_slice(headers);
        Fragment { head, head_len, body }
    }

    /// A fragment whose data are `headers` and what fits of `cut` behind them.
    fn fragment(&mut self, headers: &[u8], mut cut: Cut<'a>) -> Option<Fragment<'a>> {
        let room = (self.limit.saturating_sub(FRAGMENT_HEAD) & !7).max(8);
        let (body, last) = take(&mut cut.rest, room.saturating_sub(headers.len()).max(8))?;
        let data = headers.len() + body.len();
        let fragment = FragmentHeader { more: !last, ..cut.fragment };
        let outer = Ipv6Header {
            payload_len: (ipv6::FRAGMENT_HEADER_LEN + data) as u16,
            next_header: protocol::IPV6_FRAG,
            ..self.outer
        };
        let mut head = [0; HEAD_MAX];
        let head_len = FRAGMENT_HEAD + headers.len();
        head[..ipv6::HEADER_LEN].copy_from_slice(&outer.to_bytes());
        head[ipv6::HEADER_LEN..FRAGMENT_HEAD].copy_from_slice(&fragment.to_bytes());
        head[FRAGMENT_HEAD..head_len].copy_from_slice(headers);
        cut.fragment.offset += data;
        self.cut = (!last).then_some(cut);
        Some(Fragment { head, head_len, body })
    }
}

impl<'a> Iterator for Tunnelled<'a> {
    type Item = Fragment<'a>;

    fn next(&mut self) -> Option<Fragment<'a>> {
        if let Some(cut) = self.cut.take() {
            return self.fragment(&[], cut);
        }
        let len = self.headers.len();
        let (headers, body) = self.segment()?;
        let identification = self.identification.wrapping_add(self.taken as u32);
        self.taken += 1;
        if ipv6::HEADER_LEN + len + body.len() <= self.limit {
            return Some(self.whole(&headers[..len], body));
        }
        let next_header = self.outer.next_header;
        let fragment = FragmentHeader { next_header, offset: 0, more: true, identification };
        self.fragment(&headers[..len], Cut { rest: body, fragment })
    }
}

/// Whether it is a super-packet of UDP that is in no tunnel.
fn is_datagrams(header: &Ipv6Header, gso: Gso) -> bool {
    gso.kind == GsoKind::Udp && header.next_header == protocol::UDP
}

/// Makes of the UDP header of a super-packet that of one datagram.
fn write_datagram(header: &mut [u8], body: &[u8], ip: &Ipv6Header) {
    let len = header.len() + body.len();
    put_u16(header, transport::UDP_LENGTH_AT, len as u16);
    put_u16(header, transport::UDP_CHECKSUM_AT, 0);
    let pseudo = pseudo_v6(ip.src, ip.dst, protocol::UDP, len as u32);
    let sum = pseudo.add_bytes(header) + Sum::ZERO.add_bytes(body);
    put_u16(header, transport::UDP_CHECKSUM_AT, transport::never_zero(protocol::UDP, sum.finish()));
}

/// Makes of the headers of a super-packet those of its segment number `index`.
fn write_segment(headers: &mut [u8], body: &[u8], index: usize, last: bool, gso: Gso) {
    let at = usize::from(get_u8(headers, 0) & 15) * 4;
    let total_len = (headers.len() + body.len()) as u16;
    let identification = get_u16(headers, 4).wrapping_add(index as u16);
    put_u16(headers, 4, identification);
    ipv4::set_total_len(headers.get_mut(..at).unwrap_or_default(), total_len);
    let Ok(ip) = Ipv4Header::parse(headers) else { return };
    let len = usize::from(total_len).saturating_sub(at);
    let header = headers.get_mut(at..).unwrap_or_default();
    let field = if gso.kind == GsoKind::Udp {
        put_u16(header, transport::UDP_LENGTH_AT, len as u16);
        transport::UDP_CHECKSUM_AT
    } else {
        let sent = (index * usize::from(gso.size)) as u32;
        let sequence = get_u32(header, tcp::SEQ_AT).wrapping_add(sent);
        put_u32(header, tcp::SEQ_AT, sequence);
        let mut flags = tcp::flags(header);
        if !last {
            flags &= !FIN_PSH;
        }
        if index != 0 && gso.ecn {
            // RFC 3168 section 6.1: the first segment says it.
            flags &= !flag::CWR;
        }
        put_u8(header, tcp::FLAGS_AT, flags);
        tcp::CHECKSUM_AT
    };
    put_u16(header, field, 0);
    let sum = pseudo_v4(ip.src, ip.dst, ip.protocol, len as u32).add_bytes(header)
        + Sum::ZERO.add_bytes(body);
    put_u16(header, field, transport::never_zero(ip.protocol, sum.finish()));
}

#[cfg(test)]
mod tests;
