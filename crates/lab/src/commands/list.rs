//! `list`: the built-in experiments.

use crate::error::{EXIT_DONE, Result};
use crate::spec::Experiment;

/// Lists the experiments.
pub(super) fn list(json: bool) -> Result<u8> {
    let all = Experiment::built_in()?;
    if json {
        return super::print_json(&all);
    }
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
        anstream::println!();
    }
    anstream::println!("Try: fordway-lab plan {}", all[0].name);
    Ok(EXIT_DONE)
}
