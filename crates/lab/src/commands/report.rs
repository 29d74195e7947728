//! `report`: from a run's folder to its report, again and again the same.

use std::path::{Path, PathBuf};

use crate::artefacts::{self, Run};
use crate::backend::write_file;
use crate::error::{EXIT_DONE, Result};
use crate::report::{figures, page, pdf, terminal};

/// Makes the report and prints the summary.
pub(super) fn report(dir: &Path, json: bool, print: bool) -> Result<u8> {
    let run = artefacts::read(dir)?;
    let page = make(&run, dir)?;
    if print {
        pdf::print(&page, &dir.join("report.pdf"))?;
    }
    if json {
        return super::print_json(&run.results);
    }
    terminal::print(&run, &page)?;
    if print {
        anstream::println!("PDF     {}", dir.join("report.pdf").display());
    }
    Ok(EXIT_DONE)
}

/// Writes results, figures and page into a folder; returns the page.
pub(super) fn make(run: &Run, dir: &Path) -> Result<PathBuf> {
    artefacts::write(dir, &run.results)?;
    let drawn = figures::draw(run)?;
    for figure in &drawn {
        let path = dir.join("figures").join(format!("{}.svg", figure.name));
        write_file(&path, figure.svg.as_bytes())?;
    }
    let path = dir.join("report.html");
    write_file(&path, page::render(run, &drawn)?.as_bytes())?;
    Ok(path)
}
