//! `show`, `validate`: experiment files that users write.

use fordway_data::error::DataError;
use fordway_data::spec::Experiment;
use serde_json::json;

use crate::error::{EXIT_DONE, EXIT_USAGE, Result};

/// Prints a built-in experiment, ready to be changed.
pub(super) fn show(name: &str) -> Result<u8> {
    let text = Experiment::text(name)?;
    anstream::print!(
        "#:schema ./experiment.schema.json\n\
         # Editors complete and check what stands here where that file lies beside this one:\n\
         # fordway-lab schema experiment > experiment.schema.json\n\n{text}"
    );
    Ok(EXIT_DONE)
}

/// Checks files, all of them to the end.
pub(super) fn validate(files: &[String], json: bool) -> Result<u8> {
    let mut code = EXIT_DONE;
    let mut shown = Vec::new();
    for file in files {
        let errors = match Experiment::from_file(file) {
            Ok(experiment) => {
                if !json {
                    let (arms, metrics) = (experiment.mechanisms.len(), experiment.metrics.len());
                    anstream::println!("{file}: valid: {arms} mechanisms, {metrics} metrics");
                }
                json!([])
            }
            Err(DataError::Experiment(findings)) => {
                code = EXIT_USAGE;
                if !json {
                    anstream::eprintln!("{}\n", findings.render(true));
                }
                json!(findings.located().collect::<Vec<_>>())
            }
            Err(error) => {
                code = EXIT_USAGE;
                if !json {
                    crate::note!("{error}");
                }
                json!([{"message": error.to_string()}])
            }
        };
        let valid = errors.as_array().is_some_and(Vec::is_empty);
        shown.push(json!({"file": file, "valid": valid, "errors": errors}));
    }
    if json {
        super::print_json(&shown)?;
    }
    Ok(code)
}
