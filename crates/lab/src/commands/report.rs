//! `report`: from a run's folder to its report, again and again the same.

use std::path::Path;

use crate::artefacts;
use crate::error::{EXIT_DONE, Result};

/// Makes the report.
pub(super) fn report(dir: &Path, json: bool) -> Result<u8> {
    let run = artefacts::read(dir)?;
    artefacts::write(dir, &run.results)?;
    if json {
        return super::print_json(&run.results);
    }
    Ok(EXIT_DONE)
}
