//! The resolvers that the host is configured with.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::unix::AsyncFd;

use fordway_serve::boottime::Raw;
use fordway_serve::readiness::watched;
use fordway_serve::resolv_conf;

/// Where local stubs write the resolvers that they ask themselves. The question for the prefix is one
/// for the network, not for a resolver on the host (RFC 8880 section 7.1).
const BEHIND_STUBS: [&str; 2] =
    ["/run/systemd/resolve/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf"];

/// The files with the resolvers.
#[derive(Debug)]
pub(super) struct ResolvConf {
    path: PathBuf,
    behind: Vec<PathBuf>,
    /// In place of those in the files.
    given: Option<Vec<SocketAddr>>,
}

impl ResolvConf {
    pub(super) fn new(path: &Path) -> Self {
        let behind = if path == Path::new(resolv_conf::PATH) { &BEHIND_STUBS[..] } else { &[] };
        Self {
            path: path.to_owned(),
            behind: behind.iter().map(PathBuf::from).collect(),
            given: None,
        }
    }

    /// These resolvers, whatever files say.
    pub(super) fn given(resolvers: Vec<SocketAddr>) -> Self {
        Self { path: PathBuf::new(), behind: Vec::new(), given: Some(resolvers) }
    }

    /// The resolvers, in their order: those of the network where the host itself has only a stub.
    pub(super) fn read(&self) -> Vec<SocketAddr> {
        if let Some(given) = &self.given {
            return given.clone();
        }
        let servers = resolv_conf::servers(&self.path);
        let is_stub = |servers: &[SocketAddr]| servers.iter().all(|one| one.ip().is_loopback());
        if !servers.is_empty() && is_stub(&servers) {
            let behind = self.behind.iter().map(|path| resolv_conf::servers(path));
            if let Some(behind) = behind.into_iter().find(|behind| !is_stub(behind)) {
                return behind;
            }
        }
        servers
    }

    /// Starts watching for changes; `None` if the host can't report them. Within a tokio runtime.
    pub(super) fn watch(&self) -> Option<Watch> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok()?;
        // The folders: files are replaced by others. Behind a symbolic link is a folder, too.
        let paths = std::iter::once(&self.path).chain(&self.behind);
        let targets = paths.flat_map(|path| [Some(path.clone()), path.canonicalize().ok()]);
        let mut names = Vec::new();
        for path in targets.flatten() {
            let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { continue };
            let flags = AddWatchFlags::IN_CLOSE_WRITE
                | AddWatchFlags::IN_MOVED_TO
                | AddWatchFlags::IN_CREATE
                | AddWatchFlags::IN_DELETE;
            if inotify.add_watch(folder, flags).is_ok() {
                names.push(name.to_owned());
            }
        }
        Some(Watch { inotify: watched(Raw(inotify)).ok()?, names })
    }
}

/// Watches the files for changes.
#[derive(Debug)]
pub(super) struct Watch {
    inotify: AsyncFd<Raw<Inotify>>,
    names: Vec<OsString>,
}

impl Watch {
    /// Waits for a change. Never returns without one, even if watching fails.
    pub(super) async fn changed(&self) {
        loop {
            let Ok(mut guard) = self.inotify.readable().await else {
                return std::future::pending().await;
            };
            match guard.get_inner().0.read_events() {
                Ok(events) => {
                    // Without a name: events were lost, or a folder is gone.
                    let ours = |name: &Option<OsString>| {
                        name.as_ref().is_none_or(|name| self.names.contains(name))
                    };
                    if events.iter().any(|event| ours(&event.name)) {
                        return;
                    }
                }
                Err(_) => guard.clear_ready(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolv_conf(text: &str, behind: Option<&str>) -> (tempfile::TempDir, ResolvConf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("resolv.conf");
        std::fs::write(&path, text).unwrap();
        let mut conf = ResolvConf::new(&path);
        assert_eq!(conf.behind, [] as [PathBuf; 0]);
        if let Some(behind) = behind {
            let path = dir.path().join("behind.conf");
            std::fs::write(&path, behind).unwrap();
            conf.behind = vec![dir.path().join("nothing.conf"), path];
        }
        (dir, conf)
    }

    fn servers(text: &str, behind: Option<&str>) -> Vec<String> {
        let (_dir, conf) = resolv_conf(text, behind);
        conf.read().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn servers_are_read_in_their_order_whatever_else_stands_there() {
        let text = "; made by hand\nnameserver 2001:db8::53\nnonsense here\noptions what:ever\n\
                    nameserver 192.0.2.53\nnameserver not-an-address\nnameserver fe80::53%lo\n";
        assert_eq!(servers(text, None), ["[2001:db8::53]:53", "192.0.2.53:53", "[fe80::53%1]:53"]);
        assert_eq!(servers("search example.net\n", None), [""; 0]);
        assert_eq!(servers("\u{0}\u{7f}\n\nnameserver", None), [""; 0]);
    }

    #[test]
    fn behind_a_stub_the_network_is_asked() {
        let stub = "nameserver 127.0.0.53\noptions edns0 trust-ad\n";
        let behind = "nameserver 192.0.2.53\nnameserver ::1\n";
        assert_eq!(servers(stub, Some(behind)), ["192.0.2.53:53", "[::1]:53"]);
        // A stub that does not say whom it asks, and resolvers that are none.
        assert_eq!(servers(stub, Some("nameserver ::1\n")), ["127.0.0.53:53"]);
        assert_eq!(servers("nameserver 2001:db8::1\n", Some(behind)), ["[2001:db8::1]:53"]);
    }

    #[test]
    fn a_file_that_is_not_there_has_none() {
        assert_eq!(ResolvConf::new(Path::new("/nonexistent/resolv.conf")).read(), []);
    }

    #[tokio::test]
    async fn a_changed_file_is_heard_and_others_are_not() {
        let (dir, conf) = resolv_conf("nameserver 192.0.2.1\n", None);
        let watch = conf.watch().unwrap();
        std::fs::write(dir.path().join("hosts"), "x").unwrap();
        let mut changed = Box::pin(watch.changed());
        // The kernel has told of it by now: the runtime hears that when nothing else is to be done.
        for _ in 0..16 {
            assert!(futures_util::poll!(&mut changed).is_pending());
            tokio::task::yield_now().await;
        }
        // As NetworkManager and resolvconf do it: another file, renamed.
        std::fs::write(dir.path().join("new"), "nameserver 192.0.2.2\n").unwrap();
        std::fs::rename(dir.path().join("new"), dir.path().join("resolv.conf")).unwrap();
        changed.await;
        assert_eq!(conf.read(), ["192.0.2.2:53".parse().unwrap()]);
    }
}
