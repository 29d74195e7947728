//! Addresses and routes of the boxes.

use fordway_data::addresses::*;
use fordway_data::spec::{Kind, MechanismSpec, Standby};

use super::{CORE_MTU, PORTS, Shape};

/// The addresses of a flow between application and server, at both ends.
pub(super) struct Flow {
    /// The server, for the application.
    pub(super) target: &'static str,
    /// The server, for itself.
    pub(super) server: &'static str,
    /// The application, for itself.
    pub(super) app: &'static str,
    /// The application, for the server.
    pub(super) seen: &'static str,
}

impl Flow {
    /// The flow of a mechanism.
    pub(super) fn of(shape: Shape, mechanism: Option<&MechanismSpec>) -> Self {
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
            kind @ (Kind::Nat64 | Kind::NatPt | Kind::Trt) => Self {
                target: SERVER_V4_EMBEDDED,
                server: SERVER_V4,
                app: CLIENT_V6,
                seen: match kind {
                    Kind::NatPt => BOUND_V4,
                    // A relay connects in its own name.
                    Kind::Trt => HOST_V4,
                    _ => POOL4_FIRST,
                },
            },
            Kind::Xlat464 => {
                let app = if own_box { APP_V4 } else { CLAT_V4 };
                Self { target: SERVER_V4, server: SERVER_V4, app, seen: POOL4_FIRST }
            }
            // The server answers the box in the middle, which is the one that is asked.
            Kind::Dns64 => {
                Self { target: HOST_V6, server: SERVER_V4, app: CLIENT_V6, seen: HOST_V4 }
            }
            Kind::Proxy => {
                Self { target: SERVER_V4, server: SERVER_V4, app: CLIENT_V6, seen: HOST_V4 }
            }
            Kind::ReverseProxy => {
                Self { target: HOST_V6, server: SERVER_V4, app: CLIENT_V6, seen: HOST_V4 }
            }
            Kind::Softwire | Kind::Dstm => {
                let app = if own_box { APP_V4 } else { BOUND_V4 };
                Self { target: SERVER_V4, server: SERVER_V4, app, seen: BOUND_V4 }
            }
            Kind::Nat44 => {
                Self { target: SERVER_V4, server: SERVER_V4, app: CLIENT_V4, seen: HOST_V4 }
            }
            Kind::Native | Kind::DualStack => {
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

/// All addresses of the server.
pub(super) fn server_addresses(shape: Shape) -> Vec<&'static str> {
    let mut all = if shape.far_v4 { Vec::new() } else { vec![SERVER_V6, SERVER_EMBEDDED] };
    all.extend((shape.native_v4 || shape.far_v4).then_some(SERVER_V4));
    all
}

/// The `ip` commands of one box.
pub(super) fn addresses(role: &str, shape: Shape) -> Vec<String> {
    let mut lines = vec!["link set lo up".to_owned()];
    let two = shape.hops == 2;
    let two_ways = shape.standby == Some(Standby::TakesOver);
    if two_ways && ["client", "iperf"].contains(&role) {
        for port in PORTS {
            lines.push(format!("link set {port} master uplink"));
            lines.push(format!("link set {port} up"));
        }
    }
    match role {
        "app" => {
            lines.extend(link("uplink", "fe80::2"));
            lines.push(format!("addr add {APP_V6}/128 dev uplink nodad"));
            lines.push(format!("route add ::/0 via fe80::1 dev uplink src {APP_V6}"));
            if shape.native_v4 || shape.lan_v4 {
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
                lines.push(match shape.hops {
                    0 => format!("route add default via {SERVER_V4} dev uplink onlink"),
                    _ => format!("route add default via {HOST_EDGE_V4}"),
                });
            }
            if two {
                lines.extend(link("to-app", "fe80::1"));
                for prefix in ["2001:db8:2::/64", "2001:db8:f00::/48"] {
                    lines.push(format!("route add {prefix} via fe80::2 dev to-app"));
                }
                if shape.native_v4 || shape.lan_v4 {
                    lines.push("addr add 203.0.113.1/30 dev to-app".into());
                    lines.push(format!("route add {FLOWS_V4}/15 via {APP_V4}"));
                }
                if shape.lan_v4 {
                    lines.push(format!("link set uplink mtu {CORE_MTU}"));
                }
                if shape.clat_link {
                    lines.push("addr add 192.0.0.1/29 dev to-app".into());
                }
            }
        }
        // What moves from one to the other is not theirs.
        "host" | "standby" if two_ways => {
            let (number, device) = if role == "host" { (0, "to-standby") } else { (1, "to-host") };
            for device in ["to-client", "to-iperf"] {
                lines.extend(link(device, OWN[number]));
            }
            lines.push(format!("addr add {HOST_V6}/128 dev lo nodad"));
            for prefix in ["2001:db8:1::/64", "2001:db8:f00::/48"] {
                lines.push(format!("route add {prefix} via fe80::2 dev to-client"));
            }
            lines.extend(beside(device, number));
        }
        "host" => {
            lines.extend(link("to-client", "fe80::1"));
            lines.extend(link("to-iperf", "fe80::1"));
            if shape.lan_v4 {
                lines.push(format!("link set to-client mtu {CORE_MTU}"));
            }
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
                lines.push(format!("addr add {HOST_EDGE_V4}/30 dev to-client"));
                lines.push(format!("route add {FLOWS_V4}/15 via 192.0.2.2"));
            }
            if shape.native_v4 || shape.far_v4 {
                lines.push(format!("addr add {HOST_V4}/30 dev to-iperf"));
            }
            if shape.native_v4 {
                lines.push("route add 203.0.113.0/30 via 192.0.2.2".into());
            }
            if shape.standby.is_some() {
                lines.extend(beside("to-standby", 0));
            }
        }
        "standby" => lines.extend(beside("to-host", 1)),
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
                lines.extend(
                    [POOL4]
                        .iter()
                        .chain(&POOL4_MORE)
                        .map(|pool| format!("route add {pool} via {HOST_V4}")),
                );
            } else if shape.native_v4 && !shape.hidden {
                // Who forgets to hide the client gets no answer.
                lines.push(match shape.hops {
                    0 => format!("route add default via {CLIENT_V4} dev uplink onlink"),
                    _ => format!("route add default via {HOST_V4}"),
                });
            }
        }
    }
    lines
}

/// Own addresses of both boxes on links where fe80::1 moves from one to the other.
const OWN: [&str; 2] = ["fe80::11", "fe80::12"];

/// The link between the `host` box and the one beside it.
fn beside(device: &str, own: usize) -> [String; 3] {
    [
        format!("link set {device} up"),
        format!("addr add {}/64 dev {device} nodad", STANDBY_LINK_V6[own]),
        format!("addr add {}/30 dev {device}", STANDBY_LINK_V4[own]),
    ]
}

fn link(device: &str, own: &str) -> [String; 2] {
    [format!("link set {device} up"), format!("addr add {own}/64 dev {device} nodad")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use fordway_data::spec::Family;

    #[test]
    fn only_documentation_addresses_are_used() {
        let allowed = ["192.0.0.", "192.0.2.", "198.18.", "198.51.100.", "203.0.113."];
        for hops in 0..=2 {
            for on in 0..7 {
                let [native_v4, edge_v4, clat_link, far_v4, hidden, lan_v4] =
                    [1, 2, 3, 4, 5, 6].map(|n| n == on);
                let native_v4 = native_v4 || hidden;
                let shape = Shape {
                    hops,
                    native_v4,
                    edge_v4,
                    far_v4,
                    hidden,
                    clat_link,
                    lan_v4,
                    standby: [Some(Standby::Told), Some(Standby::TakesOver), None][on.min(2)],
                    ..Shape::calibration(Family::V6, true)
                };
                for role in ["app", "client", "host", "standby", "iperf"] {
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
        let far = Shape { hops: 1, far_v4: true, ..Shape::calibration(Family::V6, true) };
        let lines = addresses("iperf", far).join("\n");
        assert!(lines.contains("198.51.100.2/30") && !lines.contains("2001:db8:5"), "{lines}");
        assert_eq!(server_addresses(far), [SERVER_V4]);
        assert!(!addresses("host", far).join("\n").contains(PREF64), "the translator's own");
        let hidden = Shape {
            hops: 1,
            native_v4: true,
            hidden: true,
            ..Shape::calibration(Family::V6, true)
        };
        let lines = addresses("iperf", hidden).join("\n");
        assert!(!lines.contains("default"), "only the gateway is reached: {lines}");
    }

    #[test]
    fn hosts_behind_a_near_end_have_ipv4_on_their_own_link_alone() {
        let shape =
            Shape { hops: 2, lan_v4: true, far_v4: true, ..Shape::calibration(Family::V6, true) };
        let of = |role| addresses(role, shape);
        assert!(of("app").iter().any(|line| line == "addr add 203.0.113.2/30 dev uplink"));
        let client = of("client");
        assert!(client.iter().any(|line| line == "route add 198.18.0.0/15 via 203.0.113.2"));
        assert!(client.iter().all(|line| !line.contains("192.0.2.") && !line.contains("default")));
        let wide = |role| of(role).iter().filter(|line| line.ends_with(" mtu 1540")).count();
        assert_eq!(["app", "client", "host", "iperf"].map(wide), [0, 1, 1, 0]);
        // The server knows the mechanism's addresses alone.
        assert!(!of("iperf").join("\n").contains("default"));
    }

    #[test]
    fn an_ipv6_only_path_carries_no_ipv4() {
        let shape = Shape { hops: 1, ..Shape::calibration(Family::V6, true) };
        for role in ["client", "host"] {
            for line in addresses(role, shape) {
                let v4 = line.split([' ', '/']).any(|w| w.parse::<std::net::Ipv4Addr>().is_ok());
                assert!(!v4, "{line}");
            }
        }
    }
}
