//! Who asks, and how fresh an answer has to be.

use std::time::Duration;

use fordway_serve::Network;

/// Who asks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asker {
    /// A client, which has only its share of the questions under way.
    pub client: Option<Network>,
    /// For how long an answer in the cache has to hold still: one that does not is asked for again before it expires.
    pub ahead: Duration,
}

impl Asker {
    /// Somebody who takes what holds now.
    pub fn of(client: Option<Network>) -> Self {
        Self { client, ahead: Duration::ZERO }
    }
}
