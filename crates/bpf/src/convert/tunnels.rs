//! From the settings of softwires to the programs' configuration.

use fordway_softwire::{Role, Settings};
use fordway_xlat::Direction;

use super::{Extra, common};
use crate::abi::{Abi, FwConfig, FwSoftwireConfig, softwire_role};

/// The configuration that all programs have, for softwires.
pub(crate) fn convert_tunnels(settings: &Settings, extra: Extra) -> FwConfig {
    FwConfig {
        mtu6: settings.mtu6,
        decrement_hop_limit: Direction::ALL
            .map(|direction| u8::from(settings.hop_count.counts(direction))),
        mss_clamp: u8::from(settings.mss_clamp),
        ..common(extra, settings.traffic_class)
    }
}

/// The configuration that only the programs of softwires have.
pub(crate) fn softwire_config(settings: &Settings) -> FwSoftwireConfig {
    FwSoftwireConfig {
        secret: settings.flow_secret,
        role: match settings.role {
            Role::Tep => softwire_role::TEP,
            Role::Client => softwire_role::CLIENT,
        },
        hop_limit: settings.hop_limit,
        hairpin: u8::from(settings.hairpin),
        ..FwSoftwireConfig::zeroed()
    }
}
