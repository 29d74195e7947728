//! Commands that take down what would outlive a namespace.

use std::path::{Path, PathBuf};

use fordway_data::files::write_file;

use crate::error::Result;
use crate::process::{self, run_str};

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
        let text = serde_json::to_vec(commands).unwrap_or_default();
        write_file(&folder.join(DOWN), &text)?;
        Ok(Self { folder: folder.to_path_buf() })
    }
}

impl Drop for Down {
    fn drop(&mut self) {
        take_down(&self.folder);
    }
}

/// Runs the commands that a mechanism left in its folder, and forgets them. What fails is said; the rest is
/// tried all the same.
pub(crate) fn take_down(folder: &Path) {
    let file = folder.join(DOWN);
    let Ok(bytes) = std::fs::read(&file) else { return };
    let commands: Vec<Vec<String>> = serde_json::from_slice(&bytes).unwrap_or_default();
    for argv in commands {
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        if let Err(error) = run_str(&argv).and_then(process::Finished::ok) {
            crate::note!("fordway-lab: taking a mechanism down: {error}");
        }
    }
    let _ = std::fs::remove_file(file);
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
        assert_eq!(std::fs::read_to_string(mark).unwrap(), "x\n");
    }
}
