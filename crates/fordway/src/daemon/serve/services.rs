//! What runs beside the translators: the DNS64 server, the router advertisements, transport relays, proxies, DSTM, and
//! what the kernel does by itself.
//!
//! All are told the prefixes that the translators have, from the same configuration and at the same moment, so
//! none of them speaks of a prefix that nobody translates. Sockets are taken before anything on the host is
//! changed and before privileges go; threads start when the translators run. A reload changes, starts and stops
//! servers together with the translators, or changes nothing at all.

mod dstm;
mod failure;
mod forwarding;
mod host;
mod mend;
mod relays;
mod slot;
mod slots;
mod status;

use std::collections::{BTreeMap, HashSet};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fordway_config::Config;
use fordway_dstmd as lending;
use fordway_nameserver as dns64;
use fordway_net::privilege::Capability;
use fordway_net::{IpNet, Netlink, View};
use fordway_proxy as proxy;
use fordway_relay as trt;
use fordway_router as router;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

use crate::daemon::apply::tunnels::Tunnels;
use crate::daemon::apply::upkeep::earlier;
use crate::failure::Failure;
use crate::settings;
pub(crate) use dstm::key as dstm_key;
use forwarding::Forwarding;
use host::Host;
use mend::Mending;
use relays::Hosts;
use slot::{Before, Ready, Service, Slot};
use slots::{Befores, Slots};

/// Servers that have their sockets, on a host that is set up for them. Dropped, it takes the set-up back.
pub(crate) struct Prepared {
    dns64: Option<Ready<dns64::Server>>,
    router: Option<Ready<router::Server>>,
    relays: BTreeMap<String, Ready<trt::Server>>,
    proxies: BTreeMap<String, Ready<proxy::Server>>,
    dstm_server: Option<Ready<lending::Server>>,
    dstm_tep: Option<Ready<lending::Agent>>,
    host: Option<(Host, Hosts)>,
    forwarding: Forwarding,
    seen: Seen,
    run_dir: PathBuf,
    tunnels: Tunnels,
}

impl Prepared {
    /// Takes the sockets and sets the host up. If it fails, the host is as it was.
    pub(crate) fn set_up(
        config: &Config,
        run_dir: &Path,
        tunnels: &Tunnels,
    ) -> Result<Prepared, Failure> {
        let seen = Seen::now(config)?;
        let wanted = Wanted::of(config, &seen, tunnels)?;
        if wanted.dns64.is_some() || !wanted.relays.is_empty() || !wanted.proxies.is_empty() {
            raise_descriptors(relays::descriptors(config));
        }
        let dns64 = bind::<dns64::Server>(wanted.dns64)?;
        let router = bind::<router::Server>(wanted.router)?;
        let relays = slots::bind::<trt::Server>(wanted.relays)?;
        let proxies = slots::bind::<proxy::Server>(wanted.proxies)?;
        let dstm_server = bind::<lending::Server>(wanted.dstm_server)?;
        let dstm_tep = bind::<lending::Agent>(wanted.dstm_tep)?;
        let intercepts = relays.iter().filter_map(|(name, (bound, _))| {
            relays::intercept(config, name, |mark, table, own| bound.intercept(mark, table, own))
        });
        let intercepts: Vec<_> = intercepts.collect();
        let run_dir = run_dir.to_owned();
        let forwarding = Forwarding::default();
        let host = None;
        let tunnels = tunnels.clone();
        let mut prepared = Prepared {
            dns64,
            router,
            relays,
            proxies,
            dstm_server,
            dstm_tep,
            host,
            forwarding,
            seen,
            run_dir,
            tunnels,
        };
        let mut host = Host::default();
        host.bring(config, &prepared.run_dir)?;
        let mut hosts = Hosts::default();
        if let Err(failure) = hosts.bring(&intercepts, &prepared.run_dir) {
            host.restore();
            return Err(failure);
        }
        prepared.host = Some((host, hosts));
        prepared.forwarding.bring(config, &prepared.run_dir)?;
        Ok(prepared)
    }

    /// What the daemon needs later: to change the host back, and to take other sockets when it is reloaded.
    pub(crate) fn capabilities(&self) -> Vec<Capability> {
        let mut needed = Vec::new();
        let hosts = self.host.as_ref();
        let hosts = hosts.is_some_and(|(host, relays)| !host.is_empty() || !relays.is_empty());
        if hosts || !self.forwarding.is_empty() {
            needed.push(Capability::CAP_NET_ADMIN);
        }
        if self.dns64.is_some() || self.router.is_some() || !self.proxies.is_empty() {
            needed.push(Capability::CAP_NET_BIND_SERVICE);
        }
        if self.router.is_some() || !self.relays.is_empty() {
            needed.push(Capability::CAP_NET_RAW);
        }
        needed
    }

    /// Starts the servers, on threads without privileges.
    pub(crate) fn start(mut self) -> Result<Services, Failure> {
        let mut dns64 = Slot::start(self.dns64.take())?;
        let mut router = Slot::start(self.router.take()).inspect_err(|_| dns64.end(false))?;
        let mut relays = Slots::start(std::mem::take(&mut self.relays)).inspect_err(|_| {
            router.end(false);
            dns64.end(false);
        })?;
        let mut proxies = Slots::start(std::mem::take(&mut self.proxies)).inspect_err(|_| {
            relays.end(false);
            router.end(false);
            dns64.end(false);
        })?;
        let lent = Slot::start(self.dstm_server.take())
            .and_then(|server| Ok((server, Slot::start(self.dstm_tep.take())?)));
        let (dstm_server, dstm_tep) = lent.inspect_err(|_| {
            proxies.end(false);
            relays.end(false);
            router.end(false);
            dns64.end(false);
        })?;
        let (host, relay_hosts) = self.host.take().unwrap_or_default();
        let services = Services {
            dns64,
            router,
            relays,
            proxies,
            dstm_server,
            dstm_tep,
            host,
            relay_hosts,
            forwarding: std::mem::take(&mut self.forwarding),
            seen: std::mem::take(&mut self.seen),
            run_dir: std::mem::take(&mut self.run_dir),
            tunnels: self.tunnels.clone(),
            mending: Mending::default(),
        };
        services.announce();
        Ok(services)
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some((host, relays)) = &mut self.host {
            relays.restore();
            host.restore();
        }
        self.forwarding.restore();
    }
}

fn bind<S: Service>(wanted: Option<S::Settings>) -> Result<Option<Ready<S>>, Failure> {
    match wanted {
        Some(settings) => Ok(Some((S::bind(&settings)?, settings))),
        None => Ok(None),
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

/// What the servers are to be told.
struct Wanted {
    dns64: Option<dns64::Settings>,
    router: Option<router::Settings>,
    relays: slots::Wanted<trt::Server>,
    proxies: slots::Wanted<proxy::Server>,
    dstm_server: Option<lending::Settings>,
    dstm_tep: Option<lending::AgentSettings>,
}

impl Wanted {
    fn of(config: &Config, seen: &Seen, tunnels: &Tunnels) -> Result<Wanted, Failure> {
        Ok(Wanted {
            dns64: settings::dns64(config, &seen.local)?,
            router: settings::router(config),
            relays: settings::relays(config, &seen.local, &seen.own4),
            proxies: settings::proxies(config, &seen.local),
            dstm_server: dstm::server(config, tunnels)?,
            dstm_tep: dstm::tep(config, tunnels)?,
        })
    }
}

/// What of the host servers are told, where they ask for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    /// The networks of this host.
    local: Vec<IpNet>,
    /// Its IPv4 addresses.
    own4: HashSet<Ipv4Addr>,
}

impl Seen {
    fn now(config: &Config) -> Result<Seen, Failure> {
        Seen::look(config, &mut View::new(&mut Netlink::open()?))
    }

    fn look(config: &Config, view: &mut View<'_>) -> Result<Seen, Failure> {
        let dns64 = config.dns64.as_ref().is_some_and(|dns64| dns64.allow.is_none());
        let proxy = config.proxies.iter().any(|proxy| proxy.allow().is_none());
        let local = match dns64 || proxy || config.trt.iter().any(|trt| trt.allow.is_none()) {
            true => settings::local(view.addresses()?),
            false => Vec::new(),
        };
        Ok(Seen { local, own4: relays::own4(config, view)? })
    }
}

/// The servers that run.
#[derive(Default)]
pub(crate) struct Services {
    dns64: Slot<dns64::Server>,
    router: Slot<router::Server>,
    relays: Slots<trt::Server>,
    proxies: Slots<proxy::Server>,
    dstm_server: Slot<lending::Server>,
    dstm_tep: Slot<lending::Agent>,
    host: Host,
    relay_hosts: Hosts,
    forwarding: Forwarding,
    /// What servers were told of this host.
    seen: Seen,
    run_dir: PathBuf,
    tunnels: Tunnels,
    mending: Mending,
}

/// What there was before a change, to be ended.
#[must_use]
pub(crate) struct Change {
    dns64: Before<dns64::Server>,
    router: Before<router::Server>,
    relays: Befores<trt::Server>,
    proxies: Befores<proxy::Server>,
    dstm_server: Before<lending::Server>,
    dstm_tep: Before<lending::Agent>,
}

impl Services {
    /// Goes on with another configuration than the one in force; on an error everything is as it was. What ends
    /// goes on until [`Services::settle`].
    pub(crate) fn change(&mut self, now: &Config, wanted: &Config) -> Result<Change, Failure> {
        let seen = Seen::now(wanted)?;
        let told = Wanted::of(wanted, &seen, &self.tunnels)?;
        self.host.bring(wanted, &self.run_dir)?;
        self.forwarding.bring(wanted, &self.run_dir).inspect_err(|_| self.host.settle(now))?;
        let changed = self.change_servers(told, now, wanted);
        let change = changed.inspect_err(|_| {
            self.host.settle(now);
            self.forwarding.settle(now);
        })?;
        self.seen = seen;
        Ok(change)
    }

    /// All servers, or none.
    fn change_servers(
        &mut self,
        told: Wanted,
        now: &Config,
        wanted: &Config,
    ) -> Result<Change, Failure> {
        let dns64 = self.dns64.change(told.dns64)?;
        let router = match self.router.change(told.router) {
            Ok(router) => router,
            Err(failure) => {
                said(self.dns64.change_back(dns64));
                return Err(failure);
            }
        };
        let proxies = match self.proxies.change(told.proxies) {
            Ok(proxies) => proxies,
            Err(failure) => {
                said(self.router.change_back(router));
                said(self.dns64.change_back(dns64));
                return Err(failure);
            }
        };
        let lenders = match self.change_lenders(told.dstm_server, told.dstm_tep) {
            Ok(lenders) => lenders,
            Err(failure) => {
                said(self.proxies.change_back(proxies));
                said(self.router.change_back(router));
                said(self.dns64.change_back(dns64));
                return Err(failure);
            }
        };
        let relays = self.relays.change(told.relays);
        let relays = relays.and_then(|relays| match self.intercept(wanted) {
            Ok(()) => Ok(relays),
            Err(failure) => {
                said(self.relays.change_back(relays));
                said(self.intercept(now));
                Err(failure)
            }
        });
        match relays {
            Ok(relays) => {
                let (dstm_server, dstm_tep) = lenders;
                Ok(Change { dns64, router, relays, proxies, dstm_server, dstm_tep })
            }
            Err(failure) => {
                self.relay_hosts.settle(now);
                said(self.dstm_tep.change_back(lenders.1));
                said(self.dstm_server.change_back(lenders.0));
                said(self.proxies.change_back(proxies));
                said(self.router.change_back(router));
                said(self.dns64.change_back(dns64));
                Err(failure)
            }
        }
    }

    /// DSTM's server and tunnel end point, or neither.
    fn change_lenders(
        &mut self,
        server: Option<lending::Settings>,
        tep: Option<lending::AgentSettings>,
    ) -> Result<(Before<lending::Server>, Before<lending::Agent>), Failure> {
        let server = self.dstm_server.change(server)?;
        match self.dstm_tep.change(tep) {
            Ok(tep) => Ok((server, tep)),
            Err(failure) => {
                said(self.dstm_server.change_back(server));
                Err(failure)
            }
        }
    }

    /// Has packets come to the relays that run.
    fn intercept(&mut self, config: &Config) -> Result<(), Failure> {
        let intercepts = self.relays.iter().filter_map(|(server, settings)| {
            relays::intercept(config, &settings.name, |mark, table, own| {
                server.intercept(mark, table, own)
            })
        });
        let intercepts: Vec<_> = intercepts.collect();
        self.relay_hosts.bring(&intercepts, &self.run_dir)
    }

    /// Ends what the configuration in force does not have any more.
    pub(crate) fn settle(&mut self, before: Change, config: &Config) {
        Slot::settle(before.dns64);
        Slot::settle(before.router);
        Slot::settle(before.dstm_server);
        Slot::settle(before.dstm_tep);
        self.proxies.settle(before.proxies);
        self.relay_hosts.settle(config);
        self.relays.settle(before.relays);
        self.host.settle(config);
        self.forwarding.settle(config);
    }

    /// Follows the host: devices that have come, networks of the host's own; and translators that have gone.
    /// When to look again, if something waits.
    pub(crate) fn follow(
        &mut self,
        config: &Config,
        view: &mut View<'_>,
        now: Instant,
    ) -> Option<Instant> {
        let again =
            earlier(self.host.follow(config, view, now), self.relay_hosts.follow(view, now));
        let again = earlier(again, self.forwarding.follow(config, view, now));
        if let Ok(seen) = Seen::look(config, view)
            && seen != self.seen
        {
            if seen.local != self.seen.local {
                info!("services: networks of this host: {}", join(&seen.local));
            }
            self.take_up(config);
        }
        again
    }

    /// Takes the configuration up as it is now, after something else has changed it: each server by itself. What can't is
    /// tried again with what is to be mended.
    pub(crate) fn take_up(&mut self, config: &Config) {
        if !self.follow_each(config) {
            self.mending.is_broken();
        }
    }

    /// Whether all are as they should be.
    fn follow_each(&mut self, config: &Config) -> bool {
        let told = Seen::now(config)
            .and_then(|seen| Ok((Wanted::of(config, &seen, &self.tunnels)?, seen)));
        let (told, seen) = match told {
            Ok(told) => told,
            Err(failure) => {
                warn!("services: nothing is changed: {}", failure.line());
                return false;
            }
        };
        let brought = [
            self.host.bring(config, &self.run_dir),
            self.forwarding.bring(config, &self.run_dir),
            self.dns64.follow(told.dns64),
            self.router.follow(told.router),
            self.dstm_server.follow(told.dstm_server),
            self.dstm_tep.follow(told.dstm_tep),
        ];
        let mut failures: Vec<Failure> = brought.into_iter().filter_map(Result::err).collect();
        failures.extend(self.proxies.follow(told.proxies));
        failures.extend(self.relays.follow(told.relays));
        failures.extend(self.intercept(config).err());
        self.relay_hosts.settle(config);
        self.host.settle(config);
        self.forwarding.settle(config);
        self.seen = seen;
        for failure in &failures {
            warn!("services: one does not follow: {}", failure.line());
        }
        failures.is_empty()
    }

    /// Begins the end, before anything that servers use is gone: hosts are told, unless another process goes on (`leave`),
    /// and proxies take nobody any more.
    pub(crate) fn begin_end(&mut self, leave: bool) {
        self.router.end(leave);
        self.proxies.servers_mut().for_each(proxy::Server::begin_end);
    }

    /// Whether nobody is served any more who was served when the end began.
    pub(super) fn are_drained(&self) -> bool {
        self.proxies.iter().all(|(server, _)| server.has_ended())
    }

    /// Ends the servers: the host is as it was. What is under way is cut.
    pub(crate) fn stop(mut self) {
        self.proxies.retire();
        self.dstm_tep.end(false);
        self.dstm_server.end(false);
        self.dns64.end(false);
        self.relay_hosts.restore();
        self.relays.end(false);
        self.host.restore();
        self.forwarding.restore();
    }

    /// Ends the servers for a process that will go on: the host stays as it is.
    pub(crate) fn leave(mut self) {
        self.proxies.retire();
        self.dstm_tep.end(true);
        self.dstm_server.end(true);
        self.dns64.end(true);
        self.relays.end(true);
    }

    /// The names of what runs, for people.
    pub(crate) fn names(&self) -> Vec<String> {
        let dns64 = self.dns64.settings().map(|_| "dns64".to_owned());
        let devices = self.router.settings().into_iter().flat_map(|it| &it.devices);
        let advertised = devices.map(|device| format!("advertisements on {}", device.device));
        let relays = self.relays.iter().map(|(_, settings)| settings.name.clone());
        let own = self.forwarding.names().into_iter().chain(dns64);
        let proxies = self.proxies.iter().map(|(_, settings)| format!("proxy {}", settings.name));
        let lending = self.dstm_server.settings().map(|_| "dstm-server".to_owned());
        let told = self.dstm_tep.settings().map(|_| "dstm-tep".to_owned());
        let own = own.chain(advertised).chain(relays).chain(proxies);
        own.chain(lending).chain(told).collect()
    }

    fn announce(&self) {
        if let Some(settings) = self.dns64.settings() {
            info!(
                "dns64: listening on {} with {} threads; prefixes {}",
                join(&settings.listen),
                settings.threads,
                join(
                    &settings.policies.iter().next().map(|it| it.pool6.clone()).unwrap_or_default()
                )
            );
        }
        for (_, settings) in self.relays.iter() {
            info!(
                "{}: transport relay with {} threads; prefixes {}",
                settings.name,
                settings.threads,
                join(&settings.pool6)
            );
        }
        for (_, settings) in self.proxies.iter() {
            let (name, threads) = (&settings.name, settings.threads);
            info!("proxy {name}: listening on {} with {threads} threads", join(&settings.listen));
        }
        if let Some(settings) = self.dstm_server.settings() {
            let (listen, pool) = (join(&settings.listen), join(&settings.server.pool));
            info!("dstm-server: listening on {listen}; lends {pool}");
        }
        if let Some(settings) = self.dstm_tep.settings() {
            info!("dstm-tep: listening on {}", settings.listen);
        }
    }
}

/// A way back that is not whole is worth a line.
fn said(result: Result<(), Failure>) {
    if let Err(failure) = result {
        warn!("services: the old configuration is not whole again: {}", failure.line());
    }
}

fn join<T: ToString>(items: &[T]) -> String {
    match items {
        [] => "none".to_owned(),
        items => items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}
