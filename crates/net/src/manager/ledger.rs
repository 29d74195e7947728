//! The file that records all changes in a network namespace.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::change::Change;
use super::view::View;
use crate::folder::Folder;
use crate::lock::{BriefLock, ProcessLock};
use crate::{Error, NamespaceId, Result, SysctlKey};

/// Version of the file's form. Only a form that earlier programs can't go on with gets another: what they don't know
/// they leave as it is.
const VERSION: u32 = 1;

/// All changes in a network namespace, in the order in which they were made.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    /// The kernel's number of this run of the host. Whatever was recorded in another is gone.
    boot: String,
    pub(super) entries: Vec<Entry>,
    /// Where the change about each thing stands among the entries.
    places: HashMap<String, usize>,
    /// Owners whose changes are in use although their process has ended.
    pub(super) kept: BTreeSet<String>,
    /// By which control socket the process was reached that left them.
    pub(super) homes: BTreeMap<String, String>,
    /// Entries that another version of this program has made, and that this one can't read: it leaves them as they
    /// are.
    foreign: Vec<Value>,
    /// Fields of the ledger that another version of this program has added.
    more: Map<String, Value>,
    /// Whether [`Ledger::save`] brings it to disk; else [`sync`] does.
    pub(super) synced: bool,
}

/// The file.
#[derive(Serialize, Deserialize)]
struct File {
    version: u32,
    boot: String,
    entries: Vec<Value>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    kept: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    homes: BTreeMap<String, String>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

/// One change, and how to undo it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Its owners. If there are none, it is struck out, and gone with the next save.
    pub(super) owners: Vec<String>,
    pub(super) change: Change,
    /// What was in force before, while one value takes the place of another: a process that is killed then may have
    /// left either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) earlier: Option<Change>,
    /// Index of the interface that the change vanishes with.
    pub(super) ifindex: Option<u32>,
    pub(super) undo: Undo,
    /// What another version of this program has noted.
    #[serde(flatten)]
    pub(super) more: Map<String, Value>,
}

impl Entry {
    pub(super) fn has(&self, owner: &str) -> bool {
        self.owners.iter().any(|name| name == owner)
    }

    /// The changes that this program may have left in force, the one that is wanted first.
    pub(super) fn left(&self) -> impl Iterator<Item = &Change> {
        std::iter::once(&self.change).chain(&self.earlier)
    }
}

/// How to undo a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "undo", rename_all = "snake_case")]
pub(super) enum Undo {
    /// Remove what was added.
    Delete,
    /// Set the interface down.
    Down,
    /// Set the former MTU.
    Mtu { mtu: u32 },
    /// Set the former queue length.
    QueueLength { length: u32 },
    /// Let the interface take part in multicast.
    Multicast,
    /// Put the interface back into the former group.
    Group { group: u32 },
    /// Remove the rule, and make sure that the kernel's own rule for the local table is there, with its maker.
    EarlyRule {
        /// Who made it; none if there was no such rule.
        local: Option<u8>,
    },
    /// Write the former value, and then these settings, which writing it overwrites.
    Sysctl {
        value: String,
        overwritten: Vec<(SysctlKey, String)>,
        /// Of forwarding: who saw forwarded packets then.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        forwards: BTreeSet<String>,
    },
}

impl Ledger {
    /// Reads the ledger in `dir`; without one, or with one from before the host's last start, an empty one. A file
    /// without a single octet is of a host that has lost power before the content came to disk.
    pub(super) fn load(dir: &Path) -> Result<Self> {
        Self::load_again(dir, &mut None)
    }

    /// As [`Ledger::load`], with what was read `before`, which is the ledger still if no octet of the file has changed.
    pub(super) fn load_again(dir: &Path, before: &mut Option<(Vec<u8>, Self)>) -> Result<Self> {
        let path = dir.join(FILE);
        let folder = folder(dir)?;
        let mut text = Vec::new();
        let read = folder.open_file(FILE.as_ref()).and_then(|mut it| it.read_to_end(&mut text));
        match read {
            Ok(1..) => {}
            Ok(0) => return Ok(Self::empty(boot_id()?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self::empty(boot_id()?));
            }
            Err(error) => return Err(Error::file("read", path)(error)),
        }
        if let Some((_, ledger)) = before.as_ref().filter(|(known, _)| *known == text) {
            return Ok(ledger.clone());
        }
        let ledger = Self::parse(&text, &path)?;
        *before = Some((text, ledger.clone()));
        Ok(ledger)
    }

    fn parse(text: &[u8], path: &Path) -> Result<Self> {
        let boot = boot_id()?;
        let damaged = |reason: String| Error::Ledger { path: path.to_owned(), reason };
        let file: File =
            serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
        if file.version != VERSION {
            return Err(damaged(format!("version {}", file.version)));
        }
        if file.boot != boot {
            return Ok(Self::empty(boot));
        }
        let mut ledger =
            Self { kept: file.kept, homes: file.homes, more: file.more, ..Self::empty(boot) };
        for value in file.entries {
            match Entry::deserialize(&value) {
                Ok(entry) if entry.owners.is_empty() => {
                    return Err(damaged("a change without an owner".to_owned()));
                }
                Ok(entry) => ledger.push(entry),
                Err(_) if is_entry(&value) => ledger.foreign.push(value),
                Err(error) => return Err(damaged(error.to_string())),
            }
        }
        Ok(ledger)
    }

    fn empty(boot: String) -> Self {
        Self {
            boot,
            entries: Vec::new(),
            places: HashMap::new(),
            kept: BTreeSet::new(),
            homes: BTreeMap::new(),
            foreign: Vec::new(),
            more: Map::new(),
            synced: true,
        }
    }

    /// Writes the ledger, without what was struck out: at any time either the old or the new one is there as
    /// a whole, whatever happens. One that records nothing is removed, for which a full disk has room, too.
    pub(super) fn save(&mut self, dir: &Path) -> Result<()> {
        let before = self.entries.len();
        self.entries.retain(|entry| !entry.owners.is_empty());
        if self.entries.len() < before {
            let places = self.entries.iter().enumerate();
            self.places = places.map(|(at, entry)| (entry.change.key(), at)).collect();
        }
        let (path, folder) = (dir.join(FILE), folder(dir)?);
        if self.entries.is_empty() && self.kept.is_empty() && self.foreign.is_empty() {
            // What a full disk has left of it.
            let _ = folder.remove(DRAFT.as_ref());
            return folder.remove(FILE.as_ref()).map_err(Error::file("remove", &path));
        }
        let failed = |error: serde_json::Error| Error::Ledger {
            path: path.clone(),
            reason: error.to_string(),
        };
        let entries = self.entries.iter().map(serde_json::to_value);
        let mut entries: Vec<Value> = entries.collect::<Result<_, _>>().map_err(failed)?;
        entries.extend(self.foreign.iter().cloned());
        let (boot, kept, homes) = (self.boot.clone(), self.kept.clone(), self.homes.clone());
        let more = self.more.clone();
        let file = File { version: VERSION, boot, entries, kept, homes, more };
        let mut text = serde_json::to_vec_pretty(&file).map_err(failed)?;
        text.push(b'\n');
        let written = folder.make_file(DRAFT.as_ref()).and_then(|mut file| {
            file.write_all(&text)?;
            if self.synced { file.sync_all() } else { Ok(()) }
        });
        written.map_err(Error::file("write", dir.join(DRAFT)))?;
        // The directory is not synced: should the host lose power, either file is void at its next start, so long as
        // it is whole.
        folder.rename(DRAFT.as_ref(), FILE.as_ref()).map_err(Error::file("replace", &path))
    }

    /// Where the change about a thing stands.
    pub(super) fn position(&self, key: &str) -> Option<usize> {
        self.places.get(key).copied()
    }

    /// Adds an entry, whose thing has none.
    pub(super) fn push(&mut self, entry: Entry) {
        self.places.insert(entry.change.key(), self.entries.len());
        self.entries.push(entry);
    }

    /// Strikes an entry out.
    pub(super) fn strike(&mut self, position: usize) {
        let entry = &mut self.entries[position];
        entry.owners.clear();
        self.places.remove(&entry.change.key());
    }

    /// Gives changes the names that their interfaces have now: one that was renamed has kept what was changed on it.
    /// Whether there was any.
    pub(super) fn rename(&mut self, view: &mut View<'_>) -> Result<bool> {
        let mut renamed = false;
        for (at, entry) in self.entries.iter_mut().enumerate() {
            let (Some(device), Some(index)) = (entry.change.device(), entry.ifindex) else {
                continue;
            };
            if entry.owners.is_empty()
                || view.find_link(device)?.is_some_and(|it| it.index == index)
            {
                continue;
            }
            let Some(name) = view.link_name(index)? else { continue };
            let change = entry.change.on(name);
            let (before, after) = (entry.change.key(), change.key());
            if before != after {
                if self.places.contains_key(&after) {
                    // Of the interface that had the name before, and that has gone or was renamed, too.
                    continue;
                }
                self.places.remove(&before);
                self.places.insert(after, at);
            }
            entry.earlier = entry.earlier.as_ref().map(|earlier| earlier.on(name));
            entry.change = change;
            renamed = true;
        }
        Ok(renamed)
    }

    /// Gives all that belongs to one owner to another.
    pub(super) fn give(&mut self, from: &str, to: &str) {
        for entry in &mut self.entries {
            let had = entry.has(to);
            entry.owners.retain(|owner| !(had && owner == from));
            entry.owners.iter_mut().filter(|owner| *owner == from).for_each(|it| to.clone_into(it));
        }
        for value in &mut self.foreign {
            let owners = value.get_mut("owners").and_then(Value::as_array_mut);
            let owners = owners.into_iter().flatten().filter(|owner| *owner == from);
            owners.for_each(|owner| *owner = Value::from(to));
        }
        if self.kept.remove(from) {
            self.kept.insert(to.to_owned());
        }
        if let Some(home) = self.homes.remove(from) {
            self.homes.insert(to.to_owned(), home);
        }
    }

    /// The owners of all changes, also of those that can't be read; an owner of several comes several times.
    pub(super) fn owners(&self) -> impl Iterator<Item = String> {
        let known = self.entries.iter().flat_map(|entry| entry.owners.iter().cloned());
        known.chain(self.foreign.iter().flat_map(|value| owners(value).map(str::to_owned)))
    }

    /// How many changes of `owner` another version of this program has made, which this one can't read.
    pub(super) fn foreign(&self, owner: &str) -> usize {
        self.foreign.iter().filter(|value| owners(value).any(|name| name == owner)).count()
    }
}

/// Whether a value is an entry, though perhaps of a kind that is not known here: it has an owner.
fn is_entry(value: &Value) -> bool {
    value.get("change").is_some() && value.get("undo").is_some() && owners(value).next().is_some()
}

fn owners(value: &Value) -> impl Iterator<Item = &str> {
    value.get("owners").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

const FILE: &str = "ledger.json";
const DRAFT: &str = "ledger.json.new";
const LOCK: &str = "ledger.lock";

/// The folder of a network namespace's ledger.
pub(super) fn directory(run_dir: &Path, namespace: NamespaceId) -> PathBuf {
    run_dir.join("net").join(namespace.to_string())
}

/// Makes the folder, and those above it, if need be.
pub(super) fn make_directory(run_dir: &Path, dir: &Path) -> Result<()> {
    let run = || {
        // A link to a run directory elsewhere is the administrator's.
        let (Some(parent), Some(name), false) =
            (run_dir.parent(), run_dir.file_name(), run_dir.is_symlink())
        else {
            return Folder::open(run_dir);
        };
        if !parent.as_os_str().is_empty() {
            DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
        }
        Folder::open(parent)?.make(name, 0o755)
    };
    let mut folder = run().map_err(Error::file("make", run_dir))?;
    for name in below(run_dir, dir) {
        let made = folder.make(name, 0o700);
        folder = made.map_err(Error::file("make", folder.path().join(name)))?;
    }
    Ok(())
}

/// Opens the folder of a ledger.
fn folder(dir: &Path) -> Result<Folder> {
    let run_dir = dir.ancestors().nth(2).unwrap_or(dir);
    let mut folder = Folder::open(run_dir);
    for name in below(run_dir, dir) {
        folder = folder.and_then(|it| it.enter(name));
    }
    folder.map_err(Error::file("open", dir))
}

/// The names of the folders from the run directory to the ledger's.
fn below<'a>(run_dir: &Path, dir: &'a Path) -> impl Iterator<Item = &'a OsStr> {
    dir.strip_prefix(run_dir).into_iter().flatten()
}

/// Locks the ledger in `dir`.
pub(super) fn lock(dir: &Path) -> Result<BriefLock> {
    BriefLock::acquire_in(&folder(dir)?, LOCK.as_ref())
}

/// Locks an owner of changes for this process.
pub(super) fn lock_owner(dir: &Path, owner: &str) -> Result<ProcessLock> {
    ProcessLock::acquire_in(folder(dir)?, format!("{owner}.owner").as_ref())
}

/// Removes the folder if it records nothing and no other process is at work in it. Whatever keeps it from being removed is
/// no error: the next one tries again.
pub(super) fn remove_if_void(dir: &Path) {
    let (Ok(_guard), Ok(folder)) = (lock(dir), folder(dir)) else { return };
    if !dir.join(FILE).exists() {
        // A process that waits for the lock then finds that its file has been removed.
        let _ = folder.remove(LOCK.as_ref());
        let _ = fs::remove_dir(dir);
    }
}

/// Removes folders of network namespaces that are no more: those whose inode this one has now. What was changed in
/// them is gone with them.
pub(super) fn remove_dead(run_dir: &Path, namespace: NamespaceId) {
    if namespace.cookie.is_none() {
        return;
    }
    let (own, inode) = (namespace.to_string(), format!("{}-", namespace.inode));
    let Ok(entries) = fs::read_dir(run_dir.join("net")) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name != own && name.starts_with(&inode) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Brings to disk what [`Ledger::save`] has only written.
pub(super) fn sync(dir: &Path) -> Result<()> {
    match folder(dir)?.open_file(FILE.as_ref()).and_then(|file| file.sync_all()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::file("write", dir.join(FILE))(error))
        }
        _ => Ok(()),
    }
}

fn boot_id() -> Result<String> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let text = fs::read_to_string(PATH).map_err(Error::file("read", PATH))?;
    Ok(text.trim().to_owned())
}
