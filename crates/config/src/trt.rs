//! A transport relay translator (TRT, RFC 3142), as configured: `[[trt]]`.

pub(crate) mod check;

use std::net::Ipv4Addr;
use std::time::Duration;

use fordway_relay::{Limits, Urgent};
use fordway_xlat::addr::Pool6;
use fordway_xlat::{IcmpErrors, TrafficClass};
use ipnet::{IpNet, Ipv4Net};

use crate::keys::common::{
    ALLOW, CLIENT_LEN, HOST4, NAME, POOL6, PREFIX4, TABLE, THREADS, TRAFFIC_CLASS,
};
use crate::keys::form::{BOOLEAN, Choice, Integer, NUMBER, Time, integer, list, or, seconds, some};
use crate::keys::keys;
use crate::name::InterfaceName;

/// Idle times, in seconds: up to a week.
const IDLE: Time = seconds(1, 7 * 86_400);

const COUNT: Integer<usize> = integer(1..=4_000_000, "");

const POOL6_HELP: &str =
    "write the prefix that is routed to this host, such as pool6 = [\"64:ff9b::/96\"]";

keys! {
    /// One `[[trt]]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Trt {
        /// Name of the relay in logs, status and nftables. It has no interface
        name: InterfaceName = NAME, or(InterfaceName::fixed("trt0"));
        /// Prefixes that are routed to this host and whose addresses stand for IPv4 servers, of all lengths of RFC 6052
        pool6: Vec<Pool6> = some(POOL6, POOL6_HELP), needed(Vec::new(), POOL6_HELP);
        /// Threads, each with sockets of its own. `auto`: one for each processor. A connection stays with its thread
        threads: Option<usize> = THREADS, or(None);
        /// TCP is relayed; else it is rejected
        tcp: bool = BOOLEAN, or(true);
        /// UDP is relayed; else it is rejected
        udp: bool = BOOLEAN, or(true);
        /// The host's own connections to the prefix are relayed, too
        own_traffic: bool = BOOLEAN, or(true);
        /// Networks whose hosts may use the relay. `local`: networks that an interface of the host is in, followed as
        /// they change, and the host itself. Others are refused, because an open relay serves attackers (RFC 3142
        /// section 7)
        allow: Option<Vec<IpNet>> = ALLOW, or(None);
        /// IPv4 networks that clients may not reach
        refuse4: Vec<Ipv4Net> =
            list(PREFIX4, "write a list of IPv4 networks such as [\"198.51.100.0/24\"]"), or(Vec::new());
        /// Let 64:ff9b::/96 stand for non-global IPv4 addresses, against RFC 6052 section 3.1. Other prefixes always
        /// may
        allow_private: bool = BOOLEAN, or(false);
        /// Let clients reach IPv4 addresses of this host. Their connections then come from the host itself, which a
        /// firewall may treat as trusted
        allow_own: bool = BOOLEAN, or(false);
        /// IPv4 addresses of this host that connections to servers come from. Each client network has one of the list,
        /// by a keyed hash. If the list is empty, routing chooses. Each address has its own ports: some 28,000
        /// connections to one server and port
        source4: Vec<Ipv4Addr> =
            list(HOST4, "write IPv4 addresses of this host such as [\"192.0.2.1\"]"), or(Vec::new());
        /// `copy`: TCP has the DSCP of the client's SYN on both sides; each datagram has the class of the one that came
        traffic_class: TrafficClass = TRAFFIC_CLASS, or(TrafficClass::Copy);
        /// What becomes of urgent data of TCP (RFC 3142 section 5, RFC 6093). `carry`: it is sent as urgent. `inline`:
        /// it is sent as ordinary octets. `discard`: it is left out
        urgent: Urgent = URGENT, or(Urgent::Carry);
        /// Connections without octets are probed after so long, on both sides
        keepalive: Option<Duration> = or("off", seconds(1, 32_767)), or(Some(Duration::from_secs(600)));
        /// ICMPv6 errors, for each thread
        icmp_errors: IcmpErrors, flat();
        /// What bounds it
        limits: Limits, flat();
        /// Mark of packets that are delivered to the relay. The default is a number that other programs hardly use; several
        /// relays may share it
        mark: u32 = NUMBER, or(0x7472_7400);
        /// Routing table with the local routes of the prefixes. Several relays may share it
        table: u32 = TABLE, or(747_274);
    }
}

keys! {
    impl Limits {
        /// TCP connections at once
        "max_connections" (connections) = COUNT;
        /// UDP sessions at once
        "max_sessions" (sessions) = COUNT;
        /// Of both, each, those of one client network
        "max_per_client" (per_client) = COUNT;
        /// Leading bits of an IPv6 address that name a client network
        "client_len" (client_len) = CLIENT_LEN;
        /// Time for a server to answer
        "connect_timeout" (connect) = seconds(1, 120);
        /// A connection without octets is reset (RFC 5382 REQ-5)
        "tcp_idle" (idle) = IDLE;
        /// A connection that one side has closed is reset after so long without octets
        "half_closed_idle" (half_closed) = IDLE;
        /// A UDP session without datagrams ends (RFC 4787 REQ-5)
        "udp_idle" (udp_idle) = IDLE;
    }
}

const URGENT: Choice<Urgent> =
    Choice(&[("carry", Urgent::Carry), ("inline", Urgent::Inline), ("discard", Urgent::Discard)]);
