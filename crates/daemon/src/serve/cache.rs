//! What clients ask of the DNS64 server's caches.

use fordway_nameserver::Caches;

use super::handle::Handle;
use crate::failure::Failure;

impl Handle {
    /// The caches of the DNS64 server, to be read or flushed without the daemon.
    pub(crate) fn caches(&self) -> Result<Caches, Failure> {
        let caches = self.state().services.caches();
        caches.ok_or_else(|| {
            Failure::failed("there is no DNS64 server").hint("the file has no section [dns64]")
        })
    }
}
