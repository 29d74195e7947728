//! The lease file: a record is on disk before a client gets the answer.
//!
//! Records are added at the end; a process that is killed in the middle of one leaves a damaged last line, of which the
//! client has had no answer. When most lines are obsolete, a thread writes a new file beside the old one, from the
//! content of the old one. Records that are added meanwhile go to the old one; then they are added to the new one,
//! which replaces the old one atomically. So at any moment the file has all leases, and only the thread waits for the
//! disk.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use fordway_dstm::{BadLine, Lease, Record, Slot};
use tracing::warn;

/// The first line of a lease file.
pub const HEAD: &str = "fordway dstm leases 1";

/// Octets of a file that is read at most: more than two million leases.
const MOST: u64 = 512 << 20;

/// Octets of a line at most.
const LINE: u64 = 512;

/// Obsolete lines that there may be beside one for each lease.
const PAST: usize = 1000;

/// A lease file that is written.
#[derive(Debug)]
pub(super) struct LeaseFile {
    path: PathBuf,
    file: File,
    lines: usize,
    /// The last line may be half written.
    broken: bool,
    anew: Option<Anew>,
}

/// A file that is being written to replace another.
#[derive(Debug)]
struct Anew {
    /// Writes it, and returns it with the number of its lines.
    thread: JoinHandle<io::Result<(File, usize)>>,
    /// What was added to the old file meanwhile.
    since: String,
    lines: usize,
}

/// The content of a file.
#[derive(Debug, Default)]
pub struct Kept {
    /// The leases, the last record of each address and ports.
    pub leases: Vec<Lease>,
    /// Lines that could not be parsed.
    pub damaged: usize,
}

/// Reads a file; there are no leases in one that does not exist.
///
/// # Errors
///
/// It can't be read. Damage is no error: damaged lines are counted.
pub fn read(path: &Path) -> io::Result<Kept> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Kept::default()),
        opened => read_from(opened?, MOST),
    }
}

/// Reads so many octets of a file.
fn read_from(file: File, octets: u64) -> io::Result<Kept> {
    let mut reader = BufReader::new(file.take(octets));
    let mut leases: BTreeMap<Slot, Lease> = BTreeMap::new();
    let mut damaged = 0;
    let mut line = Vec::new();
    let mut first = true;
    while next_line(&mut reader, &mut line)? {
        let text = std::str::from_utf8(&line).unwrap_or_default();
        if std::mem::take(&mut first) && text == HEAD {
            continue;
        }
        match Record::parse(text) {
            Ok(Record::Lent(lease)) => drop(leases.insert(lease.slot, lease)),
            Ok(Record::Ended(slot)) => drop(leases.remove(&slot)),
            Err(BadLine::Checksum | BadLine::Unknown) => damaged += 1,
        }
    }
    Ok(Kept { leases: leases.into_values().collect(), damaged })
}

/// Reads a line, of which no more than [`LINE`] octets are kept, without its end. `false`: there is none.
fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    if reader.by_ref().take(LINE).read_until(b'\n', line)? == 0 {
        return Ok(false);
    }
    if line.pop_if(|last| *last == b'\n').is_none() {
        reader.skip_until(b'\n')?;
    }
    Ok(true)
}

impl LeaseFile {
    /// Replaces a file by one with `leases`, to which records can be added.
    pub(super) fn create(path: &Path, leases: &[&Lease]) -> io::Result<LeaseFile> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
        }
        let file = write_beside(path, leases)?;
        take_place(path)?;
        let (path, lines) = (path.to_owned(), leases.len());
        Ok(LeaseFile { path, file, lines, broken: false, anew: None })
    }

    /// Adds records. When this returns they are with the kernel, so no end of this process loses them.
    pub(super) fn add(&mut self, records: &[Record]) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        self.settle(false);
        let text: String = records.iter().map(|record| format!("{record}\n")).collect();
        let end = if self.broken { "\n" } else { "" };
        self.broken = true;
        self.file.write_all(format!("{end}{text}").as_bytes())?;
        self.broken = false;
        self.lines += records.len();
        if let Some(anew) = &mut self.anew {
            anew.since += &text;
            anew.lines += records.len();
        }
        Ok(())
    }

    /// Starts writing a new file if most lines are obsolete (there are `count` leases), and takes it once it is
    /// written.
    pub(super) fn tidy(&mut self, count: usize) {
        self.settle(false);
        if self.anew.is_some() || self.lines <= 2 * count + PAST {
            return;
        }
        let begin = || {
            let old = File::open(&self.path)?;
            let octets = old.metadata()?.len().min(MOST);
            let path = self.path.clone();
            let work = move || {
                let kept = read_from(old, octets)?;
                let leases: Vec<&Lease> = kept.leases.iter().collect();
                Ok((write_beside(&path, &leases)?, leases.len()))
            };
            thread::Builder::new().name("fordway-leases".to_owned()).spawn(work)
        };
        match begin() {
            Ok(thread) => self.anew = Some(Anew { thread, since: String::new(), lines: 0 }),
            Err(error) => self.not_anew(&error),
        }
    }

    /// Takes the new file if it is written; `wait`: waits for that.
    fn settle(&mut self, wait: bool) {
        let is_ready = |anew: &mut Anew| wait || anew.thread.is_finished();
        let Some(anew) = self.anew.take_if(is_ready) else { return };
        let taken = anew.thread.join().unwrap_or_else(|_| Err(io::Error::other("a panic")));
        let taken = taken.and_then(|(mut file, lines)| {
            file.write_all(anew.since.as_bytes())?;
            take_place(&self.path)?;
            Ok((file, lines + anew.lines))
        });
        match taken {
            Ok((file, lines)) => (self.file, self.lines, self.broken) = (file, lines, false),
            Err(error) => {
                // On a full disk, free the space.
                let _gone_or_not = std::fs::remove_file(beside(&self.path));
                self.not_anew(&error);
            }
        }
    }

    fn not_anew(&mut self, error: &io::Error) {
        warn!("dstm-server: can't replace {}: {error}", self.path.display());
        // Not tried again at once.
        self.lines /= 2;
    }
}

impl Drop for LeaseFile {
    /// The next server writes to the same place.
    fn drop(&mut self) {
        self.settle(true);
    }
}

/// The path of a new file that is to replace another.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

/// Replaces a file by the new one.
fn take_place(path: &Path) -> io::Result<()> {
    std::fs::rename(beside(path), path)
}

/// Writes a new file beside another and syncs it; returns it, to be appended to.
fn write_beside(path: &Path, leases: &[&Lease]) -> io::Result<File> {
    let new = beside(path);
    let made = || -> io::Result<File> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        let mut writer = BufWriter::new(file);
        writeln!(writer, "{HEAD}")?;
        for lease in leases {
            writeln!(writer, "{}", Record::Lent((*lease).clone()))?;
        }
        let file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(file)
    };
    made().inspect_err(|_| {
        // On a full disk, free the space.
        let _gone_or_not = std::fs::remove_file(&new);
    })
}

#[cfg(test)]
mod tests {
    use fordway_dstm::{ClientId, Identity};

    use super::*;

    fn lease(last: u8, until: u64) -> Lease {
        Lease {
            identity: Identity::Named(ClientId::new(&format!("host{last}")).unwrap()),
            slot: Slot { v4: [192, 0, 2, last].into(), ports: None },
            remote: "2001:db8::1".parse().unwrap(),
            local: "2001:db8::2".parse().unwrap(),
            until,
        }
    }

    #[test]
    fn records_are_read_as_they_were_added() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/leases");
        assert!(read(&path).unwrap().leases.is_empty());
        let mut file = LeaseFile::create(&path, &[&lease(1, 5), &lease(2, 5)]).unwrap();
        file.add(&[Record::Lent(lease(3, 6)), Record::Ended(lease(1, 0).slot)]).unwrap();
        file.add(&[Record::Lent(lease(2, 9))]).unwrap();
        file.add(&[]).unwrap();
        let read = read(&path).unwrap();
        assert_eq!((read.leases, read.damaged), (vec![lease(2, 9), lease(3, 6)], 0));
        assert!(!path.with_extension("new").exists());
    }

    #[test]
    fn damage_takes_nothing_but_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases");
        let mut file = LeaseFile::create(&path, &[]).unwrap();
        let all: Vec<Record> = (1..=9).map(|last| Record::Lent(lease(last, 5))).collect();
        file.add(&all).unwrap();
        let whole = std::fs::read(&path).unwrap();
        // Cut anywhere, as by a process that was killed.
        for end in 0..whole.len() {
            std::fs::write(&path, &whole[..end]).unwrap();
            let read = read(&path).unwrap();
            let lines = whole[..end].iter().filter(|octet| **octet == b'\n').count();
            let kept = read.leases.len();
            assert!(kept + 1 >= lines && kept <= lines, "{kept} of {lines}");
        }
        // Changed anywhere.
        for at in (0..whole.len()).step_by(7) {
            let mut octets = whole.clone();
            octets[at] = 0xff;
            std::fs::write(&path, &octets).unwrap();
            let read = read(&path).unwrap();
            assert!(read.leases.len() >= 7, "at most two lines are lost");
        }
        std::fs::write(&path, vec![b'x'; 100_000]).unwrap();
        assert_eq!(read(&path).unwrap().damaged, 1);
    }

    #[test]
    fn a_line_that_was_half_written_does_not_take_the_next_one_along() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases");
        let mut file = LeaseFile::create(&path, &[]).unwrap();
        file.file.write_all(b"lent 192.0.2.1 - 5").unwrap();
        file.broken = true;
        file.add(&[Record::Lent(lease(2, 5))]).unwrap();
        let read = read(&path).unwrap();
        assert_eq!((read.leases, read.damaged), (vec![lease(2, 5)], 1));
    }

    #[test]
    fn the_past_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases");
        let mut file = LeaseFile::create(&path, &[]).unwrap();
        let kept = lease(1, 5);
        for until in 0..2000 {
            file.add(&[Record::Lent(lease(1, until)), Record::Lent(kept.clone())]).unwrap();
            file.tidy(1);
            file.settle(true);
        }
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines < 1100, "{lines}");
        assert_eq!(read(&path).unwrap().leases, [kept]);
    }

    #[test]
    fn a_lease_is_in_the_file_at_every_moment_while_it_is_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases");
        let mut file = LeaseFile::create(&path, &[]).unwrap();
        let past: Vec<Record> = (0..2000).map(|until| Record::Lent(lease(1, until))).collect();
        file.add(&past).unwrap();
        let now = |path: &Path| read(path).unwrap().leases;
        file.tidy(1);
        let anew = file.anew.take().expect("it is begun, and not waited for");
        assert_eq!(now(&path), [lease(1, 1999)], "as far as anybody sees, nothing has happened");
        // The thread has done its work; whoever is killed now has the old file.
        while !anew.thread.is_finished() {
            thread::yield_now();
        }
        file.anew = Some(anew);
        let mut other = file.file.try_clone().unwrap();
        writeln!(other, "{}", Record::Lent(lease(2, 7))).unwrap();
        let anew = file.anew.as_mut().unwrap();
        anew.since += &format!("{}\n", Record::Lent(lease(2, 7)));
        anew.lines += 1;
        assert_eq!(now(&path), [lease(1, 1999), lease(2, 7)]);
        // What is added next takes the new file, with all that was added meanwhile.
        file.add(&[Record::Lent(lease(3, 8)), Record::Ended(lease(1, 0).slot)]).unwrap();
        assert!(file.anew.is_none());
        assert_eq!(now(&path), [lease(2, 7), lease(3, 8)]);
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert_eq!(
            (lines, file.lines),
            (5, 4),
            "a head, one of before, one of meanwhile, two more"
        );
        assert!(!beside(&path).exists());
    }

    #[test]
    fn who_ends_while_the_file_is_written_anew_leaves_all_leases() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases");
        let mut file = LeaseFile::create(&path, &[]).unwrap();
        let past: Vec<Record> = (0..2000).map(|until| Record::Lent(lease(1, until))).collect();
        file.add(&past).unwrap();
        file.tidy(1);
        drop(file);
        assert_eq!(read(&path).unwrap().leases, [lease(1, 1999)]);
        assert!(!beside(&path).exists());
        // A file that can't be had costs nothing but the next try.
        let mut file = LeaseFile::create(&path, &[&lease(1, 5)]).unwrap();
        file.add(&past).unwrap();
        std::fs::create_dir(beside(&path)).unwrap();
        file.tidy(1);
        file.settle(true);
        file.add(&[Record::Lent(lease(2, 5))]).unwrap();
        assert_eq!(read(&path).unwrap().leases, [lease(1, 1999), lease(2, 5)]);
    }
}
