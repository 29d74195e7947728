//! What a reload would do, without doing it.

use fordway_config::Attach;
use fordway_control::{PlannedAction, PlannedChange, ReloadPlan};

use super::{Changes, Sorted};
use crate::daemon::apply::running::Running;
use crate::daemon::plan::placement::check_bypass;
use crate::daemon::serve::handle::Daemon;
use crate::failure::Failure;

impl Daemon {
    /// Reads the file and says what a reload would do. It has the errors of a reload, but for those that only
    /// the host's answers to changes tell.
    pub(crate) fn plan_reload(&self) -> Result<ReloadPlan, Failure> {
        let config = self.read()?;
        let Sorted { kept, changed, fresh } = self.sort(&config)?;
        let mut plan = ReloadPlan { changes: Vec::new(), unchanged: kept };
        let automatic = self.new_automatic(&config).map(|new| &new.name);
        for name in fresh.iter().map(|new| &new.name).chain(automatic) {
            plan.changes.push(change(name.to_string(), PlannedAction::Added));
        }
        for (at, new) in &changed {
            let one = &self.translators.running[*at];
            if one.place.attach == Attach::Ingress {
                check_bypass(new)?;
            }
            let Some(ended) = one.ended_by(new)? else {
                plan.unchanged += 1;
                continue;
            };
            let sessions = one.sessions();
            plan.changes.push(PlannedChange {
                keys: one.config.changed_keys(new).into_iter().map(str::to_owned).collect(),
                sessions,
                ended: sessions.map(|_| ended),
                ..change(one.name().to_owned(), PlannedAction::Changed)
            });
        }
        let stays = |name: &str| config.translators.iter().any(|new| new.name.as_str() == name);
        for one in self.translators.running.iter().filter(|one| !stays(one.name())) {
            let sessions = one.sessions();
            plan.changes.push(PlannedChange {
                sessions,
                ended: sessions,
                ..change(one.name().to_owned(), PlannedAction::Removed)
            });
        }
        let runs = |name: &str| self.translators.running.iter().any(|one| one.name() == name);
        let waiting = self.automatic.iter().map(|auto| auto.name());
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
    PlannedChange { name, action, keys: Vec::new(), sessions: None, ended: None }
}

impl Running {
    /// Its sessions and 1:1 mappings, if it is stateful.
    fn sessions(&self) -> Option<u64> {
        let nat64 = self.stats().nat64?;
        let mappings = nat64.bib.get("all").copied().unwrap_or(0);
        Some(nat64.sessions.values().sum::<u64>() + mappings)
    }
}
