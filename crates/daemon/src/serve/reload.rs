//! Another configuration while packets flow.
//!
//! First everything that can be refused is found out: the file, what can't change at run time. Translators that go on under
//! another name get it, and new ones are set up. Then those whose configuration changed get theirs, one after the other; if
//! one refuses, those before it get their old one back. What is no longer wanted goes last.

mod checks;
mod plan;
mod renames;

use std::collections::{BTreeMap, BTreeSet};

use fordway_config::{
    Advertise, Attach, Config, InterfaceName, LoadError, Translator, load_with, parse_with,
};
use fordway_net::privilege::{self, Capability};
use tracing::warn;

use super::desired::{Desired, because_of_keys};
use super::dstm_client;
use super::handle::Daemon;
use crate::apply::change::Before;
use crate::apply::running::Running;
use crate::apply::translators::start_all;
use crate::failure::Failure;
use crate::metrics::Guards;
use crate::plan::entry::Entry;
use crate::plan::forwarding;
use crate::reconcile::auto::{self, Auto};
use crate::settings;
use crate::systemd::alive;
use checks::{check_names, check_sections, check_translator};
use renames::Former;

impl Daemon {
    /// Reads the configuration again and makes it so; on any error everything stays as it was. `of_file`: it has to have a
    /// file, and what was taken down comes back.
    pub(crate) fn reload(&mut self, of_file: bool) -> Result<String, Failure> {
        if of_file {
            self.has_file()?;
        }
        let mut config = self.read()?;
        if !of_file {
            self.leave_down(&mut config);
        }
        let Sorted { kept, changed, fresh } = self.sort(&config)?;
        let guards = Guards::read(&config.metrics)?;
        let automatic = self.open_automatic(&config)?;
        let dstm_clients = self.open_dstm_clients(&config)?;
        let former = self.rename(&changed)?;
        let yielding = self.yielding(&config, &changed);
        self.translators.context.yielding.clone_from(&yielding);
        let started = start_all(&fresh, &mut self.translators.context);
        self.translators.context.yielding.clear();
        let fresh = match started {
            Ok(fresh) => fresh,
            Err(failure) => {
                self.go_back(former);
                return Err(failure);
            }
        };
        let added = fresh.iter().map(name).collect();
        let mut names = Changes { added, same: kept, ..Changes::default() };
        let mut before: Vec<(usize, Before)> = Vec::new();
        let changed = self.change_translators(changed, &former, &yielding, &mut before, &mut names);
        // Prefixes are announced when they are translated, and no longer before that ends.
        let changed = changed.and_then(|()| self.services.change(&self.config, &config));
        if let Err(failure) = changed {
            // These first: they may have taken over what others had.
            fresh.into_iter().rev().for_each(Running::give_up);
            for (at, old) in before.into_iter().rev() {
                self.translators.running[at].change_back(old);
            }
            self.go_back(former);
            return Err(failure);
        }
        names.services(&self.config, &config);
        self.metrics.set(guards);
        self.services.settle(&config);
        for (at, old) in before {
            names.ended += old.unfit;
            self.translators.running[at].settle();
        }
        self.configure_automatic(&config, automatic, &mut names);
        self.end_dstm_clients(|it| {
            !config.dstm_clients.iter().any(|client| client.name.as_str() == it)
        });
        self.new_dstm_clients = dstm_clients;
        self.reorder(&config, fresh, &mut names);
        self.translators.running.iter_mut().for_each(Running::take_over_nothing);
        self.config = config;
        if of_file {
            self.down.clear();
        }
        Ok(names.sentence())
    }

    /// Sorts translators by what there is to do. Refused: what can't change at run time, and additions that need privileges
    /// which the daemon has given up.
    fn sort(&self, config: &Config) -> Result<Sorted, Failure> {
        check_sections(&self.config, config)?;
        check_names(&self.config, config)?;
        let mut sorted = Sorted::default();
        let renamed = self.renamed(config);
        let borrows = |name: &InterfaceName| config.dstm_clients.iter().any(|it| it.name == *name);
        for new in &config.translators {
            // Its address comes and goes as it is lent.
            if borrows(&new.name)
                && self.translators.running.iter().any(|one| one.config.name == new.name)
            {
                sorted.kept += 1;
                continue;
            }
            let at = self.translators.running.iter().position(|one| one.config.name == new.name);
            let at = match renamed.get(&new.name) {
                Some(at) => Some(*at),
                // It goes on under another name, and this one is new.
                None if at.is_some_and(|at| renamed.values().any(|moved| *moved == at)) => None,
                None => {
                    let old = self.config.translators.iter().find(|old| old.name == new.name);
                    old.map_or(Ok(()), |old| check_translator(old, new))?;
                    at
                }
            };
            match (at, new.is_automatic()) {
                (Some(at), false) => sorted.changed.push((at, new.clone())),
                (Some(at), true) => sorted.changed.extend(self.concrete(new).map(|new| (at, new))),
                (None, false) => sorted.fresh.push(new.clone()),
                // When the network has what it needs.
                (None, true) => {}
            }
        }
        let adds = sorted.fresh.iter().any(|translator| translator.manage)
            || self.new_automatic(config).next().is_some();
        if adds {
            privilege::require(&[Capability::CAP_NET_ADMIN]).map_err(|error| {
                Failure::failed(error.to_string()).hint(
                    "the daemon has given it up, since nothing needed it when it started: restart it",
                )
            })?;
        }
        Ok(sorted)
    }

    /// Whether a reload would refuse this before it changes anything.
    pub(super) fn check(&self, config: &Config) -> Result<(), Failure> {
        self.sort(config).map(drop)
    }

    /// Changes translators one after the other. `before` gets what there was of those that are another now.
    fn change_translators(
        &mut self,
        changed: Vec<(usize, Translator)>,
        former: &Former,
        yielding: &BTreeSet<String>,
        before: &mut Vec<(usize, Before)>,
        names: &mut Changes,
    ) -> Result<(), Failure> {
        for (at, new) in changed {
            alive();
            self.let_yield(at, yielding, before);
            let one = &mut self.translators.running[at];
            if one.place.attach == Attach::Ingress {
                forwarding::check(&new)?;
            }
            // The first name is the one before the reload.
            let renamed = former.iter().find(|(it, _)| *it == at).map(|(_, name)| name);
            let change = one.change(&new)?;
            match (&change, renamed) {
                (_, Some(name)) => names.renamed.push(format!("{name} to {}", new.name)),
                (None, None) => names.same += 1,
                (Some(_), None) => names.changed.push(new.name.to_string()),
            }
            match change {
                None => one.settle_quietly(),
                Some(old) => before.push((at, old)),
            }
        }
        Ok(())
    }

    /// The translators that give something up: those that change, and those that are not in the file any more.
    fn yielding(&self, config: &Config, changed: &[(usize, Translator)]) -> BTreeSet<String> {
        let gives_up = |(at, one): &(usize, &Running)| match changed.iter().find(|it| it.0 == *at) {
            Some((_, new)) => *new != one.config,
            None => !config.translators.iter().any(|new| new.name == one.config.name),
        };
        let running = self.translators.running.iter().enumerate().filter(gives_up);
        running.map(|(_, one)| one.name().to_owned()).collect()
    }

    /// Lets a translator take routes over from others that give them up: all of those that have not changed yet, and of the
    /// others what they want no more.
    fn let_yield(&mut self, at: usize, yielding: &BTreeSet<String>, changed: &[(usize, Before)]) {
        let running = &mut self.translators.running;
        let mut others = Vec::new();
        for (place, one) in running.iter().enumerate() {
            if place != at && yielding.contains(one.name()) {
                let has_changed = changed.iter().any(|(it, _)| *it == place);
                let keeps = if has_changed { one.wanted_now().to_vec() } else { Vec::new() };
                others.push((one.name().to_owned(), keeps));
            }
        }
        running[at].take_over_from(&others);
    }

    /// After an error: former names, and on the host what each translator wants and nothing else.
    fn go_back(&mut self, former: Former) {
        self.rename_back(former);
        self.translators.running.iter_mut().for_each(Running::take_over_nothing);
        self.translators.running.iter_mut().for_each(Running::settle_quietly);
    }

    fn has_file(&self) -> Result<(), Failure> {
        self.job.file.as_ref().map(drop).ok_or_else(|| {
            Failure::failed("there is no file that could be read again").hint(
                "a translator started by fordway clat, siit or nat64, or from standard input, has none; \
                 write one with --print-config and start fordway run -c FILE",
            )
        })
    }

    /// The configuration at this moment.
    pub(super) fn read(&self) -> Result<Config, Failure> {
        self.read_with(&self.desired).map_err(|failure| {
            let blames_keys =
                !self.desired.is_empty() && self.read_with(&Desired::default()).is_ok();
            let kept = Desired::path(&self.job.config.control.socket);
            if blames_keys { because_of_keys(failure, &kept) } else { failure }
        })
    }

    /// The configuration at this moment, if a controller has set these keys.
    pub(super) fn read_with(&self, desired: &Desired) -> Result<Config, Failure> {
        let settings = self.job.settings.with_applied(desired.settings()?);
        let base = self.job.base.as_deref().unwrap_or_default();
        let loaded = match &self.job.file {
            Some(file) => load_with(file, &settings)?,
            None => parse_with(&self.job.origin, base, &settings).map_err(LoadError::Invalid)?,
        };
        if !loaded.warnings.is_empty() {
            warn!("{}", loaded.warnings);
        }
        let mut config = loaded.config;
        self.job.adjust.apply(&mut config);
        dstm_client::expand(&mut config);
        Ok(config)
    }

    /// What an automatic CLAT's new configuration means at this moment.
    fn concrete(&self, new: &Translator) -> Option<Translator> {
        let auto = self.automatic.iter().find(|auto| auto.name() == new.name.as_str());
        auto.and_then(|auto| auto.concrete(new))
    }

    /// Automatic CLATs that there were none of so far.
    fn new_automatic<'c>(&self, config: &'c Config) -> impl Iterator<Item = &'c Translator> {
        let known =
            |new: &Translator| self.automatic.iter().any(|auto| auto.name() == new.name.as_str());
        config.translators.iter().filter(move |new| new.is_automatic() && !known(new))
    }

    fn open_automatic(&self, config: &Config) -> Result<Vec<Auto>, Failure> {
        let fresh: Vec<Translator> = self.new_automatic(config).cloned().collect();
        auto::open(&fresh, &self.translators.context)
    }

    /// DSTM clients that are new in the configuration.
    fn open_dstm_clients(&self, config: &Config) -> Result<Vec<dstm_client::Opened>, Failure> {
        let known = |name: &str| self.dstm_clients.iter().any(|client| client.name() == name);
        let fresh = config.dstm_clients.iter().filter(|client| !known(client.name.as_str()));
        let fresh = dstm_client::open(fresh)?;
        let needed = dstm_client::capabilities(&fresh);
        privilege::require(&needed).map_err(|error| {
            Failure::failed(error.to_string()).hint(
                "a daemon that was started without [[dstm_client]] has given it up: restart it",
            )
        })?;
        Ok(fresh)
    }

    /// Makes DSTM clients release their addresses and end.
    pub(super) fn end_dstm_clients(&mut self, ends: impl Fn(&str) -> bool) {
        for client in self.dstm_clients.extract_if(.., |it| ends(it.name())) {
            client.end();
        }
    }

    /// Gives automatic CLATs their new configuration, and ends those that have none.
    fn configure_automatic(&mut self, config: &Config, fresh: Vec<Auto>, names: &mut Changes) {
        names.added.extend(fresh.iter().map(|auto| auto.name().to_owned()));
        for mut auto in std::mem::take(&mut self.automatic) {
            match config.translators.iter().find(|new| new.name.as_str() == auto.name()) {
                Some(new) => {
                    auto.configure(new);
                    self.automatic.push(auto);
                }
                None => {
                    // One that runs is counted when it is taken down.
                    if !self.translators.running.iter().any(|one| one.name() == auto.name()) {
                        names.removed.push(auto.name().to_owned());
                    }
                    auto.abandon();
                }
            }
        }
        self.automatic.extend(fresh);
    }

    /// Puts translators into the order of the file, and takes down those that are not in it.
    fn reorder(&mut self, config: &Config, fresh: Vec<Running>, names: &mut Changes) {
        let mut all: Vec<Running> = self.translators.running.drain(..).chain(fresh).collect();
        for translator in &config.translators {
            if let Some(at) = all.iter().position(|one| one.config.name == translator.name) {
                self.translators.running.push(all.remove(at));
            }
        }
        for one in all.into_iter().rev() {
            alive();
            names.removed.push(one.name().to_owned());
            if let Err(failure) = one.take_down() {
                warn!("{}", failure.line());
            }
        }
    }
}

fn name(one: &Running) -> String {
    one.name().to_owned()
}

/// Translators of a new configuration, by what there is to do.
#[derive(Default)]
struct Sorted {
    /// How many stay as they are in any case.
    kept: usize,
    /// Those that run, by their place, with their new configuration, which may be the old one.
    changed: Vec<(usize, Translator)>,
    /// Those to be set up.
    fresh: Vec<Translator>,
}

/// What a reload did.
#[derive(Default)]
struct Changes {
    added: Vec<String>,
    changed: Vec<String>,
    renamed: Vec<String>,
    removed: Vec<String>,
    same: usize,
    /// Sessions and mappings that do not fit any more.
    ended: u64,
}

impl Changes {
    /// What becomes of what runs beside the translators.
    fn services(&mut self, old: &Config, new: &Config) {
        let prefixes = settings::prefixes(old) == settings::prefixes(new);
        let of_host = |config: &Config| -> Vec<Entry> {
            Entry::all(config).into_iter().filter(Entry::follows_host).collect()
        };
        self.entries(&old.dns64, &new.dns64, |_| "dns64".to_owned(), prefixes);
        self.entries(&old.trt, &new.trt, |it| it.name.to_string(), true);
        self.entries(&of_host(old), &of_host(new), |it| it.name().to_owned(), true);
        let advertised = |it: &Advertise| format!("advertisements on {}", it.device);
        self.entries(&old.advertise, &new.advertise, advertised, prefixes);
        self.entries(&old.proxies, &new.proxies, |it| format!("proxy {}", it.name), true);
        self.entries(&old.dstm_server, &new.dstm_server, |_| "dstm-server".to_owned(), true);
        self.entries(&old.dstm_tep, &new.dstm_tep, |_| "dstm-tep".to_owned(), true);
    }

    /// What becomes of each entry of a section; `same`: one that is equal is unchanged.
    fn entries<'c, T: PartialEq + 'c>(
        &mut self,
        old: impl IntoIterator<Item = &'c T>,
        new: impl IntoIterator<Item = &'c T>,
        name: impl Fn(&T) -> String,
        same: bool,
    ) {
        let mut old: BTreeMap<String, &T> = old.into_iter().map(|it| (name(it), it)).collect();
        let new: BTreeMap<String, &T> = new.into_iter().map(|it| (name(it), it)).collect();
        for (name, new) in new {
            match old.remove(&name) {
                None => self.added.push(name),
                Some(old) if *old == *new && same => self.same += 1,
                Some(_) => self.changed.push(name),
            }
        }
        self.removed.extend(old.into_keys());
    }

    fn sentence(&self) -> String {
        let lists = [
            ("new", &self.added),
            ("changed", &self.changed),
            ("renamed", &self.renamed),
            ("gone", &self.removed),
        ];
        let lists = lists.iter().filter(|(_, names)| !names.is_empty());
        let mut parts: Vec<String> =
            lists.map(|(what, names)| format!("{what}: {}", names.join(", "))).collect();
        if self.same > 0 {
            parts.push(format!("unchanged: {}", self.same));
        }
        if self.ended > 0 {
            parts.push(format!("sessions or mappings that do not fit any more: {}", self.ended));
        }
        format!("configuration reloaded; {}", parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nat64(pool6: &str) -> Translator {
        let text = format!(
            "[[translator]]\nname = 'nat64'\nmode = 'nat64'\npool4 = ['192.0.2.1']\npool6 = {pool6}"
        );
        fordway_config::parse("test", &text).unwrap().config.translators.remove(0)
    }

    #[test]
    fn prefixes_of_sessions_keep_their_numbers() {
        let old = nat64("['2001:db8:64::/96', '2001:db8:65::/96']");
        let check = |pool6| check_translator(&old, &nat64(pool6)).map_err(|it| it.line());
        let longer = "['2001:db8:64::/96', '2001:db8:65::/96', '2001:db8:66::/96']";
        assert_eq!(check(longer), Ok(()));
        for pool6 in ["['2001:db8:65::/96', '2001:db8:64::/96']", "['2001:db8:64::/96']"] {
            let said = check(pool6).unwrap_err();
            assert!(said.starts_with("nat64: pool6 (but for prefixes"), "{said}");
        }
    }

    #[test]
    fn the_answer_says_how_many_sessions_end() {
        let changed = vec!["nat64".to_owned()];
        let changes = Changes { changed, ended: 3, ..Changes::default() };
        assert_eq!(
            changes.sentence(),
            "configuration reloaded; changed: nat64; sessions or mappings that do not fit any more: 3"
        );
    }
}
