//! The probe of an idle TCP connection (RFC 6146 section 3.5.2.2, ESTABLISHED).

use core::net::{Ipv4Addr, Ipv6Addr};

use fordway_wire::checksum::pseudo_v6;
use fordway_wire::ipv6::{self, Ipv6Header};
use fordway_wire::{protocol, put_u16, tcp};

use super::Translator;

/// Octets of a probe.
const PROBE_LEN: usize = ipv6::HEADER_LEN + tcp::HEADER_LEN;

/// TCP header length 20 in units of 4 octets, in the upper half of its octet; then the flag ACK.
const OFFSET_AND_ACK: u16 = 0x5010;

impl Translator {
    /// A segment without data from (Z,z) to the host: sequence and acknowledgement number 0, all flags but ACK
    /// clear. The host answers with what it expects, and thereby both ends show that they live.
    #[must_use]
    pub fn probe(
        &self,
        host: (Ipv6Addr, u16),
        remote: (Ipv4Addr, u16),
        pool6: u8,
    ) -> Option<[u8; PROBE_LEN]> {
        let prefixes = &self.config().pool6;
        let prefix = prefixes.get(usize::from(pool6)).or(prefixes.first())?;
        let (src, dst) = (prefix.embed(remote.0), host.0);
        let payload_len = tcp::HEADER_LEN as u16;
        let header = Ipv6Header { payload_len, ..Ipv6Header::new(protocol::TCP, src, dst) };
        let mut probe = [0; PROBE_LEN];
        let (ip, tcp) = probe.split_at_mut(ipv6::HEADER_LEN);
        ip.copy_from_slice(&header.to_bytes());
        put_u16(tcp, 0, remote.1);
        put_u16(tcp, 2, host.1);
        put_u16(tcp, 12, OFFSET_AND_ACK);
        let len = tcp.len() as u32;
        let checksum =
            pseudo_v6(header.src, header.dst, protocol::TCP, len).add_bytes(tcp).finish();
        put_u16(tcp, tcp::CHECKSUM_AT, checksum);
        Some(probe)
    }
}
