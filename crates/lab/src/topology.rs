//! The network of study A, made anew for every deployment.
//!
//! ```text
//! one hop     client ───────── host ───────── iperf
//! two hops    app ── client ── host ───────── iperf
//! no hop      client ──────────────────────── iperf      (calibration)
//! ```
//!
//! A stateless gateway stands in the `host` box, between an IPv4 client and the IPv6 server; a stateful
//! one between the IPv6 client and a server that has IPv4 alone. NAT44 stands there between two IPv4 links,
//! and the server has no route to what is behind it.
//!
//! Every box is a namespace of the lab. Next hops are link-local, forwarding is on, and the server
//! owns 64:ff9b::192.0.0.171, so that a stateless translator alone reaches an "IPv4-only" target.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::backend::{Backend, Place, must};
use crate::error::{LabError, Result};
use crate::process::Output;
use crate::spec::{Family, Kind, MechanismSpec, Way};
use crate::state;

/// Prefix that the server's IPv4 address is embedded in (RFC 6052 section 2.1).
pub(crate) const PREF64: &str = "64:ff9b::/96";
/// The client's own IPv6 address.
pub(crate) const CLIENT_V6: &str = "2001:db8:1::2";
/// The address that a CLAT translates to.
pub(crate) const CLAT_V6: &str = "2001:db8:1::c";
/// A translator's own IPv6 address, where it needs one.
pub(crate) const ROUTER_V6: &str = "2001:db8:1::d";
/// The IPv4 address of applications behind a CLAT (RFC 7335).
pub(crate) const CLAT_V4: &str = "192.0.0.1";
/// A translator's own IPv4 address, where it needs one (RFC 7335).
pub(crate) const ROUTER_V4: &str = "192.0.0.2";
const APP_V6: &str = "2001:db8:2::2";
const HOST_V6: &str = "2001:db8:f::1";
const SERVER_V6: &str = "2001:db8:5::5";
const SERVER_EMBEDDED: &str = "64:ff9b::192.0.0.171";
/// The server as an application behind a CLAT addresses it.
pub(crate) const SERVER_CLAT_V4: &str = "192.0.0.171";
const SERVER_V4: &str = "198.51.100.2";
/// What a stateless gateway maps explicitly: the server.
pub(crate) const SIIT_MAPPING: &str = "198.51.100.2=2001:db8:5::5";
/// Prefix in which a stateless gateway shows IPv4 clients to the server.
pub(crate) const SIIT_POOL6: &str = "2001:db8:64::/96";
/// The IPv4 client of a stateless gateway, in that prefix.
const SIIT_CLIENT_V6: &str = "2001:db8:64::192.0.2.2";
/// The client's IPv4 address, where it has one of its own.
const CLIENT_V4: &str = "192.0.2.2";
/// The application's IPv4 address in a box of its own.
const APP_V4: &str = "203.0.113.2";
/// Prefix in which a stateful translator shows IPv4 hosts. Not the well-known one: the lab's addresses are
/// those of documents, which are not global and may not stand there (RFC 6052 section 3.1).
pub(crate) const NAT64_POOL6: &str = "2001:db8:64::/96";
/// The server's IPv4 address in that prefix.
const SERVER_V4_EMBEDDED: &str = "2001:db8:64::198.51.100.2";
/// The middle box's address on the server's IPv4 link.
const HOST_V4: &str = "198.51.100.1";
/// Addresses that a stateful translator shows its clients under.
pub(crate) const POOL4: &str = "203.0.113.64/26";
/// The first of them.
const POOL4_FIRST: &str = "203.0.113.64";
/// Sources of the flow tester on an IPv6 link, all behind the client: 2001:db8:f00:N::1.
pub(crate) const FLOWS_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xf00, 0, 0, 0, 0, 1);
/// Sources of the flow tester on an IPv4 link: 198.18.N.N.
pub(crate) const FLOWS_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
/// IPv4 addresses that stand for IPv6 hosts between the two steps of a chain.
pub(crate) const BETWEEN_V4: &str = "198.19.0.0/16";

/// What is asked of the builder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Forwarding namespaces between application and server: 0, 1 or 2.
    pub(crate) hops: u8,
    /// Whether the whole path has native IPv4; otherwise there is none at all.
    pub(crate) native_v4: bool,
    /// Whether the client's link alone has native IPv4 (a stateless gateway in the `host` box).
    pub(crate) edge_v4: bool,
    /// Whether the server's link alone has native IPv4, and no IPv6 (a stateful gateway there).
    pub(crate) far_v4: bool,
    /// Whether the client is hidden from the server.
    pub(crate) hidden: bool,
    /// Whether the application's link carries the CLAT's IPv4 (a translator in the `client` box of
    /// the two-hop topology).
    pub(crate) clat_link: bool,
    /// Whether the veth devices keep their offloads.
    pub(crate) offloads: bool,
}

impl Shape {
    /// The network that a mechanism needs.
    pub(crate) fn of(mechanism: &MechanismSpec, offloads: bool) -> Self {
        let native = mechanism.kind == Kind::Native;
        Self {
            hops: mechanism.hops,
            native_v4: (native && mechanism.family == Family::V4) || mechanism.kind == Kind::Nat44,
            edge_v4: mechanism.kind == Kind::Siit,
            far_v4: mechanism.kind == Kind::Nat64,
            hidden: mechanism.kind == Kind::Nat44,
            clat_link: mechanism.kind == Kind::Clat && mechanism.hops == 2,
            offloads,
        }
    }

    /// The network without a hop, for calibration of the generator.
    pub(crate) fn calibration(offloads: bool) -> Self {
        Self {
            hops: 0,
            native_v4: false,
            edge_v4: false,
            far_v4: false,
            hidden: false,
            clat_link: false,
            offloads,
        }
    }
}

/// A built network. Dropping it removes its namespaces.
#[derive(Debug)]
pub(crate) struct Network {
    /// Where the application runs: the `app` box, or `client` where there is none.
    pub(crate) app: Place,
    /// Where a CLAT runs.
    pub(crate) client: Place,
    /// The box in the middle, unless calibrating.
    pub(crate) host: Option<Place>,
    /// Where the server runs.
    pub(crate) server: Place,
    /// The server's address for the application.
    pub(crate) target: IpAddr,
    /// All addresses that the server owns.
    pub(crate) server_addresses: Vec<IpAddr>,
    /// The address with which the server takes part in a flow with the application.
    pub(crate) server_address: IpAddr,
    /// The application's own address in such a flow.
    pub(crate) app_address: IpAddr,
    /// The application's address as the server sees it.
    pub(crate) seen_address: IpAddr,
}

impl Network {
    /// All places with their roles.
    pub(crate) fn places(&self) -> Vec<(&str, &Place)> {
        let mut all = vec![("client", &self.client)];
        if self.app != self.client {
            all.insert(0, ("app", &self.app));
        }
        all.extend(self.host.as_ref().map(|host| ("host", host)));
        all.push(("iperf", &self.server));
        all
    }

    /// Where a mechanism's process runs.
    pub(crate) fn translator(&self, mechanism: &MechanismSpec) -> &Place {
        match (mechanism.kind, &self.host) {
            (Kind::Siit | Kind::Nat64 | Kind::Nat44, Some(host)) => host,
            _ => &self.client,
        }
    }

    /// Devices nearest to the receiver of a flow, best first: what they receive has passed every
    /// queue that may drop it. A translator's own device counts only what its process sends; with
    /// `in_kernel` there is no such process.
    pub(crate) fn receiving_devices(&self, way: Way, in_kernel: bool) -> &'static [&'static str] {
        match (way, self.app == self.client, in_kernel) {
            (Way::Up, ..) => &["iperf/uplink"],
            (Way::Down, true, false) => &["client/clat0", "client/uplink"],
            (Way::Down, true, true) => &["client/uplink"],
            (Way::Down, false, _) => &["app/uplink"],
        }
    }

    /// Builds the network under names that begin with `prefix`.
    pub(crate) fn build(
        backend: &dyn Backend,
        prefix: &str,
        shape: Shape,
        mechanism: Option<&MechanismSpec>,
    ) -> Result<Self> {
        let place = |role: &str| Place(format!("{prefix}{role}"));
        let client = place("client");
        let flow = Flow::of(shape, mechanism);
        let network = Self {
            app: if shape.hops == 2 { place("app") } else { client.clone() },
            client,
            host: (shape.hops > 0).then(|| place("host")),
            server: place("iperf"),
            target: address(flow.target)?,
            server_address: address(flow.server)?,
            app_address: address(flow.app)?,
            seen_address: address(flow.seen)?,
            server_addresses: server_addresses(shape)
                .into_iter()
                .map(address)
                .collect::<Result<_>>()?,
        };
        // From here on `network` cleans up when a step fails.
        let made: Vec<String> =
            network.places().iter().map(|(_, p)| format!("netns add {}", p.0)).collect();
        batch(backend, None, prefix, &made)?;
        for (_, place) in network.places() {
            let mut argv = vec!["sysctl", "-qw"];
            argv.extend(SYSCTLS);
            must(backend, place, &argv)?;
        }
        batch(backend, None, prefix, &network.links())?;
        for (role, place) in network.places() {
            batch(backend, Some(place), prefix, &addresses(role, shape))?;
            if !shape.offloads {
                network.offloads_off(backend, role, place)?;
            }
        }
        if shape.edge_v4 {
            // A gateway looks for what its devices can do when it starts.
            network.receive_offload_on(backend)?;
        }
        Ok(network)
    }

    fn links(&self) -> Vec<String> {
        let veth = |a: &Place, da: &str, b: &Place, db: &str| {
            format!("link add {da} netns {} type veth peer name {db} netns {}", a.0, b.0)
        };
        let Some(host) = &self.host else {
            return vec![veth(&self.client, "uplink", &self.server, "uplink")];
        };
        let mut lines = vec![
            veth(&self.client, "uplink", host, "to-client"),
            veth(&self.server, "uplink", host, "to-iperf"),
        ];
        if self.app != self.client {
            lines.push(veth(&self.app, "uplink", &self.client, "to-app"));
        }
        lines
    }

    fn offloads_off(&self, backend: &dyn Backend, role: &str, place: &Place) -> Result<()> {
        for device in devices(role, self.host.is_some(), self.app != self.client) {
            let off = ["ethtool", "-K", device, "tx", "off", "rx", "off", "tso", "off"];
            let more = ["gso", "off", "gro", "off", "sg", "off"];
            must(backend, place, &[&off[..], &more[..]].concat())?;
        }
        Ok(())
    }

    /// Turns receive offload on at every device: only so a veth takes frames from XDP programs, and
    /// only so it hands them on in batches, as a network card does.
    pub(crate) fn receive_offload_on(&self, backend: &dyn Backend) -> Result<()> {
        for (role, place) in self.places() {
            for device in devices(role, self.host.is_some(), self.app != self.client) {
                must(backend, place, &["ethtool", "-K", device, "gro", "on"])?;
            }
        }
        Ok(())
    }

    /// Makes the middle box compute checksums before it sends, so that the receiver checks them.
    ///
    /// veth hands partial checksums on as they are and the receiver then trusts them; a wrong
    /// pseudo-header sum would go unseen.
    pub(crate) fn complete_checksums(&self, backend: &dyn Backend) -> Result<()> {
        let Some(host) = &self.host else { return Ok(()) };
        for device in ["to-client", "to-iperf"] {
            must(backend, host, &["ethtool", "-K", device, "tx", "off"])?;
        }
        Ok(())
    }

    /// Narrows the link between the middle box and the server, at both ends: a veth drops without
    /// a word what is larger than the receiving end's MTU.
    pub(crate) fn narrow(&self, backend: &dyn Backend, mtu: u32) -> Result<()> {
        let mtu = mtu.to_string();
        if let Some(host) = &self.host {
            must(backend, host, &["ip", "link", "set", "to-iperf", "mtu", &mtu])?;
            must(backend, &self.server, &["ip", "link", "set", "uplink", "mtu", &mtu])?;
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for (_, place) in self.places() {
            // What cannot be removed now stays in the state file and is tried again later.
            let _ = state::remove_namespace(&place.0);
        }
    }
}

/// The same in every namespace. Error limits are lifted, so that probes of ICMP errors do not
/// depend on chance; duplicate address detection would only delay.
const SYSCTLS: &[&str] = &[
    "net.ipv4.ip_forward=1",
    "net.ipv6.conf.all.forwarding=1",
    "net.ipv6.conf.all.accept_dad=0",
    "net.ipv6.conf.default.accept_dad=0",
    "net.ipv4.icmp_ratelimit=0",
    "net.ipv6.icmp.ratelimit=0",
];

fn devices(role: &str, hosted: bool, with_app: bool) -> Vec<&'static str> {
    match role {
        "host" => vec!["to-client", "to-iperf"],
        "client" if hosted && with_app => vec!["uplink", "to-app"],
        _ => vec!["uplink"],
    }
}

/// The addresses of a flow between application and server, at both ends.
struct Flow {
    /// The server, for the application.
    target: &'static str,
    /// The server, for itself.
    server: &'static str,
    /// The application, for itself.
    app: &'static str,
    /// The application, for the server.
    seen: &'static str,
}

impl Flow {
    fn of(shape: Shape, mechanism: Option<&MechanismSpec>) -> Self {
        let own_box = shape.hops == 2;
        match mechanism.map_or(Kind::Native, |m| m.kind) {
            Kind::Clat => Self {
                target: SERVER_CLAT_V4,
                server: SERVER_EMBEDDED,
                app: if own_box { ROUTER_V4 } else { CLAT_V4 },
                seen: CLAT_V6,
            },
            Kind::Siit => {
                Self { target: SERVER_V4, server: SERVER_V6, app: CLIENT_V4, seen: SIIT_CLIENT_V6 }
            }
            Kind::Nat64 => Self {
                target: SERVER_V4_EMBEDDED,
                server: SERVER_V4,
                app: CLIENT_V6,
                seen: POOL4_FIRST,
            },
            Kind::Nat44 => {
                Self { target: SERVER_V4, server: SERVER_V4, app: CLIENT_V4, seen: HOST_V4 }
            }
            Kind::Native => {
                let app = match (shape.native_v4, own_box) {
                    (true, true) => APP_V4,
                    (true, false) => CLIENT_V4,
                    (false, true) => APP_V6,
                    (false, false) => CLIENT_V6,
                };
                let server = if shape.native_v4 { SERVER_V4 } else { SERVER_V6 };
                Self { target: server, server, app, seen: app }
            }
        }
    }
}

fn server_addresses(shape: Shape) -> Vec<&'static str> {
    let mut all = if shape.far_v4 { Vec::new() } else { vec![SERVER_V6, SERVER_EMBEDDED] };
    all.extend((shape.native_v4 || shape.far_v4).then_some(SERVER_V4));
    all
}

fn address(text: &str) -> Result<IpAddr> {
    text.parse().map_err(|_| LabError::Usage(format!("{text} is not an address")))
}

/// The `ip` commands of one box.
fn addresses(role: &str, shape: Shape) -> Vec<String> {
    let mut lines = vec!["link set lo up".to_owned()];
    let two = shape.hops == 2;
    match role {
        "app" => {
            lines.extend(link("uplink", "fe80::2"));
            lines.push(format!("addr add {APP_V6}/128 dev uplink nodad"));
            lines.push(format!("route add ::/0 via fe80::1 dev uplink src {APP_V6}"));
            if shape.native_v4 {
                lines.push(format!("addr add {APP_V4}/30 dev uplink"));
                lines.push("route add default via 203.0.113.1".into());
            }
            if shape.clat_link {
                // RFC 7335: the application holds 192.0.0.2, the translator's box 192.0.0.1.
                lines.push("addr add 192.0.0.2/29 dev uplink".into());
                lines.push("route add default via 192.0.0.1 mtu 1480 advmss 1440".into());
            }
        }
        "client" => {
            lines.extend(link("uplink", "fe80::2"));
            lines.push(format!("addr add {CLIENT_V6}/128 dev uplink nodad"));
            lines.push(format!("route add ::/0 via fe80::1 dev uplink src {CLIENT_V6}"));
            if shape.native_v4 || shape.edge_v4 {
                lines.push(format!("addr add {CLIENT_V4}/30 dev uplink"));
                lines.push("route add default via 192.0.2.1".into());
            }
            if two {
                lines.extend(link("to-app", "fe80::1"));
                lines.push("route add 2001:db8:2::/64 via fe80::2 dev to-app".into());
                if shape.native_v4 {
                    lines.push("addr add 203.0.113.1/30 dev to-app".into());
                }
                if shape.clat_link {
                    lines.push("addr add 192.0.0.1/29 dev to-app".into());
                }
            }
        }
        "host" => {
            lines.extend(link("to-client", "fe80::1"));
            lines.extend(link("to-iperf", "fe80::1"));
            // Errors of this box need a source that the far side can answer.
            lines.push(format!("addr add {HOST_V6}/128 dev lo nodad"));
            for prefix in ["2001:db8:1::/64", "2001:db8:2::/64", "2001:db8:f00::/48"] {
                lines.push(format!("route add {prefix} via fe80::2 dev to-client"));
            }
            let beyond: &[&str] = if shape.far_v4 { &[] } else { &[PREF64, "2001:db8:5::/64"] };
            for prefix in beyond {
                lines.push(format!("route add {prefix} via fe80::2 dev to-iperf"));
            }
            if shape.native_v4 || shape.edge_v4 {
                lines.push("addr add 192.0.2.1/30 dev to-client".into());
                lines.push(format!("route add {FLOWS_V4}/16 via 192.0.2.2"));
            }
            if shape.native_v4 || shape.far_v4 {
                lines.push(format!("addr add {HOST_V4}/30 dev to-iperf"));
            }
            if shape.native_v4 {
                lines.push("route add 203.0.113.0/30 via 192.0.2.2".into());
            }
        }
        _ => {
            let (own, next) =
                if shape.hops == 0 { ("fe80::1", "fe80::2") } else { ("fe80::2", "fe80::1") };
            lines.extend(link("uplink", own));
            if !shape.far_v4 {
                for own in [SERVER_V6, SERVER_EMBEDDED] {
                    lines.push(format!("addr add {own}/128 dev uplink nodad"));
                }
                lines.push(format!("route add ::/0 via {next} dev uplink"));
            }
            if shape.native_v4 || shape.far_v4 {
                lines.push(format!("addr add {SERVER_V4}/30 dev uplink"));
            }
            if shape.far_v4 {
                lines.push(format!("route add {POOL4} via {HOST_V4}"));
            } else if shape.native_v4 && !shape.hidden {
                // Who forgets to hide the client gets no answer.
                lines.push(format!("route add default via {HOST_V4}"));
            }
        }
    }
    lines
}

fn link(device: &str, own: &str) -> [String; 2] {
    [format!("link set {device} up"), format!("addr add {own}/64 dev {device} nodad")]
}

/// Runs lines of `ip`, in a place or on the machine itself.
fn batch(
    backend: &dyn Backend,
    place: Option<&Place>,
    prefix: &str,
    lines: &[String],
) -> Result<()> {
    let name = place.map_or(prefix, |p| &p.0);
    let file = backend.deploy(&format!("{name}.ip"), (lines.join("\n") + "\n").as_bytes())?;
    let argv = ["ip".to_owned(), "-batch".into(), file.display().to_string()];
    let limit = std::time::Duration::from_secs(10);
    backend.run(place, &argv, Output::Keep)?.wait(limit)?.ok()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_documentation_addresses_are_used() {
        let allowed = ["192.0.0.", "192.0.2.", "198.18.", "198.51.100.", "203.0.113."];
        for hops in 0..=2 {
            for on in 0..6 {
                let [native_v4, edge_v4, clat_link, far_v4, hidden] =
                    [1, 2, 3, 4, 5].map(|n| n == on);
                let native_v4 = native_v4 || hidden;
                let shape =
                    Shape { hops, native_v4, edge_v4, far_v4, hidden, clat_link, offloads: true };
                for role in ["app", "client", "host", "iperf"] {
                    for line in addresses(role, shape) {
                        for word in line.split([' ', '/']) {
                            if let Ok(v4) = word.parse::<std::net::Ipv4Addr>() {
                                let text = v4.to_string();
                                assert!(allowed.iter().any(|a| text.starts_with(a)), "{line}");
                            } else if let Ok(v6) = word.parse::<std::net::Ipv6Addr>() {
                                let head = v6.segments()[0];
                                let known = [0xfe80, 0x2001, 0x64].contains(&head);
                                assert!(known || v6.is_unspecified(), "{line}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_server_of_one_family_has_none_of_the_other() {
        let far = Shape { hops: 1, far_v4: true, ..Shape::calibration(true) };
        let lines = addresses("iperf", far).join("\n");
        assert!(lines.contains("198.51.100.2/30") && !lines.contains("2001:db8:5"), "{lines}");
        assert_eq!(server_addresses(far), [SERVER_V4]);
        assert!(!addresses("host", far).join("\n").contains(PREF64), "the translator's own");
        let hidden = Shape { hops: 1, native_v4: true, hidden: true, ..Shape::calibration(true) };
        let lines = addresses("iperf", hidden).join("\n");
        assert!(!lines.contains("default"), "only the gateway is reached: {lines}");
    }

    #[test]
    fn an_ipv6_only_path_carries_no_ipv4() {
        let shape = Shape { hops: 1, ..Shape::calibration(true) };
        for role in ["client", "host"] {
            for line in addresses(role, shape) {
                let v4 = line.split([' ', '/']).any(|w| w.parse::<std::net::Ipv4Addr>().is_ok());
                assert!(!v4, "{line}");
            }
        }
    }
}
