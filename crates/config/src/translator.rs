//! `[[translator]]`.

pub(crate) mod check;

use std::net::{Ipv4Addr, Ipv6Addr};

use fordway_xlat::addr::{Eam, Pool6};
use fordway_xlat::config::{ICMP_SOURCE4, IPV6_MIN_MTU};
use fordway_xlat::{IcmpErrors, TrafficClass, UdpChecksumZero};
use ipnet::Ipv4Net;
use serde_json::json;

use crate::engine::{ATTACH, Attach, ENGINE, Engine, FORWARD, Forwarding, GRO, Gro, PASS_RATE};
use crate::keys::common::{HOST4, INTERFACE, NAME, PREFIX4, RATE, TRAFFIC_CLASS};
use crate::keys::form::{
    BOOLEAN, Choice, List, NUMBER, Octets, Plain, integer, list, octets, or, texts,
};
use crate::keys::{keys, usual};
use crate::mode::{Clat, Mode, Pref64};
use crate::name::InterfaceName;
use crate::nat64::{Dynamic4, Nat64, NatPt};
use crate::softwire::Softwire;
use crate::value;
use crate::{DEFAULT_METRIC, QUEUE_LENGTH};

const TRANSLATOR: &str = "write a name such as name = \"siit0\"; the interface gets it";
const DEVICES: &str = "write a list of interface names such as devices = [\"eth0\", \"eth1\"]";
const MAPPINGS: &str = "write a list of pairs: [[\"198.51.100.0/24\", \"2001:db8:1::/120\"]]";
const ROUTES: &str = "write a list of IPv4 networks such as [\"198.51.100.0/24\"]";
const MODE_NAT64: &str = "leave it out; ports are forwarded by bib = [...], and hosts with an address of their own \
                          belong to a translator of mode siit";
const NO_ROUTES: &str =
    "leave it out: the addresses of pool4 and bib are routed into the interface";

/// The IPv6 path MTU.
const MTU: Octets<u32> = octets(IPV6_MIN_MTU as i64..=65_535);

const EAM: List<Plain<Eam>> = list(
    Plain {
        read: value::eam,
        write: |eam| toml::Value::from(vec![eam.v4().to_string(), eam.v6().to_string()]),
        named: ("pair", "pairs", "V4=V6"),
        schema: || texts(2),
    },
    MAPPINGS,
);

const SOURCE6: Plain<Source6> = Plain {
    read: |v| match v.get_ref().as_str() {
        Some("off") => Ok(Source6::Off),
        _ => Ok(value::auto_or(v, value::host6)?.map_or(Source6::Auto, Source6::Address)),
    },
    write: |source| match source {
        Source6::Auto => "auto".into(),
        Source6::Off => "off".into(),
        Source6::Address(address) => address.to_string().into(),
    },
    named: ("IPv6 address, `\"auto\"`, `\"off\"`", "", "ADDR"),
    schema: || json!({"anyOf": [{"type": "string"}, {"const": "auto"}, {"const": "off"}]}),
};

const UDP_CHECKSUM_ZERO: Choice<UdpChecksumZero> = Choice(&[
    ("compute", UdpChecksumZero::Compute),
    ("drop", UdpChecksumZero::Drop),
    ("pass", UdpChecksumZero::Pass),
]);

keys! {
    /// One `[[translator]]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Translator {
        /// Name of the translator and of its interface: 1 to 15 letters, digits, `-`, `_`, `.`
        name: InterfaceName = NAME, needed(InterfaceName::placeholder(), TRANSLATOR);
        /// What it does
        mode: Mode, flat();
        /// Which engine carries the packets. `kernel`: programs in the kernel (eBPF) take the common packets, the user
        /// engine takes the rest; the translator does not start where the host does not allow it. `user`: the user
        /// engine alone. `auto`: the kernel engine where the host allows it, else the user engine; `fordway status`
        /// says which and why
        engine: Engine = ENGINE, or(Engine::Auto), reload(Down);
        /// Where packets are taken: [attach points](#attach-points)
        attach: Attach = ATTACH, or(Attach::Auto), reload(Down);
        /// Devices for the attach points `ingress` and `xdp`, 64 at most. Other attach points refuse this key
        devices: Vec<InterfaceName> = list(INTERFACE, DEVICES),
            needed(Vec::new(), DEVICES, "(needed with `\"ingress\"` and `\"xdp\"`)"),
            only(matches!(attach, Attach::Ingress | Attach::Xdp),
                "this key belongs to attach = \"ingress\" and attach = \"xdp\"",
                "leave it out, or write attach = \"ingress\"", Vec::new()),
            reload(Down);
        /// How packets leave that were translated at the `ingress`. `stack`: they arrive from the interface, and the
        /// host's stack routes them, with nftables and all else that it has. `in-place`: the same, but they arrive from the
        /// device that they came by, which is faster ([in place](kernel-engine.md#in-place)). `direct`: they leave at once by the device
        /// to which the kernel's routing sends them, which is faster. nftables, connection tracking and IPsec policies
        /// do not see them then: [direct forwarding](kernel-engine.md#direct-forwarding)
        forward: Forwarding = FORWARD, or(Forwarding::Stack),
            only(matches!(attach, Attach::Ingress), "this key belongs to attach = \"ingress\"",
                "leave it out, or write attach = \"ingress\"; XDP forwards directly by itself", Forwarding::Stack);
        /// Let `forward = "direct"` bypass rules for forwarded packets. Without this key the translator does not start
        /// where nftables has a base chain at the hooks `prerouting`, `forward` or `postrouting`, or where iptables has a table
        bypass_nftables: bool = BOOLEAN, or(false),
            only(matches!(forward, Forwarding::Direct), "this key belongs to forward = \"direct\"", "leave it out", false);
        /// The kernel engine measures the time that each packet takes, which costs a little. `fordway status` shows the
        /// mean; `fordway run --measure` sets this for all translators
        measure: bool = BOOLEAN, or(false);
        /// Packets from IPv4 that the kernel engine passes to the user engine, per second, for each reason and on each
        /// processor. More are dropped as [`pass_rate`](drop-reasons.md); [which reasons](kernel-engine.md#floods).
        /// Refused for CLATs and softwire clients, whose IPv4 side is the host
        pass_rate: Option<u32> = RATE, or(Some(PASS_RATE)),
            only(!matches!(mode, Mode::Clat(_)) && !mode.is_client(),
                "this key is for gateways, to which strangers in the IPv4 network send", "leave it out", None);
        /// Explicit address mappings (RFC 7757). Each is `["IPV4", "IPV6"]`, prefixes or addresses; the longest prefix
        /// that matches is used. The IPv4 prefix has at most as many suffix bits as the IPv6 prefix. The IPv4 prefixes
        /// are routed into the interface. Mappings that overlap in one family only are taken with a warning
        eam: Vec<Eam> = EAM, or(Vec::new()),
            only(mode.is_stateless(), no_mappings(&mode), mappings_instead(&mode), Vec::new());
        /// IPv4 networks to route into the interface, beside those of `eam`: those of IPv4-translatable hosts, or for a
        /// softwire those beside its bindings
        routes4: Vec<Ipv4Net> = list(PREFIX4, ROUTES), or(usual_routes(&mode), "`[]`; for a CLAT and a softwire's client `[\"0.0.0.0/0\"]`"),
            only(!matches!(mode, Mode::Nat64(_)), "mode nat64 knows what to route", NO_ROUTES, Vec::new());
        /// Metric of the routes into the interface. The default is higher than that of most default routes, so that
        /// native IPv4 is preferred where there is some
        metric: u32 = NUMBER, or(DEFAULT_METRIC);
        /// Source of ICMPv4 errors, and of translated ones whose IPv6 source has no IPv4 counterpart (RFC 6791). `off`:
        /// the first are not sent, the second are dropped. The default is the dummy address of RFC 7600. It may be an
        /// address of the gateway (RFC 6791 section 3.1), which then [accepts packets from
        /// it](operations.md#icmp-errors-from-the-gateways-own-address)
        icmp_source4: Option<Ipv4Addr> = or("off", HOST4), or(Some(ICMP_SOURCE4));
        /// ICMPv4 errors whose source is `icmp_source4` because the router has no mapping carry the router's IPv6
        /// address, for traceroute: a Node Identification Object (draft-ietf-intarea-extended-icmp-nodeid,
        /// draft-ietf-v6ops-icmpext-xlat-v6only-source)
        icmp_node_id: bool = BOOLEAN, or(false),
            only(mode.translates(), "ICMPv4 errors of a softwire are its own", "leave it out", false);
        /// Source of ICMPv6 errors. `auto`: the host's preferred address towards the IPv6 side. `off`: they are not
        /// sent
        icmp_source6: Source6 = SOURCE6, or(Source6::Auto),
            only(mode.translates(), "ICMPv6 errors are from the tunnel's own address", "leave it out", Source6::Auto);
        /// Whether and how often ICMP errors are sent
        icmp_errors: IcmpErrors, flat();
        /// What happens to UDP over IPv4 without a checksum (RFC 7915 section 4.5). `compute`: an unfragmented datagram
        /// gets a checksum, a fragment is dropped. `drop`: it is dropped. `pass`: it is translated without a checksum.
        /// A dropped datagram is answered with ICMP type 3 code 13 and logged with addresses and ports, at most one
        /// line per second
        udp_checksum_zero: UdpChecksumZero = UDP_CHECKSUM_ZERO, or(UdpChecksumZero::Compute),
            only(mode.translates(), "a softwire changes nothing behind the IPv4 header", "leave it out",
                UdpChecksumZero::Compute);
        /// Traffic Class and Type of Service of translated packets. `copy`: that of the packet. A number: always this
        /// octet
        traffic_class: TrafficClass = TRAFFIC_CLASS, or(TrafficClass::Copy);
        /// Let 64:ff9b::/96 carry non-global IPv4 addresses, such as those of RFC 1918 and RFC 6598. That is against
        /// RFC 6052 section 3.1; draft-ietf-v6ops-nat64-wkp-1918 would allow it
        allow_private: bool = BOOLEAN, or(false),
            only(mode.translates(), "a softwire carries any IPv4 address that has a binding", "leave it out", false);
        /// IPv6 hosts have addresses from `pool6`. If `false`, a packet with source and destination in `pool6` is
        /// dropped as a loop
        ipv4_translatable: bool = BOOLEAN,
            or(matches!(&mode, Mode::Siit(siit) if eam.is_empty() && siit.dynamic4.is_none()),
                "`true` in mode siit without `eam` and `dynamic4`, else `false`"),
            only(mode.is_stateless(), not_translatable(&mode), "leave it out", false);
        /// Hairpinning: packets between two IPv6 hosts that address each other by their IPv4 mappings, or between two
        /// softwire clients, are forwarded (RFC 7757 section 4)
        hairpin: bool = BOOLEAN, or(true),
            only(!mode.is_client(), "this key belongs to role tep", "leave it out", true);
        /// Lower the MSS of TCP connections to what fits `mtu`
        mss_clamp: bool = BOOLEAN, or(matches!(mode, Mode::Clat(_) | Mode::Softwire(_)),
            "`true` for clat and softwire, else `false`");
        /// IPv6 path MTU. `auto`: that of the route to the IPv6 side, else 1500. The interface and the routes get this
        /// MTU, and an advertised MSS to match; where the kernel has to keep to the path ([path
        /// MTU](operations.md#path-mtu)), IPv4 routes get 20 octets less
        mtu: Option<u32> = or("auto", MTU), or(None);
        /// IPv4 packets without Don't Fragment become IPv6 packets of at most this size (RFC 7915 section 4.1)
        lowest_ipv6_mtu: u32 = MTU, or(IPV6_MIN_MTU),
            only(mode.translates(), "packets without DF are cut to the path's MTU", "leave it out", IPV6_MIN_MTU);
        /// Queues of the interface, each with a thread. `auto`: one for every two processors, at most 8, and for a gateway at least two where there are two processors
        queues: Option<usize> = or("auto", integer(1..=256, "")), or(None), reload(Down);
        /// Packets that wait in each queue while its thread has no processor. A packet that finds the queue full is
        /// dropped and counted as `receive_queue_full`; a GSO packet counts as one. It becomes the interface's
        /// `txqueuelen`, unless `manage = false`
        queue_length: u32 = integer(64..=65_536, "packets"), or(QUEUE_LENGTH);
        /// The thread of a busy queue stays on one processor, so that its packets stay in order. `false`: for hosts
        /// where other software assigns processors
        pin_queues: bool = BOOLEAN, or(true), reload(Down);
        /// The user engine gathers what waits in a queue into GSO packets, as network cards do (GRO;
        /// [operations](operations.md#gathering)). `tcp`: segments of TCP. `tcp-udp`: datagrams of UDP, too
        gro: Gro = GRO, or(Gro::Tcp), reload(Down);
        /// Set up addresses, routes, rules and settings of the host, and remove exactly these at the end. `false`: the
        /// host is not changed; [operations](operations.md#unmanaged-hosts) says what it then needs
        manage: bool = BOOLEAN, or(true), reload(Down);
    }
}

fn usual_routes(mode: &Mode) -> Vec<Ipv4Net> {
    let everything = matches!(mode, Mode::Clat(_)) || mode.is_client();
    if everything { vec![Ipv4Net::default()] } else { Vec::new() }
}

fn no_mappings(mode: &Mode) -> &'static str {
    match mode {
        Mode::Softwire(_) => "a softwire translates no addresses",
        _ => "mode nat64 gives addresses by itself",
    }
}

fn mappings_instead(mode: &Mode) -> &'static str {
    if mode.translates() { MODE_NAT64 } else { "leave it out" }
}

fn not_translatable(mode: &Mode) -> &'static str {
    match mode {
        Mode::Softwire(_) => "a softwire translates no addresses",
        _ => "in mode nat64 IPv6 hosts are not numbered from pool6",
    }
}

/// Source address of ICMPv6 errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source6 {
    /// The host's preferred address towards the IPv6 side.
    #[default]
    Auto,
    /// None: such errors are not sent.
    Off,
    /// This one.
    Address(Ipv6Addr),
}

impl Translator {
    /// What a table without keys stands for. Name and mode are to be put in.
    pub(crate) fn usual() -> Translator {
        usual()
    }

    /// The mode's name in the file.
    #[must_use]
    pub fn mode_name(&self) -> &'static str {
        self.mode.name()
    }

    /// The translation prefixes: `pool6`, or a CLAT's `pref64`; none while that is to be discovered.
    #[must_use]
    pub fn pool6(&self) -> &[Pool6] {
        match &self.mode {
            Mode::Siit(siit) => &siit.pool6,
            Mode::Clat(clat) => clat.pref64.fixed().map_or(&[], std::slice::from_ref),
            Mode::Nat64(nat64) => &nat64.pool6,
            Mode::Softwire(_) => &[],
        }
    }

    /// The CLAT's part, if this is one.
    #[must_use]
    pub fn clat(&self) -> Option<&Clat> {
        if let Mode::Clat(clat) = &self.mode { Some(clat) } else { None }
    }

    /// Whether this is a CLAT that discovers its prefix.
    #[must_use]
    pub fn is_automatic(&self) -> bool {
        self.clat().is_some_and(|clat| clat.pref64 == Pref64::Auto)
    }

    /// The part of NAT-PT, if this is mode `nat-pt`.
    #[must_use]
    pub fn nat_pt(&self) -> Option<&NatPt> {
        self.nat64()?.nat_pt.as_ref()
    }

    /// The stateful part, if this is mode `nat64` or `nat-pt`.
    #[must_use]
    pub fn nat64(&self) -> Option<&Nat64> {
        if let Mode::Nat64(nat64) = &self.mode { Some(nat64) } else { None }
    }

    /// The softwires' part, if this is mode `softwire`.
    #[must_use]
    pub fn softwire(&self) -> Option<&Softwire> {
        if let Mode::Softwire(softwire) = &self.mode { Some(softwire) } else { None }
    }

    /// Whether packets come from and go to other hosts than this one.
    #[must_use]
    pub fn serves_others(&self) -> bool {
        match &self.mode {
            Mode::Siit(_) | Mode::Nat64(_) => true,
            Mode::Clat(_) => !self.eam.is_empty(),
            Mode::Softwire(softwire) => softwire.client().is_none(),
        }
    }

    /// The dynamic 1:1 mappings, if there are to be any.
    #[must_use]
    pub fn dynamic4(&self) -> Option<&Dynamic4> {
        if let Mode::Siit(siit) = &self.mode { siit.dynamic4.as_ref() } else { None }
    }
}
