//! What a reload would do.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The plan of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReloadPlan {
    /// What is added, changed or removed: translators, then servers and other entries.
    pub changes: Vec<PlannedChange>,
    /// How many translators, servers and other entries stay as they are.
    pub unchanged: usize,
}

/// A translator, server or other entry that does not stay as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedChange {
    /// Its name.
    pub name: String,
    /// What becomes of it.
    pub action: PlannedAction,
    /// Of a translator that is renamed: its name so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Of a translator: keys whose values differ. None: what the host says has changed, not the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// Of a stateful translator: its sessions and 1:1 mappings now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u64>,
    /// Of a stateful translator: how many of them end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
}

/// What becomes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlannedAction {
    /// It is set up.
    Added,
    /// It goes on with other values.
    Changed,
    /// It goes on under another name, perhaps with other values.
    Renamed,
    /// It is taken down.
    Removed,
}
