//! The readable description of a packet, as it stands in vectors.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::Deserialize;

/// A packet. Exactly one of `v4`, `v6` and `hex` is given; every length and checksum that is not set is
/// computed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PacketSpec {
    /// IPv4 header.
    pub v4: Option<V4>,
    /// IPv6 header.
    pub v6: Option<V6>,
    /// The whole packet as hexadecimal octets.
    pub hex: Option<String>,
    /// IPv6 extension headers in their order.
    pub ext: Vec<Ext>,
    /// TCP header.
    pub tcp: Option<Tcp>,
    /// UDP header.
    pub udp: Option<Udp>,
    /// UDP-Lite header (RFC 3828).
    pub udplite: Option<UdpLite>,
    /// DCCP generic header (RFC 4340 section 5.1).
    pub dccp: Option<Dccp>,
    /// ICMP header, of the version that fits the IP header.
    pub icmp: Option<Icmp>,
    /// What an ICMP error quotes: a packet. Behind an IPv6 header without a transport header: the packet
    /// in the tunnel.
    pub inner: Option<Box<PacketSpec>>,
    /// What an ICMP error quotes: the vector's input packet, as received. Likewise in a tunnel, but whole.
    pub quote: Option<Quote>,
    /// Zero octets behind the quoted packet until it has so many octets (RFC 4884 section 3).
    pub inner_pad: usize,
    /// ICMP extension structure behind the quoted packet (RFC 4884 section 7).
    pub extension: Option<Extension>,
    /// Payload behind the transport header.
    pub payload: Payload,
    /// Keep only these octets (from, to) of transport header and payload: a fragment. Sets fragment
    /// offset and "more fragments" of the IPv4 header or of the Fragment Header.
    pub slice: Option<[usize; 2]>,
    /// Cut the finished packet to so many octets; its length fields stay.
    pub cut: Option<usize>,
    /// Append so many octets 0xee behind the packet (padding of a link layer); its length fields stay.
    pub trailer: usize,
    /// Octets overwritten at the very end.
    pub patch: Vec<Patch>,
}

/// IPv4 header (RFC 791 section 3.1).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct V4 {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Time to live.
    #[serde(default = "sixty_four")]
    pub ttl: u8,
    /// Type of Service.
    #[serde(default)]
    pub tos: u8,
    /// Identification.
    #[serde(default)]
    pub id: u16,
    /// Don't Fragment.
    #[serde(default)]
    pub df: bool,
    /// More Fragments, where no `slice` says it.
    #[serde(default)]
    pub mf: bool,
    /// The reserved flag.
    #[serde(default)]
    pub reserved: bool,
    /// Fragment offset in octets, added to the start of a `slice`.
    #[serde(default)]
    pub offset: usize,
    /// Options in hexadecimal, padded with zeros to a multiple of 4 octets.
    #[serde(default)]
    pub options: String,
    /// Protocol, instead of the transport header's.
    pub proto: Option<u8>,
    /// IP version, instead of 4.
    pub version: Option<u8>,
    /// Internet Header Length in 32-bit words, instead of the true one.
    pub ihl: Option<u8>,
    /// Total Length, instead of the true one.
    pub len: Option<u16>,
    /// Header checksum, instead of the true one.
    pub checksum: Option<Sum>,
}

/// IPv6 header (RFC 8200 section 3).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct V6 {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// Hop Limit.
    #[serde(default = "sixty_four")]
    pub hop: u8,
    /// Traffic Class.
    #[serde(default)]
    pub tc: u8,
    /// Flow Label, 20 bits.
    #[serde(default)]
    pub flow: u32,
    /// Next Header of the last extension header (or of this header), instead of the transport's.
    pub next: Option<u8>,
    /// IP version, instead of 6.
    pub version: Option<u8>,
    /// Payload Length, instead of the true one.
    pub len: Option<u16>,
}

/// An IPv6 extension header (RFC 8200 section 4).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ext {
    /// Which.
    pub kind: ExtKind,
    /// Its octets behind the first two (Routing: behind the first four) in hexadecimal; padded to a
    /// multiple of 8 octets, option headers with PadN, others with zeros.
    #[serde(default)]
    pub body: String,
    /// Routing: type.
    #[serde(default)]
    pub routing_type: u8,
    /// Routing: Segments Left.
    #[serde(default)]
    pub segments_left: u8,
    /// Fragment: identification.
    #[serde(default)]
    pub id: u32,
    /// Fragment: offset in octets, added to the start of a `slice`.
    #[serde(default)]
    pub offset: usize,
    /// Fragment: M flag, where no `slice` says it.
    #[serde(default)]
    pub more: bool,
    /// Header Extension Length in units of 8 octets, instead of the true one.
    pub len: Option<u8>,
}

/// The extension headers that the builder knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExtKind {
    /// Hop-by-Hop Options (0).
    HopOpts,
    /// Routing (43).
    Routing,
    /// Fragment (44).
    Fragment,
    /// Authentication Header (51).
    Auth,
    /// Destination Options (60).
    DstOpts,
    /// Mobility (135).
    Mobility,
    /// Host Identity Protocol (139).
    Hip,
    /// Shim6 (140).
    Shim6,
}

impl ExtKind {
    /// The header's protocol number.
    pub fn number(self) -> u8 {
        match self {
            ExtKind::HopOpts => 0,
            ExtKind::Routing => 43,
            ExtKind::Fragment => 44,
            ExtKind::Auth => 51,
            ExtKind::DstOpts => 60,
            ExtKind::Mobility => 135,
            ExtKind::Hip => 139,
            ExtKind::Shim6 => 140,
        }
    }
}

/// TCP header (RFC 9293 section 3.1).
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tcp {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Flags as letters: `C`WR, `E`CE, `U`RG, `A`CK, `P`SH, `R`ST, `S`YN, `F`IN.
    pub flags: String,
    /// Window.
    pub window: u16,
    /// Maximum Segment Size option, in front of `options`.
    pub mss: Option<u16>,
    /// Further options in hexadecimal, padded with zeros to a multiple of 4 octets.
    pub options: String,
    /// Data offset in 32-bit words, instead of the true one.
    pub doff: Option<u8>,
    /// Checksum, instead of the true one.
    pub checksum: Option<Sum>,
}

impl Default for Tcp {
    fn default() -> Tcp {
        Tcp {
            sport: 40_000,
            dport: 80,
            seq: 0x0102_0304,
            ack: 0x0506_0708,
            flags: "A".into(),
            window: 512,
            mss: None,
            options: String::new(),
            doff: None,
            checksum: None,
        }
    }
}

/// UDP header (RFC 768).
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Udp {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Length, instead of the true one.
    pub len: Option<u16>,
    /// Checksum, instead of the true one.
    pub checksum: Option<Sum>,
}

impl Default for Udp {
    fn default() -> Udp {
        Udp { sport: 40_000, dport: 53, len: None, checksum: None }
    }
}

/// UDP-Lite header (RFC 3828 section 3.1).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UdpLite {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Octets covered by the checksum; 0: all.
    pub coverage: u16,
    /// Checksum, instead of the true one.
    pub checksum: Option<Sum>,
}

/// DCCP generic header with 48-bit sequence numbers, type Data (RFC 4340 section 5.1).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dccp {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Checksum, instead of the true one.
    pub checksum: Option<Sum>,
}

/// ICMP header of 8 octets (RFC 792, RFC 4443).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Icmp {
    /// Type.
    #[serde(rename = "type")]
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Echo: identifier.
    pub id: u16,
    /// Echo: sequence number.
    pub seq: u16,
    /// MTU: 16 bits in ICMPv4, 32 bits in ICMPv6.
    pub mtu: Option<u32>,
    /// Pointer: 8 bits in ICMPv4, 32 bits in ICMPv6.
    pub pointer: Option<u32>,
    /// The length attribute of RFC 4884, instead of the true one (with an `extension`) or 0.
    pub length: Option<u8>,
    /// Checksum, instead of the true one.
    pub checksum: Option<Sum>,
}

/// An ICMP extension structure with one object (RFC 4884 sections 7 and 8).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extension {
    /// Class-Num.
    #[serde(default = "one")]
    pub class: u8,
    /// C-Type.
    #[serde(default = "one")]
    pub ctype: u8,
    /// The object's payload in hexadecimal.
    pub data: String,
    /// Keep only so many octets of the structure.
    pub cut: Option<usize>,
}

/// A checksum that is not computed: a number, or `"bad"`, the true one plus 0x1111 (one's complement),
/// which stays that far off through incremental updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Sum {
    /// This number.
    Value(u16),
    /// A word.
    Word(SumWord),
}

/// A word in place of a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SumWord {
    /// The true one plus 0x1111.
    Bad,
}

/// Which form of the input packet an ICMP error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quote {
    /// The packet (a partial checksum completed), as much as fits 576 (IPv4) or 1280 (IPv6) octets.
    Input,
    /// The first segment of the super-packet.
    Segment,
}

/// Payload: a number of octets of the running pattern, or octets in hexadecimal.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Payload {
    /// So many octets of the pattern.
    Pattern(usize),
    /// These octets.
    Hex(String),
}

impl Default for Payload {
    fn default() -> Payload {
        Payload::Pattern(0)
    }
}

/// Octets written over the finished packet.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    /// Offset in octets.
    pub at: usize,
    /// Octets in hexadecimal.
    pub hex: String,
}

fn sixty_four() -> u8 {
    64
}

fn one() -> u8 {
    1
}
