//! `[dstm_server]`, `[dstm_tep]` and `[[dstm_client]]` as TOML.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::{DstmClient, DstmServer, DstmTep, DstmTepPlace};
use crate::emit::{WordOrNumber, strings, word};
use crate::engine::ENGINES;

/// Absent options are left out; all other keys are always written.
#[derive(Serialize)]
pub(crate) struct ServerTable {
    listen: Vec<String>,
    pool: Vec<String>,
    ports_per_client: WordOrNumber,
    lifetime: String,
    max_lifetime: String,
    rest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tep: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tep_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tep_control: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tep_key_file: Option<String>,
    state: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    client: Vec<ClientKeyTable>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    prefix: Vec<PrefixKeyTable>,
}

#[derive(Serialize)]
struct ClientKeyTable {
    id: String,
    key_file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    v4: Option<String>,
}

#[derive(Serialize)]
struct PrefixKeyTable {
    prefix: String,
    key_file: String,
    max_leases: u32,
}

#[derive(Serialize)]
pub(crate) struct TepTable {
    listen: String,
    tep: String,
    key_file: String,
    max_bindings: u32,
}

#[derive(Serialize)]
pub(crate) struct ClientTable {
    name: String,
    server: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    key_file: String,
    v4: String,
    v6: String,
    local: String,
    uplink: String,
    engine: &'static str,
    sharing: bool,
    lifetime: String,
    idle: String,
    routes4: Vec<String>,
    metric: u32,
}

fn time(time: Duration) -> String {
    humantime::format_duration(time).to_string()
}

fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

impl ServerTable {
    pub(crate) fn of(server: &DstmServer) -> ServerTable {
        let (mut tep, mut address, mut control, mut tep_key) = (None, None, None, None);
        match &server.tep {
            DstmTepPlace::Here(name) => tep = Some(name.to_string()),
            DstmTepPlace::There { address: v6, control: at, key_file } => {
                address = Some(v6.to_string());
                control = Some(at.to_string());
                tep_key = Some(path(key_file));
            }
        }
        let clients = server.clients.iter().map(|client| ClientKeyTable {
            id: client.id.clone(),
            key_file: path(&client.key_file),
            v4: client.v4.map(|v4| v4.to_string()),
        });
        let prefixes = server.prefixes.iter().map(|prefix| PrefixKeyTable {
            prefix: prefix.prefix.to_string(),
            key_file: path(&prefix.key_file),
            max_leases: prefix.max_leases,
        });
        ServerTable {
            listen: strings(&server.listen),
            pool: strings(&server.pool),
            ports_per_client: server
                .ports_per_client
                .map_or(WordOrNumber::Word("off"), WordOrNumber::Number),
            lifetime: time(server.lifetime),
            max_lifetime: time(server.max_lifetime),
            rest: time(server.rest),
            tep,
            tep_address: address,
            tep_control: control,
            tep_key_file: tep_key,
            state: path(&server.state),
            client: clients.collect(),
            prefix: prefixes.collect(),
        }
    }
}

impl TepTable {
    pub(crate) fn of(tep: &DstmTep) -> TepTable {
        TepTable {
            listen: tep.listen.to_string(),
            tep: tep.tep.to_string(),
            key_file: path(&tep.key_file),
            max_bindings: tep.max_bindings,
        }
    }
}

impl ClientTable {
    pub(crate) fn of(client: &DstmClient) -> ClientTable {
        let auto = || "auto".to_owned();
        ClientTable {
            name: client.name.to_string(),
            server: strings(&client.servers),
            id: client.id.clone(),
            key_file: path(&client.key_file),
            v4: client.v4.to_string(),
            v6: client.v6.map_or_else(auto, |v6| v6.to_string()),
            local: client.local.map_or_else(auto, |local| local.to_string()),
            uplink: client.uplink.as_ref().map_or_else(auto, ToString::to_string),
            engine: word(&ENGINES, client.engine),
            sharing: client.sharing,
            lifetime: client.lifetime.map_or_else(auto, time),
            idle: client.idle.map_or("off".to_owned(), time),
            routes4: strings(&client.routes4),
            metric: client.metric,
        }
    }
}
