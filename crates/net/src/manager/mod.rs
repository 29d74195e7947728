//! Changes to the host that are undone at the end.
//!
//! An owner describes the host as a list of changes. [`Manager::reconcile`] makes the missing ones and undoes those
//! that are no longer in the list. [`Manager::missing`] tells cheaply whether there is something to do.
//!
//! All owners in a network namespace share one ledger: a JSON file that is written to disk before changes are made,
//! once for a whole list. For each change it records the owners and the state before it. When the last owner gives a
//! change up, the change is undone, but only if the host is still as this program left it.

mod batch;
mod change;
mod early;
mod effect;
mod ledger;
mod others;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::lock::{BriefLock, ProcessLock};
use crate::{Error, NamespaceId, Netlink, Result};

pub use batch::Reconciled;
pub use change::Change;
use ledger::{Entry, Ledger};
pub use others::rules_for_forwarded;
pub use view::View;

/// What came of [`Manager::apply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The change was made.
    Made,
    /// It had been so before this program touched the host; it stays so afterwards.
    Present,
    /// Another owner had made it; it stays until the last of both gives it up.
    Shared,
    /// This owner had made it, perhaps in an earlier life.
    Kept,
}

/// What came of undoing changes.
#[derive(Debug, Default)]
#[must_use]
pub struct Report {
    /// Undone.
    pub undone: Vec<Change>,
    /// Given up, but needed by another owner and therefore left.
    pub shared: Vec<Change>,
    /// Left as they are, since they no longer look as this program left them: the change and what was found.
    pub left: Vec<(Change, String)>,
    /// Could not be undone; they stay in the ledger for another attempt.
    pub failed: Vec<(Change, Error)>,
    /// How many another version of this program has made that this one does not know: they are left to that one.
    pub foreign: usize,
}

impl Report {
    /// Whether nothing was there to undo.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.undone.is_empty()
            && self.shared.is_empty()
            && self.left.is_empty()
            && self.failed.is_empty()
            && self.foreign == 0
    }
}

impl fmt::Display for Report {
    /// One phrase for a log line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} changes taken back", self.undone.len())?;
        if !self.shared.is_empty() {
            write!(f, ", {} left for others", self.shared.len())?;
        }
        for (change, found) in &self.left {
            write!(f, "; left alone: {change} ({found})")?;
        }
        for (change, error) in &self.failed {
            write!(f, "; failed: {change} ({error})")?;
        }
        if self.foreign > 0 {
            write!(f, "; {} left to the version that made them", self.foreign)?;
        }
        Ok(())
    }
}

/// Makes changes to one network namespace on behalf of one owner, and undoes exactly these.
///
/// An owner is a translator's name. While a manager exists, no other process can be the same owner. Dropping a
/// manager undoes nothing. [`Manager::restore`] does; after a crash the owner's next manager finds all changes in the
/// ledger, and either calls [`Manager::restore`], or [`Manager::reconcile`] with the list of what it needs, which
/// keeps the changes in the list and undoes the others.
///
/// Must be used in the network namespace that it was opened in.
#[derive(Debug)]
pub struct Manager {
    owner: String,
    namespace: NamespaceId,
    dir: PathBuf,
    netlink: Netlink,
    /// Whether an earlier life has left changes.
    inherited: bool,
    /// Owners from whom is taken over what only one can have, and what of it they keep, by [`Change::key`].
    yielding: BTreeMap<String, BTreeSet<String>>,
    /// The ledger is brought to disk by [`Manager::reconcile`]: [`Manager::apply_once`] has not.
    unsynced: bool,
    /// The ledger as it was read last, and its text: reading it again would take most of the time of a change.
    read: Option<(Vec<u8>, Ledger)>,
    /// None only at the end.
    lock: Option<ProcessLock>,
}

impl Manager {
    /// Becomes `owner` in the calling thread's network namespace.
    ///
    /// The state is in `run_dir`, in a folder `net`.
    ///
    /// # Errors
    ///
    /// [`Error::OwnerName`]; [`Error::OwnerRunning`]; [`Error::File`] if the state cannot be written;
    /// [`Error::Ledger`] if it is damaged.
    pub fn open(run_dir: &Path, owner: &str) -> Result<Self> {
        check_owner(owner)?;
        let namespace = NamespaceId::current()?;
        let dir = ledger::directory(run_dir, namespace);
        let lock = loop {
            let made = ledger::make_directory(run_dir, &dir);
            match made.and_then(|()| lock(&dir, owner)) {
                // The last process that used the folder has just removed it.
                Err(error) if error.errno() == Some(libc::ENOENT) => {}
                locked => break locked?,
            }
        };
        ledger::remove_dead(run_dir, namespace);
        let mut manager = Self {
            owner: owner.to_owned(),
            namespace,
            dir,
            netlink: Netlink::open()?,
            inherited: false,
            yielding: BTreeMap::new(),
            unsynced: false,
            read: None,
            lock: Some(lock),
        };
        let (_guard, ledger) = manager.ledger()?;
        manager.inherited = ledger.entries.iter().any(|entry| entry.has(owner));
        Ok(manager)
    }

    /// Becomes another owner, to whom all changes of this one belong from then on.
    ///
    /// # Errors
    ///
    /// As [`Manager::open`]; then it is the owner that it was.
    pub fn rename(&mut self, owner: &str) -> Result<()> {
        if owner == self.owner {
            return Ok(());
        }
        check_owner(owner)?;
        let lock = lock(&self.dir, owner)?;
        let (_guard, mut ledger) = self.ledger()?;
        ledger.give(&self.owner, owner);
        ledger.save(&self.dir)?;
        owner.clone_into(&mut self.owner);
        self.lock = Some(lock);
        Ok(())
    }

    /// From now on takes over what one of these owners has and only one can have, such as a route to a network, in the
    /// place of [`Error::Conflict`]; but not the changes that stand beside an owner.
    pub fn take_over_from<'a, T>(&mut self, owners: T)
    where
        T: IntoIterator<Item = (String, &'a [Change])>,
    {
        let keys = |kept: &[Change]| kept.iter().map(|it| it.normalised().key()).collect();
        self.yielding = owners.into_iter().map(|(owner, kept)| (owner, keys(kept))).collect();
    }

    /// From now on takes over also what the owners of [`Manager::take_over_from`] would keep: all goes back to how it was.
    pub fn take_over_all(&mut self) {
        self.yielding.values_mut().for_each(BTreeSet::clear);
    }

    /// Whether an earlier process had left changes when this manager was opened.
    #[must_use]
    pub fn has_inherited(&self) -> bool {
        self.inherited
    }

    /// Whether the ledger says that this owner has made `change`, on the interface that has its name now.
    ///
    /// # Errors
    ///
    /// [`Error::File`], [`Error::Ledger`], [`Error::OtherNamespace`]; [`Error::NoDevice`] if the interface is not
    /// there.
    pub fn has_made(&mut self, change: &Change) -> Result<bool> {
        let (_guard, ledger) = self.ledger()?;
        let change = change.normalised();
        let ifindex = effect::ifindex(&mut View::new(&mut self.netlink), &change)?;
        Ok(ledger.entries.iter().any(|entry| {
            entry.has(&self.owner) && entry.change == change && entry.ifindex == ifindex
        }))
    }

    /// Says that the changes are in use even when this process has ended: then [`reclaim_dead`] leaves them to the
    /// owner's next manager, and [`kept_by`] names the owner. `home`: what tells this process from others that share
    /// the ledger, such as its control socket; `None`: they are in use no more. Ends with [`Manager::restore`].
    ///
    /// # Errors
    ///
    /// [`Error::File`], [`Error::Ledger`], [`Error::OtherNamespace`].
    pub fn keep(&mut self, home: Option<&str>) -> Result<()> {
        let (_guard, mut ledger) = self.ledger()?;
        let changed = match home {
            Some(home) => {
                let moved = ledger.homes.insert(self.owner.clone(), home.to_owned());
                ledger.kept.insert(self.owner.clone()) || moved.as_deref() != Some(home)
            }
            None => {
                let known = ledger.homes.remove(&self.owner).is_some();
                ledger.kept.remove(&self.owner) || known
            }
        };
        if changed { ledger.save(&self.dir) } else { Ok(()) }
    }

    /// Whether an earlier life said [`Manager::keep`], or this one has.
    ///
    /// # Errors
    ///
    /// [`Error::File`], [`Error::Ledger`], [`Error::OtherNamespace`].
    pub fn is_kept(&mut self) -> Result<bool> {
        let (_guard, ledger) = self.ledger()?;
        Ok(ledger.kept.contains(&self.owner))
    }

    /// Undoes everything that this owner has made, in this process or an earlier one, the latest first.
    ///
    /// # Errors
    ///
    /// [`Error::File`], [`Error::Ledger`], [`Error::OtherNamespace`]; failures of the operation itself are in the
    /// report.
    pub fn restore(&mut self) -> Result<Report> {
        let report = self.take_back(|_| true)?;
        self.keep(None)?;
        Ok(report)
    }

    fn take_back(&mut self, wanted: impl Fn(&Entry) -> bool) -> Result<Report> {
        let (_guard, mut ledger) = self.ledger()?;
        let mut report = Report { foreign: ledger.foreign(&self.owner), ..Report::default() };
        // Without it, what can't be found is left, and told.
        let mut changed = ledger.rename(&mut View::new(&mut self.netlink)).unwrap_or_default();
        // Interfaces last: with an interface goes all that is about it.
        for interfaces in [false, true] {
            let mut view = View::new(&mut self.netlink);
            for position in (0..ledger.entries.len()).rev() {
                let entry = &ledger.entries[position];
                let is_interface = matches!(entry.change, Change::Interface { .. });
                if is_interface != interfaces || !entry.has(&self.owner) || !wanted(entry) {
                    continue;
                }
                changed = true;
                let change = entry.change.clone();
                if entry.owners.len() > 1 {
                    ledger.entries[position].owners.retain(|owner| *owner != self.owner);
                    report.shared.push(change);
                    continue;
                }
                // First undone, then removed from the ledger: after a crash in between, the next attempt finds
                // nothing to undo.
                match effect::unmake(&mut view, entry) {
                    Ok(None) => report.undone.push(change),
                    Ok(Some(found)) => report.left.push((change, found)),
                    Err(error) => {
                        report.failed.push((change, error));
                        continue;
                    }
                }
                ledger.strike(position);
            }
        }
        // Saved last: a full disk, on which the ledger cannot be written, must not keep changes from being undone.
        if changed {
            ledger.save(&self.dir)?;
        }
        Ok(report)
    }

    /// Locks and reads the ledger.
    fn ledger(&mut self) -> Result<(BriefLock, Ledger)> {
        if NamespaceId::current()? != self.namespace {
            return Err(Error::OtherNamespace);
        }
        let guard = ledger::lock(&self.dir)?;
        let mut ledger = Ledger::load_again(&self.dir, &mut self.read)?;
        ledger.synced = !self.unsynced;
        Ok((guard, ledger))
    }

    /// Brings to disk what [`Manager::apply_once`] has not.
    fn sync(&mut self) -> Result<()> {
        if self.unsynced {
            ledger::sync(&self.dir)?;
            self.unsynced = false;
        }
        Ok(())
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.lock = None;
        ledger::remove_if_void(&self.dir);
    }
}

/// Undoes what owners whose processes have ended left in the calling thread's network namespace. Owners that are
/// running are passed over, and those whose changes are still in use ([`Manager::keep`]), and those to `spare`.
///
/// # Errors
///
/// As [`Manager::open`] and [`Manager::restore`].
pub fn reclaim_dead(run_dir: &Path, spare: impl Fn(&str) -> bool) -> Result<Vec<(String, Report)>> {
    let Some(ledger) = look(run_dir)? else { return Ok(Vec::new()) };
    let owners: BTreeSet<String> =
        ledger.entries.into_iter().flat_map(|entry| entry.owners).collect();
    let mut reports = Vec::new();
    for owner in owners.into_iter().filter(|it| !ledger.kept.contains(it) && !spare(it)) {
        match Manager::open(run_dir, &owner) {
            Ok(mut manager) => reports.push((owner, manager.restore()?)),
            Err(Error::OwnerRunning { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(reports)
}

/// The owners whose changes a process of this home has left in use ([`Manager::keep`]), in the calling thread's
/// network namespace.
///
/// # Errors
///
/// As [`Manager::open`].
pub fn kept_by(run_dir: &Path, home: &str) -> Result<Vec<String>> {
    let Some(ledger) = look(run_dir)? else { return Ok(Vec::new()) };
    let is_its = |owner: &String| ledger.homes.get(owner).is_some_and(|it| it == home);
    Ok(ledger.kept.iter().filter(|owner| is_its(owner)).cloned().collect())
}

/// Everybody who has changes in the ledger of the calling thread's network namespace, whether they run or not, and how
/// many of each are of another version of this program, which this one can't undo.
///
/// # Errors
///
/// As [`Manager::open`].
pub fn owners(run_dir: &Path) -> Result<BTreeMap<String, usize>> {
    let Some(ledger) = look(run_dir)? else { return Ok(BTreeMap::new()) };
    let names: BTreeSet<String> = ledger.owners().collect();
    Ok(names.into_iter().map(|name| (name.clone(), ledger.foreign(&name))).collect())
}

/// The ledger as it is; `None`: no change was made here.
fn look(run_dir: &Path) -> Result<Option<Ledger>> {
    let dir = ledger::directory(run_dir, NamespaceId::current()?);
    let _guard = match ledger::lock(&dir) {
        Err(error) if error.errno() == Some(libc::ENOENT) => return Ok(None),
        guard => guard?,
    };
    Ledger::load(&dir).map(Some)
}

/// Locks an owner for this process.
fn lock(dir: &Path, owner: &str) -> Result<ProcessLock> {
    ledger::lock_owner(dir, owner).map_err(|error| match error {
        Error::Locked { pid, .. } => Error::OwnerRunning { owner: owner.to_owned(), pid },
        error => error,
    })
}

fn check_owner(name: &str) -> Result<()> {
    let allowed = |octet: u8| octet.is_ascii_alphanumeric() || b"._-".contains(&octet);
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.bytes().all(allowed) {
        return Err(Error::OwnerName(name.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_that_could_not_be_brought_to_disk_is_tried_again() {
        let run = tempfile::tempdir().unwrap();
        let mut manager = Manager::open(run.path(), "clat0").unwrap();
        manager.unsynced = true;
        // A folder in the place of the ledger stands for a disk that fails.
        let path = manager.dir.join("ledger.json");
        std::fs::create_dir(&path).unwrap();
        assert!(matches!(manager.sync(), Err(Error::File { .. })));
        assert!(manager.unsynced);
        std::fs::remove_dir(&path).unwrap();
        manager.sync().unwrap();
        assert!(!manager.unsynced);
    }
}
