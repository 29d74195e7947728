//! Names of implementations, and what each can be; the lab has a mechanism for each.

use super::Kind;

/// Names of implementations in an experiment file.
pub const IMPLEMENTATIONS: &[&str] = &[
    "apache", "bind", "command", "device", "fordway", "jool", "native", "nftables", "nginx",
    "squid", "tayga", "tundra", "unbound",
];

/// Names of those that can be an arm's name server.
pub const RESOLVERS: &[&str] = &["bind", "fordway", "unbound"];

/// What an implementation can be; `None` when there is none of this name.
pub fn kinds(implementation: &str) -> Option<Vec<Kind>> {
    use Kind::{
        Clat, Dns64, Dstm, Nat44, Nat64, NatPt, Native, Proxy, ReverseProxy, Siit, Xlat464,
    };
    // A lease is measured by the client's own protocol.
    let by_command = |kind: &Kind| !matches!(kind, Native | Dstm);
    Some(match implementation {
        "fordway" => Kind::ALL.into_iter().filter(|kind| *kind != Native).collect(),
        "command" => Kind::ALL.into_iter().filter(by_command).collect(),
        "native" => vec![Native],
        "device" => vec![Native, Siit, Nat64, NatPt, Nat44],
        "nftables" => vec![Nat44],
        "tayga" => vec![Clat, Nat64, Siit, Xlat464],
        "tundra" => vec![Clat],
        "jool" => vec![Clat, Nat64, Siit],
        "unbound" | "bind" => vec![Dns64],
        "nginx" => vec![ReverseProxy],
        "apache" => vec![Proxy, ReverseProxy],
        "squid" => vec![Proxy],
        _ => return None,
    })
}

/// Hops of a CLAT by an implementation; `None`: either number.
pub(crate) fn clat_hops(implementation: &str) -> Option<u8> {
    match implementation {
        // Its application has a box of its own.
        "jool" => Some(2),
        _ => None,
    }
}
