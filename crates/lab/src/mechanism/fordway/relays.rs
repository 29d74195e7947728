//! What is particular to the gateway as a relay of connections: whole configuration files. What others need that
//! strangers must not get is opened here: documentation addresses, all ports, all of the lab's clients.

use fordway_data::addresses::{HOST_V6, NAT64_POOL6, SERVER_V4};
use fordway_data::spec::Kind;
use serde_json::Value;

/// Networks of the lab's clients.
const CLIENTS: &str = "2001:db8::/32";

/// The whole configuration file of a relay; `None`: it is none.
pub(super) fn config(kind: Kind) -> Option<String> {
    Some(match kind {
        Kind::Trt => format!(
            "[[trt]]\nname = \"trt0\"\npool6 = [\"{NAT64_POOL6}\"]\nallow = [\"{CLIENTS}\"]\n"
        ),
        Kind::Proxy => format!(
            "[[proxy]]\nname = \"clients\"\nlisten = [\"{HOST_V6}\"]\nallow = [\"{CLIENTS}\"]\n\
             ports = [\"1-65535\"]\nconnect_ports = [\"1-65535\"]\nresolver = [\"{SERVER_V4}\"]\n\
             connections_per_client = 4096\n\
             [[proxy.rule]]\nto = [\"{SERVER_V4}\"]\naction = \"allow\"\n"
        ),
        Kind::ReverseProxy => format!(
            "[[proxy]]\nname = \"site\"\nmode = \"reverse\"\nlisten = [\"{HOST_V6}\"]\n\
             upstream = [\"{SERVER_V4}\"]\nconnections_per_client = 4096\n"
        ),
        _ => return None,
    })
}

/// Requests, tunnels among them, that the proxy has had so far.
pub(super) fn requests(stats: &Value) -> Option<u64> {
    let of = |what: &str| stats.pointer(&format!("/proxies/0/{what}")).and_then(Value::as_u64);
    Some(of("requests_http1")? + of("requests_http2")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_has_a_file_that_can_be_read() {
        for kind in [Kind::Trt, Kind::Proxy, Kind::ReverseProxy] {
            let text = config(kind).unwrap();
            let file: toml::Table = text.parse().unwrap();
            assert_eq!(file.len(), 1, "{text}");
        }
        assert_eq!(config(Kind::Nat64), None);
    }

    #[test]
    fn requests_of_both_versions_count() {
        let stats = serde_json::json!({"proxies": [{"requests_http1": 5, "requests_http2": 2}]});
        assert_eq!(requests(&stats), Some(7));
        assert_eq!(requests(&serde_json::json!({"trt": []})), None);
    }
}
