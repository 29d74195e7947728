//! What the kernel does by itself: modes `nat44` and `dual-stack`, as changes of the host alone.
//!
//! What is in force outlives a daemon that is killed: translated connections go on, and the next start of the same
//! name takes it over. `fordway down NAME` takes it back without a daemon.

mod plan;
mod status;

use std::collections::BTreeMap;
use std::path::Path;

use fordway_config::{Config, DualStack, Nat44};
use fordway_net::privilege::{self, Capability};
use fordway_net::{Change, Manager, Netlink};
use tracing::{info, warn};

use super::super::{journal, prepared};
use crate::failure::Failure;

/// An entry of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Nat44(Nat44),
    DualStack(DualStack),
}

impl Entry {
    /// Those of a configuration.
    fn all(config: &Config) -> Vec<Entry> {
        let nat44 = config.nat44.iter().cloned().map(Entry::Nat44);
        nat44.chain(config.dual_stack.iter().cloned().map(Entry::DualStack)).collect()
    }

    fn name(&self) -> &str {
        match self {
            Entry::Nat44(nat44) => nat44.name.as_str(),
            Entry::DualStack(dual_stack) => dual_stack.name.as_str(),
        }
    }
}

/// What is in force. What is dropped without [`Forwarding::restore`] stays, for the next start to take over.
#[derive(Default)]
pub(super) struct Forwarding(BTreeMap<String, Owned>);

struct Owned {
    manager: Manager,
    entry: Entry,
    changes: Vec<Change>,
    /// Devices that were not there at the last look.
    absent: Vec<String>,
}

impl Forwarding {
    /// Whether there is nothing that could have to be taken back.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes the changes of each entry. Entries that are not in the configuration any more keep theirs until
    /// [`Forwarding::settle`].
    ///
    /// On an error everything is as it was.
    pub(super) fn bring(&mut self, config: &Config, run_dir: &Path) -> Result<(), Failure> {
        let entries = Entry::all(config);
        if entries.is_empty() {
            return Ok(());
        }
        privilege::require(&[Capability::CAP_NET_ADMIN])?;
        let mut netlink = Netlink::open()?;
        let (mut fresh, mut before) = (Vec::new(), Vec::new());
        for entry in entries {
            let name = entry.name().to_owned();
            let made = match self.0.get_mut(&name) {
                Some(owned) if owned.entry == entry => Ok(()),
                Some(owned) => {
                    before.push(owned.entry.clone());
                    owned.become_like(config, entry, &mut netlink)
                }
                None => {
                    fresh.push(name.clone());
                    self.open(config, entry, run_dir, &mut netlink)
                }
            };
            if let Err(failure) = made {
                fresh.iter().for_each(|name| self.give_back(name));
                for entry in before {
                    self.put_back(config, entry, &mut netlink);
                }
                return Err(failure.prefix(&format!("{name}: ")));
            }
        }
        Ok(())
    }

    fn open(
        &mut self,
        config: &Config,
        entry: Entry,
        run_dir: &Path,
        netlink: &mut Netlink,
    ) -> Result<(), Failure> {
        let name = entry.name().to_owned();
        let manager = Manager::open(run_dir, &name)?;
        let (changes, absent) = (Vec::new(), Vec::new());
        let mut owned = Owned { manager, entry: entry.clone(), changes, absent };
        let made = owned.become_like(config, entry, netlink).and_then(|()| {
            // What an earlier life has left and this one does not need.
            let report = owned.manager.settle()?;
            if !report.is_empty() {
                journal::log_report(&name, "left by an earlier run: ", &report);
            }
            Ok(owned.manager.keep(true)?)
        });
        self.0.insert(name, owned);
        made
    }

    /// Makes an earlier entry's changes again, after those of a later one turned out to be impossible.
    fn put_back(&mut self, config: &Config, entry: Entry, netlink: &mut Netlink) {
        let name = entry.name().to_owned();
        let Some(owned) = self.0.get_mut(&name) else { return };
        if let Err(failure) = owned.become_like(config, entry, netlink) {
            warn!("{name}: the old configuration is not whole again: {}", failure.line());
        }
        owned.settle();
    }

    /// Makes it as the configuration in force has it: entries that are not in it are taken back, as is what
    /// changed entries need no more.
    pub(super) fn settle(&mut self, config: &Config) {
        let entries = Entry::all(config);
        let gone = |name: &&String| !entries.iter().any(|entry| entry.name() == name.as_str());
        let gone: Vec<String> = self.0.keys().filter(gone).cloned().collect();
        gone.iter().for_each(|name| self.give_back(name));
        let mut netlink = Netlink::open().ok();
        for entry in entries {
            let name = entry.name().to_owned();
            let Some(owned) = self.0.get_mut(&name) else { continue };
            if let Some(netlink) = netlink.as_mut().filter(|_| owned.entry != entry)
                && let Err(failure) = owned.become_like(config, entry, netlink)
            {
                warn!("{name}: {}", failure.line());
            }
            owned.settle();
        }
    }

    /// Follows the host: devices that come and go, addresses of uplinks whose ports are forwarded.
    pub(super) fn follow(&mut self, config: &Config, netlink: &mut Netlink) {
        for (name, owned) in &mut self.0 {
            let wanted = match plan::plan(config, &owned.entry, &owned.changes, netlink) {
                Ok(wanted) => wanted,
                Err(failure) => {
                    warn!("{name}: {}", failure.line());
                    continue;
                }
            };
            if wanted.changes != owned.changes {
                info!("{name}: the host has changed: following it");
            } else if !owned.has_its_table() {
                warn!("{name}: somebody has deleted its nftables table: making it again");
            } else {
                continue;
            }
            match owned.take_up(wanted) {
                Ok(()) => owned.settle(),
                Err(failure) => warn!("{name}: {}", failure.line()),
            }
        }
    }

    /// Takes everything back.
    pub(super) fn restore(&mut self) {
        let names: Vec<String> = self.0.keys().cloned().collect();
        names.iter().for_each(|name| self.give_back(name));
    }

    /// The names, for people.
    pub(super) fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    fn give_back(&mut self, name: &str) {
        if let Some(mut owned) = self.0.remove(name) {
            journal::take_back(name, &mut owned.manager);
        }
    }
}

impl Owned {
    /// Takes an entry up. What the one before needed stays until [`Owned::settle`].
    fn become_like(
        &mut self,
        config: &Config,
        entry: Entry,
        netlink: &mut Netlink,
    ) -> Result<(), Failure> {
        let wanted = plan::plan(config, &entry, &self.changes, netlink)?;
        self.entry = entry;
        self.take_up(wanted)
    }

    fn take_up(&mut self, wanted: plan::Plan) -> Result<(), Failure> {
        let name = self.entry.name();
        for device in wanted.absent.iter().filter(|it| !self.absent.contains(it)) {
            warn!("{name}: there is no interface {device} now; it takes part when it comes");
        }
        self.absent = wanted.absent;
        prepared::apply(name, &mut self.manager, &wanted.changes)?;
        self.changes = wanted.changes;
        Ok(())
    }

    /// Whether the rules are there: a firewall that is loaded anew often flushes all that there are.
    fn has_its_table(&mut self) -> bool {
        let mut tables = self.changes.iter().filter(|it| matches!(it, Change::Nat44(_)));
        tables.all(|table| self.manager.is_in_force(table).unwrap_or(true))
    }

    /// Takes back what is in force and not needed any more.
    fn settle(&mut self) {
        let name = self.entry.name();
        let changes = &self.changes;
        let manager = &mut self.manager;
        let settled = manager.review().and_then(|()| {
            for change in changes {
                manager.apply(change)?;
            }
            manager.settle()
        });
        match settled {
            Ok(report) if report.is_empty() => {}
            Ok(report) => journal::log_report(name, "another configuration: ", &report),
            Err(error) => warn!("{name}: cannot take back what is needed no more: {error}"),
        }
    }
}
