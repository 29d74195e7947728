//! What runs beside the translators: the DNS64 server, the router advertisements, transport relays, proxies, DSTM, and
//! modes `nat44` and `dual-stack`, which are changes of the host alone.
//!
//! All are told the prefixes that the translators have, from the same configuration and at the same time, so that none
//! of them announces a prefix that is not translated. Sockets are opened before the host is changed and before
//! privileges are dropped; threads start when the translators run. A reload changes, starts and stops servers together
//! with the translators, or changes nothing at all.

#[cfg(feature = "dstm")]
pub(super) mod dstm;
#[cfg(not(feature = "dstm"))]
#[path = "services/dstm/without.rs"]
pub(super) mod dstm;
mod failure;
mod forwarding;
mod kinds;
mod mend;
#[cfg(feature = "nat44")]
mod nat44;
#[cfg(not(feature = "nat44"))]
#[path = "services/nat44/without.rs"]
mod nat44;
mod servers;
mod status;

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fordway_config::{Config, Trt};
use fordway_nameserver as dns64;
use fordway_net::privilege::Capability;
use fordway_net::{IpNet, Netlink, View};
use fordway_proxy as proxy;
use fordway_relay as trt;
use fordway_router as router;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

use crate::apply::hosts::Hosts;
use crate::apply::tunnels::Tunnels;
use crate::failure::Failure;
use crate::output::joined_or;
use crate::plan::entry::Entry;
use crate::plan::resolve::v4;
use crate::settings;
use dstm::Dstm;
use mend::Mending;
use servers::{Group, Servers};

/// The servers, and what they need of the host. Dropped before they have started, it takes the changes of the host back.
#[derive(Default)]
pub(crate) struct Services {
    dns64: Servers<dns64::Server>,
    router: Servers<router::Server>,
    relays: Servers<trt::Server>,
    proxies: Servers<proxy::Server>,
    dstm: Dstm,
    hosts: Hosts,
    /// What servers were told of this host.
    seen: HostFacts,
    run_dir: PathBuf,
    tunnels: Tunnels,
    mending: Mending,
    has_started: bool,
}

/// From what the settings of servers are made.
struct Inputs<'a> {
    config: &'a Config,
    seen: &'a HostFacts,
    #[cfg_attr(
        not(feature = "dstm"),
        expect(dead_code, reason = "the servers that change them are left out")
    )]
    tunnels: &'a Tunnels,
}

/// What servers are told of the host, where they ask for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct HostFacts {
    /// The networks of this host.
    local: Vec<IpNet>,
    /// Its IPv4 addresses.
    own4: HashSet<Ipv4Addr>,
}

impl HostFacts {
    fn now(config: &Config) -> Result<HostFacts, Failure> {
        HostFacts::read(config, &mut View::new(&mut Netlink::open()?))
    }

    fn read(config: &Config, view: &mut View<'_>) -> Result<HostFacts, Failure> {
        let dns64 = config.dns64.as_ref().is_some_and(|dns64| dns64.allow.is_none());
        let proxy = config.proxies.iter().any(|proxy| proxy.allow().is_none());
        let mut seen = HostFacts::default();
        if dns64 || proxy || config.trt.iter().any(|trt| trt.allow.is_none()) {
            seen.local = settings::local(view.addresses()?);
        }
        if !config.trt.is_empty() {
            seen.own4 = view.addresses()?.iter().filter_map(v4).collect();
        }
        Ok(seen)
    }
}

impl Services {
    /// Opens the sockets and sets the host up. On an error the host is as it was.
    pub(crate) fn set_up(
        config: &Config,
        run_dir: &Path,
        tunnels: &Tunnels,
    ) -> Result<Services, Failure> {
        let mut services = Services::default();
        (services.run_dir, services.tunnels) = (run_dir.to_owned(), tunnels.clone());
        services.seen = services.plan(config)?;
        if config.dns64.is_some() || !config.trt.is_empty() || !config.proxies.is_empty() {
            raise_descriptors(descriptors(config));
        }
        services.all().into_iter().try_for_each(Group::bind)?;
        services.hosts.apply(config, Entry::all(config), &services.run_dir)?;
        services.intercept(config)?;
        Ok(services)
    }

    /// All servers, in the order in which they start.
    fn all(&mut self) -> Vec<&mut dyn Group> {
        let Services { dns64, router, relays, proxies, dstm, .. } = self;
        let mut all: Vec<&mut dyn Group> = vec![dns64, router, relays, proxies];
        all.extend(dstm.groups());
        all
    }

    /// Plans the servers of a configuration. Gives what they were told of the host.
    fn plan(&mut self, config: &Config) -> Result<HostFacts, Failure> {
        let (seen, tunnels) = (HostFacts::now(config)?, self.tunnels.clone());
        let inputs = Inputs { config, seen: &seen, tunnels: &tunnels };
        self.all().into_iter().try_for_each(|group| group.plan(&inputs))?;
        Ok(seen)
    }

    /// What the daemon needs later: to change the host back, and to open other sockets when it is reloaded.
    pub(crate) fn capabilities(&mut self) -> Vec<Capability> {
        let of_hosts = (!self.hosts.is_empty()).then_some(Capability::CAP_NET_ADMIN);
        let of_servers = self.all().into_iter().flat_map(|group| group.keeps().iter().copied());
        of_servers.chain(of_hosts).collect()
    }

    /// Starts the servers, on threads without privileges.
    pub(crate) fn start(mut self) -> Result<Services, Failure> {
        let started = self.all().into_iter().try_for_each(Group::start);
        started.inspect_err(|_| self.end(false))?;
        self.has_started = true;
        self.all().into_iter().for_each(|group| group.announce());
        Ok(self)
    }

    /// Goes on with another configuration than the one in force; on an error everything is as it was. What is replaced
    /// goes on until [`Services::settle`].
    pub(crate) fn change(&mut self, now: &Config, wanted: &Config) -> Result<(), Failure> {
        let seen = self.plan(wanted)?;
        let changed = self.hosts.apply(wanted, Entry::all(wanted), &self.run_dir);
        let changed = changed.and_then(|()| self.all().into_iter().try_for_each(Group::change));
        if let Err(failure) = changed.and_then(|()| self.intercept(wanted)) {
            self.all().into_iter().rev().for_each(Group::change_back);
            if let Err(failure) = self.intercept(now) {
                not_whole(&failure);
            }
            self.hosts.settle(now);
            return Err(failure);
        }
        self.seen = seen;
        Ok(())
    }

    /// Lets packets come to the relays that are bound or run.
    fn intercept(&mut self, config: &Config) -> Result<(), Failure> {
        let relays = self.relays(config);
        self.hosts.apply(config, relays, &self.run_dir)
    }

    /// What relays need of the host.
    fn relays(&self, config: &Config) -> Vec<Entry> {
        let entry = |settings: &trt::Settings| {
            config.trt.iter().find(|trt| trt.name.as_str() == settings.name)
        };
        let bound = self.relays.bound().filter_map(|(bound, settings)| {
            let Trt { mark, table, own_traffic, .. } = entry(settings)?;
            Some(bound.intercept(*mark, *table, *own_traffic))
        });
        let running = self.relays.iter().filter_map(|(server, settings)| {
            let Trt { mark, table, own_traffic, .. } = entry(settings)?;
            Some(server.intercept(*mark, *table, *own_traffic))
        });
        bound.chain(running).map(Entry::Relay).collect()
    }

    /// Ends what the configuration in force does not have any more.
    pub(crate) fn settle(&mut self, config: &Config) {
        self.hosts.settle(config);
        self.all().into_iter().for_each(Group::settle);
    }

    /// Follows the host: devices that have come, networks of the host's own; and translators that have gone.
    /// When to look again, if something waits.
    pub(crate) fn follow(
        &mut self,
        config: &Config,
        view: &mut View<'_>,
        now: Instant,
    ) -> Option<Instant> {
        let again = self.hosts.follow(config, view, now);
        if let Ok(seen) = HostFacts::read(config, view)
            && seen != self.seen
        {
            if seen.local != self.seen.local {
                info!("services: networks of this host: {}", joined_or(&seen.local, "none"));
            }
            self.apply(config);
        }
        again
    }

    /// Applies the configuration as it is now, after something else has changed it: each server by itself. What fails is
    /// tried again with what is to be mended.
    pub(crate) fn apply(&mut self, config: &Config) {
        if !self.follow_each(config) {
            self.mending.is_broken();
        }
    }

    /// Whether all are as they should be.
    fn follow_each(&mut self, config: &Config) -> bool {
        self.seen = match self.plan(config) {
            Ok(seen) => seen,
            Err(failure) => {
                warn!("services: nothing is changed: {}", failure.line());
                return false;
            }
        };
        let applied = self.hosts.apply(config, Entry::all(config), &self.run_dir);
        let mut failures: Vec<Failure> = applied.err().into_iter().collect();
        failures.extend(self.all().into_iter().flat_map(Group::follow));
        failures.extend(self.intercept(config).err());
        self.hosts.settle(config);
        for failure in &failures {
            warn!("services: a change has failed, will retry: {}", failure.line());
        }
        failures.is_empty()
    }

    /// Begins the end, before anything that servers use is gone: hosts are told, unless another process goes on
    /// (`leave`), and proxies accept no more clients.
    pub(crate) fn begin_end(&mut self, leave: bool) {
        self.all().into_iter().for_each(|group| group.begin_end(leave));
    }

    /// Whether no client is served any more who was served when the end began.
    pub(super) fn are_drained(&mut self) -> bool {
        self.all().into_iter().all(|group| group.is_drained())
    }

    /// Ends the servers, and cuts what is under way. The host stays as it is if another process goes on (`leave`), else
    /// it is as it was.
    pub(crate) fn end(&mut self, leave: bool) {
        if !leave {
            self.hosts.restore_relays();
        }
        self.all().into_iter().rev().for_each(|group| group.end(leave));
        if !leave {
            self.hosts.restore();
        }
    }

    /// The names of what runs, for people.
    pub(crate) fn names(&mut self) -> Vec<String> {
        let mut names = self.hosts.names();
        names.extend(self.all().into_iter().flat_map(|group| group.labels()));
        names
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        if !self.has_started {
            self.hosts.restore();
        }
    }
}

/// Lets this process have as many descriptors as it may, and so many at least: each question under way has a socket of
/// its own, and each connection of a relay or a proxy has some.
fn raise_descriptors(needed: u64) {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        // Beyond what it may: a process with privileges may do that, and is left with less otherwise.
        let more = Rlimit { current: Some(needed), maximum: Some(needed) };
        if setrlimit(Resource::Nofile, more).is_ok() {
            return;
        }
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!("services: cannot raise the limit of descriptors: {error}");
    }
}

/// Descriptors that relays may need: two for each connection, and as many for its pipes.
fn descriptors(config: &Config) -> u64 {
    let one = |trt: &Trt| 4 * trt.limits.connections as u64 + trt.limits.sessions as u64;
    config.trt.iter().map(one).sum()
}

/// Logs a rollback that has failed.
fn not_whole(failure: &Failure) {
    warn!("services: the rollback is incomplete: {}", failure.line());
}
