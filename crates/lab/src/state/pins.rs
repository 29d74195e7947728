//! What a gateway that was killed has left in the kernel.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where the gateway pins the programs and maps of one network namespace, so that they outlive its process: the
/// namespace's inode number, and what follows it to tell it from others that had the number before.
fn pins(namespace: &Path) -> Vec<PathBuf> {
    let Ok(inode) = std::fs::metadata(namespace).map(|data| data.ino().to_string()) else {
        return Vec::new();
    };
    let is_its = |name: &str| name.split('-').next() == Some(&inode);
    let folders = std::fs::read_dir("/sys/fs/bpf/fordway").into_iter().flatten().flatten();
    folders
        .filter(|folder| folder.file_name().to_str().is_some_and(is_its))
        .map(|folder| folder.path())
        .collect()
}

/// Removes what a gateway that was killed has left of itself outside a namespace which is about to go: its
/// programs and tables would stay in memory for ever, and for the next namespace with that number.
pub(crate) fn forget(namespace: &Path) {
    for folder in pins(namespace) {
        if let Err(error) = std::fs::remove_dir_all(&folder) {
            crate::note!("fordway-lab: cannot remove {}: {error}", folder.display());
        }
        // The folder above goes with the last one in it.
        let _ = folder.parent().map(std::fs::remove_dir);
    }
}
