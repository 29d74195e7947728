//! What is particular to the stateful gateway: its options, which give the tables a size, and what it says
//! about them.

use fordway_data::addresses::{BOUND_V4, CLIENT_V6, NAT64_POOL6, POOL4_FIRST};
use fordway_data::spec::MechanismSpec;
use serde_json::Value;

use crate::mechanism::Room;

/// Addresses and ports that sessions may have: see `topology::POOL4`.
const PORTS: &str = "203.0.113.64/26:1024-65535";
/// The same with room for more than [`FEW`] sessions: see `topology::POOL4_MORE`.
const MORE_PORTS: [&str; 3] =
    [PORTS, "203.0.113.128/25:1024-65535", "198.51.100.128/25:1024-65535"];
/// A quarter of the ports of `PORTS`.
const FEW: u32 = 64 * (65_536 - 1024) / 4;
/// What hosts get that are asked for by name: the upper half of the pool.
const ADDRESSES: &str = "203.0.113.96/27";
/// The gateway's own default; smaller tables would save nothing worth having.
const LEAST_ROOM: u32 = 262_144;

/// Sessions of UDP, closed TCP sessions and ports in hold-down live for a second.
const SHORT: [&str; 2] = [
    "allow_short_lifetimes=true",
    "lifetimes={ udp = \"1s\", tcp_trans = \"1s\", port_rest = \"1s\" }",
];

/// The subcommand and its own options, with room for so many sessions.
pub(super) fn options(room: Room, algs: &[String]) -> Vec<String> {
    let argv = ["nat64", "--pool6", NAT64_POOL6, "--interface", "nat64"];
    let pool4 = ports(room).iter().flat_map(|ports| ["--pool4", ports]);
    stateful(&argv.into_iter().chain(pool4).collect::<Vec<_>>(), room, algs)
}

fn ports(room: Room) -> &'static [&'static str] {
    if limit(room) > FEW { &MORE_PORTS } else { &MORE_PORTS[..1] }
}

/// The same of NAT-PT: IPv6 hosts begin as with NAT64, the client has an address for what IPv4 hosts begin, and
/// further hosts that are asked for by name get one of the rest.
pub(super) fn historic(room: Room, algs: &[String]) -> Vec<String> {
    let bound = format!("{BOUND_V4}={CLIENT_V6}");
    let argv = ["nat-pt", "--pool6", NAT64_POOL6, "--pool4", POOL4_FIRST, "--binding", &bound];
    let rest = ["--addresses", ADDRESSES, "--interface", "natpt0"];
    stateful(&[&argv[..], &rest].concat(), room, algs)
}

fn stateful(argv: &[&str], room: Room, algs: &[String]) -> Vec<String> {
    let mut argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
    let set = |setting| ["--set".to_owned(), setting];
    argv.extend(settings(room, algs).into_iter().flat_map(set));
    argv
}

/// Sessions of its tables. Directories of the tables are as large as the next power of two: tables of that size waste nothing.
pub(super) fn limit(room: Room) -> u32 {
    match room.recycles {
        true => room.sessions,
        false => room.sessions.max(LEAST_ROOM).next_power_of_two(),
    }
}

/// `key=value`, as a command line and a file have them.
fn settings(room: Room, algs: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    if room.recycles {
        all.extend(SHORT.map(str::to_owned));
    }
    all.push(format!("max_sessions={}", limit(room)));
    if !algs.is_empty() {
        all.push(format!("alg={algs:?}"));
    }
    all
}

/// The same as a table of a file.
pub(in crate::mechanism) fn table(spec: &MechanismSpec, room: Room) -> String {
    let mut lines = vec![
        "[[translator]]".to_owned(),
        "name='nat64'".into(),
        "mode='nat64'".into(),
        format!("pool6=['{NAT64_POOL6}']"),
        format!("pool4={:?}", ports(room)),
        format!("engine='{}'", spec.engine.as_deref().unwrap_or("auto")),
    ];
    if let Some((attach, forward)) = spec.attach.as_deref().map(super::point) {
        lines.push(format!("attach='{attach}'"));
        lines.extend(forward.map(|forward| format!("forward='{forward}'")));
        if matches!(attach, "ingress" | "xdp") {
            lines.push("devices=['to-client', 'to-iperf']".into());
        }
    }
    lines.extend(settings(room, &spec.alg));
    lines.join("\n") + "\n"
}

/// Sessions that the first translator has made so far.
pub(super) fn created(stats: &Value) -> Option<u64> {
    let by_protocol = stats.pointer("/translators/0/nat64/sessions_created")?.as_object()?;
    Some(by_protocol.values().filter_map(Value::as_u64).sum())
}

/// Octets of its tables when they are full, as it says.
pub(super) fn table_octets(status: &Value) -> Option<u64> {
    status.pointer("/translators/0/nat64/table_octets")?.as_u64()
}

/// Sessions that its tables have room for.
pub(super) fn capacity(stats: &Value) -> Option<u64> {
    stats.pointer("/translators/0/nat64/tables/sessions/size")?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fordway_data::addresses::{POOL4, POOL4_MORE};

    #[test]
    fn the_tables_have_room_for_the_sessions() {
        let room = |sessions| options(Room::of(sessions), &[]).last().cloned().unwrap();
        assert_eq!([room(1_000_000), room(10)], ["max_sessions=1048576", "max_sessions=262144"]);
        let exact = options(Room { sessions: 5000, recycles: true }, &[]);
        assert_eq!(exact.last().unwrap(), "max_sessions=5000");
        assert!(exact.iter().any(|word| word.starts_with("lifetimes=")));
        let gateways = options(Room::of(10), &["ftp".to_owned()]);
        assert_eq!(gateways.last().unwrap(), "alg=[\"ftp\"]");
        let prefixes = [POOL4].into_iter().chain(POOL4_MORE);
        assert!(MORE_PORTS.iter().zip(prefixes).all(|(ports, prefix)| ports.starts_with(prefix)));
        let exactly = |sessions| ports(Room { sessions, recycles: true }).len();
        assert_eq!([exactly(FEW), exactly(FEW + 1)], [1, 3]);
    }

    #[test]
    fn a_gateway_that_says_nothing_of_sessions_is_believed_nothing() {
        let said = serde_json::json!({"translators": [{"nat64": {
            "sessions_created": {"tcp": 4, "udp": 2, "icmp": 1},
            "tables": {"sessions": {"used": 5, "size": 100}}}}]});
        assert_eq!((created(&said), capacity(&said)), (Some(7), Some(100)));
        let silent = serde_json::json!({"translators": [{}]});
        assert_eq!((created(&silent), capacity(&silent)), (None, None));
    }
}
