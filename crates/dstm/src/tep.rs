//! The tunnel end point's end of the protocol with a server on another host.
//!
//! Bindings have lifetimes, so they expire with their leases if the server is lost. A new session replaces all bindings
//! only when it is complete, so traffic goes on meanwhile.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::lease::Slot;
use crate::message::{Body, Change, Key, Message};
use fordway_counters::dstm::TepStats;
use fordway_softwire::Binding;

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TepStep {
    /// Bindings that are gone; first.
    pub gone: Vec<Binding>,
    /// Bindings that have come.
    pub come: Vec<Binding>,
    /// The answer, when all is done.
    pub reply: Option<Vec<u8>>,
}

impl TepStep {
    /// Removes a binding. One that this message has added is reported neither as added nor as removed.
    fn take_out(&mut self, binding: Binding) {
        match self.come.iter().position(|it| *it == binding) {
            Some(at) => drop(self.come.remove(at)),
            None => self.gone.push(binding),
        }
    }
}

/// The bindings that a server has told. Times are in ms of any clock that never goes back.
#[derive(Debug)]
pub struct Tep {
    key: Key,
    nonce: u64,
    most: usize,
    session: u64,
    /// Position of the next message of the session.
    position: u64,
    bindings: HashMap<Slot, (Binding, u64)>,
    ends: BTreeSet<(u64, Slot)>,
    /// What the session has told, until it has told all.
    told: Option<HashSet<Slot>>,
    stats: TepStats,
}

impl Tep {
    /// Without bindings. `nonce`: one that no earlier life has had; `most`: bindings that it holds.
    #[must_use]
    pub fn new(key: Key, nonce: u64, most: usize) -> Tep {
        Tep {
            key,
            nonce,
            most,
            session: 0,
            position: 0,
            bindings: HashMap::new(),
            ends: BTreeSet::new(),
            told: None,
            stats: TepStats::default(),
        }
    }

    /// How many bindings there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.bindings.len()
    }

    /// The bindings.
    pub fn bindings(&self) -> impl Iterator<Item = &Binding> {
        self.bindings.values().map(|(binding, _)| binding)
    }

    /// What it has counted.
    #[must_use]
    pub fn stats(&self) -> TepStats {
        TepStats { bindings: self.bindings.len() as u64, ..self.stats }
    }

    /// Takes a message.
    pub fn receive(&mut self, octets: &[u8], now: u64) -> TepStep {
        let Ok(message) = Message::parse(octets) else {
            self.stats.malformed += 1;
            return TepStep::default();
        };
        if !self.key.has_sealed(octets) {
            self.stats.forged += 1;
            return TepStep::default();
        }
        let mut step = TepStep::default();
        let body = match message.body {
            Body::Hello => Body::Welcome { nonce: self.nonce, session: self.session },
            Body::Push { nonce, session, position, whole, changes } if nonce == self.nonce => {
                if !self.push(session, position, whole, &changes, now, &mut step) {
                    self.stats.stale += 1;
                    return TepStep::default();
                }
                Body::Done { session, position: position + 1 }
            }
            _ => {
                self.stats.stale += 1;
                return TepStep::default();
            }
        };
        let Message { transaction, number, .. } = message;
        step.reply = Some(Message { transaction, number, body }.seal(&self.key));
        step
    }

    /// When [`Tep::expire`] has something to do.
    #[must_use]
    pub fn next_end(&self) -> Option<u64> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// Ends bindings whose lifetime has ended at `now`.
    pub fn expire(&mut self, now: u64) -> TepStep {
        let mut step = TepStep::default();
        while let Some((_, slot)) = self.ends.first().copied().filter(|(end, _)| *end <= now) {
            self.stats.expired += 1;
            self.remove(&slot, &mut step);
        }
        step
    }

    /// Whether the message is one to be answered: the next of its session, or the one before once more.
    fn push(
        &mut self,
        session: u64,
        position: u64,
        whole: bool,
        changes: &[Change],
        now: u64,
        step: &mut TepStep,
    ) -> bool {
        if session > self.session && position == 0 {
            (self.session, self.position) = (session, 0);
            self.told = Some(HashSet::new());
            self.stats.sessions += 1;
        }
        if session != self.session || position > self.position {
            return false;
        }
        if position < self.position {
            // Its answer was lost.
            return position + 1 == self.position;
        }
        // Beyond 2^64 messages.
        let Some(next) = position.checked_add(1) else { return false };
        self.position = next;
        for change in changes {
            match *change {
                Change::Bind(lifetime, binding) => self.bind(lifetime, binding, now, step),
                Change::Unbind(v4, ports) => {
                    self.stats.unbound += 1;
                    self.remove(&Slot { v4, ports }, step);
                }
            }
        }
        if whole && let Some(told) = self.told.take() {
            let untold: Vec<Slot> =
                self.bindings.keys().filter(|slot| !told.contains(*slot)).copied().collect();
            for slot in untold {
                self.remove(&slot, step);
            }
        }
        true
    }

    fn bind(&mut self, lifetime: u32, binding: Binding, now: u64, step: &mut TepStep) {
        let slot = Slot { v4: binding.v4, ports: binding.ports };
        let until = now + u64::from(lifetime) * 1000;
        if let Some(told) = &mut self.told {
            told.insert(slot);
        }
        let before = self.bindings.get(&slot).copied();
        if before.is_none() && self.bindings.len() >= self.most {
            self.stats.full += 1;
            return;
        }
        if let Some((before, end)) = before {
            self.ends.remove(&(end, slot));
            if before != binding {
                step.take_out(before);
            }
        }
        if before.is_none_or(|(before, _)| before != binding) {
            self.stats.bound += 1;
            step.come.push(binding);
        }
        self.bindings.insert(slot, (binding, until));
        self.ends.insert((until, slot));
    }

    fn remove(&mut self, slot: &Slot, step: &mut TepStep) {
        if let Some((binding, end)) = self.bindings.remove(slot) {
            self.ends.remove(&(end, *slot));
            step.take_out(binding);
        }
    }
}

#[cfg(test)]
mod tests;
