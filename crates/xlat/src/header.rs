//! Headers of the other family, for a packet and for the packet inside an ICMP error (RFC 7915 sections 4.1 and 5.1).

pub(crate) mod v4_to_v6;
pub(crate) mod v6_to_v4;
