//! Servers of a kind of which there may be several, each under its own name.

use std::collections::{BTreeMap, BTreeSet};

use super::slot::{Before, Ready, Service, Slot};
use crate::failure::Failure;

/// What each server is told, by its name.
pub(super) type Wanted<S> = BTreeMap<String, <S as Service>::Settings>;

/// Places for servers.
pub(super) struct Slots<S: Service>(BTreeMap<String, Slot<S>>);

/// What there was before a change.
#[must_use]
pub(super) struct Befores<S: Service>(BTreeMap<String, Before<S>>);

/// Takes the sockets of all, or of none.
pub(super) fn bind<S: Service>(wanted: Wanted<S>) -> Result<BTreeMap<String, Ready<S>>, Failure> {
    let bind = |(name, settings)| Ok((name, (S::bind(&settings)?, settings)));
    wanted.into_iter().map(bind).collect()
}

impl<S: Service> Slots<S> {
    /// Starts what was bound, on threads without privileges: all, or none.
    pub(super) fn start(bound: BTreeMap<String, Ready<S>>) -> Result<Slots<S>, Failure> {
        let mut slots = Slots::default();
        for (name, ready) in bound {
            match Slot::start(Some(ready)) {
                Ok(slot) => slots.0.insert(name, slot),
                Err(failure) => {
                    slots.end(false);
                    return Err(failure);
                }
            };
        }
        Ok(slots)
    }

    /// The servers that run, with what they were told.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&S, &S::Settings)> {
        self.0.values().filter_map(|slot| slot.server().zip(slot.settings()))
    }

    /// The servers that run, to be changed.
    pub(super) fn servers_mut(&mut self) -> impl Iterator<Item = &mut S> {
        self.0.values_mut().filter_map(Slot::server_mut)
    }

    /// Ends all servers without waiting for what is under way.
    pub(super) fn retire(&mut self) {
        self.0.values_mut().for_each(Slot::retire);
        self.tidy();
    }

    /// Goes on with other settings, or changes nothing. What ends goes on until [`Slots::settle`].
    pub(super) fn change(&mut self, mut wanted: Wanted<S>) -> Result<Befores<S>, Failure> {
        let mut befores = Befores(BTreeMap::new());
        let names: Vec<String> = self.0.keys().chain(wanted.keys()).cloned().collect();
        for name in names {
            if befores.0.contains_key(&name) {
                continue;
            }
            let slot = self.0.entry(name.clone()).or_default();
            match slot.change(wanted.remove(&name)) {
                Ok(before) => befores.0.insert(name, before),
                Err(failure) => {
                    if let Err(failure) = self.change_back(befores) {
                        let line = failure.line();
                        tracing::warn!(
                            "services: the old configuration is not whole again: {line}"
                        );
                    }
                    return Err(failure);
                }
            };
        }
        Ok(befores)
    }

    /// Has each follow what is wanted by itself. Gives what failed.
    pub(super) fn follow(&mut self, mut wanted: Wanted<S>) -> Vec<Failure> {
        let names: BTreeSet<String> = self.0.keys().chain(wanted.keys()).cloned().collect();
        let follow = |name: String| {
            let wanted = wanted.remove(&name);
            self.0.entry(name).or_default().follow(wanted).err()
        };
        let failures = names.into_iter().filter_map(follow).collect();
        self.tidy();
        failures
    }

    /// Goes back to what there was. The first failure is told, and does not keep the others from going back.
    pub(super) fn change_back(&mut self, befores: Befores<S>) -> Result<(), Failure> {
        let mut result = Ok(());
        for (name, before) in befores.0 {
            let back = self.0.entry(name).or_default().change_back(before);
            result = result.and(back);
        }
        self.tidy();
        result
    }

    /// Ends what there was and is not any more.
    pub(super) fn settle(&mut self, befores: Befores<S>) {
        befores.0.into_values().for_each(Slot::settle);
        self.tidy();
    }

    /// Ends servers of which a thread has ended by itself. Whether there were any.
    pub(super) fn discard_broken(&mut self) -> bool {
        let broken = self.0.values_mut().filter_map(|slot| slot.discard_broken().then_some(()));
        let any = broken.count() > 0;
        self.tidy();
        any
    }

    /// Ends all servers.
    pub(super) fn end(&mut self, leave: bool) {
        self.0.values_mut().for_each(|slot| slot.end(leave));
        self.tidy();
    }

    fn tidy(&mut self) {
        self.0.retain(|_, slot| slot.server().is_some());
    }
}

impl<S: Service> Default for Slots<S> {
    fn default() -> Slots<S> {
        Slots(BTreeMap::new())
    }
}
