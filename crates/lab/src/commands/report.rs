//! `report`: from a run's folder to its report, again and again the same.

use std::path::{Path, PathBuf};

use fordway_data::artefacts::{self, Run};
use fordway_data::files::write_file;
use fordway_data::model::inputs::{Named, User};
use fordway_data::model::options::Need;
use fordway_data::model::{Decision, decide, says};
use fordway_data::report::{decision, figures, page, terminal};
use fordway_data::spec::{Kind, MechanismSpec};

use crate::error::{EXIT_DONE, Result};
use crate::pdf;

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
    let found = own_decision(run, dir);
    if let Some(found) = &found {
        write_file(&dir.join("decision.html"), decision::render(found)?.as_bytes())?;
    }
    let path = dir.join("report.html");
    write_file(&path, page::render(run, &drawn, found.as_ref())?.as_bytes())?;
    Ok(path)
}

/// What a network would need by this run alone, with the default inputs; none where the run can't say of any how many
/// processors it would take.
fn own_decision(run: &Run, dir: &Path) -> Option<Decision> {
    // The folder's own name, so that the page is the same wherever it is made.
    let folder = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let about = |m: &MechanismSpec| {
        matches!(m.kind, Kind::Nat44 | Kind::Nat64 | Kind::Dns64 | Kind::Xlat464)
    };
    let about = run.experiment.mechanisms.iter().any(about);
    let named = [Named { folder: &folder, run }];
    let user = User::default();
    let says = about && says(&named, &user, Need::Cores);
    says.then(|| decide(&named, &[], &user))
}
