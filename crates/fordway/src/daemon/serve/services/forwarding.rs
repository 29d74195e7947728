//! What the kernel does by itself: modes `nat44` and `dual-stack`, as changes of the host alone.
//!
//! What is in force outlives a daemon that is killed: translated connections go on, and the next start of the same
//! name takes it over. `fordway down NAME` takes it back without a daemon.

mod status;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use fordway_config::Config;
use fordway_net::privilege::{self, Capability};
use fordway_net::{Netlink, View};
use tracing::{info, warn};

use crate::daemon::apply::upkeep::{Upkeep, earlier};
use crate::daemon::plan::forwarding::{self, Entry};
use crate::failure::Failure;

/// Why something is taken back, for the log.
const CHANGED: &str = "another configuration: ";

/// What is in force. What is dropped without [`Forwarding::restore`] stays, for the next start to take over.
#[derive(Default)]
pub(super) struct Forwarding(BTreeMap<String, Owned>);

struct Owned {
    host: Upkeep,
    entry: Entry,
    /// Devices that were not there at the last look.
    absent: Vec<String>,
    /// Why the host could not be followed at the last look.
    failed: Option<String>,
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
        let host = Upkeep::open(run_dir, &name, &name)?;
        let mut owned = Owned { host, entry: entry.clone(), absent: Vec::new(), failed: None };
        let made = owned.become_like(config, entry, netlink).and_then(|()| {
            // What an earlier life has left and this one does not need.
            owned.host.settle("left by an earlier run: ");
            owned.host.keep()
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
        owned.host.settle(CHANGED);
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
            owned.host.settle(CHANGED);
        }
    }

    /// Follows the host: devices that come and go, addresses of uplinks whose ports are forwarded.
    pub(super) fn follow(
        &mut self,
        config: &Config,
        view: &mut View<'_>,
        now: Instant,
    ) -> Option<Instant> {
        let mut again = None;
        for (name, owned) in &mut self.0 {
            match forwarding::plan(config, &owned.entry, owned.host.wanted(), view.netlink()) {
                Ok(wanted) if wanted.changes == owned.host.wanted() => {
                    again = earlier(again, owned.host.follow(view, now));
                    owned.failed = None;
                }
                Ok(wanted) => match owned.take_up(wanted) {
                    Ok(()) => {
                        info!("{name}: the host has changed, and is followed");
                        owned.host.settle(CHANGED);
                    }
                    Err(failure) => owned.fails(&failure),
                },
                Err(failure) => owned.fails(&failure),
            }
        }
        again
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
        if let Some(owned) = self.0.remove(name) {
            owned.host.take_back();
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
        let wanted = forwarding::plan(config, &entry, self.host.wanted(), netlink)?;
        self.entry = entry;
        self.take_up(wanted)
    }

    fn take_up(&mut self, wanted: forwarding::Plan) -> Result<(), Failure> {
        let name = self.entry.name();
        for device in wanted.absent.iter().filter(|it| !self.absent.contains(it)) {
            warn!("{name}: there is no interface {device} now; it takes part when it comes");
        }
        self.absent = wanted.absent;
        self.host.want(wanted.changes)
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
