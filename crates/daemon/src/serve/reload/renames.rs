//! Translators that go on under another name, with their interface and their sessions.

use std::collections::BTreeMap;

use fordway_config::{Config, InterfaceName, Translator};
use tracing::warn;

use super::checks::check_translator;
use crate::apply::running::Running;
use crate::failure::Failure;
use crate::serve::handle::Daemon;

/// Names that translators had, by their places, in the order in which they lost them.
pub(super) type Former = Vec<(usize, InterfaceName)>;

impl Daemon {
    /// Which running translator, by its place, goes on under another name, by this name.
    ///
    /// One does if the file has it no more under its own name, or there with keys that can't change while it runs, and has
    /// one of another name that is equal but for the name, or of the same prefixes and without such keys.
    pub(super) fn renamed(&self, config: &Config) -> BTreeMap<InterfaceName, usize> {
        let mut renamed = BTreeMap::new();
        if !fordway_net::renames_while_up() {
            return renamed;
        }
        let running = &self.translators.running;
        let stays = |one: &Running, new: &Translator| {
            one.config.name == new.name && check_translator(&one.config, new).is_ok()
        };
        let is_fixed = |at: &usize| {
            let one = &running[*at];
            !self.automatic.iter().any(|auto| auto.name() == one.name()) && one.can_rename()
        };
        let free = (0..running.len()).filter(is_fixed);
        let mut free: Vec<usize> = free
            .filter(|at| !config.translators.iter().any(|new| stays(&running[*at], new)))
            .collect();
        let wanted = config.translators.iter().filter(|new| !new.is_automatic());
        let wanted = wanted.filter(|new| !running.iter().any(|one| stays(one, new)));
        let wanted: Vec<&Translator> = wanted.collect();
        for is_like in [is_equal as fn(&Translator, &Translator) -> bool, is_alike] {
            for new in &wanted {
                if renamed.contains_key(&new.name) {
                    continue;
                }
                if let Some(at) = free.iter().position(|at| is_like(&running[*at].config, new)) {
                    renamed.insert(new.name.clone(), free.remove(at));
                }
            }
        }
        // A name that another one keeps can't be given away.
        let keeps = |renamed: &BTreeMap<InterfaceName, usize>, name: &InterfaceName| {
            let holder = running.iter().position(|one| one.config.name == *name);
            holder.is_some_and(|at| !renamed.values().any(|moved| *moved == at))
        };
        while let Some(name) = renamed.keys().find(|name| keeps(&renamed, name)).cloned() {
            renamed.remove(&name);
        }
        renamed
    }

    /// Gives translators the names of their new configurations. On an error all have their old ones.
    pub(super) fn rename(&mut self, changed: &[(usize, Translator)]) -> Result<Former, Failure> {
        let mut former = Former::new();
        let other = |(at, new): &(usize, Translator)| {
            (self.translators.running[*at].config.name != new.name).then(|| (*at, new.name.clone()))
        };
        let mut left: Vec<(usize, InterfaceName)> = changed.iter().filter_map(other).collect();
        while let Some(first) = left.first().map(|(at, _)| *at) {
            let running = &self.translators.running;
            let is_free =
                |name: &InterfaceName| !running.iter().any(|one| one.config.name == *name);
            let (at, name) = match left.iter().position(|(_, name)| is_free(name)) {
                Some(next) => left.remove(next),
                // They change names in a circle, so one makes room for now.
                None => (first, aside(&running[first])?),
            };
            if let Err(failure) = self.give_name(at, &name, &mut former) {
                self.go_back(former);
                return Err(failure);
            }
        }
        Ok(former)
    }

    /// Gives translators their former names.
    pub(super) fn rename_back(&mut self, former: Former) {
        for (at, name) in former.into_iter().rev() {
            if let Err(failure) = self.give_name(at, &name, &mut Former::new()) {
                warn!("the rollback is incomplete: {}", failure.line());
            }
        }
    }

    fn give_name(
        &mut self,
        at: usize,
        name: &InterfaceName,
        former: &mut Former,
    ) -> Result<(), Failure> {
        let one = &mut self.translators.running[at];
        let before = one.config.name.clone();
        one.rename(name, &self.translators.context.run_dir)?;
        former.push((at, before));
        Ok(())
    }
}

/// A name that nothing else has.
fn aside(one: &Running) -> Result<InterfaceName, Failure> {
    format!("fw{}aside", one.engine.device().ifindex()).parse().map_err(Failure::failed)
}

/// Whether only the names differ.
fn is_equal(old: &Translator, new: &Translator) -> bool {
    under_name(old, new) == *new
}

/// Whether one can become the other while it runs, and translates the same prefixes.
fn is_alike(old: &Translator, new: &Translator) -> bool {
    !new.pool6().is_empty()
        && old.pool6() == new.pool6()
        && check_translator(&under_name(old, new), new).is_ok()
}

/// A translator under the name of another.
fn under_name(old: &Translator, new: &Translator) -> Translator {
    Translator { name: new.name.clone(), ..old.clone() }
}
