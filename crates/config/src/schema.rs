//! JSON Schema of the file.

use serde_json::{Value as Json, json};

use crate::advertise::Advertise;
use crate::cluster::Cluster;
use crate::dns64::Dns64;
use crate::dstm::{DstmClient, DstmServer, DstmTep};
use crate::feature::left_out;
use crate::keys::{Key, Keys, table_schema};
use crate::mode::{Clat, Siit};
use crate::nat44::{DualStack, Nat44};
use crate::nat64::{Nat64, NatPt};
use crate::proxy::{Proxy, ProxyForward, ProxyPassthrough, ProxyReverse};
use crate::sections::{Control, Log, Metrics};
use crate::softwire::Softwire;
use crate::softwire::ends::{Client, Tep};
use crate::translator::Translator;
use crate::trt::Trt;

/// A table where `key` has this word, with these keys.
fn with(key: &str, word: &str, keys: &[Vec<Key>]) -> Json {
    let mut table = table_schema(&keys.concat());
    table["properties"][key]["enum"] = json!([word]);
    table["properties"][key]["type"] = json!("string");
    table
}

fn some(table: &Json) -> Json {
    json!({"type": "array", "items": table})
}

fn translators() -> Json {
    let common = Translator::keys();
    let mode: Vec<Key> = common.iter().filter(|key| key.name == "mode").cloned().collect();
    let end = |role: &str, keys: Vec<Key>| {
        let mut table = with("mode", "softwire", &[common.clone(), Softwire::keys(), keys]);
        table["properties"]["role"]["enum"] = json!([role]);
        table
    };
    let mut modes = vec![
        with("mode", "siit", &[common.clone(), Siit::keys()]),
        with("mode", "clat", &[common.clone(), Clat::keys()]),
        with("mode", "nat64", &[common.clone(), Nat64::keys()]),
        with("mode", "nat-pt", &[common.clone(), Nat64::keys(), NatPt::keys()]),
        end("tep", Tep::keys()),
        end("client", Client::keys()),
        with("mode", "nat44", &[mode.clone(), Nat44::keys()]),
        with("mode", "dual-stack", &[mode, DualStack::keys()]),
    ];
    modes.retain(|table| {
        let word = table["properties"]["mode"]["enum"][0].as_str().unwrap_or_default();
        left_out(&format!("translator.{word}")).is_none()
    });
    json!({"oneOf": modes})
}

/// `mode` may be left out: a proxy is for clients.
fn proxies() -> Json {
    let of_site = |word, keys| {
        let mut table = with("mode", word, &[Proxy::keys(), keys]);
        if let Some(required) = table["required"].as_array_mut() {
            required.push("mode".into());
        }
        table
    };
    json!({"oneOf": [
        with("mode", "forward", &[Proxy::keys(), ProxyForward::keys()]),
        of_site("reverse", ProxyReverse::keys()),
        of_site("passthrough", ProxyPassthrough::keys()),
    ]})
}

/// The whole file.
pub(crate) fn file() -> Json {
    let mut file = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Fordway's configuration file",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "translator": some(&translators()),
            "dns64": table_schema(&Dns64::keys()),
            "advertise": some(&table_schema(&Advertise::keys())),
            "trt": some(&table_schema(&Trt::keys())),
            "proxy": some(&proxies()),
            "dstm_server": table_schema(&DstmServer::keys()),
            "dstm_tep": table_schema(&DstmTep::keys()),
            "dstm_client": some(&table_schema(&DstmClient::keys())),
            "cluster": table_schema(&Cluster::keys()),
            "control": table_schema(&Control::keys()),
            "metrics": table_schema(&Metrics::keys()),
            "log": table_schema(&Log::keys()),
        },
    });
    if let Some(sections) = file["properties"].as_object_mut() {
        sections.retain(|section, _| left_out(section).is_none());
    }
    file
}
