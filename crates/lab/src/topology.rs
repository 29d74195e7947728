//! The network of study A, made anew for every deployment.
//!
//! ```text
//! one hop     client ───────── host ───────── iperf
//! two hops    app ── client ── host ───────── iperf
//! no hop      client ──────────────────────── iperf      (calibration)
//! two ends    app ── client ══ host ───────── iperf      (464XLAT, softwire with two hops)
//! elsewhere   client ══ another machine ═════ iperf
//! a standby   client ───────── host ───────── iperf      (and a `standby` box on a link of its own with `host`)
//! two ways    client ═══ host │ standby ═════ iperf      (one that takes over: client and server have a bridge each)
//! ```
//!
//! A stateless gateway stands in the `host` box, between an IPv4 client and the IPv6 server; a stateful
//! one between the IPv6 client and a server that has IPv4 alone. NAT44 stands there between two IPv4 links,
//! and the server has no route to what is behind it. An IPv6-only network whole is both: a CLAT at the client,
//! and a stateful translator and DNS64 in the `host` box. With two hops the CLAT, or the client's end of a softwire, serves the hosts
//! of an IPv4 link, and the link between both ends has room for what they add.
//!
//! Every box is a namespace of the lab. Next hops are link-local, forwarding is on, and the server
//! owns 64:ff9b::192.0.0.171, so that a stateless translator alone reaches an "IPv4-only" target.

mod boxes;
mod cables;

use std::net::{IpAddr, SocketAddr};

use fordway_data::addresses::{HOST_V6, NAT64_POOL6, PREF64, PROXY_PORT, SITE_PORT};
use fordway_data::spec::{Carries, Family, Kind, MechanismSpec, Standby, Way};

use crate::backend::{Backend, Keeper, Place, must};
use crate::error::{LabError, Result};
use crate::process::Output;
use boxes::{Flow, addresses, server_addresses};
pub(crate) use cables::{Cables, needs};

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
    /// Whether the application's link has native IPv4 that ends at the mechanism in the `client` box.
    pub(crate) lan_v4: bool,
    /// Whether frames are handed on by XDP.
    pub(crate) by_xdp: bool,
    /// Whether the veth devices keep their offloads.
    pub(crate) offloads: bool,
    /// Whether another machine stands in the place of the `host` box.
    pub(crate) elsewhere: bool,
    /// What another one beside the `host` box does.
    pub(crate) standby: Option<Standby>,
}

impl Shape {
    /// The network that a mechanism needs.
    pub(crate) fn of(mechanism: &MechanismSpec, offloads: bool) -> Self {
        let native = mechanism.kind == Kind::Native;
        Self {
            hops: mechanism.hops,
            native_v4: (native && mechanism.family == Family::V4)
                || matches!(mechanism.kind, Kind::Nat44 | Kind::DualStack),
            edge_v4: mechanism.kind == Kind::Siit,
            far_v4: mechanism.kind.joins_v6_to_v4(),
            hidden: mechanism.kind == Kind::Nat44,
            clat_link: mechanism.kind == Kind::Clat && mechanism.hops == 2,
            lan_v4: mechanism.kind.has_hosts_behind() && mechanism.hops == 2,
            by_xdp: mechanism.attach.as_deref() == Some("xdp"),
            offloads,
            elsewhere: mechanism.device.is_some(),
            standby: mechanism.standby,
        }
    }

    /// The network without a hop, for calibration of the generator over a family.
    pub(crate) fn calibration(family: Family, offloads: bool) -> Self {
        Self {
            hops: 0,
            native_v4: family == Family::V4,
            edge_v4: false,
            far_v4: false,
            hidden: false,
            clat_link: false,
            lan_v4: false,
            by_xdp: false,
            offloads,
            elsewhere: false,
            standby: None,
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
    /// The box beside it, where it has one.
    pub(crate) standby: Option<Place>,
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
    /// Prefix in which a client-side translator shows IPv4 hosts.
    pub(crate) pref64: &'static str,
    /// What the mechanism on it is for; native, where there is none.
    pub(crate) kind: Kind,
    /// The way through another machine, where there is one.
    pub(crate) cables: Option<Cables>,
    /// Who removes its namespaces; `None`: they are somebody else's.
    keeper: Option<Keeper>,
}

impl Network {
    /// All places with their roles.
    pub(crate) fn places(&self) -> Vec<(&str, &Place)> {
        let mut all = vec![("client", &self.client)];
        if self.app != self.client {
            all.insert(0, ("app", &self.app));
        }
        all.extend(self.host.as_ref().map(|host| ("host", host)));
        all.extend(self.standby.as_ref().map(|standby| ("standby", standby)));
        all.push(("iperf", &self.server));
        all
    }

    /// Where a mechanism's process runs.
    pub(crate) fn translator(&self, mechanism: &MechanismSpec) -> &Place {
        match (mechanism.kind, &self.host) {
            (kind, Some(host)) if kind.in_the_middle() => host,
            _ => &self.client,
        }
    }

    /// The proxy that clients have to be told of.
    pub(crate) fn proxy(&self) -> Result<Option<SocketAddr>> {
        let own = || Ok(SocketAddr::new(address(HOST_V6)?, PROXY_PORT));
        (self.kind == Kind::Proxy).then(own).transpose()
    }

    /// Where a connection is taken as soon as the mechanism is ready; `None`: it carries pings, which tell.
    pub(crate) fn door(&self) -> Result<Option<SocketAddr>> {
        Ok(match self.kind.carries() {
            Carries::Packets => None,
            Carries::Transport => Some(SocketAddr::new(self.target, SITE_PORT)),
            Carries::Http => match self.proxy()? {
                Some(proxy) => Some(proxy),
                None => Some(SocketAddr::new(self.target, SITE_PORT)),
            },
        })
    }

    /// The address that the server's name has where its own name server is asked.
    pub(crate) fn published(&self) -> IpAddr {
        let own = self.target.is_ipv4() || self.kind == Kind::ReverseProxy;
        if own { self.target } else { self.server_address }
    }

    /// Mbit/s of the slower cable to another machine.
    pub(crate) fn speed(&self) -> Option<u32> {
        self.cables.as_ref().and_then(|cables| cables.speed)
    }

    /// Whether a mechanism with two ends serves hosts on a link of their own, not the box of its near end.
    pub(crate) fn has_hosts_behind(&self) -> bool {
        self.kind.has_hosts_behind() && self.app != self.client
    }

    /// MTU of the link where packets are largest: of two devices that packets pass one after the other, the link between them has
    /// room for what is added there (RFC 8219 section 5.1).
    pub(crate) fn widest_mtu(&self) -> u16 {
        widest_mtu(self.has_hosts_behind())
    }

    /// Whether two translators stand on the path, one after the other.
    pub(crate) fn translated_twice(&self) -> bool {
        self.pref64 == NAT64_POOL6
    }

    /// Whether a translator on the path turns packets of this way into IPv6.
    pub(crate) fn becomes_v6(&self, way: Way) -> bool {
        match way {
            Way::Up => self.app_address.is_ipv4(),
            Way::Down => self.app_address.is_ipv6(),
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

    /// The network as it is under names that begin with `prefix`, once somebody has built it.
    pub(crate) fn described(
        prefix: &str,
        shape: Shape,
        mechanism: Option<&MechanismSpec>,
    ) -> Result<Self> {
        let place = |role: &str| Place(format!("{prefix}{role}"));
        let client = place("client");
        let flow = Flow::of(shape, mechanism);
        Ok(Self {
            app: if shape.hops == 2 { place("app") } else { client.clone() },
            client,
            host: (shape.hops > 0 && !shape.elsewhere).then(|| place("host")),
            standby: shape.standby.map(|_| place("standby")),
            server: place("iperf"),
            target: address(flow.target)?,
            server_address: address(flow.server)?,
            app_address: address(flow.app)?,
            seen_address: address(flow.seen)?,
            pref64: match mechanism.map(|m| m.kind) {
                Some(Kind::Xlat464) => NAT64_POOL6,
                _ => PREF64,
            },
            kind: mechanism.map_or(Kind::Native, |m| m.kind),
            server_addresses: server_addresses(shape)
                .into_iter()
                .map(address)
                .collect::<Result<_>>()?,
            cables: None,
            keeper: None,
        })
    }

    /// Builds the network under names that begin with `prefix`.
    pub(crate) fn build(
        backend: &dyn Backend,
        prefix: &str,
        shape: Shape,
        mechanism: Option<&MechanismSpec>,
    ) -> Result<Self> {
        let mut network = Self::described(prefix, shape, mechanism)?;
        // From here on it cleans up when a step fails.
        network.keeper = Some(backend.keeper());
        for (_, place) in network.places() {
            let add = ["ip", "netns", "add", &place.0].map(str::to_owned);
            backend.outside(place, &add, Output::Keep)?.wait(SHORT)?.ok()?;
            let mut argv = vec!["sysctl", "-qw"];
            argv.extend(SYSCTLS);
            must(backend, place, &argv)?;
        }
        if let Some(device) = mechanism.and_then(|mechanism| mechanism.device.as_ref()) {
            let ends = [&network.client, &network.server];
            network.cables = Some(Cables::lay(backend, prefix, device, ends)?);
        } else {
            let two_ways = shape.standby == Some(Standby::TakesOver);
            for (place, lines) in network.links(backend, two_ways) {
                batch(backend, place, &format!("{}-links", place.0), true, &lines)?;
            }
        }
        for (role, place) in network.places() {
            batch(backend, place, &place.0, false, &addresses(role, shape))?;
            if !shape.offloads {
                network.offloads_off(backend, role, place)?;
            }
        }
        if shape.edge_v4 || shape.by_xdp {
            // A gateway looks for what its devices can do when it starts.
            network.receive_offload_on(backend)?;
        }
        Ok(network)
    }

    /// The `ip` commands that make the links, each to be run on the machine of a place.
    fn links(&self, backend: &dyn Backend, two_ways: bool) -> Vec<(&Place, Vec<String>)> {
        let veth = |a: &Place, da: &str, b: &Place, db: &str| {
            format!("link add {da} netns {} type veth peer name {db} netns {}", a.0, b.0)
        };
        let near = self.host.as_ref().map_or((&self.client, "uplink"), |host| (host, "to-iperf"));
        let mut lines = Vec::new();
        if let Some((host, standby)) = self.host.as_ref().zip(self.standby.as_ref()) {
            lines.push(veth(standby, "to-host", host, "to-standby"));
            if two_ways {
                for end in [&self.client, &self.server] {
                    let bridge = "type bridge mcast_snooping 0";
                    lines.push(format!("link add uplink netns {} {bridge}", end.0));
                }
                for (port, gateway) in PORTS.into_iter().zip([host, standby]) {
                    lines.push(veth(&self.client, port, gateway, "to-client"));
                    lines.push(veth(&self.server, port, gateway, "to-iperf"));
                }
                return vec![(&self.client, lines)];
            }
        }
        if let Some(host) = &self.host {
            lines.push(veth(&self.client, "uplink", host, "to-client"));
        }
        if self.app != self.client {
            lines.push(veth(&self.app, "uplink", &self.client, "to-app"));
        }
        let ends = [(near.0, near.1), (&self.server, "uplink")];
        let wire = ends.map(|(place, device)| {
            // The device itself stays where it is, with all that its machine has on it.
            backend.wire(place).map(|uplink| {
                format!(
                    "link add link {uplink} name {device} netns {} type macvlan mode bridge",
                    place.0
                )
            })
        });
        let [Some(here), Some(there)] = wire else {
            lines.push(veth(&self.server, "uplink", near.0, near.1));
            return vec![(&self.client, lines)];
        };
        lines.push(here);
        vec![(&self.client, lines), (&self.server, vec![there])]
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
        // Real devices have what they have.
        if self.cables.is_some() {
            return Ok(());
        }
        for (role, place) in self.places() {
            for device in devices(role, self.host.is_some(), self.app != self.client) {
                feature(backend, place, device, ["gro", "on"])?;
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
            feature(backend, host, device, ["tx", "off"])?;
        }
        Ok(())
    }

    /// Where a name server in the box in the middle is asked.
    pub(crate) fn resolver(&self) -> Result<SocketAddr> {
        Ok(SocketAddr::new(address(HOST_V6)?, fordway_load::dns::PORT))
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
        // What was taken goes back before the namespaces go.
        self.cables = None;
        let Some(keeper) = &self.keeper else { return };
        for (_, place) in self.places() {
            keeper.remove(place);
        }
    }
}

/// Sets a feature of a device. What stands on a network card has what the card has: there it is tried.
fn feature(backend: &dyn Backend, place: &Place, device: &str, set: [&str; 2]) -> Result<()> {
    let done = must(backend, place, &["ethtool", "-K", device, set[0], set[1]]);
    let on_wire = backend.wire(place).is_some();
    match done {
        Err(LabError::Command { .. }) if on_wire => Ok(()),
        done => done.map(drop),
    }
}

/// MTU of the link where packets are largest; `has_hosts_behind`: see [`Network::has_hosts_behind`].
pub(crate) fn widest_mtu(has_hosts_behind: bool) -> u16 {
    if has_hosts_behind { CORE_MTU } else { MTU }
}

/// Ports of the bridge that an end has where there are two ways: to the `host` box and to `standby`.
const PORTS: [&str; 2] = ["port-host", "port-standby"];
/// MTU of a link.
const MTU: u16 = 1500;
/// MTU of the link between the two ends of a mechanism that serves hosts behind it: an IPv4 packet of 1,500 octets in an IPv6 packet.
const CORE_MTU: u16 = MTU + 40;

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
        // What passes its link is no part of what is measured.
        "standby" => Vec::new(),
        "client" if hosted && with_app => vec!["uplink", "to-app"],
        _ => vec!["uplink"],
    }
}

fn address(text: &str) -> Result<IpAddr> {
    text.parse().map_err(|_| LabError::Usage(format!("{text} is not an address")))
}

/// How long a command may take that sets something up.
const SHORT: std::time::Duration = std::time::Duration::from_secs(10);

/// Runs lines of `ip` in a place, or outside of all on its machine.
fn batch(
    backend: &dyn Backend,
    place: &Place,
    name: &str,
    outside: bool,
    lines: &[String],
) -> Result<()> {
    let file = backend.deploy(&format!("{name}.ip"), (lines.join("\n") + "\n").as_bytes())?;
    let argv = ["ip".to_owned(), "-batch".into(), file.display().to_string()];
    let running = match outside {
        true => backend.outside(place, &argv, Output::Keep)?,
        false => backend.run(Some(place), &argv, Output::Keep)?,
    };
    running.wait(SHORT)?.ok().map(drop)
}
