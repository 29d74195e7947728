//! The manifest: a hash per file, in the form that `sha256sum -c` reads.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::files;
use crate::artefacts;
use crate::error::{DataError, Result};
use crate::files::write_file;
use crate::trial::hash;

/// The manifest's name.
pub const MANIFEST: &str = "SHA256SUMS";

/// What a check of a published folder found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// Files whose hash is right.
    pub good: usize,
    /// What is wrong, in words.
    pub wrong: Vec<String>,
}

/// Writes the manifest of all files of a folder; returns their number.
pub fn write(dir: &Path) -> Result<usize> {
    let mut text = String::new();
    let mut count = 0;
    for (name, path) in files(dir)?.into_iter().filter(|(name, _)| name != MANIFEST) {
        let bytes = std::fs::read(&path).map_err(DataError::file(&path))?;
        text.push_str(&format!("{}  {name}\n", hash(&bytes)));
        count += 1;
    }
    write_file(&dir.join(MANIFEST), text.as_bytes())?;
    Ok(count)
}

/// Holds a folder against its manifest, and reads the run in it.
pub fn check(dir: &Path) -> Result<Checked> {
    let path = dir.join(MANIFEST);
    let text = std::fs::read_to_string(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => DataError::Usage(format!(
            "{} has no {MANIFEST}: it is not what `fordway-lab publish` writes",
            dir.display()
        )),
        _ => DataError::file(&path)(error),
    })?;
    let mut listed: BTreeMap<&str, &str> = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let (sum, name) = line.split_once("  ").ok_or_else(|| DataError::Artefact {
            path: path.clone(),
            why: format!("line {} is not `HASH  FILE`", number + 1),
        })?;
        listed.insert(name, sum);
    }
    let mut checked = Checked { good: 0, wrong: Vec::new() };
    for (name, file) in files(dir)?.into_iter().filter(|(name, _)| name != MANIFEST) {
        let bytes = std::fs::read(&file).map_err(DataError::file(&file))?;
        match listed.remove(name.as_str()) {
            Some(sum) if sum == hash(&bytes) => checked.good += 1,
            Some(_) => checked.wrong.push(format!("{name}: changed since it was published")),
            None => checked.wrong.push(format!("{name}: not in the manifest")),
        }
    }
    checked.wrong.extend(listed.keys().map(|name| format!("{name}: missing")));
    if let Err(error) = artefacts::read(dir) {
        checked.wrong.push(error.to_string());
    }
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_a_missing_and_a_new_file_are_told() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b/c", "d"] {
            write_file(&dir.path().join(name), name.as_bytes()).unwrap();
        }
        assert_eq!(write(dir.path()).unwrap(), 3);
        // It is no run, which is the only thing wrong with it.
        assert_eq!(check(dir.path()).unwrap().wrong.len(), 1);
        write_file(&dir.path().join("a"), b"other").unwrap();
        write_file(&dir.path().join("new"), b"").unwrap();
        std::fs::remove_file(dir.path().join("b/c")).unwrap();
        let found = check(dir.path()).unwrap();
        assert_eq!(found.good, 1);
        let want =
            ["a: changed since it was published", "new: not in the manifest", "b/c: missing"];
        assert_eq!(found.wrong[..3], want.map(str::to_owned));
    }

    #[test]
    fn a_folder_without_a_manifest_is_nothing_published() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check(dir.path()).unwrap_err().to_string().contains("SHA256SUMS"));
        std::fs::write(dir.path().join(MANIFEST), "abc\n").unwrap();
        assert!(check(dir.path()).unwrap_err().to_string().contains("line 1"));
    }
}
