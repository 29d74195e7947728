//! Folders in which another user may write, such as that of a service. Root opens what lies in them by a descriptor of
//! the folder and never through a link: else that user chooses which file root writes or gives away.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Mode, OFlags};

/// An open folder.
#[derive(Debug)]
pub(crate) struct Folder {
    file: File,
    path: PathBuf,
}

impl Folder {
    /// Opens the folder that a path leads to, also through symbolic links.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let file = fs::open(path, flags, Mode::empty())?;
        Ok(Self { file: File::from(file), path: path.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a folder in this one.
    pub(crate) fn enter(&self, name: &OsStr) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let file = File::from(self.open_at(name, flags, Mode::empty())?);
        Ok(Self { file, path: self.path.join(name) })
    }

    /// Makes a folder in this one if need be, and opens it. It belongs to this one's owner ([`Folder::give`]).
    pub(crate) fn make(&self, name: &OsStr, mode: u32) -> io::Result<Self> {
        match fs::mkdirat(&self.file, name, Mode::from_raw_mode(mode)) {
            Ok(()) => {}
            Err(error) if io::Error::from(error).kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
        let made = self.enter(name)?;
        self.give(&made.file)?;
        Ok(made)
    }

    /// Opens a file to read.
    pub(crate) fn open_file(&self, name: &OsStr) -> io::Result<File> {
        self.regular(name, OFlags::RDONLY)
    }

    /// Opens a file to read and write, and makes it if need be, for its owner alone: this folder's ([`Folder::give`]).
    pub(crate) fn open_or_make_file(&self, name: &OsStr) -> io::Result<File> {
        let file = self.regular(name, OFlags::RDWR | OFlags::CREATE)?;
        self.give(&file)?;
        Ok(file)
    }

    /// Makes a file to write in the place of any other, for its owner alone: this folder's ([`Folder::give`]).
    pub(crate) fn make_file(&self, name: &OsStr) -> io::Result<File> {
        self.remove(name)?;
        let file = self.regular(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
        self.give(&file)?;
        Ok(file)
    }

    /// Removes a file or a link; no error if there is none.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        match fs::unlinkat(&self.file, name, AtFlags::empty()).map_err(io::Error::from) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(fs::renameat(&self.file, from, &self.file, to)?)
    }

    /// Whether `file` is the one that has this name here.
    pub(crate) fn names(&self, name: &OsStr, file: &File) -> io::Result<bool> {
        let ours = file.metadata()?;
        match fs::statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from) {
            Ok(found) => Ok((found.st_ino, found.st_dev) == (ours.ino(), ours.dev())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Opens a file, unless it may be elsewhere, too (a link), or keep who opens it waiting (a pipe).
    fn regular(&self, name: &OsStr, flags: OFlags) -> io::Result<File> {
        let mode = Mode::from_raw_mode(0o600);
        let file = File::from(self.open_at(name, flags | OFlags::NONBLOCK, mode)?);
        let found = file.metadata()?;
        match found.is_file() && found.nlink() <= 1 {
            true => Ok(file),
            false => Err(io::Error::other("it is no regular file with one name")),
        }
    }

    fn open_at(&self, name: &OsStr, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        Ok(fs::openat(&self.file, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode)?)
    }

    /// Gives a file or folder that root has made in another user's folder to that user: a service, which has to write it,
    /// too. Without the privilege for that, it stays root's.
    fn give(&self, file: &File) -> io::Result<()> {
        let folder = self.file.metadata()?;
        if file.metadata()?.uid() != 0 || folder.uid() == 0 {
            return Ok(());
        }
        match fchown(file, Some(folder.uid()), Some(folder.gid())) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
            result => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A folder, and beside it a file and a folder that are not of it.
    fn places() -> (tempfile::TempDir, Folder) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("ours")).unwrap();
        std::fs::create_dir(dir.path().join("theirs")).unwrap();
        std::fs::write(dir.path().join("file"), "theirs").unwrap();
        let folder = Folder::open(&dir.path().join("ours")).unwrap();
        (dir, folder)
    }

    #[test]
    fn links_and_pipes_are_not_opened() {
        let (dir, folder) = places();
        let name = OsStr::new("it");
        let path = folder.path().join(name);
        symlink(dir.path().join("theirs"), &path).unwrap();
        assert!(folder.enter(name).is_err() && folder.make(name, 0o700).is_err());
        folder.remove(name).unwrap();
        let refused = || folder.open_file(name).is_err() && folder.open_or_make_file(name).is_err();
        symlink(dir.path().join("file"), &path).unwrap();
        assert!(refused());
        folder.remove(name).unwrap();
        std::fs::hard_link(dir.path().join("file"), &path).unwrap();
        assert!(refused());
        folder.remove(name).unwrap();
        fs::mknodat(&folder.file, name, fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(refused());
    }

    #[test]
    fn a_file_that_is_made_takes_the_place_of_a_link() {
        let (dir, folder) = places();
        let (name, theirs) = (OsStr::new("it"), dir.path().join("file"));
        let path = folder.path().join(name);
        symlink(&theirs, &path).unwrap();
        let made = folder.make_file(name).unwrap();
        assert!(folder.names(name, &made).unwrap());
        std::fs::remove_file(&path).unwrap();
        std::fs::hard_link(&theirs, &path).unwrap();
        assert!(!folder.names(name, &made).unwrap());
        folder.make_file(name).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(theirs).unwrap(), "theirs");
    }
}
