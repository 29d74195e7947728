//! Header views and checksum arithmetic.
//!
//! Every view borrows the octets of a packet, checks once that they are long enough, and then reads
//! and writes fields in network byte order. Nothing here allocates, panics on input, or knows what
//! translation is.
//!
//! | module | content | source |
//! |---|---|---|
//! | [`checksum`] | the Internet checksum and its incremental update | RFC 1071, RFC 1624 |
//! | [`ipv4`] | IPv4 header, options | RFC 791 |
//! | [`ipv6`] | IPv6 header, extension header walk, Fragment Header | RFC 8200 |
//! | [`icmp`] | ICMPv4 and ICMPv6 headers and their type and code numbers | RFC 792, RFC 4443, RFC 4884 |
//! | [`tcp`] | TCP header: fields, flags, options | RFC 9293 |
//! | [`transport`] | UDP fields, places of checksums | RFC 768 |
#![no_std]
#![forbid(unsafe_code)]

pub mod checksum;
pub mod icmp;
pub mod ipv4;
pub mod ipv6;
pub mod tcp;
pub mod transport;

/// Protocol and next-header numbers (IANA "Assigned Internet Protocol Numbers").
pub mod protocol {
    /// IPv6 Hop-by-Hop Options header.
    pub const HOPOPT: u8 = 0;
    /// ICMPv4.
    pub const ICMP: u8 = 1;
    /// IPv4 in IP (RFC 2003, RFC 2473).
    pub const IPV4: u8 = 4;
    /// IGMP.
    pub const IGMP: u8 = 2;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// DCCP.
    pub const DCCP: u8 = 33;
    /// IPv6 Routing header.
    pub const IPV6_ROUTE: u8 = 43;
    /// IPv6 Fragment Header.
    pub const IPV6_FRAG: u8 = 44;
    /// Encapsulating Security Payload.
    pub const ESP: u8 = 50;
    /// Authentication Header.
    pub const AH: u8 = 51;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;
    /// IPv6 "no next header".
    pub const IPV6_NONXT: u8 = 59;
    /// IPv6 Destination Options header.
    pub const IPV6_OPTS: u8 = 60;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// IPv6 Mobility Header.
    pub const MOBILITY: u8 = 135;
    /// UDP-Lite.
    pub const UDP_LITE: u8 = 136;
    /// Host Identity Protocol.
    pub const HIP: u8 = 139;
    /// Shim6.
    pub const SHIM6: u8 = 140;
}

/// Reads the big-endian `u16` at `at`, or 0 when `bytes` is too short.
///
/// Callers have checked the length; the total function keeps input octets from ever panicking.
#[inline]
pub fn get_u16(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..at + 2) {
        Some(&[a, b]) => u16::from_be_bytes([a, b]),
        _ => 0,
    }
}

/// Writes the big-endian `u16` at `at`; does nothing when `bytes` is too short.
#[inline]
pub fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(field) = bytes.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

/// Reads the big-endian `u32` at `at`, or 0 when `bytes` is too short.
#[inline]
pub fn get_u32(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..at + 4) {
        Some(&[a, b, c, d]) => u32::from_be_bytes([a, b, c, d]),
        _ => 0,
    }
}

/// Writes the big-endian `u32` at `at`; does nothing when `bytes` is too short.
#[inline]
pub fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(field) = bytes.get_mut(at..at + 4) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

/// Writes the length of `packet`, at most 65,535 octets, into its IP header. Of IPv4 also the checksum of the header, which has
/// `header_len` octets. Does nothing when `packet` is shorter.
#[inline]
pub fn set_ip_len(packet: &mut [u8], header_len: usize) {
    let len = packet.len();
    match packet.get_mut(..header_len) {
        Some(header) if header.first().is_some_and(|first| first >> 4 == 4) => {
            ipv4::set_total_len(header, len as u16);
        }
        Some(header) => put_u16(header, 4, len.saturating_sub(ipv6::HEADER_LEN) as u16),
        None => {}
    }
}

/// Reads the octet at `at`, or 0 when `bytes` is too short.
#[inline]
pub fn get_u8(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

/// Writes the octet at `at`; does nothing when `bytes` is too short.
#[inline]
pub fn put_u8(bytes: &mut [u8], at: usize, value: u8) {
    if let Some(field) = bytes.get_mut(at) {
        *field = value;
    }
}
