//! Addresses of the boxes: documentation addresses alone.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Prefix that the server's IPv4 address is embedded in (RFC 6052 section 2.1).
pub const PREF64: &str = "64:ff9b::/96";
/// The client's own IPv6 address.
pub const CLIENT_V6: &str = "2001:db8:1::2";
/// The address that a CLAT translates to.
pub const CLAT_V6: &str = "2001:db8:1::c";
/// A translator's own IPv6 address, where it needs one.
pub const ROUTER_V6: &str = "2001:db8:1::d";
/// The IPv4 address of applications behind a CLAT (RFC 7335).
pub const CLAT_V4: &str = "192.0.0.1";
/// A translator's own IPv4 address, where it needs one (RFC 7335).
pub const ROUTER_V4: &str = "192.0.0.2";
/// The IPv4 address of a CLAT's box itself where [`ROUTER_V4`] is the application's (RFC 7335).
pub const BESIDE_V4: &str = "192.0.0.3";
/// The application's IPv6 address in a box of its own.
pub const APP_V6: &str = "2001:db8:2::2";
/// The middle box's own IPv6 address; a name server there listens to it.
pub const HOST_V6: &str = "2001:db8:f::1";
/// The server's own IPv6 address, where it has one.
pub const SERVER_V6: &str = "2001:db8:5::5";
/// The server's IPv4 address in the prefix of a client-side translator.
pub const SERVER_EMBEDDED: &str = "64:ff9b::192.0.0.171";
/// The server as an application behind a CLAT addresses it.
pub const SERVER_CLAT_V4: &str = "192.0.0.171";
/// The server's IPv4 address, where it has one.
pub const SERVER_V4: &str = "198.51.100.2";
/// What a stateless gateway maps explicitly: the server.
pub const SIIT_MAPPING: &str = "198.51.100.2=2001:db8:5::5";
/// Prefix in which a stateless gateway shows IPv4 clients to the server.
pub const SIIT_POOL6: &str = "2001:db8:64::/96";
/// The IPv4 client of a stateless gateway, in that prefix.
pub const SIIT_CLIENT_V6: &str = "2001:db8:64::192.0.2.2";
/// The client's IPv4 address, where it has one of its own.
pub const CLIENT_V4: &str = "192.0.2.2";
/// The application's IPv4 address in a box of its own.
pub const APP_V4: &str = "203.0.113.2";
/// Prefix in which a stateful translator shows IPv4 hosts. Not the well-known one: the lab's addresses are
/// those of documents, which are not global and may not stand there (RFC 6052 section 3.1).
pub const NAT64_POOL6: &str = "2001:db8:64::/96";
/// The server's IPv4 address in that prefix.
pub const SERVER_V4_EMBEDDED: &str = "2001:db8:64::198.51.100.2";
/// The middle box's address on the server's IPv4 link.
pub const HOST_V4: &str = "198.51.100.1";
/// The same on the client's IPv4 link.
pub const HOST_EDGE_V4: &str = "192.0.2.1";
/// A translator's own IPv6 address in the box in the middle, where it needs one: none of the client's network.
pub const GATEWAY_V6: &str = "2001:db8:f::d";
/// Addresses that a stateful translator shows its clients under.
pub const POOL4: &str = "203.0.113.64/26";
/// Further ones for many sessions: hosts are spread over addresses by a hash, so that these need several times as many ports.
pub const POOL4_MORE: [&str; 2] = ["203.0.113.128/25", "198.51.100.128/25"];
/// The first of [`POOL4`].
pub const POOL4_FIRST: &str = "203.0.113.64";
/// The next one: bound to the client, where a mechanism binds one.
pub const BOUND_V4: &str = "203.0.113.65";
/// The end of tunnels in the box in the middle, on no device.
pub const TUNNEL_END_V6: &str = "2001:db8:46::1";
/// IPv6 addresses on the link between a gateway and its standby.
pub const STANDBY_LINK_V6: [&str; 2] = ["2001:db8:6::1", "2001:db8:6::2"];
/// IPv4 addresses there.
pub const STANDBY_LINK_V4: [&str; 2] = ["203.0.113.5", "203.0.113.6"];
/// TCP port of a proxy for clients.
pub const PROXY_PORT: u16 = 3128;
/// TCP port of a site.
pub const SITE_PORT: u16 = 80;
/// UDP port of the probes' echo.
pub const ECHO_PORT: u16 = 5302;
/// Sources of the flow tester on an IPv6 link, all behind the client: 2001:db8:f00:N::1.
pub const FLOWS_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xf00, 0, 0, 0, 0, 1);
/// Sources of the flow tester on an IPv4 link: 198.18.N.N.
pub const FLOWS_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
/// The first of many hosts on an IPv6 link, all behind the client.
pub const MANY_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xf00, 0xffff, 0, 0, 0, 0);
/// The first of the IPv4 addresses that a table with many entries is about: a /15.
pub const ENTRIES_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
/// The IPv6 hosts behind the server that these addresses stand for at a stateless gateway: a /111.
pub const ENTRIES_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 5, 0, 1, 0, 0, 0);
/// Networks of the hosts behind a client's box of its own: the application's, and those of the flow tester that are used.
pub const LAN_V4: [&str; 2] = ["203.0.113.0/30", "198.18.0.0/16"];
/// The prefix in which a CLAT there shows these hosts to the network (RFC 6877 section 6.3), within that of the flow tester.
pub const LAN_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xf00, 0x464, 0, 0, 0, 0);
/// IPv4 addresses that stand for IPv6 hosts between the two steps of a chain.
pub const BETWEEN_V4: &str = "198.19.0.0/16";
