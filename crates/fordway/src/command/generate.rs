//! `fordway completions` and `fordway man`.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::Failure;
use crate::output;

pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "fordway", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

pub(crate) fn manual(dir: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::failed(format!("cannot write manual pages to {}: {error}", dir.display()))
    };
    std::fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), dir).map_err(failed)
}
