//! Keys of the configuration that a controller sets, and what clients are told of changes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Octets that the document of [`Request::Apply`](crate::Request::Apply) may have: room for some 500,000 entries.
pub const MAX_DOCUMENT: u64 = 64 << 20;

/// What became of the keys that a controller sets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Applied {
    /// The number of the last change of the daemon's configuration or tables by a client or a signal; it grows with each.
    pub generation: u64,
    /// Nothing has been changed: this is what would be.
    pub dry_run: bool,
    /// The next start will find the keys again.
    pub stored: bool,
    /// Each key that was set, is set now, or both.
    pub keys: Vec<AppliedKey>,
}

/// What became of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AppliedKey {
    /// The key as it is written in front of a value: `translator.nat64.bib`.
    pub key: String,
    /// Items of its list that are new; a value that is no list is one item.
    pub added: u64,
    /// Items that are gone.
    pub removed: u64,
    /// Items that were there and are there.
    pub unchanged: u64,
}

/// A change, as clients are told that watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// The number of this change; one more than that of the change before.
    pub generation: u64,
    /// What has changed.
    #[serde(flatten)]
    pub change: Change,
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// Nothing: this is where the watch begins, with the number of the last change.
    Watching {},
    /// The configuration file was read again.
    Reloaded {
        /// What that did.
        text: String,
    },
    /// A controller has set keys of the configuration.
    Applied {
        /// Those with items that are new or gone.
        keys: Vec<AppliedKey>,
    },
    /// A BIB entry was made by hand, or taken away.
    Bib {
        /// What was done.
        text: String,
    },
    /// A translator was taken down.
    Down {
        /// Its name.
        name: String,
    },
    /// A translator makes no new sessions, or makes them again.
    Drain {
        /// Its name.
        name: String,
        /// Whether none are made.
        drains: bool,
    },
    /// This client was too slow: so many changes before this one were not told. Everything has to be read again.
    Lost {
        /// How many.
        changes: u64,
    },
}
