//! The well-known name and its addresses (RFC 7050 section 2.2).

use std::net::Ipv4Addr;

use hickory_proto::rr::Name;

/// The well-known IPv4 addresses (RFC 7050 section 2.2, RFC 8880 section 7.1).
pub const WELL_KNOWN_ADDRESSES: [Ipv4Addr; 2] =
    [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];

/// The well-known name, `ipv4only.arpa.`
pub(crate) fn well_known_name() -> Name {
    Name::from_labels(["ipv4only", "arpa"]).unwrap_or_default()
}
