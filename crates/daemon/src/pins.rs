//! Where the programs and maps of a translator's kernel engine are pinned.

use std::path::PathBuf;

use fordway_net::NamespaceId;

use crate::failure::Failure;

/// The folder of a translator's pins in the calling thread's network namespace.
pub fn dir(name: &str) -> Result<PathBuf, Failure> {
    Ok(fordway_bpf::pins_dir(&namespace()?.to_string(), name))
}

/// The translators that have pins in the calling thread's network namespace.
pub fn names() -> Result<Vec<String>, Failure> {
    let folder = fordway_bpf::pins_root().join(namespace()?.to_string());
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    Ok(entries.filter_map(|entry| fordway_bpf::pinned_name(&entry.file_name())).collect())
}

fn namespace() -> Result<NamespaceId, Failure> {
    NamespaceId::current()
        .map_err(|error| Failure::failed(format!("cannot tell the network namespace: {error}")))
}

/// Removes pins of network namespaces that no longer exist: those with the inode number of this one and another cookie.
/// No start would ever find them, and their tables would stay in memory.
pub(crate) fn remove_stale() {
    let (Ok(own), Ok(folders)) = (namespace(), std::fs::read_dir(fordway_bpf::pins_root())) else {
        return;
    };
    let (own, alike) = (own.to_string(), format!("{}-", own.inode));
    for folder in folders.flatten() {
        let name = folder.file_name();
        let is_gone = |name: &str| name.starts_with(&alike) && name != own;
        if name.to_str().is_some_and(is_gone)
            && let Err(error) = std::fs::remove_dir_all(folder.path())
        {
            tracing::warn!("cannot remove {}: {error}", folder.path().display());
        }
    }
}
