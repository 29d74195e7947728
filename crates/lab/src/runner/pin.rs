//! Binds the parts of a run to processors, and notes what was in force.

use fordway_data::artefacts;
use fordway_data::environment::{Affinity, Environment, Pinned};
use fordway_data::files::write_file;
use fordway_data::spec::{Pin, Role};

use super::Runner;
use crate::error::Result;
use crate::host::affinity;
use crate::mechanism::Deployed;
use crate::state::Guard;

impl Runner {
    /// Binds what is not started by the run itself, interrupts and frequencies of lab hosts, and notes all of it; `guard`
    /// puts it back.
    pub(super) fn bind(&self, guard: &mut Guard) -> Result<()> {
        let Some(pin) = &self.run.pin else { return Ok(()) };
        if let Some(pair) = self.backend.pair() {
            pair.bind(guard, pin)?;
        }
        let now = self.affinity()?;
        self.note(|environment, server| {
            // What moved before an interruption has moved.
            let moved = environment.pinned.take().map(|pinned| pinned.moved).unwrap_or_default();
            let in_force = now[usize::from(server)].clone();
            environment.pinned = Some(Pinned {
                asked: pin.asked.clone(),
                roles: self.roles(pin, server),
                in_force,
                moved,
            });
        })
    }

    /// Notes what was no longer bound at the end.
    pub(super) fn examine_pins(&self) -> Result<()> {
        if self.run.pin.is_none() {
            return Ok(());
        }
        let now = self.affinity()?;
        self.note(|environment, server| {
            if let Some(pinned) = &mut environment.pinned {
                pinned.moved.extend(pinned.in_force.moved(&now[usize::from(server)]));
            }
        })
    }

    /// What of a mechanism left its processors, where it was bound to some.
    pub(super) fn astray(&self, deployed: &Deployed) -> Option<String> {
        deployed.astray(self.run.pin.as_ref()?.of(Role::Mechanism)?)
    }

    fn roles(
        &self,
        pin: &Pin,
        server: bool,
    ) -> std::collections::BTreeMap<Role, fordway_data::spec::Processors> {
        let of_two = self.backend.pair().is_some();
        let here = |role: &Role| !of_two || role.on_server() == server;
        let roles = pin.roles.iter().filter(|(role, _)| here(role));
        roles.map(|(role, on)| (*role, on.clone())).collect()
    }

    /// Of this machine, or of the client's host and the server's.
    fn affinity(&self) -> Result<Vec<Affinity>> {
        match self.backend.pair() {
            Some(pair) => Ok(pair.affinity()?.into()),
            None => Ok(vec![affinity::found(None)]),
        }
    }

    /// Changes the environment record of each machine; the second one is that of the server's host.
    fn note(&self, change: impl FnMut(&mut Environment, bool)) -> Result<()> {
        let Some(mut environment) = artefacts::read_environment(&self.out)? else { return Ok(()) };
        environment.each_machine(change);
        let text = serde_json::to_vec_pretty(&environment).unwrap_or_default();
        Ok(write_file(&self.out.join("environment.json"), &text)?)
    }
}
