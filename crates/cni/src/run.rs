//! The node's files in `/run/fordway-cni`: a lock, and discovered prefixes. A node is named by its network namespace.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use fordway_net::BriefLock;

use crate::{Code, Failure, Result};

const FOLDER: &str = "/run/fordway-cni";

/// How names of files of prefixes begin.
const PREFIX: &str = "pref64-";

/// How a file's name ends until the file is complete.
const NEW: &str = ".new";

/// Error number of the kernel: there is no such file.
const ENOENT: i32 = 2;

/// Locks other plugins of the node out. While the lock is held, the folder exists.
pub(crate) fn lock(node: &str) -> Result<BriefLock> {
    const ATTEMPTS: u32 = 100;
    let lock = || {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(FOLDER);
        made.map_err(|error| {
            Failure::new(Code::Io, format!("cannot make {FOLDER}")).details(error.to_string())
        })?;
        Ok::<_, Failure>(BriefLock::acquire(&lock_file(node)))
    };
    // A plugin of another node may remove the folder while it is empty.
    for _ in 1..ATTEMPTS {
        match lock()? {
            Err(error) if error.errno() == Some(ENOENT) => {}
            locked => return Ok(locked?),
        }
    }
    Ok(lock()??)
}

fn lock_file(node: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("lock-{node}"))
}

/// The file of the prefix of a network, which is named by its number.
pub(crate) fn prefix_file(network: u64, node: &str) -> PathBuf {
    Path::new(FOLDER).join(prefix_name(network, node))
}

fn prefix_name(network: u64, node: &str) -> String {
    format!("{PREFIX}{network:016x}-{node}")
}

/// Replaces a file at once, so that no reader sees a part of it. The lock is held: all writers of the file write the same
/// new one first.
pub(crate) fn replace(file: &Path, text: &[u8]) -> Result<()> {
    let mut new = file.as_os_str().to_owned();
    new.push(NEW);
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, file));
    written.map_err(|error| {
        Failure::new(Code::Io, format!("cannot write {}", file.display()))
            .details(error.to_string())
    })
}

/// Removes the files of a node without pods, and the folder if no other node has files in it. The lock is held.
pub(crate) fn forget(node: &str) {
    forget_prefixes(Path::new(FOLDER), node);
    // Another plugin that waits for the lock makes its file anew.
    let _ = fs::remove_file(lock_file(node));
    let _ = fs::remove_dir(FOLDER);
}

fn forget_prefixes(folder: &Path, node: &str) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if is_prefix(&path.file_name().unwrap_or_default().to_string_lossy(), node) {
            // One that stays is out of date at most.
            let _ = fs::remove_file(&path);
        }
    }
}

/// Whether a file of this name has a prefix of the node, or a part of one.
fn is_prefix(name: &str, node: &str) -> bool {
    let Some((network, of)) = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'))
    else {
        return false;
    };
    network.len() == 16 && of.strip_suffix(NEW).unwrap_or(of) == node
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_s_prefixes_go_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: String| folder.path().join(name);
        let other = path(prefix_name(1, "20-57"));
        // One is of a plugin that was killed while it wrote.
        for path in
            [path(prefix_name(1, "20-5")), path(prefix_name(2, "20-5") + NEW), other.clone()]
        {
            fs::write(path, "{").unwrap();
        }
        forget_prefixes(folder.path(), "20-5");
        let left = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        assert_eq!(left.collect::<Vec<_>>(), [other]);
    }
}
