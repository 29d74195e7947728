//! Tables of a gateway with many entries.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Kind;

/// A table of a gateway, and how many entries it has.
///
/// Whatever their number, mappings and pools are for the same addresses, 198.18.0.0/15: prefixes of equal length share
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Entries {
    /// Which table.
    pub table: Table,
    /// How many entries: a power of two.
    #[schemars(range(min = 1, max = 131_072))]
    pub count: u32,
}

/// A table of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Table {
    /// Explicit address mappings of a stateless gateway (RFC 7757), of hosts behind the server.
    Eam,
    /// Prefixes of a stateful gateway's pool of IPv4 addresses.
    Pool4,
    /// BIB entries that are made by hand, beside those of sessions.
    Bib,
    /// Bindings of a tunnel end point, beside the client's.
    Bindings,
}

impl Table {
    /// The kind of gateway that has such a table.
    pub fn kind(self) -> Kind {
        match self {
            Self::Eam => Kind::Siit,
            Self::Pool4 | Self::Bib => Kind::Nat64,
            Self::Bindings => Kind::Softwire,
        }
    }
}
