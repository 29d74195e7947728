//! Arguments of the commands that come after a run.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Folder of the run
    pub(crate) dir: PathBuf,
    /// Also print the page as report.pdf (needs Chromium or WeasyPrint)
    #[arg(long)]
    pub(crate) pdf: bool,
    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `publish`.
#[derive(Debug, Args)]
pub(crate) struct PublishArgs {
    /// Folder of the run; with --check, the published folder
    pub(crate) dir: PathBuf,
    /// Folder to write [default: DIR-published]
    #[arg(long, value_name = "DIR", conflicts_with = "check")]
    pub(crate) out: Option<PathBuf>,
    /// Who is to be cited; may be given several times
    #[arg(long, value_name = "NAME", conflicts_with = "check")]
    pub(crate) author: Vec<String>,
    /// Check a published folder against its manifest
    #[arg(long)]
    pub(crate) check: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
