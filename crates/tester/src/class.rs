//! Directions and classes of frames.

use serde::{Deserialize, Serialize};

/// Which way a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the client end to the server end.
    Forward,
    /// From the server end to the client end.
    Reverse,
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Reverse => "reverse",
        })
    }
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Forward, Self::Reverse];
}

/// Which part of the traffic a frame belongs to (RFC 8219 section 5.3: IP-version-specific and native traffic are mixed).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// What the device under test translates or encapsulates.
    Translated,
    /// What it only forwards.
    Native,
}

impl Class {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Translated, Self::Native];
}
