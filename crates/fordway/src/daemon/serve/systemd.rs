//! The service manager.

use sd_notify::NotifyState;
use tracing::warn;

/// Sends the state to systemd, if it listens.
pub(crate) fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!("cannot tell the service manager: {error}");
    }
}
