//! What a reload would do, without doing it.

use fordway_config::{Attach, Translator};
use fordway_control::{PlannedAction, PlannedChange, ReloadPlan};

use super::{Changes, Sorted};
use crate::apply::stateful::Entries;
use crate::failure::Failure;
use crate::metrics::Guards;
use crate::plan::forwarding;
use crate::reconcile::auto::Auto;
use crate::serve::handle::Daemon;

impl Daemon {
    /// Reads the file and says what a reload would do. It has the errors of a reload, but for those that only
    /// the host's answers to changes tell.
    pub(crate) fn plan_reload(&self) -> Result<ReloadPlan, Failure> {
        self.has_file()?;
        let config = self.read()?;
        let Sorted { kept, changed, fresh } = self.sort(&config)?;
        Guards::read(&config.metrics)?;
        let mut plan = ReloadPlan { changes: Vec::new(), unchanged: kept };
        let automatic = self.new_automatic(&config).map(|new| &new.name);
        for name in fresh.iter().map(|new| &new.name).chain(automatic) {
            plan.changes.push(change(name.to_string(), PlannedAction::Added));
        }
        let running = &self.translators.running;
        for (at, new) in &changed {
            let one = &running[*at];
            if one.place.attach == Attach::Ingress {
                forwarding::check(new)?;
            }
            // On the host as it is, its interface has the old name.
            let under = Translator { name: one.config.name.clone(), ..new.clone() };
            let from = (one.config.name != new.name).then(|| one.name().to_owned());
            let (action, entries) = match (one.entries_under(&under)?, &from) {
                (Some(entries), None) => (PlannedAction::Changed, entries),
                (Some(entries), Some(_)) => (PlannedAction::Renamed, entries),
                (None, Some(_)) => (PlannedAction::Renamed, one.entries(true)),
                (None, None) => {
                    plan.unchanged += 1;
                    continue;
                }
            };
            let keys = one.config.changed_keys(new).into_iter().filter(|key| *key != "name");
            plan.changes.push(PlannedChange {
                from,
                keys: keys.map(str::to_owned).collect(),
                ..with_entries(change(new.name.to_string(), action), entries)
            });
        }
        let goes_on = |at: usize| {
            let name = &running[at].config.name;
            changed.iter().any(|(it, _)| *it == at)
                || config.translators.iter().any(|new| new.name == *name)
        };
        for (_, one) in running.iter().enumerate().filter(|(at, _)| !goes_on(*at)) {
            let removed = change(one.name().to_owned(), PlannedAction::Removed);
            plan.changes.push(with_entries(removed, one.entries(false)));
        }
        let stays = |name: &str| config.translators.iter().any(|new| new.name.as_str() == name);
        let runs = |name: &str| running.iter().any(|one| one.name() == name);
        let waiting = self.automatic.iter().map(Auto::name);
        for name in waiting.filter(|name| !stays(name) && !runs(name)) {
            plan.changes.push(change(name.to_owned(), PlannedAction::Removed));
        }
        let mut names = Changes::default();
        names.services(&self.config, &config);
        plan.unchanged += names.same;
        for (action, names) in [
            (PlannedAction::Added, names.added),
            (PlannedAction::Changed, names.changed),
            (PlannedAction::Removed, names.removed),
        ] {
            plan.changes.extend(names.into_iter().map(|name| change(name, action)));
        }
        Ok(plan)
    }
}

fn change(name: String, action: PlannedAction) -> PlannedChange {
    PlannedChange { name, action, from: None, keys: Vec::new(), sessions: None, ended: None }
}

fn with_entries(change: PlannedChange, entries: Option<Entries>) -> PlannedChange {
    let (sessions, ended) = entries.map(|it| (it.all, it.unfit)).unzip();
    PlannedChange { sessions, ended, ..change }
}
