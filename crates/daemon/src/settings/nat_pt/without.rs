//! NAT-PT left out (feature `nat-pt`): no translator has it.

use std::time::Duration;

use fordway_config::Translator;
use fordway_control::{NatPtStats, NatPtStatus};
use fordway_xlat::nat64::{BibError, Binding, Nat64, Settings};

/// The settings as they are.
pub fn with_gateway(
    settings: Settings,
    _config: &Translator,
    _earlier: Option<&Settings>,
) -> Settings {
    settings
}

/// Nothing to bind.
pub fn bind_fixed(_nat64: &Nat64, _now: Duration) -> Vec<(Binding, BibError)> {
    Vec::new()
}

pub(crate) fn stats(_settings: &Settings, _used: u64, _held: u64) -> Option<NatPtStats> {
    None
}

pub(crate) fn status(_settings: &Settings) -> Option<NatPtStatus> {
    None
}
