//! Lists of changes: what is missing is made, with the ledger written once before and, if need be, once after.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::change::Change;
use super::effect;
use super::ledger::{Entry, Ledger};
use super::view::View;
use super::{Applied, Manager, Report};
use crate::{Error, NamespaceId, Result};

/// How often a list is applied at most. One change may undo another: switching forwarding on overwrites settings of
/// interfaces, and with an interface's last IPv4 address the kernel removes its routes.
const PASSES: usize = 3;

/// What came of [`Manager::reconcile`].
#[derive(Debug, Default)]
#[must_use]
pub struct Reconciled {
    /// Made now.
    pub made: Vec<Change>,
    /// Could not be made.
    pub failed: Vec<(Change, Error)>,
    /// What was not in the list.
    pub taken_back: Report,
}

/// What its owner has made, by the ledger.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    /// It is looked at, and made again if it is not in force.
    Checked,
    /// It counts as in force.
    Trusted,
}

/// What has to be done for a change that is in the ledger.
enum Step {
    /// The ledger has it from now on.
    Make(Change),
    /// The ledger had it before: other software has undone it, or a crash came between the ledger and the change.
    Again(Change),
    /// A new value replaces an earlier one of this program.
    Remake(Change, Change),
}

impl Step {
    fn change(&self) -> &Change {
        match self {
            Step::Make(change) | Step::Again(change) | Step::Remake(change, _) => change,
        }
    }
}

impl Manager {
    /// Sees to it that `change` is in force.
    ///
    /// If this owner alone has made the same setting with another value, the value is changed, and the one from
    /// before this program is still what will be restored.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if another owner needs it otherwise; the errors of the operation itself, with nothing
    /// changed; [`Error::File`]; [`Error::OtherNamespace`].
    pub fn apply(&mut self, change: &Change) -> Result<Applied> {
        let one = [change.normalised()];
        let applied = self.pass(&one, Known::Checked, &mut |_, error| Err(error))?;
        Ok(applied[0])
    }

    /// Sees to it that all of `changes` are in force, in their order. What came of each.
    ///
    /// # Errors
    ///
    /// As [`Manager::apply`], of the first that can't be made; those before it are in force and in the ledger.
    pub fn apply_all(&mut self, changes: &[Change]) -> Result<Vec<Applied>> {
        self.apply_list(changes, &mut |_, error| Err(error))
    }

    /// As [`Manager::apply_all`], in haste: [`Manager::reconcile`] has to follow. What this owner has made before is not
    /// looked at, nor what one change has undone of another, nor whether interfaces were renamed; and the ledger is brought
    /// to disk later. It is with the kernel: the end of this process loses nothing of it. Where something can't be made
    /// so, all is looked at.
    ///
    /// # Errors
    ///
    /// As [`Manager::apply_all`].
    pub fn apply_once(&mut self, changes: &[Change]) -> Result<Vec<Applied>> {
        let normal: Vec<Change> = changes.iter().map(Change::normalised).collect();
        self.unsynced = true;
        let hasty = self.pass(&normal, Known::Trusted, &mut |_, error| Err(error));
        hasty.or_else(|_| self.apply_all(changes))
    }

    /// Makes the host as `wanted` says, as far as this owner is concerned: what is missing is made, in this order,
    /// and whatever else this owner has made, in this or an earlier life, is undone. What can't be made keeps
    /// nothing else from being made.
    ///
    /// # Errors
    ///
    /// [`Error::File`], [`Error::Ledger`], [`Error::OtherNamespace`].
    pub fn reconcile(&mut self, wanted: &[Change]) -> Result<Reconciled> {
        self.sync()?;
        let mut done = self.make(wanted)?;
        let keys: BTreeSet<String> = wanted.iter().map(|it| it.normalised().key()).collect();
        done.taken_back = self.take_back(|entry| !keys.contains(&entry.change.key()))?;
        if !done.taken_back.undone.is_empty() {
            // With a device's last IPv4 address the kernel takes all its IPv4 routes away.
            let again = self.make(wanted)?;
            done.made.extend(again.made);
        }
        Ok(done)
    }

    /// Makes what is missing of `wanted`, in this order, and undoes nothing.
    ///
    /// # Errors
    ///
    /// As [`Manager::reconcile`].
    pub fn make(&mut self, wanted: &[Change]) -> Result<Reconciled> {
        let mut failed = HashMap::new();
        let applied = self.apply_list(wanted, &mut |change, error| {
            failed.insert(change.key(), error);
            Ok(())
        })?;
        let mut done = Reconciled::default();
        for (change, applied) in wanted.iter().zip(applied) {
            match failed.remove(&change.normalised().key()) {
                Some(error) => done.failed.push((change.clone(), error)),
                None if applied == Applied::Made => done.made.push(change.clone()),
                None => {}
            }
        }
        Ok(done)
    }

    /// What of `wanted` is not in force though it could be, whichever program made the rest. Looks, and neither locks nor
    /// writes anything. Nothing is said of a change whose interface is not there, of a route out of one that is down,
    /// and of what can't be looked at.
    ///
    /// # Errors
    ///
    /// [`Error::OtherNamespace`].
    pub fn missing(&self, wanted: &[Change], view: &mut View<'_>) -> Result<Vec<Change>> {
        if NamespaceId::current()? != self.namespace {
            return Err(Error::OtherNamespace);
        }
        let mut is_missing = |change: &Change| {
            matches!(effect::in_force(view, &change.normalised()), Ok(Some(false)))
        };
        Ok(wanted.iter().filter(|change| is_missing(change)).cloned().collect())
    }

    fn apply_list(
        &mut self,
        changes: &[Change],
        failed: &mut dyn FnMut(&Change, Error) -> Result<()>,
    ) -> Result<Vec<Applied>> {
        let changes: Vec<Change> = changes.iter().map(Change::normalised).collect();
        let mut all = vec![Applied::Present; changes.len()];
        for pass in 0..PASSES {
            let applied = self.pass(&changes, Known::Checked, failed)?;
            let is_done = !applied.contains(&Applied::Made);
            for (known, now) in all.iter_mut().zip(applied) {
                if pass == 0 || now == Applied::Made {
                    *known = now;
                }
            }
            // A list in which one thing is set twice never looks as if it were done.
            if is_done || changes.len() == 1 || has_twice(&changes) {
                break;
            }
        }
        Ok(all)
    }

    /// Goes through a list once.
    fn pass(
        &mut self,
        changes: &[Change],
        known: Known,
        failed: &mut dyn FnMut(&Change, Error) -> Result<()>,
    ) -> Result<Vec<Applied>> {
        let (_guard, mut ledger) = self.ledger()?;
        let mut all = Vec::with_capacity(changes.len());
        let mut rest = changes;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(until_twice(rest));
            rest = later;
            all.extend(self.pass_once(&mut ledger, now, known, failed)?);
        }
        Ok(all)
    }

    /// Of changes of different things.
    fn pass_once(
        &mut self,
        ledger: &mut Ledger,
        changes: &[Change],
        known: Known,
        failed: &mut dyn FnMut(&Change, Error) -> Result<()>,
    ) -> Result<Vec<Applied>> {
        let (mut all, mut steps) = (Vec::new(), Vec::new());
        let mut view = View::new(&mut self.netlink);
        let mut dirty = known == Known::Checked && ledger.rename(&mut view)?;
        for change in changes {
            let whose = (self.owner.as_str(), &self.yielding);
            match plan(whose, ledger, &mut view, change, known, &mut dirty) {
                Ok((applied, step)) => {
                    all.push(applied);
                    steps.extend(step);
                }
                Err(error) => {
                    if let Err(error) = failed(change, error) {
                        // What comes before it is made; what comes behind it is not.
                        self.carry_out(ledger, steps, dirty, known, failed)?;
                        return Err(error);
                    }
                    all.push(Applied::Present);
                }
            }
        }
        self.carry_out(ledger, steps, dirty, known, failed)?;
        Ok(all)
    }

    /// Makes what the ledger says, once that is on disk.
    fn carry_out(
        &mut self,
        ledger: &mut Ledger,
        steps: Vec<Step>,
        dirty: bool,
        known: Known,
        failed: &mut dyn FnMut(&Change, Error) -> Result<()>,
    ) -> Result<()> {
        if dirty {
            ledger.save(&self.dir)?;
        }
        let (mut refused, mut dirty) = (Ok(()), false);
        for step in steps {
            let result = match &step {
                // Those behind one that counts are not made.
                _ if refused.is_err() => Ok(false),
                Step::Make(change) => effect::make(&mut self.netlink, change).map(|()| true),
                // What is there may have other values: with an interface's MTU the kernel sets that of its routes.
                Step::Again(change) | Step::Remake(change, _) => {
                    effect::remake(&mut self.netlink, change).map(|()| true)
                }
            };
            let is_made = matches!(result, Ok(true));
            if let Err(error) = result {
                refused = failed(step.change(), error);
            }
            let Some(position) = ledger.position(&step.change().key()) else { continue };
            match step {
                Step::Make(_) if !is_made => ledger.strike(position),
                Step::Again(_) if is_made && ledger.entries[position].earlier.is_some() => {
                    ledger.entries[position].earlier = None;
                }
                Step::Make(_) | Step::Again(_) => continue,
                Step::Remake(_, before) => {
                    let entry = &mut ledger.entries[position];
                    entry.earlier = None;
                    if !is_made {
                        entry.change = before;
                    }
                }
            }
            dirty = true;
        }
        // In haste the values from before stay in the ledger beside the new ones, as if this process had been killed here;
        // `reconcile` removes them.
        let is_clear = known == Known::Checked || refused.is_err();
        if dirty && is_clear {
            ledger.save(&self.dir)?;
        }
        refused
    }
}

/// An owner, and those from whom it takes over.
type Whose<'a> = (&'a str, &'a BTreeMap<String, BTreeSet<String>>);

/// What has to be done for one change, which the ledger has afterwards, and what will have come of it.
fn plan(
    whose: Whose<'_>,
    ledger: &mut Ledger,
    view: &mut View<'_>,
    change: &Change,
    known: Known,
    dirty: &mut bool,
) -> Result<(Applied, Option<Step>)> {
    let ifindex = effect::ifindex(view, change)?;
    let found = ledger.position(&change.key());
    if let Some(position) = found {
        let entry = &mut ledger.entries[position];
        if entry.ifindex == ifindex || entry.change.device() != change.device() {
            if known == Known::Trusted
                && entry.owners == [whose.0]
                && entry.earlier.is_none()
                && entry.change == *change
            {
                return Ok((Applied::Kept, None));
            }
            return plan_known(whose, entry, view, change, ifindex, dirty);
        }
        // The interface went away with what was changed; this is a new one of the same name.
        ledger.strike(position);
        *dirty = true;
    }
    let undo = match known {
        Known::Checked => effect::prepare(view, change)?,
        Known::Trusted => effect::suppose(view, change)?,
    };
    let Some(undo) = undo else { return Ok((Applied::Present, None)) };
    ledger.push(Entry {
        owners: vec![whose.0.to_owned()],
        change: change.clone(),
        earlier: None,
        ifindex,
        undo,
        more: serde_json::Map::new(),
    });
    *dirty = true;
    Ok((Applied::Made, Some(Step::Make(change.clone()))))
}

/// What has to be done for a change whose object the ledger knows, and what will have come of it.
fn plan_known(
    (owner, yielding): Whose<'_>,
    entry: &mut Entry,
    view: &mut View<'_>,
    change: &Change,
    ifindex: Option<u32>,
    dirty: &mut bool,
) -> Result<(Applied, Option<Step>)> {
    let ours = entry.has(owner);
    if entry.change == *change {
        let is_undone = effect::in_force(view, change)? == Some(false);
        if !ours {
            entry.owners.push(owner.to_owned());
            *dirty = true;
        }
        if !is_undone {
            *dirty |= entry.earlier.take().is_some();
        }
        let applied = if ours { Applied::Kept } else { Applied::Shared };
        return Ok((applied, is_undone.then(|| Step::Again(change.clone()))));
    }
    let key = entry.change.key();
    let yields = |other: &str| yielding.get(other).is_some_and(|kept| !kept.contains(&key));
    let others = entry.owners.iter().filter(|it| *it != owner && !yields(it));
    let others: Vec<String> = others.cloned().collect();
    if !others.is_empty() {
        return Err(Error::Conflict {
            wanted: change.to_string(),
            present: entry.change.to_string(),
            owners: others,
        });
    }
    entry.owners = vec![owner.to_owned()];
    let before = std::mem::replace(&mut entry.change, change.clone());
    entry.earlier = Some(before.clone());
    entry.ifindex = ifindex;
    *dirty = true;
    Ok((Applied::Made, Some(Step::Remake(change.clone(), before))))
}

/// How many changes there are before one of a thing that was changed already.
fn until_twice(changes: &[Change]) -> usize {
    let mut seen = BTreeSet::new();
    changes.iter().take_while(|change| seen.insert(change.key())).count()
}

fn has_twice(changes: &[Change]) -> bool {
    until_twice(changes) < changes.len()
}
