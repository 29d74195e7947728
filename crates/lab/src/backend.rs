//! Where a mechanism runs: a back end has two operations, run a command and deploy a file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{LabError, Result};
use crate::process::{self, Finished, Output, Running};

/// A place in which commands run: a role of the topology, for example `client`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place(pub(crate) String);

/// Runs commands and deploys files in places.
pub(crate) trait Backend {
    /// Starts a command in a place; `None` is outside of every place, on the machine itself.
    fn run(&self, place: Option<&Place>, argv: &[String], output: Output<'_>) -> Result<Running>;

    /// Puts a file where commands of every place can read it, and says where.
    fn deploy(&self, name: &str, content: &[u8]) -> Result<PathBuf>;
}

/// Runs a command in a place to its end and demands success.
pub(crate) fn must(backend: &dyn Backend, place: &Place, argv: &[&str]) -> Result<Finished> {
    let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
    backend.run(Some(place), &argv, Output::Keep)?.wait(Duration::from_secs(10))?.ok()
}

/// The default back end: Linux network namespaces of this machine.
#[derive(Debug)]
pub(crate) struct Netns {
    /// Folder for deployed files.
    pub(crate) dir: PathBuf,
}

impl Netns {
    /// The command line that runs `argv` in a namespace.
    ///
    /// `ip netns exec` would mount another /sys over the machine's; `nsenter --net` alone does not.
    fn inside(place: &Place, argv: &[String]) -> Vec<String> {
        let mut all = vec!["nsenter".to_owned(), format!("--net=/run/netns/{}", place.0)];
        all.push("--".to_owned());
        all.extend_from_slice(argv);
        all
    }
}

impl Backend for Netns {
    fn run(&self, place: Option<&Place>, argv: &[String], output: Output<'_>) -> Result<Running> {
        match place {
            Some(place) => process::start(&Self::inside(place, argv), output),
            None => process::start(argv, output),
        }
    }

    fn deploy(&self, name: &str, content: &[u8]) -> Result<PathBuf> {
        let path = self.dir.join(name);
        write_file(&path, content)?;
        Ok(path)
    }
}

/// Writes a whole file, making its folder when there is none.
pub(crate) fn write_file(path: &Path, content: &[u8]) -> Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(LabError::file(parent))?;
    }
    std::fs::write(path, content).map_err(LabError::file(path))
}
