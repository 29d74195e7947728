//! Packets as lines of text, one per header.

use std::net::{Ipv4Addr, Ipv6Addr};

use fordway_wire::checksum::{Sum, pseudo_v4, pseudo_v6};
use fordway_wire::icmp::{self, IcmpHeader};
use fordway_wire::ipv4::{Ipv4Header, header_checksum_is_valid};
use fordway_wire::ipv6::{Ipv6Header, walk};
use fordway_wire::{get_u16, get_u32, protocol, tcp, transport};

/// The lines of a packet.
pub(crate) fn packet(bytes: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    ip(bytes, false, &mut lines);
    lines
}

/// A protocol's name, or its number.
pub(crate) fn protocol_name(number: u8) -> String {
    match number {
        protocol::ICMP => "ICMPv4",
        protocol::IGMP => "IGMP",
        protocol::TCP => "TCP",
        protocol::UDP => "UDP",
        protocol::DCCP => "DCCP",
        protocol::ESP => "ESP",
        protocol::AH => "AH",
        protocol::ICMPV6 => "ICMPv6",
        protocol::SCTP => "SCTP",
        protocol::UDP_LITE => "UDP-Lite",
        protocol::IPV6_NONXT => "no next header",
        _ => return format!("protocol {number}"),
    }
    .to_owned()
}

/// Source and destination, for pseudo-headers.
#[derive(Clone, Copy)]
enum Ends {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

/// What is known of a transport payload.
struct Payload<'a> {
    bytes: &'a [u8],
    ends: Ends,
    protocol: u8,
    /// All of it is there, in one piece: its checksum can be verified.
    whole: bool,
}

fn ip(bytes: &[u8], inner: bool, lines: &mut Vec<String>) {
    match bytes.first().map(|first| first >> 4) {
        Some(4) => v4(bytes, inner, lines),
        Some(6) => v6(bytes, inner, lines),
        Some(version) => {
            lines.push(format!("{} octets, IP version {version}", bytes.len()));
        }
        None => lines.push("no octets".to_owned()),
    }
}

fn v4(bytes: &[u8], inner: bool, lines: &mut Vec<String>) {
    let header = match Ipv4Header::parse(bytes) {
        Ok(header) => header,
        Err(error) => {
            lines.push(format!("IPv4, {} octets: {error:?} header", bytes.len()));
            return;
        }
    };
    let mut line = format!(
        "IPv4 {} > {}, {} octets, {}, TTL {}, TOS {:#04x}, id {:#06x}",
        header.src,
        header.dst,
        header.total_len,
        protocol_name(header.protocol),
        header.ttl,
        header.tos,
        header.identification
    );
    if header.dont_fragment {
        line += ", DF";
    }
    if header.is_fragment() {
        let more = if header.more_fragments { ", MF" } else { "" };
        line += &format!(", fragment from {}{more}", header.fragment_offset);
    }
    if header.header_len > 20 {
        line += &format!(", {} octets of options", header.header_len - 20);
    }
    let sound = header_checksum_is_valid(&bytes[..header.header_len]);
    line += if sound { ", header checksum right" } else { ", header checksum WRONG" };
    line += &cut_note(bytes.len(), usize::from(header.total_len), inner);
    lines.push(line);
    let end = usize::from(header.total_len).min(bytes.len());
    let payload = Payload {
        bytes: &bytes[header.header_len..end],
        ends: Ends::V4(header.src, header.dst),
        protocol: header.protocol,
        whole: !header.is_fragment() && end == usize::from(header.total_len),
    };
    if header.fragment_offset == 0 {
        transport_lines(&payload, inner, lines);
    }
}

fn v6(bytes: &[u8], inner: bool, lines: &mut Vec<String>) {
    let header = match Ipv6Header::parse(bytes) {
        Ok(header) => header,
        Err(error) => {
            lines.push(format!("IPv6, {} octets: {error:?} header", bytes.len()));
            return;
        }
    };
    let total = usize::from(header.payload_len) + 40;
    let mut line = format!(
        "IPv6 {} > {}, {total} octets, hop limit {}, traffic class {:#04x}, flow label {:#07x}",
        header.src, header.dst, header.hop_limit, header.traffic_class, header.flow_label
    );
    let end = total.min(bytes.len());
    let walked = walk(&bytes[..end], header.next_header);
    if let Ok(walked) = walked {
        line += &format!(", {}", protocol_name(walked.protocol));
        if walked.skipped() > 0 {
            line += &format!(", {} octets of extension headers", walked.skipped());
        }
        if let Some(fragment) = walked.fragment {
            let more = if fragment.more { ", more follow" } else { "" };
            line += &format!(
                ", fragment from {}{more}, id {:#010x}",
                fragment.offset, fragment.identification
            );
        }
    }
    line += &cut_note(bytes.len(), total, inner);
    lines.push(line);
    match walked {
        Err(error) => lines.push(format!("extension headers: {error:?}")),
        Ok(walked) => {
            let fragment = walked.fragment;
            let payload = Payload {
                bytes: bytes.get(walked.header_len..end).unwrap_or_default(),
                ends: Ends::V6(header.src, header.dst),
                protocol: walked.protocol,
                whole: end == total && fragment.is_none_or(|f| f.offset == 0 && !f.more),
            };
            if fragment.is_none_or(|fragment| fragment.offset == 0) {
                transport_lines(&payload, inner, lines);
            }
        }
    }
}

fn cut_note(have: usize, said: usize, inner: bool) -> String {
    if have >= said {
        String::new()
    } else if inner {
        format!(", {have} octets of it here")
    } else {
        format!(", CUT to {have} octets")
    }
}

fn transport_lines(payload: &Payload<'_>, inner: bool, lines: &mut Vec<String>) {
    let bytes = payload.bytes;
    // All that an ICMP error guarantees of a transport header.
    if bytes.len() < 8 {
        lines.push(format!("{}: {} octets", protocol_name(payload.protocol), bytes.len()));
        return;
    }
    match payload.protocol {
        protocol::TCP => lines.push(tcp(payload)),
        protocol::UDP => lines.push(udp(payload)),
        protocol::ICMP | protocol::ICMPV6 => icmp_lines(payload, inner, lines),
        other => lines.push(format!("{}: {} octets", protocol_name(other), bytes.len())),
    }
}

fn tcp(payload: &Payload<'_>) -> String {
    let bytes = payload.bytes;
    let mut line = format!(
        "TCP port {} > {}, seq {}",
        get_u16(bytes, 0),
        get_u16(bytes, 2),
        get_u32(bytes, 4)
    );
    let Some(header_len) = tcp::header_len(bytes) else {
        return line + ", the rest of the header is not here";
    };
    const FLAGS: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
    let set = FLAGS.iter().enumerate().filter(|(bit, _)| bytes[13] >> bit & 1 == 1);
    let set: Vec<&str> = set.map(|(_, name)| *name).collect();
    line += &format!(
        ", ack {}, {}, window {}",
        get_u32(bytes, 8),
        if set.is_empty() { "no flags".to_owned() } else { set.join(" ") },
        get_u16(bytes, 14)
    );
    if let Some((_, mss)) = tcp::mss(bytes) {
        line += &format!(", MSS {mss}");
    }
    line += &checksum_note(payload, get_u16(bytes, tcp::CHECKSUM_AT));
    line + &format!(", {} octets of data", bytes.len() - header_len)
}

fn udp(payload: &Payload<'_>) -> String {
    let bytes = payload.bytes;
    let checksum = get_u16(bytes, transport::UDP_CHECKSUM_AT);
    let note = match (checksum, payload.ends) {
        (0, Ends::V4(..)) => ", no checksum".to_owned(),
        (0, Ends::V6(..)) => ", no checksum (not allowed in IPv6)".to_owned(),
        _ => checksum_note(payload, checksum),
    };
    format!(
        "UDP port {} > {}, length {}{note}",
        get_u16(bytes, 0),
        get_u16(bytes, 2),
        transport::udp_len(bytes)
    )
}

fn icmp_lines(payload: &Payload<'_>, inner: bool, lines: &mut Vec<String>) {
    let Some(header) = IcmpHeader::parse(payload.bytes) else {
        return;
    };
    let v6 = payload.protocol == protocol::ICMPV6;
    let name = icmp_name(v6, header);
    let mut line = format!("{} {name}", protocol_name(payload.protocol));
    line += &checksum_note(payload, header.checksum);
    let is_error =
        if v6 { icmp::v6::is_error(header.kind) } else { icmp::v4::is_error(header.kind) };
    if !is_error {
        line += &format!(", {} octets of data", payload.bytes.len() - icmp::HEADER_LEN);
    }
    lines.push(line);
    if is_error && !inner {
        let mut quoted = Vec::new();
        ip(&payload.bytes[icmp::HEADER_LEN..], true, &mut quoted);
        lines.extend(quoted.into_iter().map(|line| format!("  {line}")));
    }
}

fn icmp_name(v6: bool, header: IcmpHeader) -> String {
    let (id, sequence) = (header.rest >> 16, header.rest & 0xffff);
    let echo = |name: &str| format!("{name}, id {id}, seq {sequence}");
    match (v6, header.kind, header.code) {
        (false, icmp::v4::ECHO, _) | (true, icmp::v6::ECHO_REQUEST, _) => echo("echo request"),
        (false, icmp::v4::ECHO_REPLY, _) | (true, icmp::v6::ECHO_REPLY, _) => echo("echo reply"),
        (false, icmp::v4::UNREACHABLE, icmp::v4::FRAGMENTATION_NEEDED) => {
            format!("fragmentation needed, MTU {sequence}")
        }
        (false, icmp::v4::UNREACHABLE, code) => format!("destination unreachable, code {code}"),
        (false, icmp::v4::TIME_EXCEEDED, code) => format!("time exceeded, code {code}"),
        (false, icmp::v4::PARAMETER_PROBLEM, code) => {
            format!("parameter problem, code {code}, pointer {}", header.rest >> 24)
        }
        (true, icmp::v6::UNREACHABLE, code) => format!("destination unreachable, code {code}"),
        (true, icmp::v6::PACKET_TOO_BIG, _) => format!("packet too big, MTU {}", header.rest),
        (true, icmp::v6::TIME_EXCEEDED, code) => format!("time exceeded, code {code}"),
        (true, icmp::v6::PARAMETER_PROBLEM, code) => {
            format!("parameter problem, code {code}, pointer {}", header.rest)
        }
        (_, kind, code) => format!("type {kind}, code {code}"),
    }
}

/// Whether a checksum that covers the whole payload is right, where that can be told.
fn checksum_note(payload: &Payload<'_>, checksum: u16) -> String {
    if !payload.whole {
        return format!(", checksum {checksum:#06x}");
    }
    let len = payload.bytes.len() as u32;
    let pseudo = match payload.ends {
        // ICMPv4 has no pseudo-header.
        Ends::V4(..) if payload.protocol == protocol::ICMP => Sum::ZERO,
        Ends::V4(src, dst) => pseudo_v4(src, dst, payload.protocol, len),
        Ends::V6(src, dst) => pseudo_v6(src, dst, payload.protocol, len),
    };
    match pseudo.add_bytes(payload.bytes).finish() {
        0 => ", checksum right".to_owned(),
        _ => format!(", checksum {checksum:#06x} WRONG"),
    }
}
