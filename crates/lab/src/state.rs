//! What a run must undo, kept in a file so that a crash loses nothing.
//!
//! Each run writes `<id>.json` into the folder of notes ([`notes`]) with its process id and the prefix of its
//! namespace names. Whoever comes later and finds the owner dead removes the namespaces and puts back the clock
//! source, the limits of connection tracking, and where interrupts go.

mod down;
mod pins;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use fordway_data::files::write_file;
use serde::{Deserialize, Serialize};

use crate::error::{LabError, Result};
use crate::host::clocksource;
use crate::host::conntrack::Limits;
use crate::process::{run_str, signal};
use down::take_down;

pub(crate) use down::Down;

/// Names the folder of notes; without it, it is the first of [`NOTES`] that is in memory, as `/run` is on most hosts: what
/// mechanisms write there must not wait for a disk that they would not have.
const NOTES_VARIABLE: &str = "FORDWAY_LAB_RUN";
const NOTES: [(&str, &str); 2] =
    [("/run", "/run/fordway-lab"), ("/dev/shm", "/dev/shm/fordway-lab")];
const NETNS_DIR: &str = "/run/netns";
/// How long a killed process may take to go.
const GOING: Duration = Duration::from_secs(2);

/// Where runs note what they must undo, and keep sockets and files while they last. Runs see the notes of the same
/// folder alone: what another folder's runs have left is not theirs to remove.
pub(crate) fn notes() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let told = std::env::var_os(NOTES_VARIABLE).filter(|told| !told.is_empty());
        let told = told.map_or_else(|| PathBuf::from(default_notes()), PathBuf::from);
        // Programs look for their files from folders of their own.
        std::path::absolute(&told).unwrap_or(told)
    });
    &FOLDER
}

fn default_notes() -> &'static str {
    // TMPFS_MAGIC (statfs(2)).
    let in_memory = |(root, _): &&(&str, &str)| {
        rustix::fs::statfs(*root).is_ok_and(|it| it.f_type == 0x0102_1994)
    };
    NOTES.iter().find(in_memory).unwrap_or(&NOTES[0]).1
}

/// What the lab's end on another host is started with, so that its folder of notes has the same path.
pub(crate) fn environment() -> Vec<String> {
    vec!["env".to_owned(), format!("{NOTES_VARIABLE}={}", notes().display())]
}

/// The record of one run that changes the machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    /// Random, in every namespace's name.
    pub(crate) id: String,
    /// The lab's process.
    pub(crate) pid: u32,
    /// Start of that process in clock ticks since boot; tells a reused id apart.
    pub(crate) started_ticks: u64,
    /// The clock source to go back to, when the run switches it.
    pub(crate) clocksource: Option<String>,
    /// The limits of connection tracking to go back to, when the run raised them.
    #[serde(default)]
    pub(crate) conntrack: Option<Limits>,
    /// Files of the kernel to write back, with what they held, in the order in which the run wrote them.
    #[serde(default)]
    pub(crate) settings: Vec<(PathBuf, String)>,
    /// Folder of the run.
    pub(crate) out: PathBuf,
}

/// Owns the state of this run; dropping it cleans up.
#[derive(Debug)]
pub(crate) struct Guard {
    state: State,
}

impl Guard {
    /// Registers a run.
    pub(crate) fn new(out: &Path) -> Result<Self> {
        Self::of_id(&free_id(), out)
    }

    /// Registers a run under an id that was chosen elsewhere, for all of its hosts.
    pub(crate) fn of_id(id: &str, out: &Path) -> Result<Self> {
        let plain = !id.is_empty() && id.chars().all(|c| c.is_ascii_hexdigit());
        if !plain || taken(id) {
            return Err(LabError::Usage(format!("a run of id {id} is there already")));
        }
        let pid = std::process::id();
        let started_ticks = start_ticks(pid).unwrap_or(0);
        let (id, out) = (id.to_owned(), out.to_path_buf());
        let (clocksource, conntrack, settings) = (None, None, Vec::new());
        let state = State { id, pid, started_ticks, clocksource, conntrack, settings, out };
        let guard = Self { state };
        guard.save()?;
        Ok(guard)
    }

    /// Prefix of the names of this run's namespaces.
    pub(crate) fn prefix(&self) -> String {
        prefix(&self.state.id)
    }

    /// A folder of this run that goes when the run does.
    pub(crate) fn folder(&self) -> PathBuf {
        folder_of(&self.state.id)
    }

    /// Switches the clock source; the first switch remembers what to go back to.
    pub(crate) fn switch_clocksource(&mut self, name: &str) -> Result<()> {
        if self.state.clocksource.is_none() {
            self.state.clocksource = Some(clocksource::current()?);
            self.save()?;
        }
        clocksource::switch(name)
    }

    /// Makes room for so many tracked connections in one namespace, where that is more than the run found, in place of earlier
    /// room; the limits in force, where the kernel tracks connections. What cannot be set is said and left as it is: then some flows
    /// of a later load are lost, and its trial says so.
    pub(crate) fn limit_conntrack(&mut self, connections: u64) -> Result<Option<Limits>> {
        let Some(own) = Limits::read() else { return Ok(None) };
        let (found, wanted) = Limits::of_run(self.state.conntrack, own, connections);
        if wanted == own {
            return Ok(Some(own));
        }
        self.state.conntrack = Some(found);
        self.save()?;
        if let Err(error) = wanted.set() {
            crate::note!(
                "  warning   connection tracking keeps its limit of {} connections: {error}",
                own.max
            );
        }
        Ok(Limits::read())
    }

    /// Writes files of the kernel, each of which holds one setting; what they held is noted before.
    pub(crate) fn set(&mut self, wanted: &[(PathBuf, String)]) -> Result<()> {
        let old = |(path, _): &(PathBuf, String)| -> Result<(PathBuf, String)> {
            let was = std::fs::read_to_string(path).map_err(LabError::file(path))?;
            Ok((path.clone(), was.trim().to_owned()))
        };
        let known = |path: &Path| self.state.settings.iter().any(|(own, _)| own == path);
        let new = wanted.iter().filter(|(path, _)| !known(path)).map(old);
        let new: Vec<(PathBuf, String)> = new.collect::<Result<_>>()?;
        self.state.settings.extend(new);
        self.save()?;
        for (path, text) in wanted {
            std::fs::write(path, text).map_err(|error| {
                LabError::Usage(format!(
                    "{} does not take {text} ({error}): the kernel or the driver forbids it; leave it out of --pin",
                    path.display()
                ))
            })?;
        }
        Ok(())
    }

    fn save(&self) -> Result<()> {
        let text = serde_json::to_vec_pretty(&self.state).unwrap_or_default();
        // A file that is cut short would leave everything behind: it is whole, or as it was before.
        let (path, new) = (file_of(&self.state.id), new_file_of(&self.state.id));
        write_file(&new, &text)?;
        std::fs::rename(&new, &path).map_err(LabError::file(path))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        undo(&self.state);
    }
}

/// Runs whose process is gone but whose namespaces or clock source may remain.
pub(crate) fn orphans() -> Vec<State> {
    noted().into_iter().filter(|state| !state.lives()).collect()
}

/// Runs of other processes that go on now.
pub(crate) fn others() -> Vec<State> {
    let own = std::process::id();
    noted().into_iter().filter(|state| state.lives() && state.pid != own).collect()
}

fn noted() -> Vec<State> {
    let Ok(entries) = std::fs::read_dir(notes()) else { return Vec::new() };
    entries
        .filter_map(|entry| std::fs::read(entry.ok()?.path()).ok())
        .filter_map(|bytes| serde_json::from_slice(&bytes).ok())
        .collect()
}

impl State {
    /// Its namespaces that exist now.
    pub(crate) fn namespaces(&self) -> Vec<String> {
        let mut all = namespaces(&prefix(&self.id));
        all.sort();
        all
    }

    fn lives(&self) -> bool {
        start_ticks(self.pid) == Some(self.started_ticks)
    }
}

/// Undoes what a run left; returns the names of the namespaces it removed.
pub(crate) fn undo(state: &State) -> Vec<String> {
    let mut whole = true;
    if let Some(name) = &state.clocksource
        && let Err(error) = clocksource::switch(name)
    {
        whole = false;
        crate::note!("fordway-lab: cannot put the clock source back to {name}: {error}");
    }
    for (path, was) in state.settings.iter().rev() {
        // A device that is gone has taken its settings along.
        if let Err(error) = std::fs::write(path, was)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            whole = false;
            crate::note!("fordway-lab: cannot put {} back to {was}: {error}", path.display());
        }
    }
    for folder in run_dirs(&prefix(&state.id)) {
        take_down(&folder);
    }
    let mut removed = Vec::new();
    for name in namespaces(&prefix(&state.id)) {
        if remove_namespace(&name).is_ok() {
            removed.push(name);
        }
    }
    if let Some(limits) = state.conntrack
        && let Err(error) = limits.set()
    {
        whole = false;
        crate::note!("fordway-lab: cannot put the limits of connection tracking back: {error}");
    }
    remove_run_dirs(&prefix(&state.id));
    // Keep the file while anything is left, so that the next run tries again.
    if whole && namespaces(&prefix(&state.id)).is_empty() {
        let _ = std::fs::remove_file(new_file_of(&state.id));
        let _ = std::fs::remove_file(file_of(&state.id));
    }
    removed
}

/// Removes one namespace of the lab, what still runs in it, and what outlived its processes.
pub(crate) fn remove_namespace(name: &str) -> Result<()> {
    let deadline = Instant::now() + GOING;
    loop {
        let said = run_str(&["ip", "netns", "pids", name]).map(|f| f.stdout).unwrap_or_default();
        let pids: Vec<u32> = said.split_whitespace().filter_map(|p| p.parse().ok()).collect();
        for pid in &pids {
            signal(*pid, rustix::process::Signal::KILL);
        }
        if pids.is_empty() || Instant::now() > deadline {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    pins::forget(&Path::new(NETNS_DIR).join(name));
    run_str(&["ip", "netns", "del", name])?.ok().map(|_| ())
}

/// Names of existing namespaces that begin with `prefix`.
pub(crate) fn namespaces(prefix: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(NETNS_DIR) else { return Vec::new() };
    entries
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .collect()
}

/// Removes folders that mechanisms of a run used for locks and sockets.
fn remove_run_dirs(prefix: &str) {
    for folder in run_dirs(prefix) {
        let _ = std::fs::remove_dir_all(folder);
    }
}

fn run_dirs(prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(notes()) else { return Vec::new() };
    let own = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(prefix);
    entries.filter_map(std::result::Result::ok).filter(own).map(|entry| entry.path()).collect()
}

/// The folder of a run that goes when the run does.
pub(crate) fn folder_of(id: &str) -> PathBuf {
    notes().join(format!("{}files", prefix(id)))
}

/// An id that no run of this machine has.
pub(crate) fn free_id() -> String {
    let new_id = || format!("{:06x}", rand::random::<u32>() & 0xff_ffff);
    std::iter::repeat_with(new_id).find(|id| !taken(id)).unwrap_or_default()
}

fn taken(id: &str) -> bool {
    file_of(id).exists() || !namespaces(&prefix(id)).is_empty()
}

fn prefix(id: &str) -> String {
    format!("fwlab-{id}-")
}

fn file_of(id: &str) -> PathBuf {
    notes().join(format!("{id}.json"))
}

/// What becomes the file.
fn new_file_of(id: &str) -> PathBuf {
    file_of(id).with_extension("new")
}

/// Field 22 of /proc/PID/stat; `None` when there is no such process.
fn start_ticks(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name may hold spaces and parentheses: fields count from the last one.
    let after = text.rsplit_once(')')?.1;
    after.split_whitespace().nth(19)?.parse().ok()
}

/// Whether this process may make namespaces.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The error for commands that need root.
pub(crate) fn need_root() -> Result<()> {
    if is_root() {
        return Ok(());
    }
    Err(LabError::Missing(
        "this needs root, to make network namespaces; run it again with sudo".into(),
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn own_start_time_is_stable_and_a_dead_process_has_none() {
        let own = std::process::id();
        assert!(start_ticks(own).is_some());
        assert_eq!(start_ticks(own), start_ticks(own));
        assert_eq!(start_ticks(u32::MAX), None);
    }

    #[test]
    fn with_a_namespace_goes_what_was_pinned_for_it() {
        if !fordway_testhost::is_root() {
            return;
        }
        let name = format!("fwlab-test-{:x}", rand::random::<u32>());
        run_str(&["ip", "netns", "add", &name]).unwrap().ok().unwrap();
        let inode = std::fs::metadata(Path::new(NETNS_DIR).join(&name)).unwrap().ino();
        let folder = Path::new("/sys/fs/bpf/fordway").join(format!("{inode}-4711"));
        if std::fs::create_dir_all(folder.join("clat0")).is_err() {
            run_str(&["ip", "netns", "del", &name]).unwrap().ok().unwrap();
            fordway_testhost::skip("no BPF file system in /sys/fs/bpf");
            return;
        }
        remove_namespace(&name).unwrap();
        assert!(!folder.exists(), "{}", folder.display());
        assert!(namespaces(&name).is_empty());
    }

    #[test]
    fn settings_are_put_back_by_the_run_or_by_whoever_finds_it_dead() {
        if !fordway_testhost::is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        for name in ["a", "b"] {
            std::fs::write(file(name), "0-1\n").unwrap();
        }
        let read = || ["a", "b"].map(|name| std::fs::read_to_string(file(name)).unwrap());
        let mut guard = Guard::new(Path::new("/a")).unwrap();
        let to = |name: &str, text: &str| (file(name), text.to_owned());
        guard.set(&[to("a", "0"), to("b", "1")]).unwrap();
        guard.set(&[to("a", "1")]).unwrap();
        assert_eq!(read(), ["1", "1"]);
        // As one who finds the file of a run that was killed.
        let noted = std::fs::read(file_of(&guard.state.id)).unwrap();
        undo(&serde_json::from_slice(&noted).unwrap());
        assert_eq!(read(), ["0-1", "0-1"]);
        std::fs::write(file("a"), "1").unwrap();
        drop(guard);
        assert_eq!(read()[0], "0-1");
        let mut guard = Guard::new(Path::new("/a")).unwrap();
        assert!(guard.set(&[to("gone", "0")]).is_err());
    }

    #[test]
    fn a_run_is_noted_whole_and_apart_from_others() {
        if !fordway_testhost::is_root() {
            return;
        }
        let (one, other) =
            (Guard::new(Path::new("/a")).unwrap(), Guard::new(Path::new("/b")).unwrap());
        assert_ne!(one.prefix(), other.prefix());
        let bytes = std::fs::read(file_of(&one.state.id)).unwrap();
        let read: State = serde_json::from_slice(&bytes).unwrap();
        assert!(read.lives() && read.out == Path::new("/a"));
        assert!(!new_file_of(&one.state.id).exists());
        assert!(orphans().iter().all(|o| o.id != one.state.id), "its process lives");
        assert!(others().iter().all(|o| o.id != one.state.id), "it is this process's own");
        let file = file_of(&one.state.id);
        drop(one);
        assert!(!file.exists());
    }
}
