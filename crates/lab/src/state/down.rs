//! Commands that take down what would outlive a namespace.

use std::path::{Path, PathBuf};

use fordway_data::files::write_file;

use crate::error::{LabError, Result};
use crate::process::{self, COMMAND_LIMIT, Output, start};

/// What takes it down, kept beside its files until that is done.
const DOWN: &str = "down.json";

/// Commands that take a mechanism down. Dropping it runs them.
#[derive(Debug)]
pub(crate) struct Down {
    folder: PathBuf,
}

impl Down {
    /// Notes them where the next run finds them, should this one be killed.
    pub(crate) fn note(commands: &[Vec<String>], folder: &Path) -> Result<Self> {
        note(folder, commands)?;
        Ok(Self { folder: folder.to_path_buf() })
    }

    /// Runs them now, until one fails, which is told; that one and the rest are tried once more when it is dropped.
    pub(crate) fn run(self) -> Result<()> {
        let all = noted(&self.folder);
        for (done, argv) in all.iter().enumerate() {
            if let Err(error) = process::run_all(std::slice::from_ref(argv)) {
                note(&self.folder, &all[done..])?;
                return Err(error);
            }
        }
        let file = self.folder.join(DOWN);
        std::fs::remove_file(&file).map_err(LabError::file(&file))
    }
}

fn note(folder: &Path, commands: &[Vec<String>]) -> Result<()> {
    let text = serde_json::to_vec(commands).unwrap_or_default();
    Ok(write_file(&folder.join(DOWN), &text)?)
}

/// The commands that a mechanism left in its folder.
fn noted(folder: &Path) -> Vec<Vec<String>> {
    let bytes = std::fs::read(folder.join(DOWN)).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

impl Drop for Down {
    fn drop(&mut self) {
        take_down(&self.folder);
    }
}

/// Runs the commands that a mechanism left in its folder, and forgets them. What fails is said; the rest is
/// tried all the same.
pub(crate) fn take_down(folder: &Path) {
    for argv in noted(folder) {
        let done = start(&argv, Output::Keep).and_then(|running| running.wait_out(COMMAND_LIMIT));
        if let Err(error) = done.and_then(process::Finished::ok) {
            crate::note!("fordway-lab: taking a mechanism down: {error}");
        }
    }
    let _ = std::fs::remove_file(folder.join(DOWN));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_run_once_whoever_does_it() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("mark");
        let append = format!("echo x >> {}", mark.display());
        let commands =
            vec![vec!["false".to_owned()], ["sh", "-c", &append].map(str::to_owned).into()];
        let down = Down::note(&commands, dir.path()).unwrap();
        take_down(dir.path());
        drop(down);
        assert_eq!(std::fs::read_to_string(&mark).unwrap(), "x\n");
        // Where somebody has to know whether it went well.
        let told = Down::note(&commands, dir.path()).unwrap().run();
        assert!(told.is_err_and(|error| error.to_string().contains("false")));
        assert_eq!(std::fs::read_to_string(&mark).unwrap(), "x\nx\n");
        Down::note(&commands[1..], dir.path()).unwrap().run().unwrap();
        assert_eq!(std::fs::read_to_string(&mark).unwrap(), "x\nx\nx\n");
    }
}
