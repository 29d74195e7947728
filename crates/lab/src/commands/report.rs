//! `report`: from a run's folder to its report, again and again the same.

use std::path::Path;

use crate::artefacts;
use crate::backend::write_file;
use crate::error::{EXIT_DONE, Result};
use crate::report::{figures, page, terminal};

/// Makes the report and prints the summary.
pub(super) fn report(dir: &Path, json: bool) -> Result<u8> {
    let run = artefacts::read(dir)?;
    artefacts::write(dir, &run.results)?;
    let drawn = figures::draw(&run)?;
    for figure in &drawn {
        let path = dir.join("figures").join(format!("{}.svg", figure.name));
        write_file(&path, figure.svg.as_bytes())?;
    }
    let path = dir.join("report.html");
    write_file(&path, page::render(&run, &drawn)?.as_bytes())?;
    if json {
        return super::print_json(&run.results);
    }
    terminal::print(&run.experiment, &run.results, &path);
    Ok(EXIT_DONE)
}
