//! The daemons of this host, found by their control sockets.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::read_dir;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use fordway_control::{Client, is_read_socket};

/// The control sockets on which daemons listen: those in the run directory, and those in folders beside it whose names
/// begin with its name and a dash (`/run/fordway-test`). That of `control.sock` in the run directory is the first.
pub(crate) fn sockets(run_dir: &Path) -> Vec<PathBuf> {
    let usual = run_dir.join("control.sock");
    let found: BTreeSet<PathBuf> =
        run_dirs(run_dir).iter().flat_map(|dir| listening(dir)).collect();
    let first = found.get(&usual).cloned();
    first.into_iter().chain(found.into_iter().filter(|it| *it != usual)).collect()
}

fn run_dirs(run_dir: &Path) -> Vec<PathBuf> {
    let mut dirs = vec![run_dir.to_owned()];
    if let (Some(parent), Some(name)) = (run_dir.parent(), run_dir.file_name()) {
        let prefix = [name.as_encoded_bytes(), b"-"].concat();
        let beside = read_dir(parent).into_iter().flatten().flatten();
        let beside = beside.filter(|it| it.file_name().as_encoded_bytes().starts_with(&prefix));
        dirs.extend(beside.map(|it| it.path()));
    }
    dirs
}

fn listening(dir: &Path) -> Vec<PathBuf> {
    let entries = read_dir(dir).into_iter().flatten().flatten();
    let sockets = entries.filter(|it| it.file_type().is_ok_and(|kind| kind.is_socket()));
    let sockets = sockets.map(|it| it.path());
    let is_control =
        |it: &PathBuf| it.extension() == Some(OsStr::new("sock")) && !is_read_socket(it);
    sockets.filter(is_control).filter(|it| !Client::new(it).is_absent()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn daemons_are_found_in_and_beside_the_run_directory() {
        let root = tempfile::TempDir::new().unwrap();
        let path = |name: &str| root.path().join(name);
        for dir in ["fordway", "fordway-test", "fordways", "other"] {
            std::fs::create_dir(path(dir)).unwrap();
        }
        let listen = |name: &str| UnixListener::bind(path(name)).unwrap();
        let _listening: Vec<UnixListener> = [
            "fordway/clat.sock",
            "fordway/control.sock",
            "fordway/control.read.sock",
            "fordway-test/control.sock",
            "fordways/control.sock",
            "other/control.sock",
        ]
        .map(listen)
        .into();
        drop(listen("fordway/dead.sock"));
        std::fs::write(path("fordway/file.sock"), "").unwrap();
        let expected = ["fordway/control.sock", "fordway/clat.sock", "fordway-test/control.sock"];
        assert_eq!(sockets(&path("fordway")), expected.map(path));
        assert!(sockets(&path("nothing")).is_empty());
    }
}
