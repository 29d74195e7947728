//! What a killed daemon has left: the kernel engine of a CLAT goes on translating. It is adopted as soon as the network's
//! prefix is known, and taken down if none is found in time.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fordway_config::{Config, InterfaceName, Translator};
use fordway_net::Manager;
use tracing::{info, warn};

use super::ledger;
use crate::failure::Failure;
use crate::pins;

/// How long it may go on while the prefix is unknown: a router and a resolver may answer a second query only.
const PATIENCE: Duration = Duration::from_secs(12);

/// What an earlier daemon has left.
#[derive(Debug)]
pub(crate) struct Leftover {
    name: String,
    run_dir: PathBuf,
    /// Until when it may stay while nothing is known of the network.
    pub(crate) until: Instant,
}

impl Leftover {
    /// Finds a kernel engine that goes on. What is not in use any start takes back.
    pub(crate) fn find(template: &Translator, run_dir: &Path) -> Option<Leftover> {
        let name = template.name.as_str();
        let pinned = pins::dir(name).is_ok_and(|pins| pins.exists());
        let kept = Manager::open(run_dir, name).and_then(|mut manager| manager.is_kept());
        if !pinned && !kept.unwrap_or(false) {
            return None;
        }
        info!("{name}: an earlier run's kernel engine goes on until the network is known");
        let until = Instant::now() + PATIENCE;
        Some(Leftover { name: name.to_owned(), run_dir: run_dir.to_owned(), until })
    }

    /// Takes it down: the host first, so that nothing untranslated leaves, programs last.
    pub(crate) fn take_down(self) {
        let taken = || -> Result<(), Failure> {
            let mut manager = Manager::open(&self.run_dir, &self.name)?;
            let report = manager.restore()?;
            fordway_bpf::take_down(&pins::dir(&self.name)?)?;
            ledger::log_report(&self.name, "left by an earlier run: ", &report);
            Ok(())
        };
        if let Err(failure) = taken() {
            warn!("{}: cannot take down what an earlier run left: {}", self.name, failure.line());
        }
    }
}

/// What an earlier daemon of this control socket has left, and nothing in the file goes on with.
pub fn orphans(config: &Config, run_dir: &Path) -> Result<Vec<String>, Failure> {
    let names = config.translators.iter().map(|it| it.name.as_str());
    let of_kernel = config.nat44.iter().map(|it| it.name.as_str());
    let of_kernel = of_kernel.chain(config.dual_stack.iter().map(|it| it.name.as_str()));
    let names: BTreeSet<&str> = names.chain(of_kernel).collect();
    let kept = fordway_net::kept_by(run_dir, &config.control.socket.to_string_lossy())?;
    Ok(kept.into_iter().filter(|name| !names.contains(name.as_str())).collect())
}

/// Takes down what is orphaned before anything new is set up: what an earlier daemon of this control socket has left
/// under a name that is no longer in the file, and translators of killed daemons.
pub(crate) fn clear(config: &Config, run_dir: &Path) -> Result<(), Failure> {
    ledger::set_home(&config.control.socket);
    for name in orphans(config, run_dir)? {
        Leftover { name, run_dir: run_dir.to_owned(), until: Instant::now() }.take_down();
    }
    // What this file has a name for is its own, to be taken up; services take up theirs.
    let names: Vec<&str> = config.translators.iter().map(|it| it.name.as_str()).collect();
    ledger::reclaim(run_dir, |owner| names.contains(&owner) || owner.len() > InterfaceName::MAX);
    Ok(())
}
