//! What services want of the host: an owner in the ledger for each entry of the configuration.
//!
//! What modes nat44 and dual-stack have made outlives a daemon that is killed: translated connections go on, and the
//! next start of the same name takes it over. `fordway down NAME` takes it back without a daemon.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use fordway_config::Config;
use fordway_net::privilege::{self, Capability};
use fordway_net::{Change, Netlink, View};
use tracing::{info, warn};

use super::upkeep::{Upkeep, earlier};
use crate::failure::Failure;
use crate::plan::entry::{Entry, Plan, plan};

/// Why something is taken back, for the log.
const CHANGED: &str = "another configuration: ";

/// What is in force, by its owner in the ledger. What is dropped without [`Hosts::restore`] stays, for the next start to
/// take over.
#[derive(Default)]
pub(crate) struct Hosts(BTreeMap<String, Owned>);

/// What is in force for an entry.
pub(crate) struct Owned {
    host: Upkeep,
    pub(crate) entry: Entry,
    /// Devices that were not there at the last look.
    pub(crate) absent: Vec<String>,
    /// Why the host could not be followed at the last look.
    failed: Option<String>,
}

impl Hosts {
    /// Whether there is nothing that could have to be taken back.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is in force.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Owned> {
        self.0.values()
    }

    /// The names of modes nat44 and dual-stack, for people.
    pub(crate) fn names(&self) -> Vec<String> {
        let own = self.iter().filter(|owned| owned.entry.follows_host());
        own.map(|owned| owned.entry.name().to_owned()).collect()
    }

    /// Makes the changes of each entry. Entries that are not among these keep theirs until [`Hosts::settle`].
    ///
    /// On an error everything is as it was.
    pub(crate) fn apply(
        &mut self,
        config: &Config,
        entries: Vec<Entry>,
        run_dir: &Path,
    ) -> Result<(), Failure> {
        if entries.is_empty() {
            return Ok(());
        }
        privilege::require(&[Capability::CAP_NET_ADMIN])?;
        let mut netlink = Netlink::open()?;
        let (mut fresh, mut before) = (Vec::new(), Vec::new());
        for entry in entries {
            let (owner, title) = (entry.owner(), entry.title());
            let made = match self.0.get_mut(&owner) {
                Some(owned) if owned.entry == entry && entry.follows_host() => Ok(()),
                Some(owned) => {
                    before.push((owner, owned.entry.clone()));
                    owned
                        .reconfigure(config, entry, &mut netlink)
                        .inspect(|()| owned.settle_servers())
                }
                None => {
                    fresh.push(owner.clone());
                    self.open(config, owner, entry, run_dir, &mut netlink)
                }
            };
            if let Err(failure) = made {
                self.give_back(|owner, _| fresh.contains(owner));
                for (owner, entry) in before {
                    self.put_back(config, &owner, entry, &mut netlink);
                }
                return Err(failure.prefix(&title));
            }
        }
        Ok(())
    }

    fn open(
        &mut self,
        config: &Config,
        owner: String,
        entry: Entry,
        run_dir: &Path,
        netlink: &mut Netlink,
    ) -> Result<(), Failure> {
        let host = Upkeep::open(run_dir, &owner, entry.name())?;
        let keeps = entry.follows_host();
        let mut owned = Owned { host, entry: entry.clone(), absent: Vec::new(), failed: None };
        let made = owned.reconfigure(config, entry, netlink).and_then(|()| {
            // What an earlier run has left and this one does not need.
            owned.settle("left by an earlier run: ");
            if keeps { owned.host.keep() } else { Ok(()) }
        });
        self.0.insert(owner, owned);
        made
    }

    /// Makes an earlier entry's changes again, after those of a later one turned out to be impossible.
    fn put_back(&mut self, config: &Config, owner: &str, entry: Entry, netlink: &mut Netlink) {
        let Some(owned) = self.0.get_mut(owner) else { return };
        if let Err(failure) = owned.reconfigure(config, entry, netlink) {
            let name = owned.entry.name();
            warn!("{name}: the rollback is incomplete: {}", failure.line());
        }
        owned.settle(CHANGED);
    }

    /// Makes it as the configuration in force has it: entries that are not in it are taken back, as is what
    /// changed entries need no more.
    pub(crate) fn settle(&mut self, config: &Config) {
        let owners = Entry::owners(config);
        self.give_back(|owner, _| !owners.contains(owner));
        let mut netlink = Netlink::open().ok();
        for entry in Entry::all(config) {
            let Some(owned) = self.0.get_mut(&entry.owner()) else { continue };
            if let Some(netlink) = netlink.as_mut().filter(|_| owned.entry != entry)
                && let Err(failure) = owned.reconfigure(config, entry, netlink)
            {
                warn!("{}: {}", owned.entry.name(), failure.line());
            }
            owned.settle(CHANGED);
        }
    }

    /// Follows the host: devices that come and go, addresses of uplinks whose ports are forwarded; and puts back what is
    /// missing. When to look again, if something waits.
    pub(crate) fn follow(
        &mut self,
        config: &Config,
        view: &mut View<'_>,
        now: Instant,
    ) -> Option<Instant> {
        let mut again = None;
        for owned in self.0.values_mut() {
            let changed = match owned.has_changed(config, view.netlink()) {
                Ok(None) => {
                    again = earlier(again, owned.host.follow(view, now));
                    owned.failed = None;
                    continue;
                }
                Ok(Some(wanted)) => owned.apply(wanted),
                Err(failure) => Err(failure),
            };
            match changed {
                Ok(()) => {
                    info!("{}: the host has changed, changes are applied", owned.entry.name());
                    owned.settle(CHANGED);
                }
                Err(failure) => owned.fails(&failure),
            }
        }
        again
    }

    /// Takes back what leads packets to relays.
    pub(crate) fn restore_relays(&mut self) {
        self.give_back(|_, entry| matches!(entry, Entry::Relay(_)));
    }

    /// Takes everything back.
    pub(crate) fn restore(&mut self) {
        self.give_back(|_, _| true);
    }

    fn give_back(&mut self, gone: impl Fn(&String, &Entry) -> bool) {
        let gone = self.0.extract_if(.., |owner, owned| gone(owner, &owned.entry));
        gone.for_each(|(_, owned)| owned.host.take_back());
    }
}

impl Owned {
    /// The changes that are in force.
    pub(crate) fn wanted(&self) -> &[Change] {
        self.host.wanted()
    }

    /// Applies an entry. What the one before needed stays until [`Owned::settle`].
    fn reconfigure(
        &mut self,
        config: &Config,
        entry: Entry,
        netlink: &mut Netlink,
    ) -> Result<(), Failure> {
        let wanted = plan(config, &entry, self.wanted(), netlink)?;
        self.entry = entry;
        self.apply(wanted)
    }

    fn apply(&mut self, wanted: Plan) -> Result<(), Failure> {
        let name = self.entry.name();
        for device in wanted.absent.iter().filter(|it| !self.absent.contains(it)) {
            warn!("{name}: there is no interface {device} now; it is used when it appears");
        }
        self.absent = wanted.absent;
        self.host.want(wanted.changes)
    }

    /// What the entry means now, if that is something else than before.
    fn has_changed(&self, config: &Config, netlink: &mut Netlink) -> Result<Option<Plan>, Failure> {
        if !self.entry.follows_host() && !self.wanted().is_empty() {
            return Ok(None);
        }
        let wanted = plan(config, &self.entry, self.wanted(), netlink)?;
        Ok(Some(wanted).filter(|wanted| wanted.changes != self.wanted()))
    }

    /// Takes back what is not wanted. While a router's device is absent, what an earlier run has left stays.
    fn settle(&mut self, why: &str) {
        if !self.wanted().is_empty() {
            self.host.settle(why);
        }
    }

    /// What leads packets to servers is settled at once: their sockets are others now.
    fn settle_servers(&mut self) {
        if !self.entry.follows_host() {
            self.settle("not needed any more: ");
        }
    }

    /// Says why the host can't be followed, once.
    fn fails(&mut self, failure: &Failure) {
        let line = failure.line();
        if self.failed.as_ref() != Some(&line) {
            warn!("{}: {line}", self.entry.name());
            self.failed = Some(line);
        }
    }
}
