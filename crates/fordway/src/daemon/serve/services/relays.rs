//! Transport relays: what they need of the host.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Instant;

use fordway_config::{Config, Trt};
use fordway_net::privilege::{self, Capability};
use fordway_net::{Intercept, View};

use crate::daemon::apply::upkeep::Upkeep;
use crate::failure::Failure;

/// In front of a relay's name: the owner of its changes in the ledger. Too long to be a translator's.
const OWNER: &str = "transport-relay.";

/// The IPv4 addresses of this host, where a relay asks for them.
pub(super) fn own4(config: &Config, view: &mut View<'_>) -> Result<HashSet<Ipv4Addr>, Failure> {
    if config.trt.is_empty() {
        return Ok(HashSet::new());
    }
    let own4 = view.addresses()?.iter().filter_map(|it| match it.address.addr() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    });
    Ok(own4.collect())
}

/// Descriptors that relays may need: two for each connection, and as many for its pipes.
pub(super) fn descriptors(config: &Config) -> u64 {
    let one = |trt: &Trt| 4 * u64::from(trt.max_connections) + u64::from(trt.max_sessions);
    config.trt.iter().map(one).sum()
}

/// The changes to the host for each relay. What is dropped without [`Hosts::restore`] stays, for the next start to take
/// over.
#[derive(Default)]
pub(super) struct Hosts(BTreeMap<String, Upkeep>);

impl Hosts {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Has packets come to relays; `intercepts`: of all of them. If it fails, relays that were not there before are as
    /// if they had never been.
    pub(super) fn bring(
        &mut self,
        intercepts: &[Intercept],
        run_dir: &Path,
    ) -> Result<(), Failure> {
        if intercepts.is_empty() {
            return Ok(());
        }
        privilege::require(&[Capability::CAP_NET_ADMIN])?;
        let mut fresh = Vec::new();
        for intercept in intercepts {
            if let Err(failure) = self.bring_one(intercept, run_dir, &mut fresh) {
                fresh.iter().for_each(|name| self.give_back(name));
                return Err(failure.prefix(&format!("[[trt]] {}: ", intercept.name)));
            }
        }
        Ok(())
    }

    fn bring_one(
        &mut self,
        intercept: &Intercept,
        run_dir: &Path,
        fresh: &mut Vec<String>,
    ) -> Result<(), Failure> {
        let name = &intercept.name;
        if !self.0.contains_key(name) {
            let upkeep = Upkeep::open(run_dir, &format!("{OWNER}{name}"), name)?;
            self.0.insert(name.clone(), upkeep);
            fresh.push(name.clone());
        }
        let Some(upkeep) = self.0.get_mut(name) else { return Ok(()) };
        upkeep.want(intercept.changes())?;
        // Prefixes that it has no more, and what an earlier life has left.
        upkeep.settle("not needed any more: ");
        Ok(())
    }

    /// Takes back what was made for relays that the configuration has no more.
    pub(super) fn settle(&mut self, config: &Config) {
        let gone = |name: &&String| !config.trt.iter().any(|trt| trt.name.as_str() == *name);
        let gone: Vec<String> = self.0.keys().filter(gone).cloned().collect();
        gone.iter().for_each(|name| self.give_back(name));
    }

    /// Keeps up what relays need.
    pub(super) fn follow(&mut self, view: &mut View<'_>, now: Instant) -> Option<Instant> {
        self.0.values_mut().filter_map(|upkeep| upkeep.follow(view, now)).min()
    }

    /// Takes everything back.
    pub(super) fn restore(&mut self) {
        let names: Vec<String> = self.0.keys().cloned().collect();
        names.iter().for_each(|name| self.give_back(name));
    }

    fn give_back(&mut self, name: &str) {
        if let Some(upkeep) = self.0.remove(name) {
            upkeep.take_back();
        }
    }
}

/// What the host must do for a relay, with the mark and the table of its entry.
pub(super) fn intercept(
    config: &Config,
    name: &str,
    make: impl FnOnce(u32, u32, bool) -> Intercept,
) -> Option<Intercept> {
    let trt = config.trt.iter().find(|trt| trt.name.as_str() == name)?;
    Some(make(trt.mark, trt.table, trt.own_traffic))
}
