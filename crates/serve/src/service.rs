//! What the daemon needs of a kind of server.

use std::error::Error;

/// A server whose settings can change while it runs: bound, started, changed or succeeded by another, ended.
pub trait Service: Sized + Send {
    /// Its name in the log.
    const NAME: &'static str;
    /// Its settings.
    type Settings: Clone + Send;
    /// The server with its sockets, before it has threads.
    type Bound: Send;
    /// Why it does not start, or does not change.
    type Error: Error + Send;

    /// Opens sockets and reads files, which may need privileges.
    ///
    /// # Errors
    ///
    /// A socket or a file that can't be had.
    fn bind(settings: &Self::Settings) -> Result<Self::Bound, Self::Error>;

    /// As [`Service::bind`], for a server that is to take the place of this one.
    ///
    /// # Errors
    ///
    /// As [`Service::bind`].
    fn succeed(&self, settings: &Self::Settings) -> Result<Self::Bound, Self::Error> {
        Self::bind(settings)
    }

    /// Starts threads, which get the capabilities of the calling thread: call it after privileges are given up.
    ///
    /// # Errors
    ///
    /// The system has no room for a thread.
    fn start(bound: Self::Bound) -> Result<Self, Self::Error>;

    /// The first setting that differs and that [`Service::replace`] can't change: another server has to succeed.
    fn fixed(from: &Self::Settings, to: &Self::Settings) -> Option<&'static str>;

    /// Applies other settings.
    ///
    /// # Errors
    ///
    /// Settings that can't be applied; those before stay in force.
    fn replace(&self, settings: Self::Settings) -> Result<(), Self::Error>;

    /// Whether all its threads run. A thread that has panicked does not.
    fn is_whole(&self) -> bool;

    /// Accepts no more clients; those it has are served to their end.
    fn begin_end(&mut self) {}

    /// Whether no client is served any more after [`Service::begin_end`].
    fn has_ended(&self) -> bool {
        true
    }

    /// Ends for good. Whether it waits for its threads is up to the kind of server.
    fn stop(self) {}

    /// Ends because another process takes over: clients are not told that the server has gone.
    fn leave(self) {
        self.stop();
    }
}

/// The name of the first of these settings that is not the same.
#[must_use]
pub fn differing<const N: usize>(same: [(&'static str, bool); N]) -> Option<&'static str> {
    same.into_iter().find(|(_, same)| !same).map(|(name, _)| name)
}
