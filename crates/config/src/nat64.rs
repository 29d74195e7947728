//! Stateful NAT64, as configured: modes `nat64` and `nat-pt`; and `dynamic4` of mode `siit`.

pub(crate) mod alg;
mod bib;
pub(crate) mod check;
pub(crate) mod dynamic4;
pub(crate) mod lifetimes;
mod log;
mod nat_pt;
pub(crate) mod pool;
mod pool4;
mod settings;

use fordway_xlat::addr::Pool6;
use fordway_xlat::nat64::{Filtering, Lifetimes, Quotas, Settings, Sizes, StaticBib};

use crate::keys::common::POOL6;
use crate::keys::form::{BOOLEAN, Choice, Integer, integer, list, some};
use crate::keys::keys;

pub use alg::{Gateway, Gateways};
pub use dynamic4::Dynamic4;
pub use log::{LogEvent, LogTarget, NatLog};
pub use nat_pt::{NatPt, NatPtDns};
pub use pool::Pool;
pub(crate) use pool::{PoolAt, places_of};
pub use pool4::{Pool4, Pool4Source, Ports};

const PREFIXES: &str = "write a list such as pool6 = [\"64:ff9b::/96\"]";
const ENTRIES: &str = "write a list such as [[\"tcp\", \"192.0.2.1:80\", \"[2001:db8::5]:8080\"]]";

const FILTERING: Choice<Filtering> = Choice(&[
    ("endpoint-independent", Filtering::EndpointIndependent),
    ("address-dependent", Filtering::AddressDependent),
]);

keys! {
    /// What only the stateful modes have: `nat64` (RFC 6146), and `nat-pt` (RFC 2766) on top of it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Nat64 {
        /// Translation prefixes (RFC 6052), routed into the interface
        pool6: Vec<Pool6> = some(POOL6, PREFIXES), needed(Vec::new(), PREFIXES),
            reload(But("any but new ones at the end"));
        /// Of mode `nat-pt`.
        nat_pt: Option<NatPt>, flat();
        /// IPv4 addresses and ports, and whose they are, in the order in which they are asked. The one of the key `pool4`
        /// is for every host and comes last.
        pools: Vec<Pool>, flat();
        /// Static BIB entries: ports that are forwarded to IPv6 hosts. Each is `["tcp", "192.0.2.1:80",
        /// "[2001:db8::5]:8080"]`, with `"udp"`, or `"icmp"` with identifiers in place of ports. The port may lie
        /// outside of `pool4`
        bib: Vec<StaticBib> = list(bib::BIB, ENTRIES), or(Vec::new());
        /// Which packets from IPv4 pass to a host that has sent from that port. `endpoint-independent`: all.
        /// `address-dependent`: those from addresses that the host has sent to
        filtering: Filtering = FILTERING, or(Filtering::EndpointIndependent),
            only(nat_pt.is_none(), "in mode nat-pt IPv4 hosts begin what they have asked for by name",
                "leave it out; initiators = [...] says which hosts may", Filtering::EndpointIndependent),
            reload(Down);
        /// IPv4 hosts may open TCP connections to what is in the BIB
        accept_v4_syn: bool = BOOLEAN, or(true);
        /// Packets from IPv4 also refresh sessions of UDP and ICMP
        refresh_from_v4: bool = BOOLEAN, or(true);
        /// Application level gateways
        gateways: Gateways, flat();
        /// Leading bits of an IPv6 address that name a subscriber, who has an address, blocks and quotas of its own.
        /// With 128 each host is a subscriber, with 64 each link, with 56 or 48 each customer. Up to 64 bits also name
        /// who shares the memory for fragments and the sessions of ALGs
        subscriber_len: u8 = integer(1..=128, "bits"), or(Settings::default().subscriber_len), reload(Down);
        /// Of the tables
        sizes: Sizes, flat();
        /// Take lifetimes below what the RFCs allow, with a warning
        allow_short_lifetimes: bool = BOOLEAN, or(false);
        /// How long each kind of session stays in the table
        lifetimes: Lifetimes, table("lifetimes", Lifetimes::default());
        /// Limits for each subscriber (RFC 6888 REQ-4 and REQ-5); 0: no limit
        quotas: Quotas, table("quotas", Quotas::default());
        /// Logs, each with the keys below
        logs("log"): Vec<NatLog>, tables("[[translator.log]]");
    }
}

/// Entries of a table.
const SIZE: Integer<u32> = integer(1..=Sizes::MAX as i64, "entries");
const LIMIT: Integer<u32> = integer(0..=Sizes::MAX as i64, "");

keys! {
    impl Sizes {
        /// Sessions that the tables hold. Each takes 143 to 158 octets, with its BIB entry. With `filtering =
        /// "address-dependent"` the session table has twice as many entries, because a mapping and a remote address
        /// with sessions need one more: about 72 octets more for each session, and at most 1073741822 entries in all
        "max_sessions" (sessions) = SIZE, then(|it| it.bibs = it.sessions), reload(Down);
        /// BIB entries that the tables hold. By default as many as `max_sessions`, because each has a session or more
        "max_bib" (bibs) = SIZE, reload(Down);
        /// Subscribers that the tables hold
        "max_subscribers" (subscribers) = SIZE, reload(Down);
    }
}

keys! {
    impl Quotas {
        /// BIB entries of TCP: ports
        "tcp_ports" (ports[0]) = LIMIT;
        /// BIB entries of UDP: ports
        "udp_ports" (ports[1]) = LIMIT;
        /// BIB entries of ICMP: identifiers
        "icmp_ids" (ports[2]) = LIMIT;
        /// Sessions
        "sessions" (sessions) = LIMIT;
        /// New sessions in a second
        "new_per_second" (new_per_second) = LIMIT;
    }
}
