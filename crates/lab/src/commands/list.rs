//! `list`: the built-in experiments.

use std::collections::BTreeMap;

use fordway_data::spec::Experiment;

use crate::error::{EXIT_DONE, Result};
use crate::mechanism::locate_fordway;
use crate::runner::survey;

/// Lists the experiments, and what of them this machine lacks.
pub(super) fn list(json: bool) -> Result<u8> {
    let all = Experiment::built_in()?;
    if json {
        return super::print_json(&all);
    }
    let fordway = locate_fordway(None)?;
    for experiment in &all {
        anstream::println!("{}", experiment.name);
        anstream::println!("  {}", experiment.question);
        let names: Vec<&str> = experiment.mechanisms.iter().map(|m| m.name.as_str()).collect();
        anstream::println!("  mechanisms: {}", names.join(", "));
        for name in ["quick", "standard", "strict"] {
            if let Some(profile) = experiment.profile.get(name) {
                anstream::println!("  {name:<9} {}", profile.about);
            }
        }
        let wanted: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut lacking: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, hint) in survey(experiment, &wanted, fordway.as_deref(), false)?.skipped {
            lacking.entry(hint).or_default().push(name);
        }
        for (hint, names) in lacking {
            anstream::println!("  missing   {}: {hint}", names.join(", "));
        }
        anstream::println!();
    }
    anstream::println!("Try: fordway-lab plan {}", all[0].name);
    Ok(EXIT_DONE)
}
