//! What runs beside the translators: the DNS64 server, the router advertisements, and what the kernel does by
//! itself.
//!
//! Both are told the prefixes that the translators have, from the same configuration and at the same moment, so
//! none of them speaks of a prefix that nobody translates. Sockets are taken before anything on the host is
//! changed and before privileges go; threads start when the translators run. A reload changes, starts and stops
//! servers together with the translators, or changes nothing at all.

mod failure;
mod forwarding;
mod host;
mod settings;
mod slot;
mod status;

use std::path::{Path, PathBuf};

use fordway_config::Config;
use fordway_net::privilege::Capability;
use fordway_net::{IpNet, Netlink};
use fordway_services::{dns64, router};
use rustix::process::{Resource, getrlimit, setrlimit};
use tracing::{info, warn};

use crate::failure::Failure;
use forwarding::Forwarding;
use host::Host;
pub(crate) use settings::{prefixes, router as advertised, upstream};
use slot::{Before, Ready, Service, Slot};

/// Servers that have their sockets, on a host that is set up for them. Dropped, it takes the set-up back.
pub(super) struct Prepared {
    dns64: Option<Ready<dns64::Server>>,
    router: Option<Ready<router::Server>>,
    host: Option<Host>,
    forwarding: Forwarding,
    local: Vec<IpNet>,
    run_dir: PathBuf,
}

impl Prepared {
    /// Takes the sockets and sets the host up. If it fails, the host is as it was.
    pub(super) fn set_up(config: &Config, run_dir: &Path) -> Result<Prepared, Failure> {
        let local = local(config)?;
        let wanted = Wanted::of(config, &local)?;
        if wanted.dns64.is_some() {
            raise_descriptors();
        }
        let dns64 = bind::<dns64::Server>(wanted.dns64)?;
        let router = bind::<router::Server>(wanted.router)?;
        let forwarding = Forwarding::default();
        let run_dir = run_dir.to_owned();
        let mut prepared = Prepared { dns64, router, host: None, forwarding, local, run_dir };
        let mut host = Host::default();
        host.bring(config, &prepared.run_dir)?;
        prepared.host = Some(host);
        prepared.forwarding.bring(config, &prepared.run_dir)?;
        Ok(prepared)
    }

    /// What the daemon needs later: to change the host back, and to take other sockets when it is reloaded.
    pub(super) fn capabilities(&self) -> Vec<Capability> {
        let mut needed = Vec::new();
        let host = self.host.as_ref().is_some_and(|host| !host.is_empty());
        if host || !self.forwarding.is_empty() {
            needed.push(Capability::CAP_NET_ADMIN);
        }
        if self.dns64.is_some() || self.router.is_some() {
            needed.push(Capability::CAP_NET_BIND_SERVICE);
        }
        if self.router.is_some() {
            needed.push(Capability::CAP_NET_RAW);
        }
        needed
    }

    /// Starts the servers, on threads without privileges.
    pub(super) fn start(mut self) -> Result<Services, Failure> {
        let mut dns64 = Slot::start(self.dns64.take())?;
        let router = Slot::start(self.router.take()).inspect_err(|_| dns64.end(false))?;
        let services = Services {
            dns64,
            router,
            host: self.host.take().unwrap_or_default(),
            forwarding: std::mem::take(&mut self.forwarding),
            local: std::mem::take(&mut self.local),
            run_dir: std::mem::take(&mut self.run_dir),
        };
        services.announce();
        Ok(services)
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(host) = &mut self.host {
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

/// Lets this process have as many descriptors as it may: each question under way has a socket of its own.
fn raise_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!("dns64: cannot raise the limit of descriptors: {error}");
    }
}

/// What the servers are to be told.
struct Wanted {
    dns64: Option<dns64::Settings>,
    router: Option<router::Settings>,
}

impl Wanted {
    fn of(config: &Config, local: &[IpNet]) -> Result<Wanted, Failure> {
        Ok(Wanted { dns64: settings::dns64(config, local)?, router: settings::router(config) })
    }
}

/// The networks of this host, where somebody asks for them.
fn local(config: &Config) -> Result<Vec<IpNet>, Failure> {
    let asked = config.dns64.as_ref().is_some_and(|dns64| dns64.allow.is_none());
    if !asked {
        return Ok(Vec::new());
    }
    Ok(settings::local(&Netlink::open()?.addresses(None)?))
}

/// The servers that run.
#[derive(Default)]
pub(super) struct Services {
    dns64: Slot<dns64::Server>,
    router: Slot<router::Server>,
    host: Host,
    forwarding: Forwarding,
    /// The networks of this host, as the DNS64 server was told.
    local: Vec<IpNet>,
    run_dir: PathBuf,
}

/// What there was before a change, to be ended.
#[must_use]
pub(super) struct Change {
    dns64: Before<dns64::Server>,
    router: Before<router::Server>,
}

impl Services {
    /// Goes on with another configuration than the one in force; on an error everything is as it was. What ends
    /// goes on until [`Services::settle`].
    pub(super) fn change(&mut self, now: &Config, wanted: &Config) -> Result<Change, Failure> {
        let local = local(wanted)?;
        let told = Wanted::of(wanted, &local)?;
        self.host.bring(wanted, &self.run_dir)?;
        self.forwarding.bring(wanted, &self.run_dir).inspect_err(|_| self.host.settle(now))?;
        let changed =
            self.dns64.change(told.dns64).and_then(|dns64| match self.router.change(told.router) {
                Ok(router) => Ok((dns64, router)),
                Err(failure) => {
                    said(self.dns64.change_back(dns64));
                    Err(failure)
                }
            });
        let (dns64, router) = changed.inspect_err(|_| {
            self.host.settle(now);
            self.forwarding.settle(now);
        })?;
        self.local = local;
        Ok(Change { dns64, router })
    }

    /// Ends what the configuration in force does not have any more.
    pub(super) fn settle(&mut self, before: Change, config: &Config) {
        Slot::settle(before.dns64);
        Slot::settle(before.router);
        self.host.settle(config);
        self.forwarding.settle(config);
    }

    /// Follows the host: devices that have come, networks of the host's own; and translators that have gone.
    pub(super) fn follow(&mut self, config: &Config, netlink: &mut Netlink) {
        self.host.follow(config, netlink);
        self.forwarding.follow(config, netlink);
        let asked = config.dns64.as_ref().is_some_and(|dns64| dns64.allow.is_none());
        if asked && let Ok(addresses) = netlink.addresses(None) {
            let local = settings::local(&addresses);
            if local != self.local {
                info!("dns64: networks of this host: {}", join(&local));
                self.take_up(config);
            }
        }
    }

    /// Takes the configuration up as it is now, after something else has changed it.
    pub(super) fn take_up(&mut self, config: &Config) {
        match self.change(config, config) {
            Ok(before) => self.settle(before, config),
            Err(failure) => warn!("services: nothing is changed: {}", failure.line()),
        }
    }

    /// Ends the servers: hosts are told, and the host is as it was.
    pub(super) fn stop(mut self) {
        self.router.end(false);
        self.dns64.end(false);
        self.host.restore();
        self.forwarding.restore();
    }

    /// Ends the servers for a process that will go on: hosts are not told, and the host stays as it is.
    pub(super) fn leave(mut self) {
        self.router.end(true);
        self.dns64.end(true);
    }

    /// The names of what runs, for people.
    pub(super) fn names(&self) -> Vec<String> {
        let dns64 = self.dns64.settings().map(|_| "dns64".to_owned());
        let devices = self.router.settings().into_iter().flat_map(|it| &it.devices);
        let advertised = devices.map(|device| format!("advertisements on {}", device.device));
        self.forwarding.names().into_iter().chain(dns64).chain(advertised).collect()
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
