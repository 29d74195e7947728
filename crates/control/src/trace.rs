//! Packets as `trace` tells of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Glimpse;

/// A packet that passed a translator's kernel engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TraceLine {
    /// When, as RFC 3339 has it.
    pub time: String,
    /// Name of the translator.
    pub translator: String,
    /// Where it was seen.
    pub device: String,
    /// `v4_to_v6` or `v6_to_v4`.
    pub direction: String,
    /// Its length from the IP header on.
    pub octets: u32,
    /// Segment size of a super-packet; 0 for others.
    pub segment_size: u32,
    /// The packet as it was seen.
    pub packet: Glimpse,
    /// `translated`, `passed_on`, `dropped` or `unmatched`.
    pub outcome: String,
    /// Label of the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub translated: Option<Glimpse>,
    /// What the user engine makes of it, if it got the packet, all of it is known here, and the translator
    /// is stateless: to ask a stateful one again would change its tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_engine: Option<UserEngine>,
}

/// What the user engine does with a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserEngine {
    /// `forward`, `reply`, `drop` or `pass`.
    pub verdict: String,
    /// Label of the reason of a drop or reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The verdict as a sentence.
    pub text: String,
    /// What leaves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packets: Vec<Glimpse>,
}
