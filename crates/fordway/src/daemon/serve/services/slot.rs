//! A server that may run, and that another configuration may change, start, stop or replace by another.

use std::mem;

use fordway_nameserver as dns64;
use fordway_proxy as proxy;
use fordway_relay as trt;
use fordway_router as router;
use tracing::error;

use crate::daemon::apply::privilege;
use crate::failure::Failure;

/// A kind of server.
pub(super) trait Service: Sized + Send {
    /// What it is called in the log.
    const NAME: &'static str;
    /// What it is told.
    type Settings: Clone;
    /// With its sockets, before it has threads.
    type Bound: Send;
    /// Takes the sockets, which may need privileges.
    fn bind(settings: &Self::Settings) -> Result<Self::Bound, Failure>;
    /// The same for a server that is to follow on this one.
    fn succeed(&self, settings: &Self::Settings) -> Result<Self::Bound, Failure> {
        Self::bind(settings)
    }
    /// Starts threads, which get the capabilities of this one.
    fn start(bound: Self::Bound) -> Result<Self, Failure>;
    /// Whether one that runs can do with other settings.
    fn can_change(from: &Self::Settings, to: &Self::Settings) -> bool;
    /// Goes on with other settings.
    fn replace(&self, settings: &Self::Settings) -> Result<(), Failure>;
    /// Whether all its threads run. One that has panicked does not; other servers, and translators, do.
    fn is_whole(&self) -> bool;
    /// Ends for good.
    fn stop(self);
    /// Ends for another process to go on soon.
    fn leave(self);
    /// Ends since another server of this process has taken over.
    fn retire(self) {
        self.stop();
    }
}

impl Service for dns64::Server {
    const NAME: &'static str = "dns64";
    type Settings = dns64::Settings;
    type Bound = dns64::Bound;

    fn bind(settings: &dns64::Settings) -> Result<dns64::Bound, Failure> {
        Ok(dns64::bind(settings)?)
    }

    fn start(bound: dns64::Bound) -> Result<dns64::Server, Failure> {
        Ok(bound.start()?)
    }

    fn can_change(from: &dns64::Settings, to: &dns64::Settings) -> bool {
        from.listen == to.listen && from.threads == to.threads
    }

    fn replace(&self, settings: &dns64::Settings) -> Result<(), Failure> {
        Ok(dns64::Server::replace(self, settings.clone())?)
    }

    fn is_whole(&self) -> bool {
        dns64::Server::is_whole(self)
    }

    fn stop(self) {
        dns64::Server::stop(self);
    }

    fn leave(self) {
        dns64::Server::stop(self);
    }
}

impl Service for router::Server {
    const NAME: &'static str = "advertise";
    type Settings = router::Settings;
    type Bound = router::Bound;

    fn bind(settings: &router::Settings) -> Result<router::Bound, Failure> {
        Ok(router::bind(settings)?)
    }

    fn start(bound: router::Bound) -> Result<router::Server, Failure> {
        Ok(bound.start()?)
    }

    fn can_change(_: &router::Settings, _: &router::Settings) -> bool {
        true
    }

    fn replace(&self, settings: &router::Settings) -> Result<(), Failure> {
        Ok(router::Server::replace(self, settings.clone())?)
    }

    fn is_whole(&self) -> bool {
        router::Server::is_whole(self)
    }

    fn stop(self) {
        router::Server::stop(self);
    }

    fn leave(self) {
        router::Server::leave(self);
    }
}

impl Service for trt::Server {
    const NAME: &'static str = "trt";
    type Settings = trt::Settings;
    type Bound = trt::Bound;

    fn bind(settings: &trt::Settings) -> Result<trt::Bound, Failure> {
        trt::bind(settings)
            .map_err(|error| Failure::from(error).prefix(&format!("[[trt]] {}: ", settings.name)))
    }

    fn start(bound: trt::Bound) -> Result<trt::Server, Failure> {
        Ok(bound.start()?)
    }

    fn can_change(from: &trt::Settings, to: &trt::Settings) -> bool {
        (from.threads, from.tcp, from.udp) == (to.threads, to.tcp, to.udp)
    }

    fn replace(&self, settings: &trt::Settings) -> Result<(), Failure> {
        Ok(trt::Server::replace(self, settings.clone())?)
    }

    fn is_whole(&self) -> bool {
        trt::Server::is_whole(self)
    }

    fn stop(self) {
        trt::Server::stop(self);
    }

    fn leave(self) {
        trt::Server::stop(self);
    }
}

impl Service for proxy::Server {
    const NAME: &'static str = "proxy";
    type Settings = proxy::Settings;
    type Bound = proxy::Bound;

    fn bind(settings: &proxy::Settings) -> Result<proxy::Bound, Failure> {
        Ok(proxy::bind(settings)?)
    }

    fn succeed(&self, settings: &proxy::Settings) -> Result<proxy::Bound, Failure> {
        Ok(proxy::Server::succeed(self, settings)?)
    }

    fn start(bound: proxy::Bound) -> Result<proxy::Server, Failure> {
        Ok(bound.start()?)
    }

    fn can_change(from: &proxy::Settings, to: &proxy::Settings) -> bool {
        from.listen == to.listen && from.threads == to.threads
    }

    fn replace(&self, settings: &proxy::Settings) -> Result<(), Failure> {
        Ok(proxy::Server::replace(self, settings.clone())?)
    }

    fn is_whole(&self) -> bool {
        proxy::Server::is_whole(self)
    }

    fn stop(self) {
        proxy::Server::stop(self);
    }

    fn leave(self) {
        proxy::Server::stop(self);
    }

    fn retire(self) {
        proxy::Server::retire(self);
    }
}

/// One with its sockets, and what it is told.
pub(super) type Ready<S> = (<S as Service>::Bound, <S as Service>::Settings);

/// A place for one server of a kind.
pub(super) struct Slot<S: Service>(Option<(S, S::Settings)>);

/// What there was before a change.
#[must_use]
pub(super) enum Before<S: Service> {
    /// The same server, with these settings.
    Changed(S::Settings),
    /// Another, which still runs, or none.
    Other(Option<(S, S::Settings)>),
}

impl<S: Service> Slot<S> {
    /// Starts what was bound, on a thread without privileges.
    pub(super) fn start(bound: Option<Ready<S>>) -> Result<Slot<S>, Failure> {
        let Some((bound, settings)) = bound else { return Ok(Slot(None)) };
        let server = privilege::without(bound, S::start).map_err(|(failure, _)| failure)??;
        Ok(Slot(Some((server, settings))))
    }

    /// The server, if one runs.
    pub(super) fn server(&self) -> Option<&S> {
        self.0.as_ref().map(|(server, _)| server)
    }

    /// The server, to be changed.
    pub(super) fn server_mut(&mut self) -> Option<&mut S> {
        self.0.as_mut().map(|(server, _)| server)
    }

    /// Ends the server without waiting for what is under way.
    pub(super) fn retire(&mut self) {
        if let Some((server, _)) = self.0.take() {
            server.retire();
        }
    }

    /// What it was told.
    pub(super) fn settings(&self) -> Option<&S::Settings> {
        self.0.as_ref().map(|(_, settings)| settings)
    }

    /// Goes on with other settings: with the same server, or with one beside it until [`Slot::settle`].
    pub(super) fn change(&mut self, wanted: Option<S::Settings>) -> Result<Before<S>, Failure> {
        if let (Some((server, settings)), Some(wanted)) = (&mut self.0, &wanted)
            && S::can_change(settings, wanted)
        {
            server.replace(wanted)?;
            return Ok(Before::Changed(mem::replace(settings, wanted.clone())));
        }
        let bound = match wanted {
            Some(wanted) => {
                let bound = match self.server() {
                    Some(server) => server.succeed(&wanted)?,
                    None => S::bind(&wanted)?,
                };
                Some((bound, wanted))
            }
            None => None,
        };
        let other = Slot::start(bound)?;
        Ok(Before::Other(mem::replace(self, other).0))
    }

    /// Goes on with other settings by itself; on an error it is as it was.
    pub(super) fn follow(&mut self, wanted: Option<S::Settings>) -> Result<(), Failure> {
        Slot::settle(self.change(wanted)?);
        Ok(())
    }

    /// Goes back to what there was.
    pub(super) fn change_back(&mut self, before: Before<S>) -> Result<(), Failure> {
        match before {
            Before::Changed(settings) => match &mut self.0 {
                Some((server, now)) => {
                    server.replace(&settings)?;
                    *now = settings;
                    Ok(())
                }
                None => Ok(()),
            },
            Before::Other(before) => {
                if let Some((server, _)) = mem::replace(&mut self.0, before) {
                    server.stop();
                }
                Ok(())
            }
        }
    }

    /// Ends what there was and is not any more.
    pub(super) fn settle(before: Before<S>) {
        if let Before::Other(Some((server, _))) = before {
            server.retire();
        }
    }

    /// Ends a server of which a thread has ended by itself. Whether there was one.
    pub(super) fn discard_broken(&mut self) -> bool {
        match self.0.take_if(|(server, _)| !server.is_whole()) {
            Some((server, _)) => {
                error!("{}: a thread has ended by itself", S::NAME);
                server.retire();
                true
            }
            None => false,
        }
    }

    /// Ends the server, if one runs.
    pub(super) fn end(&mut self, leave: bool) {
        if let Some((server, _)) = self.0.take() {
            if leave { server.leave() } else { server.stop() }
        }
    }
}

impl<S: Service> Default for Slot<S> {
    fn default() -> Slot<S> {
        Slot(None)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};
    use std::thread::JoinHandle;

    use fordway_testhost::poll;

    use super::*;

    /// A server whose thread panics when it is told to.
    struct Fake {
        order: Sender<bool>,
        thread: JoinHandle<()>,
    }

    /// What happens to servers.
    type Told = Arc<Mutex<Vec<&'static str>>>;

    impl Service for Fake {
        const NAME: &'static str = "fake";
        type Settings = Told;
        type Bound = (Sender<bool>, Receiver<bool>);

        fn bind(told: &Told) -> Result<Self::Bound, Failure> {
            told.lock().unwrap().push("bound");
            Ok(channel())
        }

        fn start((order, orders): Self::Bound) -> Result<Fake, Failure> {
            let work = move || assert!(!orders.recv().unwrap_or(false), "a panic that is wanted");
            Ok(Fake { order, thread: std::thread::spawn(work) })
        }

        fn can_change(_: &Told, _: &Told) -> bool {
            true
        }

        fn replace(&self, told: &Told) -> Result<(), Failure> {
            told.lock().unwrap().push("replaced");
            Ok(())
        }

        fn is_whole(&self) -> bool {
            !self.thread.is_finished()
        }

        fn stop(self) {
            drop(self.order);
            let _panicked = self.thread.join();
        }

        fn leave(self) {
            self.stop();
        }
    }

    #[test]
    fn a_server_whose_thread_has_panicked_makes_room_for_another() {
        let told = Told::default();
        let start = || Slot::start(Some((Fake::bind(&told).unwrap(), Arc::clone(&told)))).unwrap();
        let (mut broken, mut other): (Slot<Fake>, Slot<Fake>) = (start(), start());
        assert!(!broken.discard_broken() && !other.discard_broken());
        broken.server().unwrap().order.send(true).unwrap();
        poll("the thread ends", || broken.discard_broken().then_some(()));
        // Others go on.
        assert!(broken.server().is_none() && !other.discard_broken() && other.server().is_some());
        told.lock().unwrap().clear();
        // What is wanted runs again, as after a reload with the same file.
        for slot in [&mut broken, &mut other] {
            Slot::settle(slot.change(Some(Arc::clone(&told))).unwrap());
            assert!(slot.server().unwrap().is_whole());
        }
        assert_eq!(*told.lock().unwrap(), ["bound", "replaced"]);
        broken.end(false);
        other.end(false);
    }
}
