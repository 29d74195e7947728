//! The folder of a translator's pins: all that a later process has to know.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};

use libbpf_rs::MapHandle;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;
use rustix::mount::MountFlags;

use crate::error::io_error;
use crate::maps::{GATES, StateMap};
use crate::{Error, Place, Program, Result, Unsupported, sys};

/// Where BPF objects are pinned on every distribution.
pub(crate) const BPFFS: &str = "/sys/fs/bpf";

/// A pin, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pin {
    /// A link to a device.
    Link(Place, u32),
    /// The program of our filter at a device.
    Filter(Place, u32),
    /// Any program: the device's clsact queueing discipline was made here.
    Clsact(u32),
    /// The counters of an object, with the version of their layout.
    Counters(Counted, u32),
    /// How the counters of that version lie in their maps, as text in a map.
    Layout(u32),
    /// A program that is attached.
    Program(Program),
    /// A table of stateful translation.
    State(StateMap),
    /// In a cluster: which packets may be translated.
    Gates,
    /// Left by a process that was killed while it pinned.
    Unfinished,
}

/// Whose counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Tc,
    Ingress,
    Xdp,
}

const UNFINISHED: &str = "unfinished";

impl Pin {
    fn name(self) -> String {
        match self {
            Pin::Link(place, ifindex) => format!("link-{}-{ifindex}", place.label()),
            Pin::Filter(place, ifindex) => format!("filter-{}-{ifindex}", place.label()),
            Pin::Clsact(ifindex) => format!("clsact-{ifindex}"),
            Pin::Counters(Counted::Tc, version) => format!("counters-tc-{version}"),
            Pin::Counters(Counted::Ingress, version) => format!("counters-ingress-{version}"),
            Pin::Counters(Counted::Xdp, version) => format!("counters-xdp-{version}"),
            Pin::Layout(version) => format!("layout-{version}"),
            Pin::Program(program) => format!("program-{}", program.name()),
            Pin::State(state) => state.name().to_owned(),
            Pin::Gates => GATES.to_owned(),
            Pin::Unfinished => UNFINISHED.to_owned(),
        }
    }

    fn parse(name: &str) -> Option<Pin> {
        let place = |label: &str| {
            [Place::Egress, Place::Ingress, Place::Xdp]
                .into_iter()
                .find(|place| place.label() == label)
        };
        let parts: Vec<&str> = name.split('-').collect();
        match parts[..] {
            ["link", label, ifindex] => Some(Pin::Link(place(label)?, ifindex.parse().ok()?)),
            ["filter", label, ifindex] => Some(Pin::Filter(place(label)?, ifindex.parse().ok()?)),
            ["clsact", ifindex] => Some(Pin::Clsact(ifindex.parse().ok()?)),
            ["counters", "tc", version] => Some(Pin::Counters(Counted::Tc, version.parse().ok()?)),
            ["counters", "ingress", version] => {
                Some(Pin::Counters(Counted::Ingress, version.parse().ok()?))
            }
            ["counters", "xdp", version] => {
                Some(Pin::Counters(Counted::Xdp, version.parse().ok()?))
            }
            ["layout", version] => Some(Pin::Layout(version.parse().ok()?)),
            ["program", name] => {
                let program = Program::ALL.into_iter().find(|program| program.name() == name);
                program.map(Pin::Program)
            }
            [UNFINISHED] => Some(Pin::Unfinished),
            [GATES] => Some(Pin::Gates),
            [name] => StateMap::ALL.into_iter().find(|state| state.name() == name).map(Pin::State),
            _ => None,
        }
    }
}

/// The folder.
#[derive(Clone, Debug)]
pub(crate) struct Pins {
    folder: PathBuf,
}

impl Pins {
    /// The folder as it is, even if it is missing.
    pub(crate) fn at(folder: &Path) -> Pins {
        Pins { folder: folder.to_owned() }
    }

    /// Makes the folder, and mounts the file system if that is missing.
    pub(crate) fn create(folder: &Path) -> Result<Pins> {
        if folder.starts_with(BPFFS) {
            mount_bpffs()?;
        }
        create_folder(folder).map_err(|source| Error::Pin {
            operation: "create the folder",
            path: folder.to_owned(),
            source,
        })?;
        if !is_bpffs(folder) {
            return Err(Unsupported::new(format!(
                "{} is not in a BPF file system",
                folder.display()
            ))
            .into());
        }
        Ok(Pins { folder: folder.to_owned() })
    }

    /// Moves the folder to another place in the same file system. An empty one there is replaced.
    pub(crate) fn moved(&self, folder: &Path) -> Result<Pins> {
        fs::rename(&self.folder, folder).map_err(|source| Error::Pin {
            operation: "move the folder",
            path: self.folder.clone(),
            source,
        })?;
        Ok(Pins::at(folder))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn path(&self, pin: Pin) -> PathBuf {
        self.folder.join(pin.name())
    }

    pub(crate) fn exists(&self, pin: Pin) -> bool {
        self.path(pin).exists()
    }

    /// Opens what is pinned; `None`: nothing is.
    pub(crate) fn open(&self, pin: Pin) -> Result<Option<OwnedFd>> {
        match sys::open_pin(&self.path(pin)) {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(self.failed("open", pin, source)),
        }
    }

    /// Opens a pinned map; `None`: nothing is pinned.
    pub(crate) fn open_map(&self, pin: Pin) -> Result<Option<MapHandle>> {
        if !self.exists(pin) {
            return Ok(None);
        }
        let opened = MapHandle::from_pinned_path(self.path(pin));
        opened.map(Some).map_err(|error| self.failed("open", pin, io_error(&error)))
    }

    pub(crate) fn failed(&self, operation: &'static str, pin: Pin, source: io::Error) -> Error {
        Error::Pin { operation, path: self.path(pin), source }
    }

    /// What is pinned; `None`: there is no such folder.
    pub(crate) fn list(&self) -> Result<Option<Vec<Pin>>> {
        let failed = |source| Error::Pin { operation: "read", path: self.folder.clone(), source };
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let mut pins = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            pins.extend(name.to_str().and_then(Pin::parse));
        }
        Ok(Some(pins))
    }

    /// Pins an object, and replaces what was pinned there.
    pub(crate) fn put(&self, pin: Pin, object: BorrowedFd<'_>) -> Result<()> {
        let unfinished = self.path(Pin::Unfinished);
        let put = || {
            remove(&unfinished)?;
            sys::pin(object, &unfinished)?;
            fs::rename(&unfinished, self.path(pin))
        };
        put().map_err(|source| self.failed("pin", pin, source))
    }

    /// Removes a pin, if it is there.
    pub(crate) fn remove(&self, pin: Pin) -> Result<()> {
        remove(&self.path(pin)).map_err(|source| self.failed("remove the pin", pin, source))
    }

    /// Removes the folder, and the folders above it that are ours and empty.
    pub(crate) fn remove_folder(&self) -> Result<()> {
        fs::remove_dir(&self.folder).map_err(|source| Error::Pin {
            operation: "remove the folder",
            path: self.folder.clone(),
            source,
        })?;
        let top = pins_root();
        for folder in self.folder.ancestors().skip(1).take_while(|folder| folder.starts_with(&top))
        {
            // Another translator's folder may be there. The top folder of another user is that of a service, which may
            // see nothing else of the file system.
            if (folder == top && !is_own(folder)) || fs::remove_dir(folder).is_err() {
                break;
            }
        }
        Ok(())
    }
}

/// The folder of pins of translator `name` in a network namespace. `namespace` must never name another namespace later, as
/// inode numbers do: else that one would adopt pins that are not its own.
#[must_use]
pub fn pins_dir(namespace: &str, name: &str) -> PathBuf {
    // The file system refuses names with a dot.
    let name = name.replace('.', "%");
    pins_root().join(namespace).join(name)
}

/// The translator whose folder of pins has this name.
#[must_use]
pub fn pinned_name(folder: &OsStr) -> Option<String> {
    Some(folder.to_str()?.replace('%', "."))
}

/// Where the folders of all network namespaces are.
#[must_use]
pub fn pins_root() -> PathBuf {
    Path::new(BPFFS).join("fordway")
}

/// Makes a folder and those above it. Another translator that ends meanwhile may take one of those away that were
/// empty ([`Pins::remove_folder`]): then all are made again.
fn create_folder(folder: &Path) -> io::Result<()> {
    const ATTEMPTS: u32 = 100;
    let top = pins_root();
    let create = || {
        let is_root = rustix::process::geteuid().is_root();
        if is_root && folder.starts_with(&top) && top.exists() && !is_own(&top) {
            return create_for_service(&top, folder);
        }
        DirBuilder::new().recursive(true).mode(0o700).create(folder)
    };
    let vanished = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    (1..ATTEMPTS)
        .map(|_| create())
        .find(|result| !result.as_ref().is_err_and(vanished))
        .unwrap_or_else(create)
}

fn is_own(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw())
}

/// Whether pins can be made: there is a BPF file system, or a service sees of it the folder of all pins alone.
#[must_use]
pub fn has_bpffs() -> bool {
    is_bpffs(Path::new(BPFFS)) || is_bpffs(&pins_root())
}

/// Makes a folder and those above it below `top`, the folder of a service's user, and gives them to that user, as far as
/// root may. The user can put a symbolic link in any place below `top`: none is followed. Outside of a BPF file system
/// nothing is made.
fn create_for_service(top: &Path, folder: &Path) -> io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut parent = openat(CWD, top, flags, Mode::empty())?;
    if !rustix::fs::fstatfs(&parent).is_ok_and(is_bpf) {
        return Ok(());
    }
    let owner = fs::File::from(parent.try_clone()?).metadata()?;
    for name in folder.strip_prefix(top).map_err(io::Error::other)? {
        match mkdirat(&parent, name, Mode::RWXU) {
            Err(Errno::EXIST) => {}
            made => made?,
        }
        parent = openat(&parent, name, flags, Mode::empty())?;
        match fchown(parent.as_fd(), Some(owner.uid()), Some(owner.gid())) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            given => given?,
        }
    }
    Ok(())
}

/// Whether a folder lies in a BPF file system.
pub(crate) fn is_bpffs(folder: &Path) -> bool {
    rustix::fs::statfs(folder).is_ok_and(is_bpf)
}

fn is_bpf(found: rustix::fs::StatFs) -> bool {
    const BPF_FS_MAGIC: u64 = 0xcafe_4a11;
    found.f_type as u64 & 0xffff_ffff == BPF_FS_MAGIC
}

/// Mounts a BPF file system at `/sys/fs/bpf` if there is none; needs `CAP_SYS_ADMIN` in that case.
pub fn mount_bpffs() -> Result<(), Unsupported> {
    if has_bpffs() {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("bpf", BPFFS, "bpf", flags, Some(c"mode=0700")).map_err(|error| {
        Unsupported::with_hint(
            format!("there is no BPF file system at {BPFFS}, and mounting one failed: {error}"),
            format!("mount one: `mount -t bpf bpf {BPFFS}`"),
        )
    })
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_is_pinned() {
        for pin in [
            Pin::Link(Place::Egress, 12),
            Pin::Link(Place::Xdp, 1),
            Pin::Filter(Place::Ingress, 4_000_000_000),
            Pin::Clsact(7),
            Pin::Counters(Counted::Tc, 1),
            Pin::Counters(Counted::Ingress, 2),
            Pin::Counters(Counted::Xdp, 3),
            Pin::Layout(2),
            Pin::Program(Program::UplinkIngress),
            Pin::State(StateMap::Bib6),
            Pin::Gates,
            Pin::Unfinished,
        ] {
            assert_eq!(Pin::parse(&pin.name()), Some(pin));
            assert!(!pin.name().contains('.'), "the file system refuses dots");
        }
        for name in ["", "link-egress", "link-up-1", "link-egress-x", "counters-tc", "other"] {
            assert_eq!(Pin::parse(name), None, "{name}");
        }
    }

    /// A folder in the BPF file system, which goes with the test.
    struct Top(PathBuf);

    impl Drop for Top {
        fn drop(&mut self) {
            let _ = fs::remove_file(self.0.join("link"));
            for folder in ["service/one/two", "service/one", "service", "target", ""] {
                let _ = fs::remove_dir(self.0.join(folder));
            }
        }
    }

    #[test]
    fn folders_for_a_service_are_its_own_and_no_link_is_followed() {
        const SERVICE: u32 = 12_345;
        if !fordway_testhost::is_root() || mount_bpffs().is_err() {
            return;
        }
        let guard = Top(Path::new(BPFFS).join(format!("test-service-{}", std::process::id())));
        let [service, target] = ["service", "target"].map(|name| guard.0.join(name));
        for folder in [&service, &target] {
            fs::create_dir_all(folder).unwrap();
        }
        std::os::unix::fs::chown(&service, Some(SERVICE), Some(SERVICE)).unwrap();
        for _ in 0..2 {
            create_for_service(&service, &service.join("one/two")).unwrap();
        }
        let owner = |folder: &Path| fs::symlink_metadata(folder).unwrap().uid();
        assert_eq!(["one", "one/two"].map(|name| owner(&service.join(name))), [SERVICE; 2]);
        // The service's user leads root elsewhere.
        let link = service.join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        create_for_service(&service, &link.join("two")).unwrap_err();
        create_for_service(&service, &link).unwrap_err();
        assert_eq!((owner(&target), fs::read_dir(&target).unwrap().count()), (0, 0));
        fs::remove_file(link).unwrap();
        // Not in a BPF file system.
        let other = std::env::temp_dir();
        let folder = other.join(format!("fordway-test-{}", std::process::id()));
        create_for_service(&other, &folder).unwrap();
        assert!(!folder.exists());
    }
}
