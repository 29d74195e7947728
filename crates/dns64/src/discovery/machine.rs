//! Everything together: events and time in, prefixes and what to send out.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use fordway_xlat::addr::Pool6;
use hickory_proto::op::Message;

use super::device::{Interface, PROBATION};
use super::heuristic::Candidate;
use super::lookup::{Answer, Lookup, STALE};
use super::random::Random;
use super::report::Report;
use super::{
    Action, Ask, Device, Event, Failure, Found, Link, Prefix, Settings, Source, Time, Validation,
};

/// Discovers the translation prefixes of the networks that a host is in.
#[derive(Clone, Debug)]
pub struct Discovery {
    settings: Settings,
    random: Random,
    interfaces: BTreeMap<u32, Interface>,
    /// The questions to the resolvers that the host is configured with.
    host: Lookup,
    /// When an answer of them from before a change of links is forgotten.
    host_probation: Option<Time>,
    /// Counts how often links have come up.
    life: u64,
    /// The number of the next question.
    next_id: u64,
}

impl Discovery {
    /// Begins, with nothing known. `seed` spreads what many hosts do at once.
    #[must_use]
    pub fn new(settings: Settings, seed: u64) -> Self {
        Self {
            settings,
            random: Random::new(seed),
            interfaces: BTreeMap::new(),
            host: Lookup::default(),
            host_probation: None,
            life: 0,
            next_id: 0,
        }
    }

    /// Takes what has happened at `now`, which never goes back.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.expire(now);
        match event {
            Event::Links(links) => self.links(now, links),
            Event::Advertisement { device, router, advertisement } => {
                let interface = self.interfaces.get_mut(&device);
                if let Some(interface) = interface.filter(|one| one.link.up) {
                    interface.heard(router, &advertisement, now);
                }
            }
            Event::Resolvers(servers) => self.host.set_servers(&servers, now),
            Event::Answer { id, answer } => match answer {
                Ok(message) => self.answer(now, id, Ok(&message)),
                Err(failure) => self.answer(now, id, Err(failure)),
            },
            Event::Resumed => {
                let up: Vec<u32> = self
                    .interfaces
                    .values()
                    .filter(|one| one.link.up)
                    .map(|one| one.link.device.index)
                    .collect();
                for index in up {
                    self.came_up(now, index);
                }
            }
            Event::Reachable => {
                for interface in self.interfaces.values_mut() {
                    interface.lookup.reachable(now);
                }
                self.host.reachable(now);
            }
        }
        self.expire(now);
    }

    /// What is to be done at `now`; to be called again until there is nothing.
    pub fn poll(&mut self, now: Time) -> Option<Action> {
        self.expire(now);
        if !self.settings.configured.is_empty() {
            return None;
        }
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        for interface in self.interfaces.values_mut() {
            if due(interface.solicitor.next()) {
                interface.solicitor.sent(now, &mut self.random);
                return Some(Action::Solicit { device: interface.link.device.index });
            }
        }
        let id = self.next_id;
        let asks = self.asks(now);
        let mut asked = None;
        for interface in self.interfaces.values_mut() {
            let index = interface.link.device.index;
            if asks.contains(&Scope::Device(index)) && due(interface.lookup.next(now)) {
                let device = interface.link.device.clone();
                asked =
                    interface.lookup.poll(now, id).map(|ask| Ask { device: Some(device), ..ask });
            }
            if asked.is_some() {
                break;
            }
        }
        if asked.is_none() && asks.contains(&Scope::Host) && due(self.host.next(now)) {
            asked = self.host.poll(now, id);
        }
        let ask = asked?;
        self.next_id += 1;
        Some(Action::Ask(ask))
    }

    /// When to call [`Discovery::poll`] if nothing happens before.
    #[must_use]
    pub fn deadline(&self, now: Time) -> Option<Time> {
        if !self.settings.configured.is_empty() {
            return None;
        }
        let asks = self.asks(now);
        let mut times: Vec<Option<Time>> = vec![self.host_probation];
        for interface in self.interfaces.values() {
            let asked = asks.contains(&Scope::Device(interface.link.device.index));
            times.push(interface.next());
            times.push(interface.lookup.ends(now, asked));
            times.push(interface.lookup.next(now).filter(|_| asked));
            let patience = interface.patience(&self.settings);
            times.push(Some(patience).filter(|at| interface.link.up && *at > now));
        }
        let asked = asks.contains(&Scope::Host);
        times.push(self.host.ends(now, asked));
        times.push(self.host.next(now).filter(|_| asked));
        times.into_iter().flatten().min()
    }

    /// The prefixes that are to be used, best first.
    ///
    /// What the operator says goes before everything. Of each interface one source is taken:
    /// advertisements, otherwise DNS (RFC 8781 section 5.1).
    #[must_use]
    pub fn found(&self, now: Time) -> Found {
        if !self.settings.configured.is_empty() {
            return Found { prefixes: self.configured() };
        }
        let mut prefixes = Vec::new();
        for interface in self.ordered().into_iter().filter(|one| self.is_used(one)) {
            let advertised = self.advertised(interface, now);
            if advertised.is_empty() {
                prefixes.extend(self.resolved(interface, now));
            } else {
                prefixes.extend(advertised);
            }
        }
        if self.settings.require_validation {
            prefixes.retain(|prefix| prefix.validation.is_proved());
        }
        Found { prefixes }
    }

    /// How it came to that: what was tried and heard, and all prefixes that are known.
    #[must_use]
    pub fn report(&self, now: Time) -> Report {
        let ordered = self.ordered();
        let mut prefixes = self.configured();
        for used in [true, false] {
            for interface in ordered.iter().filter(|one| self.is_used(one) == used) {
                prefixes.extend(self.advertised(interface, now));
                prefixes.extend(self.resolved(interface, now));
            }
        }
        Report {
            devices: ordered.iter().map(|one| one.report(self.is_used(one))).collect(),
            resolvers: self.host.reports(),
            prefixes,
            settled: self.is_settled(now),
        }
    }

    /// Whether all routers and resolvers that are needed have said something, or can't any more.
    fn is_settled(&self, now: Time) -> bool {
        let mut used = self.interfaces.values().filter(|one| one.link.up && self.is_used(one));
        let settings = &self.settings;
        let asks = self.asks(now);
        let answered = asks.iter().all(|scope| match scope {
            Scope::Host => self.host.is_settled(),
            Scope::Device(index) => {
                self.interfaces.get(index).is_none_or(|one| one.lookup.is_settled())
            }
        });
        if !settings.configured.is_empty() {
            return true;
        }
        if self.found(now).prefixes.is_empty() {
            // A solicitation or its answer may have been lost.
            let heard = |one: &Interface| !settings.advertisements || one.has_routers();
            let mut used = used.peekable();
            return used.peek().is_some() && used.all(heard) && answered;
        }
        used.all(|one| one.is_silent(now, settings)) && answered
    }

    fn links(&mut self, now: Time, links: Vec<Link>) {
        let wanted = self.settings.device.clone();
        let links: Vec<Link> = links
            .into_iter()
            .filter(|link| wanted.as_ref().is_none_or(|name| link.device.name == *name))
            .collect();
        self.interfaces.retain(|index, _| links.iter().any(|link| link.device.index == *index));
        let mut reachable = false;
        for link in links {
            let index = link.device.index;
            let (up, was_down) = (link.up, link.was_down);
            match self.interfaces.get_mut(&index) {
                None => {
                    self.interfaces.insert(index, Interface::new(link));
                    if up {
                        self.came_up(now, index);
                    }
                }
                Some(interface) => {
                    let old = std::mem::replace(&mut interface.link, link);
                    let link = &interface.link;
                    reachable |= link.addressed && !old.addressed;
                    reachable |= link.default_route.is_some() && old.default_route.is_none();
                    match (old.up, up) {
                        (true, false) => interface.went_down(now),
                        (false, true) => self.came_up(now, index),
                        (true, true) if was_down => self.came_up(now, index),
                        _ => {}
                    }
                }
            }
        }
        if reachable {
            self.handle(now, Event::Reachable);
        }
    }

    fn came_up(&mut self, now: Time, index: u32) {
        self.life += 1;
        if let Some(interface) = self.interfaces.get_mut(&index) {
            interface.came_up(now, self.life, &self.settings, &mut self.random);
            // The host's resolvers may be those of this network.
            if self.host.has_servers() {
                self.host.restart(now);
            }
            self.host_probation = Some(now + PROBATION);
        }
    }

    fn answer(&mut self, now: Time, id: u64, answer: Result<&Message, Failure>) {
        let (settings, random) = (&self.settings, &mut self.random);
        let asked = self.interfaces.values_mut().find(|one| one.lookup.is_asking(id));
        if let Some(interface) = asked {
            interface.lookup.answered(now, answer, interface.life, settings, random);
        } else if self.host.is_asking(id) {
            self.host.answered(now, answer, self.life, settings, random);
        }
    }

    fn expire(&mut self, now: Time) {
        let asks = self.asks(now);
        for interface in self.interfaces.values_mut() {
            let asked = asks.contains(&Scope::Device(interface.link.device.index));
            interface.expire(now, asked);
        }
        if self.host_probation.take_if(|until| now >= *until).is_some() {
            self.host.keep_life(self.life);
        }
        self.host.expire(now, asks.contains(&Scope::Host));
    }

    /// Whose resolvers are needed now.
    fn asks(&self, now: Time) -> Vec<Scope> {
        let mut scopes = Vec::new();
        if !self.settings.dns {
            return scopes;
        }
        for interface in self.interfaces.values() {
            let known = !self.settings.both && !interface.pref64.is_empty();
            if !interface.link.up || known || !self.is_used(interface) {
                continue;
            }
            if interface.lookup.has_servers() {
                scopes.push(Scope::Device(interface.link.device.index));
            } else if interface.link.addressed
                && interface.is_silent(now, &self.settings)
                && !scopes.contains(&Scope::Host)
            {
                scopes.push(Scope::Host);
            }
        }
        scopes
    }

    /// Whether the prefixes of an interface may be used: the host would send what is translated that
    /// way. An advertisement from a network that the host has no route through says nothing.
    fn is_used(&self, interface: &Interface) -> bool {
        self.settings.device.is_some() || interface.link.default_route.is_some()
    }

    /// The interfaces, those first that the host sends by first.
    fn ordered(&self) -> Vec<&Interface> {
        let mut interfaces: Vec<&Interface> = self.interfaces.values().collect();
        interfaces.sort_by_key(|one| (one.link.default_route.is_none(), one.link.default_route));
        interfaces
    }

    fn configured(&self) -> Vec<Prefix> {
        let prefix = |pool6: &Pool6| Prefix {
            pool6: *pool6,
            source: Source::Configured,
            device: None,
            until: None,
            validation: Validation::NotNeeded,
            stale: false,
        };
        self.settings.configured.iter().map(prefix).collect()
    }

    fn advertised(&self, interface: &Interface, now: Time) -> Vec<Prefix> {
        if interface.is_gone(now) {
            return Vec::new();
        }
        let values = interface.pref64.values(interface.life).into_iter();
        let live = values.filter(|held| held.until.is_none_or(|until| until > now));
        live.map(|held| Prefix {
            pool6: held.value,
            source: Source::RouterAdvertisement { router: held.router },
            device: Some(interface.link.device.clone()),
            until: held.until,
            validation: Validation::NotNeeded,
            stale: false,
        })
        .collect()
    }

    /// What the resolvers of an interface's routers say; if there are none, or as long as they have not
    /// said anything, those that the host is configured with.
    fn resolved(&self, interface: &Interface, now: Time) -> Vec<Prefix> {
        if interface.is_gone(now) {
            return Vec::new();
        }
        let device = &interface.link.device;
        if let Some((answer, stale)) = interface.lookup.answer(now) {
            return told(answer, stale, device);
        }
        let own = interface.lookup.has_servers() && interface.lookup.has_result();
        match self.host.answer(now) {
            Some((answer, stale)) if !own && interface.link.addressed => {
                told(answer, stale, device)
            }
            _ => Vec::new(),
        }
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// The resolvers that the routers of an interface name.
    Device(u32),
    /// Those that the host is configured with.
    Host,
}

/// The prefixes of an answer.
fn told(answer: &Answer, stale: bool, device: &Device) -> Vec<Prefix> {
    let server: SocketAddr = answer.server;
    let until = if stale { answer.until + STALE } else { answer.until };
    let prefix = |(candidate, validation): &(Candidate, Validation)| Prefix {
        pool6: candidate.pool6,
        source: Source::Dns { server },
        device: Some(device.clone()),
        until: Some(until),
        validation: validation.clone(),
        stale,
    };
    answer.prefixes.iter().map(prefix).collect()
}

#[cfg(test)]
mod tests;
