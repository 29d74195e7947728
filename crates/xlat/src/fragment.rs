//! Pieces of a packet that does not fit (RFC 7915 sections 4.1 and 5.1.1, RFC 2473 section 7.2).
//!
//! Translation leaves the packet whole in its buffer, with a header that can be split: an IPv6
//! header with a Fragment Header, or an IPv4 header without options. [`Fragments`] then gives each
//! piece as a head of its own and a slice of the payload, so that nothing is copied. The pieces of a packet in
//! an IPv6 tunnel, which may be a super-packet, are made in `tunnel.rs`.

mod tunnel;

use fordway_wire::ipv4::{self, Ipv4Header};
use fordway_wire::ipv6::{self, FragmentHeader, Ipv6Header};

use crate::offload::Gso;

use tunnel::{INNER_MAX, Tunnelled};

const FRAGMENT_HEAD: usize = ipv6::HEADER_LEN + ipv6::FRAGMENT_HEADER_LEN;

const HEAD_MAX: usize = FRAGMENT_HEAD + INNER_MAX;

/// How a packet is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Fragments.
    Fragments {
        /// Payload octets of each piece but the last: a multiple of 8, at least 8.
        piece: usize,
    },
    /// Segments of a tunnelled super-packet, and their fragments.
    Tunnel {
        /// How the packet in the tunnel is to be cut.
        gso: Gso,
        /// Octets of a piece at most.
        limit: usize,
        /// Of the first packet's fragments.
        identification: u32,
    },
}

impl Plan {
    /// The plan for a packet whose header has `head` octets and whose pieces may have `limit` octets
    /// with that header. `limit` is at least 68, so that a piece holds at least 8 octets.
    pub(crate) fn new(limit: usize, head: usize) -> Plan {
        Plan::Fragments { piece: (limit.saturating_sub(head) & !7).max(8) }
    }

    pub(crate) fn tunnel(gso: Gso, limit: usize, identification: u32) -> Plan {
        Plan::Tunnel { gso, limit, identification }
    }
}

/// A piece of a packet: `head` then `body`.
#[derive(Clone, Copy, Debug)]
pub struct Fragment<'a> {
    head: [u8; HEAD_MAX],
    head_len: usize,
    /// The octets behind the head, borrowed from the packet.
    pub body: &'a [u8],
}

impl Fragment<'_> {
    /// The octets that come first: the piece's own header; empty for a packet that is not split.
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }
}

/// The pieces of a packet, in order.
#[derive(Clone, Debug)]
pub struct Fragments<'a> {
    state: Pieces<'a>,
}

#[derive(Clone, Debug)]
enum Pieces<'a> {
    Whole(Option<&'a [u8]>),
    V4 { header: Ipv4Header, rest: &'a [u8], piece: usize },
    V6 { header: Ipv6Header, fragment: FragmentHeader, rest: &'a [u8], piece: usize },
    Tunnelled(Tunnelled<'a>),
}

impl<'a> Fragments<'a> {
    pub(crate) fn new(packet: &'a [u8], plan: Option<Plan>) -> Fragments<'a> {
        let state = plan
            .and_then(|plan| split(packet, plan))
            .unwrap_or(Pieces::Whole((!packet.is_empty()).then_some(packet)));
        Fragments { state }
    }
}

/// Reads back the header that translation made; `None` only if it made none that can be split.
fn split(packet: &[u8], plan: Plan) -> Option<Pieces<'_>> {
    let piece = match plan {
        Plan::Fragments { piece } => piece,
        Plan::Tunnel { gso, limit, identification } => {
            let pieces = Tunnelled::new(packet, gso, limit, identification)?;
            return Some(Pieces::Tunnelled(pieces));
        }
    };
    if let Ok(header) = Ipv4Header::parse(packet) {
        let rest = packet.get(ipv4::HEADER_LEN..)?;
        return Some(Pieces::V4 { header, rest, piece });
    }
    let header = Ipv6Header::parse(packet).ok()?;
    let fragment = FragmentHeader::parse(packet.get(ipv6::HEADER_LEN..)?).ok()?;
    let rest = packet.get(FRAGMENT_HEAD..)?;
    Some(Pieces::V6 { header, fragment, rest, piece })
}

impl<'a> Iterator for Fragments<'a> {
    type Item = Fragment<'a>;

    fn next(&mut self) -> Option<Fragment<'a>> {
        match &mut self.state {
            Pieces::Whole(packet) => {
                let body = packet.take()?;
                Some(Fragment { head: [0; HEAD_MAX], head_len: 0, body })
            }
            Pieces::V4 { header, rest, piece } => {
                let (body, last) = take(rest, *piece)?;
                let own = Ipv4Header {
                    total_len: (ipv4::HEADER_LEN + body.len()) as u16,
                    more_fragments: !last || header.more_fragments,
                    ..*header
                };
                header.fragment_offset += body.len();
                let mut head = [0; HEAD_MAX];
                head[..ipv4::HEADER_LEN].copy_from_slice(&own.to_bytes());
                Some(Fragment { head, head_len: ipv4::HEADER_LEN, body })
            }
            Pieces::V6 { header, fragment, rest, piece } => {
                let (body, last) = take(rest, *piece)?;
                let own = Ipv6Header {
                    payload_len: (ipv6::FRAGMENT_HEADER_LEN + body.len()) as u16,
                    ..*header
                };
                let more = !last || fragment.more;
                let own_fragment = FragmentHeader { more, ..*fragment };
                fragment.offset += body.len();
                let mut head = [0; HEAD_MAX];
                head[..ipv6::HEADER_LEN].copy_from_slice(&own.to_bytes());
                head[ipv6::HEADER_LEN..FRAGMENT_HEAD].copy_from_slice(&own_fragment.to_bytes());
                Some(Fragment { head, head_len: FRAGMENT_HEAD, body })
            }
            Pieces::Tunnelled(pieces) => pieces.next(),
        }
    }
}

/// Takes the next piece off `rest`, and tells whether it is the last.
fn take<'a>(rest: &mut &'a [u8], piece: usize) -> Option<(&'a [u8], bool)> {
    if rest.is_empty() {
        return None;
    }
    let (body, left) = rest.split_at(piece.min(rest.len()));
    *rest = left;
    Some((body, left.is_empty()))
}
