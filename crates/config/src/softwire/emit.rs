//! Writing the keys of mode softwire.

use fordway_softwire::{Binding, PortSet};
use serde::Serialize;

use super::{Softwire, SoftwireEnd};

/// The keys in a translator's own table. `v4` and `uplink` are shared with other modes.
#[derive(Default, Serialize)]
pub(crate) struct Keys {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote: Option<String>,
    #[serde(flatten)]
    ports: Ports,
    #[serde(skip_serializing_if = "Option::is_none")]
    hop_limit: Option<u8>,
}

#[derive(Default, Serialize)]
struct Ports {
    #[serde(skip_serializing_if = "Option::is_none")]
    psid: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    psid_len: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    psid_offset: Option<u8>,
}

impl Ports {
    fn of(ports: Option<PortSet>) -> Ports {
        Ports {
            psid: ports.map(PortSet::psid),
            psid_len: ports.map(PortSet::psid_len),
            psid_offset: ports.map(PortSet::offset_bits),
        }
    }
}

/// `[[translator.bindings]]`, which comes last.
#[derive(Serialize)]
pub(crate) struct BindingTable {
    v4: String,
    #[serde(flatten)]
    ports: Ports,
    remote: String,
    local: String,
}

impl Keys {
    pub(crate) fn of(softwire: Option<&Softwire>) -> Keys {
        let Some(softwire) = softwire else { return Keys::default() };
        let hop_limit = Some(softwire.hop_limit);
        match &softwire.end {
            SoftwireEnd::Tep { local, .. } => Keys {
                role: Some("tep"),
                local: Some(local.to_string()),
                hop_limit,
                ..Keys::default()
            },
            SoftwireEnd::Client(client) => Keys {
                role: Some("client"),
                local: Some(client.local.map_or("auto".to_owned(), |local| local.to_string())),
                remote: Some(client.remote.to_string()),
                ports: Ports::of(client.ports),
                hop_limit,
            },
        }
    }
}

pub(crate) fn bindings(softwire: Option<&Softwire>) -> Vec<BindingTable> {
    match softwire.map(|softwire| &softwire.end) {
        Some(SoftwireEnd::Tep { bindings, .. }) => bindings.iter().map(BindingTable::of).collect(),
        _ => Vec::new(),
    }
}

impl BindingTable {
    fn of(binding: &Binding) -> BindingTable {
        BindingTable {
            v4: binding.v4.to_string(),
            ports: Ports::of(binding.ports),
            remote: binding.remote.to_string(),
            local: binding.local.to_string(),
        }
    }
}
