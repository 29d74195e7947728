//! The servers of one kind: bound, started, changed and ended together with those of the other kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use fordway_net::privilege::Capability;
use fordway_serve::Service;
use tracing::{error, info};

use super::Inputs;
use crate::apply::privilege;
use crate::failure::Failure;

/// A kind of server, as the configuration has it.
pub(super) trait Kind: Service<Error: Into<Failure>> {
    /// Capabilities that the daemon keeps while one runs, so that a reload can open other sockets.
    const KEEPS: &'static [Capability];

    /// The server ends when the end begins, before anything else: hosts have to learn of it.
    const ENDS_FIRST: bool = false;

    /// The settings of each server, by its name.
    fn wanted(inputs: &Inputs<'_>) -> Result<BTreeMap<String, Self::Settings>, Failure>;

    /// What `fordway status` and the log call it.
    fn labels(name: &str, _settings: &Self::Settings) -> Vec<String> {
        vec![name.to_owned()]
    }

    /// The line of the log when it has started.
    fn announcement(_name: &str, _settings: &Self::Settings) -> Option<String> {
        None
    }

    /// Why it can't be bound.
    fn failure(_name: &str, error: Self::Error) -> Failure {
        error.into()
    }
}

/// The servers of all kinds are handled as a list of these. A change is planned, then made, then settled or undone.
pub(super) trait Group {
    /// Finds out which servers there are to be. Nothing changes yet.
    fn plan(&mut self, inputs: &Inputs<'_>) -> Result<(), Failure>;
    /// Opens the sockets of what is planned.
    fn bind(&mut self) -> Result<(), Failure>;
    /// Starts what is bound, on threads without privileges.
    fn start(&mut self) -> Result<(), Failure>;
    /// Makes the servers those that are planned. What is replaced goes on until [`Group::settle`].
    fn change(&mut self) -> Result<(), Failure>;
    /// Undoes the last [`Group::change`], as far as it came.
    fn change_back(&mut self);
    /// Ends what the last [`Group::change`] has replaced.
    fn settle(&mut self);
    /// Changes and settles each server by itself. Gives what failed; such a server is as it was.
    fn follow(&mut self) -> Vec<Failure>;
    /// Ends servers of which a thread has ended by itself. Whether there were any.
    fn discard_broken(&mut self) -> bool;
    /// Begins the end; `leave`: for another process that goes on.
    fn begin_end(&mut self, leave: bool);
    /// Whether no client is served any more after [`Group::begin_end`].
    fn is_drained(&self) -> bool;
    /// Ends all servers.
    fn end(&mut self, leave: bool);
    /// Capabilities that what is bound needs later.
    fn keeps(&self) -> &'static [Capability];
    /// What runs, for people.
    fn labels(&self) -> Vec<String>;
    /// Says in the log what runs.
    fn announce(&self);
}

/// The servers of a kind, by name.
pub(super) struct Servers<K: Kind> {
    planned: BTreeMap<String, K::Settings>,
    bound: BTreeMap<String, (K::Bound, K::Settings)>,
    running: BTreeMap<String, (K, K::Settings)>,
    /// What the last change has replaced.
    before: Vec<(String, Before<K>)>,
}

/// A server before a change.
enum Before<K: Kind> {
    /// The server still runs, with other settings than these.
    Changed(K::Settings),
    /// Another server runs in its place, or none; or there was none.
    Replaced(Option<(K, K::Settings)>),
}

impl<K: Kind> Servers<K> {
    /// The servers that run, with their settings.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &K::Settings)> {
        self.running.values().map(|(server, settings)| (server, settings))
    }

    /// The server of a kind of which there is one at most.
    pub(super) fn one(&self) -> Option<(&K, &K::Settings)> {
        self.iter().next()
    }

    /// Servers that have their sockets, but do not run yet.
    pub(super) fn bound(&self) -> impl Iterator<Item = (&K::Bound, &K::Settings)> {
        self.bound.values().map(|(bound, settings)| (bound, settings))
    }

    fn start_one(bound: K::Bound) -> Result<K, Failure> {
        let started = privilege::without(bound, K::start).map_err(|(failure, _)| failure)?;
        started.map_err(Into::into)
    }

    fn change_one(&mut self, name: &str, wanted: Option<K::Settings>) -> Result<(), Failure> {
        let before = match (self.running.get_mut(name), wanted) {
            (Some((server, settings)), Some(wanted)) if K::fixed(settings, &wanted).is_none() => {
                server.replace(wanted.clone()).map_err(Into::into)?;
                Before::Changed(mem::replace(settings, wanted))
            }
            (running, Some(wanted)) => {
                let bound = match running {
                    Some((server, _)) => server.succeed(&wanted),
                    None => K::bind(&wanted),
                };
                let bound = bound.map_err(|error| K::failure(name, error))?;
                let server = Self::start_one(bound)?;
                Before::Replaced(self.running.insert(name.to_owned(), (server, wanted)))
            }
            (_, None) => Before::Replaced(self.running.remove(name)),
        };
        self.before.push((name.to_owned(), before));
        Ok(())
    }

    /// Each name of a server that runs or is planned, with what is planned for it.
    fn take_planned(&mut self) -> Vec<(String, Option<K::Settings>)> {
        let mut planned = mem::take(&mut self.planned);
        let names: BTreeSet<String> = self.running.keys().chain(planned.keys()).cloned().collect();
        let with_planned = |name: String| {
            let settings = planned.remove(&name);
            (name, settings)
        };
        names.into_iter().map(with_planned).collect()
    }
}

impl<K: Kind> Group for Servers<K> {
    fn plan(&mut self, inputs: &Inputs<'_>) -> Result<(), Failure> {
        self.planned = K::wanted(inputs)?;
        Ok(())
    }

    fn bind(&mut self) -> Result<(), Failure> {
        for (name, settings) in mem::take(&mut self.planned) {
            let bound = K::bind(&settings).map_err(|error| K::failure(&name, error))?;
            self.bound.insert(name, (bound, settings));
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), Failure> {
        for (name, (bound, settings)) in mem::take(&mut self.bound) {
            self.running.insert(name, (Self::start_one(bound)?, settings));
        }
        Ok(())
    }

    fn change(&mut self) -> Result<(), Failure> {
        let planned = self.take_planned();
        planned.into_iter().try_for_each(|(name, wanted)| self.change_one(&name, wanted))
    }

    fn change_back(&mut self) {
        for (name, before) in mem::take(&mut self.before).into_iter().rev() {
            let other = match before {
                Before::Changed(settings) => {
                    let Some((server, now)) = self.running.get_mut(&name) else { continue };
                    match server.replace(settings.clone()) {
                        Ok(()) => *now = settings,
                        Err(error) => super::not_whole(&error.into()),
                    }
                    continue;
                }
                Before::Replaced(Some(before)) => self.running.insert(name, before),
                Before::Replaced(None) => self.running.remove(&name),
            };
            if let Some((server, _)) = other {
                server.stop();
            }
        }
    }

    fn settle(&mut self) {
        for (_, before) in mem::take(&mut self.before) {
            if let Before::Replaced(Some((server, _))) = before {
                server.stop();
            }
        }
    }

    fn follow(&mut self) -> Vec<Failure> {
        let planned = self.take_planned();
        let failures =
            planned.into_iter().filter_map(|(name, wanted)| self.change_one(&name, wanted).err());
        let failures = failures.collect();
        self.settle();
        failures
    }

    fn discard_broken(&mut self) -> bool {
        let broken: Vec<_> = self.running.extract_if(.., |_, (it, _)| !it.is_whole()).collect();
        let any = !broken.is_empty();
        for (_, (server, _)) in broken {
            error!("{}: a thread has ended by itself", K::NAME);
            server.stop();
        }
        any
    }

    fn begin_end(&mut self, leave: bool) {
        if K::ENDS_FIRST {
            self.end(leave);
        }
        self.running.values_mut().for_each(|(server, _)| server.begin_end());
    }

    fn is_drained(&self) -> bool {
        self.iter().all(|(server, _)| server.has_ended())
    }

    fn end(&mut self, leave: bool) {
        for (server, _) in mem::take(&mut self.running).into_values() {
            if leave { server.leave() } else { server.stop() }
        }
    }

    fn keeps(&self) -> &'static [Capability] {
        if self.bound.is_empty() { &[] } else { K::KEEPS }
    }

    fn labels(&self) -> Vec<String> {
        self.running.iter().flat_map(|(name, (_, settings))| K::labels(name, settings)).collect()
    }

    fn announce(&self) {
        let all = self.running.iter();
        let lines = all.filter_map(|(name, (_, settings))| K::announcement(name, settings));
        lines.for_each(|line| info!("{line}"));
    }
}

impl<K: Kind> Default for Servers<K> {
    fn default() -> Servers<K> {
        let (planned, bound) = (BTreeMap::new(), BTreeMap::new());
        Servers { planned, bound, running: BTreeMap::new(), before: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};
    use std::thread::JoinHandle;

    use fordway_testhost::poll;

    use super::*;

    /// A server whose thread panics on request.
    struct Fake {
        order: Sender<bool>,
        thread: Option<JoinHandle<()>>,
    }

    /// What happens to servers.
    type Events = Arc<Mutex<Vec<&'static str>>>;

    impl Service for Fake {
        const NAME: &'static str = "fake";
        type Settings = Events;
        type Bound = (Sender<bool>, Receiver<bool>);
        type Error = Infallible;

        fn bind(events: &Events) -> Result<Self::Bound, Infallible> {
            events.lock().unwrap().push("bound");
            Ok(channel())
        }

        fn start((order, orders): Self::Bound) -> Result<Fake, Infallible> {
            let work = move || assert!(!orders.recv().unwrap_or(false), "a panic that is wanted");
            Ok(Fake { order, thread: Some(std::thread::spawn(work)) })
        }

        fn fixed(_: &Events, _: &Events) -> Option<&'static str> {
            None
        }

        fn replace(&self, events: Events) -> Result<(), Infallible> {
            events.lock().unwrap().push("replaced");
            Ok(())
        }

        fn is_whole(&self) -> bool {
            self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
        }

        fn stop(mut self) {
            let _gone = self.order.send(false);
            let _panicked = self.thread.take().map(JoinHandle::join);
        }
    }

    impl Kind for Fake {
        const KEEPS: &'static [Capability] = &[];

        fn wanted(_: &Inputs<'_>) -> Result<BTreeMap<String, Events>, Failure> {
            Ok(BTreeMap::new())
        }
    }

    impl From<Infallible> for Failure {
        fn from(error: Infallible) -> Failure {
            match error {}
        }
    }

    fn planned(events: &Events) -> BTreeMap<String, Events> {
        ["one", "two"].map(|name| (name.to_owned(), Arc::clone(events))).into()
    }

    #[test]
    fn a_server_whose_thread_has_panicked_makes_room_for_another() {
        let events = Events::default();
        let mut servers = Servers::<Fake> { planned: planned(&events), ..Servers::default() };
        servers.bind().and_then(|()| servers.start()).unwrap();
        assert!(!servers.discard_broken());
        servers.running["one"].0.order.send(true).unwrap();
        poll("the thread ends", || servers.discard_broken().then_some(()));
        // Others go on.
        assert_eq!(servers.labels(), ["two"]);
        assert!(!servers.discard_broken());
        events.lock().unwrap().clear();
        // What is wanted runs again, as after a reload with the same file.
        servers.planned = planned(&events);
        servers.change().unwrap();
        servers.settle();
        assert!(servers.iter().all(|(server, _)| server.is_whole()));
        assert_eq!(*events.lock().unwrap(), ["bound", "replaced"]);
        assert_eq!(servers.labels(), ["one", "two"]);
        servers.end(false);
    }

    #[test]
    fn a_change_that_is_undone_leaves_what_there_was() {
        let events = Events::default();
        let mut servers = Servers::<Fake> { planned: planned(&events), ..Servers::default() };
        servers.bind().and_then(|()| servers.start()).unwrap();
        servers.planned = [("three".to_owned(), Arc::clone(&events))].into();
        servers.change().unwrap();
        assert_eq!(servers.labels(), ["three"]);
        servers.change_back();
        assert_eq!(servers.labels(), ["one", "two"]);
        assert!(servers.iter().all(|(server, _)| server.is_whole()));
        servers.end(false);
    }
}
