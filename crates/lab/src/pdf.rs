//! Pages as PDF, by a program that is installed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fordway_data::error::DataError;

use crate::error::{LabError, Result};
use crate::process::{Output, find_program, start};
use crate::state::is_root;

/// Browsers that print without a window, by the names that distributions give them.
const BROWSERS: [&str; 4] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// A report of many figures takes some seconds; a busy machine many.
const PATIENCE: Duration = Duration::from_secs(180);

/// What to install.
const HINT: &str = "no program that prints pages as PDF: apt-get install chromium (or weasyprint)";

/// A way to print.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Printer {
    Browser(PathBuf),
    Weasyprint(PathBuf),
}

fn printer() -> Option<Printer> {
    let browser = BROWSERS.iter().find_map(|name| find_program(name)).map(Printer::Browser);
    browser.or_else(|| find_program("weasyprint").map(Printer::Weasyprint))
}

/// Whether pages can be printed here; the error says what to install.
pub(crate) fn need() -> Result<()> {
    printer().map(|_| ()).ok_or_else(|| LabError::Missing(HINT.into()))
}

/// Prints a page. [`LabError::Missing`] where no program can.
pub(crate) fn print(page: &Path, pdf: &Path) -> Result<()> {
    let printer = printer().ok_or_else(|| LabError::Missing(HINT.into()))?;
    let page = page.canonicalize().map_err(LabError::file(page))?;
    // What a browser keeps of a user lies in a folder that ends with this function.
    let profile = tempfile::tempdir().map_err(LabError::file(std::env::temp_dir()))?;
    let argv = command(&printer, &page, pdf, profile.path(), is_root());
    start(&argv, Output::Keep)?.wait(PATIENCE)?.ok()?;
    let made = std::fs::read(pdf).map_err(LabError::file(pdf))?;
    if made.starts_with(b"%PDF-") {
        return Ok(());
    }
    let (what, why) = (pdf.display().to_string(), "what was written is no PDF".into());
    Err(DataError::Draw { what, why }.into())
}

fn command(printer: &Printer, page: &Path, pdf: &Path, profile: &Path, root: bool) -> Vec<String> {
    let text = |path: &Path| path.display().to_string();
    match printer {
        Printer::Weasyprint(program) => vec![text(program), text(page), text(pdf)],
        Printer::Browser(program) => {
            let mut argv = vec![
                text(program),
                "--headless".into(),
                "--disable-gpu".into(),
                "--disable-dev-shm-usage".into(),
                "--no-first-run".into(),
                "--no-pdf-header-footer".into(),
                format!("--user-data-dir={}", text(profile)),
                format!("--print-to-pdf={}", text(pdf)),
            ];
            // A browser's sandbox refuses root; the page is the lab's own and has no script that it needs.
            if root {
                argv.push("--no-sandbox".into());
            }
            argv.push(format!("file://{}", text(page)));
            argv
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_print_a_file_and_nothing_of_the_network() {
        let of = |root| {
            let browser = Printer::Browser("/usr/bin/chromium".into());
            let paths = [Path::new("/r/report.html"), Path::new("/r/report.pdf"), Path::new("/p")];
            command(&browser, paths[0], paths[1], paths[2], root)
        };
        assert_eq!(of(true).last().unwrap(), "file:///r/report.html");
        assert!(of(true).contains(&"--no-sandbox".to_owned()));
        assert!(!of(false).contains(&"--no-sandbox".to_owned()));
        assert!(of(false).contains(&"--print-to-pdf=/r/report.pdf".to_owned()));
    }

    #[test]
    fn a_page_becomes_a_pdf_where_a_program_can() {
        if !fordway_testhost::require(need().is_ok(), HINT) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (page, pdf) = (dir.path().join("a.html"), dir.path().join("a.pdf"));
        std::fs::write(&page, "<!doctype html><title>a</title><p>Some text.").unwrap();
        print(&page, &pdf).unwrap();
        assert!(std::fs::read(&pdf).unwrap().starts_with(b"%PDF-"));
    }
}
