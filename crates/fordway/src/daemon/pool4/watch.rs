//! Hearing of addresses that come and go.

use std::future::pending;

use fordway_net::AddressWatch;
use tokio::io::unix::AsyncFd;
use tracing::warn;

/// Tells when an IPv4 address or a device of this host came or went.
pub(crate) struct Watch(Option<AsyncFd<AddressWatch>>);

impl Watch {
    /// Begins to listen. Where that is impossible, it tells nothing, and whoever looks from time to time
    /// sees changes later.
    #[allow(deprecated, reason = "the descriptor is the same for as long as the watch lives")]
    pub(crate) fn open() -> Watch {
        let opened = AddressWatch::open().map_err(|error| error.to_string());
        let opened = opened.and_then(|it| AsyncFd::new(it).map_err(|error| error.to_string()));
        Watch(opened.inspect_err(|error| unheard(error)).ok())
    }

    /// Waits for a change. May be dropped while it waits.
    pub(crate) async fn changed(&mut self) {
        let Some(watch) = &mut self.0 else { return pending().await };
        loop {
            let changed = match watch.readable_mut().await {
                Ok(mut ready) => {
                    // All there is gets read.
                    ready.clear_ready();
                    ready.get_inner_mut().changed().map_err(|error| error.to_string())
                }
                Err(error) => Err(error.to_string()),
            };
            match changed {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    unheard(&error);
                    self.0 = None;
                    return pending().await;
                }
            }
        }
    }
}

fn unheard(error: &str) {
    warn!("changes of addresses are seen with some delay: {error}");
}
