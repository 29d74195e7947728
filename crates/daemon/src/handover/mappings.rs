//! Dynamic 1:1 mappings that survive restarts: a file with one line per mapping.
//!
//! ```text
//! fordway dynamic4 1 1767323045        version; seconds of the clock when it was written
//! 2001:db8::5 192.0.2.7 42             host, address, seconds since its last packet
//! ```

use std::fmt::Write as _;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fordway_engine::monotonic;
use fordway_xlat::nat64::{BibError, Nat64};
use tracing::{info, warn};

use crate::failure::Failure;

/// The start of the first line.
pub const HEAD: &str = "fordway dynamic4 1 ";

/// How often mappings are written: what a crash may lose.
const INTERVAL: Duration = Duration::from_secs(30);

/// The thread that writes a translator's mappings. Dropping it writes them a last time.
#[derive(Debug)]
pub(crate) struct MappingWriter {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A mapping, and how long ago it was used.
type Mapping = (Ipv6Addr, Ipv4Addr, Duration);

impl MappingWriter {
    /// Puts the mappings of `path` into the tables and writes them there from then on.
    pub(crate) fn start(
        name: &str,
        path: &Path,
        nat64: &Arc<Nat64>,
    ) -> Result<MappingWriter, Failure> {
        let failed = |error: io::Error| {
            Failure::failed(format!("{name}: cannot keep mappings in {}: {error}", path.display()))
                .hint("name another file with dynamic4_file, or write dynamic4_file = \"off\"")
        };
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(failed)?;
        }
        restore(name, path, nat64).map_err(failed)?;
        // At once, so that a place that can't be written to is found out.
        let mut kept = Kept { path: path.to_owned(), mappings: None };
        kept.update(mappings(nat64)).map_err(failed)?;
        let (end, ended) = channel();
        let (name, nat64) = (name.to_owned(), Arc::clone(nat64));
        let run = move || {
            loop {
                let done = match ended.recv_timeout(INTERVAL) {
                    Err(RecvTimeoutError::Timeout) => false,
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => true,
                };
                if let Err(error) = kept.update(mappings(&nat64)) {
                    warn!("{name}: cannot keep mappings in {}: {error}", kept.path.display());
                }
                if done {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("fordway-keep".to_owned()).spawn(run);
        Ok(MappingWriter { end: Some(end), thread: Some(thread.map_err(failed)?) })
    }
}

impl Drop for MappingWriter {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What is in the file.
struct Kept {
    path: PathBuf,
    mappings: Option<Vec<Mapping>>,
}

impl Kept {
    /// Writes mappings unless they are there already.
    fn update(&mut self, now: Vec<Mapping>) -> io::Result<()> {
        if self.mappings.as_ref() != Some(&now) {
            write(&self.path, &now)?;
            self.mappings = Some(now);
        }
        Ok(())
    }
}

fn mappings(nat64: &Nat64) -> Vec<Mapping> {
    let dynamic = nat64.bib(monotonic()).filter(|bib| bib.binding.protocol.is_none());
    dynamic.map(|bib| (bib.binding.v6.0, bib.binding.v4.0, bib.idle)).collect()
}

/// Writes the file anew, in one step: it is never half written.
fn write(path: &Path, mappings: &[Mapping]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut text = format!("{HEAD}{seconds}\n");
    for (v6, v4, idle) in mappings {
        let _ = writeln!(text, "{v6} {v4} {}", idle.as_secs());
    }
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.and_then(|()| std::fs::rename(&new, path)).inspect_err(|_| {
        // Frees the space on a full disk.
        let _ = std::fs::remove_file(&new);
    })
}

/// Puts the mappings of a file into the tables, as far as they still fit.
fn restore(name: &str, path: &Path, nat64: &Nat64) -> io::Result<()> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => BufReader::new(opened?),
    };
    let mut lines = file.lines();
    let head = lines.next().transpose()?.unwrap_or_default();
    let Some(written) = head.strip_prefix(HEAD).and_then(|seconds| seconds.parse().ok()) else {
        warn!("{name}: {} holds no mappings; it will be written anew", path.display());
        return Ok(());
    };
    let written = UNIX_EPOCH + Duration::from_secs(written);
    // A clock that was set back has lost nothing but time.
    let since = SystemTime::now().duration_since(written).unwrap_or_default();
    let (now, settings) = (monotonic(), nat64.settings());
    let (mut restored, mut over) = (0, 0);
    for line in lines {
        let Some((v6, v4, idle)) = parse(&line?) else { continue };
        let idle = idle.saturating_add(since);
        let fits = settings.dynamic4.as_ref().is_some_and(|pool| pool.contains(v4));
        if !fits || idle >= settings.lifetimes.dynamic4 {
            over += 1;
            continue;
        }
        match nat64.put_dynamic4(v6, v4, idle, now) {
            Ok(()) => restored += 1,
            // Tables that have outlived a daemon know better than the file.
            Err(BibError::Taken(_) | BibError::Bound(_)) => {}
            Err(_) => over += 1,
        }
    }
    info!("{name}: {restored} mappings of {} are restored, {over} have expired", path.display());
    Ok(())
}

fn parse(line: &str) -> Option<Mapping> {
    let mut words = line.split(' ');
    let (v6, v4) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let idle = Duration::from_secs(words.next()?.parse().ok()?);
    words.next().is_none().then_some((v6, v4, idle))
}

#[cfg(test)]
mod tests {
    use fordway_xlat::nat64::{Dynamic4, Heap, Settings, Sizes};
    use tempfile::TempDir;

    use super::*;

    fn nat64(pool: &str) -> Arc<Nat64> {
        let sizes = Sizes { bibs: 100, sessions: 1, subscribers: 1 };
        let pool = vec![pool.parse().unwrap()];
        let dynamic4 = Some(Dynamic4 { pool, clients: Vec::new() });
        let settings = Settings { dynamic4, sizes, ..Settings::default() };
        Arc::new(Nat64::new(settings, Arc::new(Heap::new(&sizes, [1, 2]))).unwrap())
    }

    fn pairs(nat64: &Nat64) -> Vec<(String, String)> {
        let mut pairs: Vec<_> =
            mappings(nat64).iter().map(|(v6, v4, _)| (v6.to_string(), v4.to_string())).collect();
        pairs.sort();
        pairs
    }

    fn put(nat64: &Nat64, v6: &str, v4: &str) {
        let (v6, v4) = (v6.parse().unwrap(), v4.parse().unwrap());
        nat64.put_dynamic4(v6, v4, Duration::ZERO, monotonic()).unwrap();
    }

    #[test]
    fn mappings_survive_a_restart() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("folder/siit0.dynamic4");
        let before = nat64("192.0.2.0/24");
        let keeper = MappingWriter::start("siit0", &path, &before).unwrap();
        put(&before, "2001:db8::5", "192.0.2.7");
        put(&before, "2001:db8::6", "192.0.2.200");
        drop(keeper);
        let after = nat64("192.0.2.0/24");
        let keeper = MappingWriter::start("siit0", &path, &after).unwrap();
        assert_eq!(pairs(&after), pairs(&before));
        assert_eq!(pairs(&after).len(), 2);
        drop(keeper);
        // A smaller pool has no place for one of them.
        let smaller = nat64("192.0.2.0/25");
        let _keeper = MappingWriter::start("siit0", &path, &smaller).unwrap();
        assert_eq!(pairs(&smaller), [("2001:db8::5".to_owned(), "192.0.2.7".to_owned())]);
    }

    #[test]
    fn what_is_too_old_or_malformed_is_left_out() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("siit0.dynamic4");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let text = format!(
            "{HEAD}{}\n2001:db8::5 192.0.2.7 0\n2001:db8::6 192.0.2.8 7435\nnonsense\n\
             2001:db8::7 192.0.2.9\n2001:db8::8 192.0.2.10 1 2\n2001:db8::9 192.0.2.7 0\n",
            now - 10
        );
        std::fs::write(&path, text).unwrap();
        let nat64 = nat64("192.0.2.0/24");
        restore("siit0", &path, &nat64).unwrap();
        assert_eq!(pairs(&nat64), [("2001:db8::5".to_owned(), "192.0.2.7".to_owned())]);
        let (_, _, idle) = mappings(&nat64)[0];
        assert!(idle >= Duration::from_secs(9), "{idle:?}");
    }

    #[test]
    fn what_could_not_be_written_is_written_later_and_leaves_nothing() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("siit0.dynamic4");
        let mapping =
            ("2001:db8::5".parse().unwrap(), "192.0.2.7".parse().unwrap(), Duration::ZERO);
        let mut kept = Kept { path: path.clone(), mappings: None };
        // A folder in the place of the file.
        std::fs::create_dir(&path).unwrap();
        assert!(kept.update(vec![mapping]).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        std::fs::remove_dir(&path).unwrap();
        kept.update(vec![mapping]).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().contains("2001:db8::5 192.0.2.7 0"));
    }

    #[test]
    fn a_file_of_something_else_is_taken_for_nothing() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("siit0.dynamic4");
        std::fs::write(&path, "dear all\n").unwrap();
        let nat64 = nat64("192.0.2.0/24");
        restore("siit0", &path, &nat64).unwrap();
        assert!(pairs(&nat64).is_empty());
    }
}
