//! DNS messages in the path of packets (RFC 2766 section 4): the interface to the DNS ALG.
//!
//! Packets are taken apart and put together here; a [`DnsReader`], which another crate implements, reads and writes the
//! messages. Only UDP packets with port 53 at one end come here.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt::Debug;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::Range;
use core::time::Duration;

use fordway_wire::checksum::{pseudo_v4, pseudo_v6};
use fordway_wire::ipv4::{self, Ipv4Header};
use fordway_wire::ipv6::{self, Ipv6Header};
use fordway_wire::{get_u16, protocol, put_u16, set_ip_len, transport};

use crate::config::Config;
use crate::nat64::{Nat64, Side};
use crate::offload::{GsoKind, Offload};
use crate::packet::Packet;
use crate::state::State;
use crate::trace::{Step, Trace};
use crate::verdict::{DropReason, Verdict};

pub use crate::verdict::DnsAction;

#[cfg(test)]
mod tests;

/// The port of DNS.
pub const PORT: u16 = 53;

/// Reads the messages that pass, and changes them.
pub trait DnsReader: Any + Debug + Send + Sync {
    /// What becomes of a message; what is to be sent in its place is put into `out`, which is empty.
    fn message(&self, exchange: &Exchange<'_>, message: &[u8], out: &mut Vec<u8>) -> DnsAction;
}

/// A DNS ALG.
pub type Dns = Arc<dyn DnsReader>;

/// The ends of a message.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// Where it comes from.
    pub from: Side,
    /// (X',x): the IPv6 end.
    pub host: (Ipv6Addr, u16),
    /// (T,t): its address in IPv4.
    pub local: (Ipv4Addr, u16),
    /// (Z,z): the IPv4 end.
    pub remote: (Ipv4Addr, u16),
    /// The translation prefixes.
    pub config: &'a Config,
    /// The tables.
    pub nat64: &'a Nat64,
    /// The time.
    pub now: Duration,
    /// A number of the thread's own.
    pub shard: usize,
}

/// The ends of a UDP datagram that may be DNS, as it came.
#[derive(Clone, Copy, Debug)]
enum Ends {
    V4((Ipv4Addr, u16), (Ipv4Addr, u16)),
    V6((Ipv6Addr, u16), (Ipv6Addr, u16)),
}

/// Addresses and ports of a whole UDP datagram, and where its payload lies.
fn udp_v4(packet: &[u8]) -> Option<(Ends, Range<usize>)> {
    let header = Ipv4Header::parse(packet).ok()?;
    if header.protocol != protocol::UDP || header.is_fragment() {
        return None;
    }
    let (src, dst, payload) = datagram(packet, header.header_len)?;
    Some((Ends::V4((header.src, src), (header.dst, dst)), payload))
}

fn udp_v6(packet: &[u8]) -> Option<(Ends, Range<usize>)> {
    let header = Ipv6Header::parse(packet).ok()?;
    let extensions = ipv6::walk(packet, header.next_header).ok()?;
    let is_fragment = extensions.fragment.is_some_and(|it| it.offset != 0 || it.more);
    if extensions.protocol != protocol::UDP || is_fragment {
        return None;
    }
    let (src, dst, payload) = datagram(packet, extensions.header_len)?;
    Some((Ends::V6((header.src, src), (header.dst, dst)), payload))
}

fn udp(packet: &[u8]) -> Option<(Ends, Range<usize>)> {
    match packet.first()? >> 4 {
        4 => udp_v4(packet),
        _ => udp_v6(packet),
    }
}

fn datagram(packet: &[u8], at: usize) -> Option<(u16, u16, Range<usize>)> {
    let segment = packet.get(at..)?;
    let len = transport::udp_len(segment);
    let whole = (transport::UDP_HEADER_LEN..=segment.len()).contains(&len);
    let payload = at + transport::UDP_HEADER_LEN..at + len;
    whole.then(|| (get_u16(segment, 0), get_u16(segment, 2), payload))
}

impl Ends {
    /// Of a packet as it came. `None`: it is no DNS over UDP, or not in one piece. What the host's own port is, which
    /// may be 53 behind a port forward, is known later.
    fn of(packet: &Packet<'_>) -> Option<Ends> {
        let bytes = packet.bytes();
        // Most packets are none: one look at the protocol.
        let protocol = match bytes.first()? >> 4 {
            4 => bytes.get(9),
            6 => bytes.get(6),
            _ => None,
        }?;
        let may_be = matches!(*protocol, protocol::UDP | protocol::IPV6_FRAG)
            && packet.offload.gso.kind == GsoKind::None;
        may_be.then(|| udp(bytes)).flatten().map(|(ends, _)| ends)
    }
}

/// The DNS ALG with the context of one packet.
pub(crate) struct Hook<'a> {
    dns: &'a dyn DnsReader,
    nat64: &'a Nat64,
    config: &'a Config,
    now: Duration,
    shard: usize,
    /// The packet's ends as it came.
    before: Ends,
}

impl<'a> Hook<'a> {
    /// Before a packet is translated. `None`: there is no DNS ALG, or the packet is none for it.
    #[inline]
    pub(crate) fn of(
        config: &'a Config,
        nat64: &'a Nat64,
        packet: &Packet<'_>,
        now: Duration,
        shard: usize,
    ) -> Option<Hook<'a>> {
        let dns = nat64.settings().dns.as_deref()?;
        Some(Hook { dns, nat64, config, now, shard, before: Ends::of(packet)? })
    }

    /// Shows a translated packet's message to the ALG.
    pub(crate) fn take(
        &self,
        packet: &mut Packet<'_>,
        state: &mut State,
        trace: &mut impl Trace,
    ) -> Verdict {
        let Some((after, payload)) = udp(packet.bytes()) else { return Verdict::Forward };
        let Some(exchange) = self.exchange(&after) else { return Verdict::Forward };
        let mut out = core::mem::take(&mut state.octets);
        out.clear();
        let message = packet.bytes().get(payload.clone()).unwrap_or_default();
        let action = self.dns.message(&exchange, message, &mut out);
        trace.step(Step::Dns(action));
        let done = match action {
            DnsAction::Pass => true,
            DnsAction::Replace => {
                let head = payload.start - transport::UDP_HEADER_LEN;
                replace_behind(packet, payload.start, &out) && finish(packet, head)
            }
            DnsAction::Return => send_back(&self.before, packet, &out),
        };
        state.octets = out;
        if done { Verdict::Forward } else { Verdict::Drop(DropReason::NoHeadroom) }
    }

    fn exchange(&self, after: &Ends) -> Option<Exchange<'_>> {
        let (from, host, local, remote) = match (self.before, *after) {
            (Ends::V4(remote, local), Ends::V6(_, host)) => (Side::V4, host, local, remote),
            (Ends::V6(host, _), Ends::V4(local, remote)) => (Side::V6, host, local, remote),
            // From host to host.
            _ => return None,
        };
        let is_dns = [host.1, local.1, remote.1].contains(&PORT);
        let Hook { nat64, config, now, shard, .. } = *self;
        is_dns.then_some(Exchange { from, host, local, remote, config, nat64, now, shard })
    }
}

/// Puts other octets in the place of what lies behind the first `kept`; the packet is then whole, and its checksums are
/// the caller's business. `false`: no room.
fn replace_behind(packet: &mut Packet<'_>, kept: usize, octets: &[u8]) -> bool {
    packet.truncate(kept);
    if !packet.pad_to(kept + octets.len()) {
        return false;
    }
    packet.bytes_mut()[kept..].copy_from_slice(octets);
    packet.offload = Offload::default();
    packet.plan = None;
    true
}

/// Writes lengths and checksums after the payload has changed; the UDP header lies at `at`.
fn finish(packet: &mut Packet<'_>, at: usize) -> bool {
    let bytes = packet.bytes_mut();
    let Some(udp_len) = bytes.len().checked_sub(at) else { return false };
    if udp_len < transport::UDP_HEADER_LEN || bytes.len() > ipv4::MAX_LEN {
        return false;
    }
    set_ip_len(bytes, at);
    put_u16(bytes, at + transport::UDP_LENGTH_AT, udp_len as u16);
    put_u16(bytes, at + transport::UDP_CHECKSUM_AT, 0);
    let pseudo = if bytes[0] >> 4 == 4 {
        let Ok(header) = Ipv4Header::parse(bytes) else { return false };
        pseudo_v4(header.src, header.dst, protocol::UDP, udp_len as u32)
    } else {
        let Ok(header) = Ipv6Header::parse(bytes) else { return false };
        pseudo_v6(header.src, header.dst, protocol::UDP, udp_len as u32)
    };
    let checksum = transport::never_zero(protocol::UDP, pseudo.add_bytes(&bytes[at..]).finish());
    put_u16(bytes, at + transport::UDP_CHECKSUM_AT, checksum);
    true
}

/// Replaces the packet by one with `message`, to its sender. It is not fragmented, so its identification has no meaning
/// (RFC 6864 section 4.1).
fn send_back(ends: &Ends, packet: &mut Packet<'_>, message: &[u8]) -> bool {
    let mut head = [0; ipv6::HEADER_LEN + transport::UDP_HEADER_LEN];
    let (at, ports) = match *ends {
        Ends::V4(to, from) => {
            let header =
                Ipv4Header { dont_fragment: true, ..Ipv4Header::new(protocol::UDP, from.0, to.0) };
            head[..ipv4::HEADER_LEN].copy_from_slice(&header.to_bytes());
            (ipv4::HEADER_LEN, (from.1, to.1))
        }
        Ends::V6(to, from) => {
            let header = Ipv6Header::new(protocol::UDP, from.0, to.0);
            head[..ipv6::HEADER_LEN].copy_from_slice(&header.to_bytes());
            (ipv6::HEADER_LEN, (from.1, to.1))
        }
    };
    put_u16(&mut head, at, ports.0);
    put_u16(&mut head, at + 2, ports.1);
    let end = at + transport::UDP_HEADER_LEN;
    replace_behind(packet, 0, &head[..end])
        && replace_behind(packet, end, message)
        && finish(packet, at)
}
