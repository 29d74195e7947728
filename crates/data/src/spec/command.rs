//! A user's own mechanism, by command lines.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Kind;
use crate::addresses as net;

/// Command lines of a mechanism that the lab does not know. Each is a program with its arguments, run without
/// a shell in the box where the mechanism stands; {placeholders} in them are replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Commands {
    /// Files that the commands read: name below {dir}, and text with placeholders.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
    /// Commands that set it up, one after the other; each has 30 s to end, with success.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1)))]
    pub up: Vec<Vec<String>>,
    /// A command that stays as long as the mechanism is wanted; when it ends by itself, its trial does not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub run: Vec<String>,
    /// A command that succeeds as soon as the mechanism is ready; without it, the first echo or connection tells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ready: Vec<String>,
    /// Commands that take down what would outlive the box: modules, files elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1)))]
    pub down: Vec<Vec<String>>,
    /// A command that prints its counters as JSON: `to_v6` and `to_v4` with `packets`, `octets` and `drops` by reason; `sessions`, `questions`, `requests`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<String>,
    /// A command that makes it forget all sessions at once; without it, the one that stays is ended, and connection tracking flushed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forget: Vec<String>,
    /// A command whose first line of output is its version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub version: Vec<String>,
    /// Programs without which it is skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// What to do where one of these is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<String>,
    /// Of a kind in two boxes, its end in the client's box; all else here is then about the box in the middle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Box<Self>>,
}

/// The box of a mechanism's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The only one.
    Only,
    /// The client's box, of two.
    Client,
    /// The box in the middle, of two.
    Middle,
}

impl End {
    /// What the deployment's name has behind it at one of two ends.
    pub fn part(self) -> Option<&'static str> {
        match self {
            Self::Only => None,
            Self::Client => Some("client"),
            Self::Middle => Some("middle"),
        }
    }
}

/// What may stand in braces, and what becomes of it.
pub(crate) const PLACEHOLDERS: &[(&str, &str)] = &[
    ("dir", "folder of its own for files, made anew for each deployment"),
    ("name", "name of the deployment, unique on the machine"),
    ("sessions", "sessions that it must have room for"),
    ("threads", "processors that it may use"),
    ("device_up", "device towards the server"),
    ("device_down", "device towards the clients"),
    ("tunnel_v6", "IPv6 address of the tunnel's end in the box in the middle, on no device"),
    ("pool6", "prefix in which IPv4 hosts are shown to IPv6 ones"),
    ("client_v4", "the client's IPv4 address"),
    ("client_v6", "the client's IPv6 address, or the one that stands for it"),
    ("server_v4", "the server's IPv4 address for the client"),
    ("server_v6", "the server's IPv6 address, or the one that stands for it"),
    ("pool4", "IPv4 addresses under which clients are shown, which the server has a route to"),
    ("pool4_first", "the first of these"),
    ("between_v4", "IPv4 addresses that nobody else has, for steps between two translations"),
    ("router_v4", "an IPv4 address for the translator itself, on no device"),
    ("router_v6", "the same, IPv6"),
    ("host_v4", "IPv4 address of the box in the middle"),
    ("host_v6", "IPv6 address of the box in the middle"),
    ("site_port", "TCP port of the server's site"),
    ("proxy_port", "TCP port where a proxy for clients is asked"),
];

/// Those that differ from deployment to deployment.
pub(crate) const PER_DEPLOYMENT: &[&str] = &["dir", "name", "sessions", "threads"];

/// What a placeholder is in every deployment of a kind, at one of its ends; `None` where it has no meaning.
pub fn fixed(kind: Kind, end: End, hops: u8, name: &str) -> Option<String> {
    let own = match (kind, end, name) {
        // The CLAT stands in front of a translator with a prefix of its own, which sees the CLAT as its client.
        (Kind::Xlat464, End::Client, "pool6") => net::NAT64_POOL6,
        (Kind::Xlat464, End::Client, "server_v4") => net::SERVER_V4,
        (Kind::Xlat464, End::Client, "server_v6") => net::SERVER_V4_EMBEDDED,
        // Hosts behind the client's box are translated to the address that its own applications have.
        (Kind::Xlat464 | Kind::Softwire, End::Client, "device_down") => {
            return one_end(Kind::Clat, hops, name);
        }
        (Kind::Xlat464, End::Client, _) => return one_end(Kind::Clat, 1, name),
        (Kind::Xlat464, _, "client_v6") => net::CLAT_V6,
        (Kind::Xlat464, ..) => return one_end(Kind::Nat64, hops, name),
        (Kind::Softwire, _, "tunnel_v6") => net::TUNNEL_END_V6,
        (Kind::Softwire, _, "client_v4") => net::BOUND_V4,
        (Kind::Softwire, _, "client_v6") => net::CLAT_V6,
        // There is no prefix: nothing is translated.
        (Kind::Softwire, _, "pool6" | "server_v6") => return None,
        (Kind::Softwire, _, "server_v4") => net::SERVER_V4,
        (Kind::Softwire, End::Client, _) => return one_end(Kind::Clat, 1, name),
        (Kind::Softwire, ..) => return one_end(Kind::Nat64, hops, name),
        _ => return one_end(kind, hops, name),
    };
    Some(own.to_owned())
}

/// The same of a kind that stands in one box.
fn one_end(kind: Kind, hops: u8, name: &str) -> Option<String> {
    let middle = kind.in_the_middle();
    let clat = kind == Kind::Clat;
    let v6_clients = kind.family() == Some(super::Family::V6);
    let in_middle = |text: &'static str| middle.then_some(text);
    let text = match name {
        "device_up" if middle => "to-iperf",
        "device_up" => "uplink",
        "device_down" if clat && hops == 2 => "to-app",
        "device_down" => in_middle("to-client")?,
        "pool6" if clat => net::PREF64,
        "pool6" if kind == Kind::Siit => net::SIIT_POOL6,
        "pool6" => v6_clients.then_some(net::NAT64_POOL6)?,
        "client_v4" if clat && hops == 2 => net::ROUTER_V4,
        "client_v4" if clat => net::CLAT_V4,
        "client_v4" => (!v6_clients).then_some(net::CLIENT_V4)?,
        "client_v6" if clat => net::CLAT_V6,
        "client_v6" if kind == Kind::Siit => net::SIIT_CLIENT_V6,
        "client_v6" => v6_clients.then_some(net::CLIENT_V6)?,
        "server_v4" if clat => net::SERVER_CLAT_V4,
        "server_v4" => net::SERVER_V4,
        "server_v6" if clat => net::SERVER_EMBEDDED,
        "server_v6" if kind == Kind::Siit => net::SERVER_V6,
        "server_v6" => v6_clients.then_some(net::SERVER_V4_EMBEDDED)?,
        "pool4" => kind.joins_v6_to_v4().then_some(net::POOL4)?,
        "pool4_first" => kind.joins_v6_to_v4().then_some(net::POOL4_FIRST)?,
        "between_v4" => in_middle(net::BETWEEN_V4)?,
        // With two hops the application holds 192.0.0.2 and the box 192.0.0.1.
        "router_v4" if clat && hops == 2 => net::BESIDE_V4,
        "router_v4" => net::ROUTER_V4,
        "router_v6" if middle => net::GATEWAY_V6,
        "router_v6" => net::ROUTER_V6,
        "host_v4" if kind == Kind::Siit => net::HOST_EDGE_V4,
        "host_v4" => in_middle(net::HOST_V4)?,
        "host_v6" => in_middle(net::HOST_V6)?,
        "site_port" => return Some(net::SITE_PORT.to_string()),
        "proxy_port" => return Some(net::PROXY_PORT.to_string()),
        _ => return None,
    };
    Some(text.to_owned())
}

/// A text in pieces: what stands as it is, and the names of placeholders.
enum Piece<'a> {
    Text(&'a str),
    Name(&'a str),
}

/// `{name}` is a placeholder, `{{name}}` is `{name}`; all other braces are what they are.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut all = Vec::new();
    let (mut rest, mut from) = (text, 0);
    while let Some(at) = rest[from..].find('{').map(|at| from + at) {
        let after = &rest[at + 1..];
        let doubled = after.starts_with('{');
        let word = after.trim_start_matches('{');
        let word = if doubled { &after[1..] } else { word };
        let length =
            word.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
        let name = &word[..length.unwrap_or(word.len())];
        let closed = word[name.len()..].starts_with(if doubled { "}}" } else { "}" });
        if !closed || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
            from = at + 1;
            continue;
        }
        all.push(Piece::Text(&rest[..at]));
        if doubled {
            all.push(Piece::Text(&rest[at + 1..at + name.len() + 3]));
            rest = &rest[at + name.len() + 4..];
        } else {
            all.push(Piece::Name(name));
            rest = &rest[at + name.len() + 2..];
        }
        from = 0;
    }
    all.push(Piece::Text(rest));
    all
}

/// The names of a text's placeholders.
pub(crate) fn placeholders(text: &str) -> Vec<&str> {
    let name = |piece| match piece {
        Piece::Name(name) => Some(name),
        Piece::Text(_) => None,
    };
    pieces(text).into_iter().filter_map(name).collect()
}

/// A text with its placeholders replaced; those that `of` does not know stay.
pub fn filled(text: &str, of: impl Fn(&str) -> Option<String>) -> String {
    let piece = |piece| match piece {
        Piece::Text(text) => text.to_owned(),
        Piece::Name(name) => of(name).unwrap_or_else(|| format!("{{{name}}}")),
    };
    pieces(text).into_iter().map(piece).collect()
}

impl Commands {
    /// Every text that may hold placeholders, with its JSON pointer below `at`.
    pub(super) fn texts(&self, at: &str) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for (key, argv) in [
            ("run", &self.run),
            ("ready", &self.ready),
            ("counters", &self.counters),
            ("forget", &self.forget),
            ("version", &self.version),
        ] {
            let words = argv.iter().enumerate();
            all.extend(words.map(|(n, word)| (format!("{at}/{key}/{n}"), word.clone())));
        }
        for (key, commands) in [("up", &self.up), ("down", &self.down)] {
            for (number, argv) in commands.iter().enumerate() {
                let words = argv.iter().enumerate();
                all.extend(
                    words.map(|(n, word)| (format!("{at}/{key}/{number}/{n}"), word.clone())),
                );
            }
        }
        let files = self.config.iter();
        all.extend(files.map(|(file, text)| {
            (super::document::below(&format!("{at}/config"), file), text.clone())
        }));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_are_placeholders_only_around_a_name() {
        let text = "a {dir}/x { type nat } {{dir}} {4} {Dir} {pool6";
        assert_eq!(placeholders(text), ["dir"]);
        let filled = filled(text, |name| Some(format!("<{name}>")));
        assert_eq!(filled, "a <dir>/x { type nat } {dir} {4} {Dir} {pool6");
        assert_eq!(placeholders("{a}{b}{{c}}{d}}"), ["a", "b", "d"]);
        assert_eq!(placeholders("{{{dir}"), ["dir"]);
    }

    #[test]
    fn every_placeholder_has_a_meaning_somewhere_and_no_other_is_filled() {
        let kinds = [Kind::Clat, Kind::Siit, Kind::Nat64, Kind::Nat44, Kind::Proxy, Kind::Softwire];
        for (name, _) in PLACEHOLDERS {
            let found = kinds.iter().any(|kind| fixed(*kind, End::Only, 1, name).is_some());
            assert!(found != PER_DEPLOYMENT.contains(name), "{name}");
        }
        let of = |kind, hops, name| fixed(kind, End::Only, hops, name);
        assert_eq!(of(Kind::Clat, 1, "nothing"), None);
        assert_eq!(of(Kind::Clat, 1, "device_down"), None);
        assert_eq!(of(Kind::Clat, 2, "device_down").unwrap(), "to-app");
        assert_eq!(of(Kind::Nat64, 1, "pool6").unwrap(), net::NAT64_POOL6);
        assert_eq!(of(Kind::Nat64, 1, "tunnel_v6"), None);
    }

    #[test]
    fn each_end_of_two_has_its_own_devices_and_both_one_prefix() {
        let of = |kind, end, name| fixed(kind, end, 1, name);
        let both = [End::Client, End::Middle];
        assert_eq!(both.map(|end| of(Kind::Xlat464, end, "pool6").unwrap()), [net::NAT64_POOL6; 2]);
        assert_eq!(both.map(|end| of(Kind::Xlat464, end, "client_v6").unwrap()), [net::CLAT_V6; 2]);
        for kind in [Kind::Xlat464, Kind::Softwire] {
            assert_eq!(both.map(|end| of(kind, end, "device_up").unwrap()), ["uplink", "to-iperf"]);
            assert_eq!(of(kind, End::Client, "device_down"), None);
            assert_eq!(of(kind, End::Middle, "device_down").unwrap(), "to-client");
            assert_eq!(of(kind, End::Client, "server_v4").unwrap(), net::SERVER_V4);
        }
        assert_eq!(
            both.map(|end| of(Kind::Softwire, end, "client_v4").unwrap()),
            [net::BOUND_V4; 2]
        );
        assert_eq!(of(Kind::Softwire, End::Client, "tunnel_v6").unwrap(), net::TUNNEL_END_V6);
        let behind = |name| fixed(Kind::Xlat464, End::Client, 2, name).unwrap();
        assert_eq!([behind("device_down"), behind("client_v4")], ["to-app", net::CLAT_V4]);
        assert_eq!(of(Kind::Softwire, End::Middle, "pool6"), None);
    }
}
