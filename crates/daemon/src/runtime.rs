//! What commands and the daemon wait with: an event loop, and a watcher of the network's prefixes.

use std::time::Duration;

use fordway_discovery::{Error, Settings, Watcher};
use hickory_proto::rr::Name;
use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;

/// An event loop on the calling thread.
pub fn event_loop() -> Result<Runtime, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::failed(format!("cannot start the event loop: {error}")))
}

/// A watcher that tries all sources at once, and whether it receives router advertisements: without CAP_NET_RAW it only
/// asks resolvers.
pub fn open_watcher(
    device: Option<&str>,
    trusted_domains: Vec<Name>,
) -> Result<(Watcher, bool), Error> {
    let settings = Settings {
        device: device.map(str::to_owned),
        trusted_domains,
        both: true,
        diagnose: true,
        solicitation_delay: Duration::ZERO,
        ..Settings::default()
    };
    match Watcher::open(settings.clone()) {
        Err(error) if error.is_privilege() => {
            Ok((Watcher::open(Settings { advertisements: false, ..settings })?, false))
        }
        opened => Ok((opened?, true)),
    }
}
