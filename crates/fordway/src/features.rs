//! Which cargo features this build has.

use clap::error::{ContextKind, ContextValue};
use fordway_config::Feature;

/// The commands of each feature.
pub(crate) const COMMANDS: [(Feature, &[&str]); 4] = [
    (Feature::NatPt, &["nat-pt"]),
    (Feature::Dstm, &["dstm-server", "dstm-client", "leases"]),
    (Feature::Nat44, &["nat44"]),
    (Feature::Cluster, &["cluster"]),
];

/// The version, with the features of this build and those that it was built without.
pub(crate) fn version() -> String {
    let without = Feature::ALL.into_iter().filter(|feature| !feature.is_built_in());
    let without: Vec<&str> = without.map(Feature::name).collect();
    let mut text = env!("CARGO_PKG_VERSION").to_owned();
    for (title, names) in [("features", Feature::built_in().collect()), ("built without", without)]
    {
        if !names.is_empty() {
            text += &format!("\n{title}: {}", names.join(", "));
        }
    }
    text
}

/// Which feature a command needs that clap does not know, if this build was made without it.
pub(crate) fn left_out(error: &clap::Error) -> Option<Feature> {
    let Some(ContextValue::String(command)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let mut all = COMMANDS.into_iter().filter(|(feature, _)| !feature.is_built_in());
    all.find(|(_, commands)| commands.contains(&command.as_str())).map(|(feature, _)| feature)
}
