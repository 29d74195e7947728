//! Changes the configuration of a running translator: engines first, then the host's routes; on an error both are rolled
//! back, and at the end what is no longer needed is taken back.

use fordway_config::{Mode, Softwire, Translator};
use fordway_engine::Core;
use fordway_net::{Change, Netlink, View};
use tracing::{debug, info, warn};

use super::kernel::{self, Kernel, Tuning};
use super::prepared::core;
use super::running::Running;
use super::stateful::{self, Entries, Unsettled};
use crate::failure::Failure;
use crate::plan::changes::{self, keep, last_of_each};
use crate::plan::placement::{Devices, Placement};
use crate::plan::pool4;
use crate::plan::resolve::{self, Facts};
use crate::plan::uplink;

/// What a translator had before a change.
pub(crate) struct Before {
    config: Translator,
    facts: Facts,
    way: Option<uplink::Way>,
    devices: Devices,
    core: Core,
    wanted: Vec<Change>,
    /// Sessions and mappings for which the other configuration has no place.
    pub(crate) unfit: u64,
}

/// What a configuration means on the host.
struct Meaning {
    facts: Facts,
    way: Option<uplink::Way>,
    devices: Devices,
    /// See [`Running::is_leased`].
    is_leased: bool,
}

impl Running {
    /// Plans its configuration again, because the host has changed.
    pub(crate) fn refresh(&mut self) -> Result<(), Failure> {
        let config = self.config.clone();
        if self.change(&config)?.is_some() {
            self.settle();
        }
        Ok(())
    }

    /// Applies another configuration, or puts back what is missing of this one.
    pub(crate) fn reconfigure(&mut self, new: &Translator) -> Result<(), Failure> {
        if self.reconfigure_unsettled(new)? {
            self.settle();
        }
        Ok(())
    }

    /// Applies another configuration, and returns whether it differs. What only the old one needs stays until
    /// [`Running::settle`].
    pub(crate) fn reconfigure_unsettled(&mut self, new: &Translator) -> Result<bool, Failure> {
        let is_new = self.change(new)?.is_some();
        if !is_new {
            self.settle_quietly();
        }
        Ok(is_new)
    }

    /// Applies another configuration, engines first, then the host's routes. `None`: it is the same. On an error the old
    /// one is in force again.
    pub(crate) fn change(&mut self, new: &Translator) -> Result<Option<Before>, Failure> {
        let Some(Meaning { facts, way, devices, is_leased }) = self.meaning(new)? else {
            return Ok(None);
        };
        let old = self.engine.core();
        let (nat64, entries) = self.other_tables(new, &facts, old.tables())?.unzip();
        let core = core(new, &facts, nat64.as_ref(), Some(&old))?;
        let unfit = entries.map_or(0, |entries| entries.unfit);
        let logs = self.other_logs(new)?;
        let before = Before {
            config: std::mem::replace(&mut self.config, new.clone()),
            facts: std::mem::replace(&mut self.facts, facts),
            way: std::mem::replace(&mut self.place.way, way),
            devices: std::mem::replace(&mut self.place.devices, devices),
            core: old,
            wanted: self.host.as_ref().map(|host| host.wanted().to_vec()).unwrap_or_default(),
            unfit,
        };
        if let Err(failure) = self.apply_core(core, is_leased) {
            self.change_back(before);
            return Err(failure);
        }
        if let Some(stateful) = &mut self.stateful {
            stateful.unsettled = Some(Unsettled { unfit, logs });
        }
        Ok(Some(before))
    }

    /// What another configuration would do to sessions and mappings; outer `None`: it is the same, inner: there are none.
    pub(crate) fn entries_under(
        &self,
        new: &Translator,
    ) -> Result<Option<Option<Entries>>, Failure> {
        let Some(meaning) = self.meaning(new)? else { return Ok(None) };
        let old = self.engine.core();
        let (nat64, entries) = self.other_tables(new, &meaning.facts, old.tables())?.unzip();
        core(new, &meaning.facts, nat64.as_ref(), Some(&old))?;
        Ok(Some(entries))
    }

    /// Its sessions and mappings, if all stay or all end; `None`: there are none.
    pub(crate) fn entries(&self, stay: bool) -> Option<Entries> {
        self.engine.core().tables().map(|nat64| Entries::of(nat64, stay))
    }

    /// Whether a configuration adds a lease, or another one, for this host's end of the tunnel as it is, and differs in nothing else.
    /// A packet waits then, so the host is supposed to be as it was; it is looked at afterwards ([`Running::refresh`]).
    fn is_leased(&self, new: &Translator) -> bool {
        let client = new.softwire().and_then(Softwire::client).filter(|it| it.v4.is_some());
        let is_here = client.is_some_and(|it| it.local == self.facts.resolved.clat_v6);
        let rest = |one: &Translator| {
            let softwire = one.softwire().and_then(Softwire::without_lease)?;
            Some(Translator { mode: Mode::Softwire(Box::new(softwire)), ..one.clone() })
        };
        is_here
            && *new != self.config
            && rest(new).is_some_and(|new| Some(new) == rest(&self.config))
    }

    /// What a configuration means on the host as it is now; `None`: what is in force.
    fn meaning(&self, new: &Translator) -> Result<Option<Meaning>, Failure> {
        if self.is_leased(new) {
            let Placement { way, devices, .. } = self.place.clone();
            return Ok(Some(Meaning { facts: self.facts.clone(), way, devices, is_leased: true }));
        }
        let mut netlink = Netlink::open()?;
        let mut facts = resolve::resolve(&mut netlink, new, self.queues)?;
        facts.resolved.attach = self.place.attach;
        let mut way = self.place.way.clone();
        if way.is_some()
            && let Ok(found) = uplink::find(&mut netlink, new, &facts)?
        {
            way = Some(found);
        }
        let mut devices = self.place.devices.clone();
        if !devices.is_empty() {
            devices = Devices::find(&mut View::new(&mut netlink), new);
        }
        if *new == self.config
            && facts == self.facts
            && way == self.place.way
            && devices == self.place.devices
        {
            return Ok(None);
        }
        Ok(Some(Meaning { facts, way, devices, is_leased: false }))
    }

    fn apply_core(&mut self, core: Core, is_leased: bool) -> Result<(), Failure> {
        self.change_engines(core)?;
        self.after_other_tables();
        self.resume_tracing();
        if is_leased { self.renew_leased() } else { self.renew_unsettled() }
    }

    /// Gives the engines another core. Bindings are locked meanwhile.
    pub(crate) fn change_engines(&mut self, core: Core) -> Result<(), Failure> {
        let tunnel = self.tunnel.clone();
        let mut held = tunnel.as_ref().map(|tunnel| tunnel.hold());
        let core = match &held {
            Some(held) => held.with_lent(core, &self.written_bindings(), &self.engine.core()),
            None => core,
        };
        let (hook, tuning) = (self.hook(), Tuning::of(&self.config, &self.place.devices));
        if let (Some(kernel), Some(softwire)) = (&self.kernel, core.softwire())
            && kernel.can_rebind(softwire, &hook, &tuning)
        {
            self.engine.replace(core.clone());
            match kernel.rebind(softwire) {
                Ok(()) => return Ok(()),
                // Larger maps are needed, most likely.
                Err(error) => debug!("{}: {error}", self.config.name),
            }
        }
        if let Some(kernel) = &mut self.kernel {
            let config = kernel::config_of(&core, self.place.attach);
            let tunnels = core.softwire().map(|softwire| kernel::tunnels(softwire)).transpose()?;
            let settings = core.tables().map(|nat64| stateful::with_added(nat64));
            kernel.replace(config, hook, tuning, settings, tunnels)?;
        }
        self.engine.replace(core);
        if let Some(held) = &mut held {
            held.attach(self.engine.current(), self.kernel.as_ref().and_then(Kernel::maps));
        }
        Ok(())
    }

    /// All that is to be in force on the host.
    pub(crate) fn wanted(&self) -> Result<Vec<Change>, Failure> {
        // It survives, or has survived an earlier run and is still ours.
        let survives = self.own && (self.kernel.is_some() || self.engine.device().adopted());
        let kept = survives.then(|| keep(self.config.name.as_str()));
        if !self.config.manage {
            return Ok(kept.into_iter().collect());
        }
        let ifindex = self.engine.device().ifindex();
        let mut wanted =
            changes::changes(&self.config, &self.facts, &self.intent, ifindex, !self.own)?;
        if let Some(settings) = self.kernel_settings() {
            wanted.extend(pool4::changes(&self.config, &self.facts, &settings, ifindex)?);
        }
        wanted.extend(self.crossings.iter().flat_map(|it| it.changes.clone()));
        wanted.extend(changes::routes_v4(&self.config, &self.facts, self.place.way.as_ref()));
        wanted.extend(kept);
        Ok(last_of_each(wanted))
    }

    /// Rolls back to the old configuration. What the host refuses of it keeps nothing else from being rolled back, and is
    /// retried later ([`Upkeep::follow`](super::upkeep::Upkeep::follow)).
    pub(crate) fn change_back(&mut self, before: Before) {
        self.config = before.config;
        self.facts = before.facts;
        self.place.way = before.way;
        self.place.devices = before.devices;
        if let Some(stateful) = &mut self.stateful {
            stateful.unsettled = None;
        }
        let put_back = match &mut self.host {
            Some(host) => {
                host.manager().take_over_all();
                host.want_again(before.wanted)
            }
            None => Ok(()),
        };
        if let Err(failure) = self.apply_core(before.core, false).and(put_back) {
            warn!("{}: the rollback is incomplete: {}", self.name(), failure.line());
        }
        self.settle();
    }

    /// What it wants of the host now.
    pub(crate) fn wanted_now(&self) -> &[Change] {
        self.host.as_ref().map_or(&[], |host| host.wanted())
    }

    /// Lets it take over what these translators have and give up, but not the changes beside their names.
    pub(crate) fn take_over_from(&mut self, others: &[(String, Vec<Change>)]) {
        if let Some(host) = &mut self.host {
            let others = others.iter().map(|(name, kept)| (name.clone(), kept.as_slice()));
            host.manager().take_over_from(others);
        }
    }

    /// Ends [`Running::take_over_from`].
    pub(crate) fn take_over_nothing(&mut self) {
        self.take_over_from(&[]);
    }

    /// Puts back what is missing on the host; the configuration has not changed.
    pub(crate) fn settle_quietly(&mut self) {
        if let Some(host) = &mut self.host {
            host.settle("needed no more: ");
        }
    }

    /// Takes back what the configuration before needed and this one does not.
    pub(crate) fn settle(&mut self) {
        self.settle_tables();
        let is_silent =
            self.host.as_mut().is_none_or(|host| !host.settle("another configuration: "));
        if is_silent {
            info!("{}: another configuration", self.name());
        }
    }
}
