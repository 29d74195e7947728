//! The ledger of host changes, as what one process leaves to the next.

use std::path::Path;
use std::sync::OnceLock;

use fordway_net::{Manager, Report};
use tracing::{info, warn};

/// The control socket of this process, by which the ledger tells it from others.
static HOME: OnceLock<String> = OnceLock::new();

/// The control socket that the ledger names for what this process keeps.
pub(crate) fn home() -> &'static str {
    HOME.get().map_or("", String::as_str)
}

/// Sets it, once.
pub(super) fn set_home(socket: &Path) {
    HOME.get_or_init(|| socket.to_string_lossy().into_owned());
}

/// Takes everything back, and says what came of it.
pub(crate) fn take_back(name: &str, manager: &mut Manager) {
    match manager.restore() {
        Ok(report) => log_report(name, "", &report),
        Err(error) => warn!("{name}: cannot take the set-up back: {error}; the next start tries"),
    }
}

/// What was taken back in one line, and a warning for each change that was not.
pub(crate) fn log_report(name: &str, what: &str, report: &Report) {
    let gone =
        |reason: &str| reason.ends_with("is gone") || reason.ends_with("is another interface now");
    let went = report.left.iter().filter(|(_, reason)| gone(reason)).count();
    let mut line = format!("{} changes taken back", report.undone.len());
    if went > 0 {
        line += &format!(", {went} went with the interface");
    }
    if !report.shared.is_empty() {
        line += &format!(", {} stay for other translators", report.shared.len());
    }
    info!("{name}: {what}{line}");
    for (change, reason) in report.left.iter().filter(|(_, reason)| !gone(reason)) {
        warn!(
            "{name}: not taken back, because another program has changed it: {change} ({reason})"
        );
    }
    for (change, error) in &report.failed {
        warn!("{name}: cannot take back: {change}: {error}; the next start tries again");
    }
}

/// Takes back what killed daemons left, but for these owners and those that are held.
pub(crate) fn reclaim(run_dir: &Path, spare: impl Fn(&str) -> bool) {
    match fordway_net::reclaim_dead(run_dir, spare) {
        Ok(reports) => {
            for (owner, report) in reports.iter().filter(|(_, report)| !report.is_empty()) {
                log_report(owner, "left by a daemon that was killed: ", report);
            }
        }
        Err(error) => warn!("cannot take back what killed daemons left: {error}"),
    }
}
