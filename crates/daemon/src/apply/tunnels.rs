//! Leased bindings: they are added and removed while packets flow, beside those of the file.
//!
//! A DSTM server, or the agent of a server on another host, changes them from its own thread. The user engine's core is
//! changed first and is authoritative; the kernel engine's maps follow.

#[cfg(feature = "dstm")]
mod leased;
#[cfg(not(feature = "dstm"))]
#[path = "tunnels/without.rs"]
mod leased;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fordway_bpf::SoftwireMaps;
use fordway_engine::{Core, Current};
use fordway_softwire::{Binding, Bindings, Softwire};
use tracing::debug;

pub(crate) use leased::Waiting;

/// The tunnel end points of a daemon, by name, whether they run or not. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tunnels(Arc<Mutex<BTreeMap<String, Arc<Tunnel>>>>);

impl Tunnels {
    /// The one of this name, always the same.
    pub(crate) fn of(&self, name: &str) -> Arc<Tunnel> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(name.to_owned()).or_insert_with(|| Arc::new(Tunnel::new(name))))
    }
}

/// What is lent of one tunnel end point.
pub(crate) struct Tunnel {
    name: String,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    lent: BTreeSet<Binding>,
    /// While it runs.
    engines: Option<Engines>,
    /// The kernel engine's maps have not followed.
    behind: bool,
}

struct Engines {
    core: Current,
    maps: Option<Arc<SoftwireMaps>>,
}

/// A tunnel end point whose bindings are locked.
pub(crate) struct Held<'a>(MutexGuard<'a, Inner>);

impl Tunnel {
    fn new(name: &str) -> Tunnel {
        Tunnel { name: name.to_owned(), inner: Mutex::default() }
    }

    /// Locks the bindings.
    pub(crate) fn hold(&self) -> Held<'_> {
        Held(self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Updates the kernel engine's maps where a server's thread could not: kernels before 5.19 let only a thread that may
    /// create maps change them.
    pub(super) fn catch_up(&self) {
        let mut held = self.hold();
        if !std::mem::take(&mut held.0.behind) {
            return;
        }
        if let Some(Engines { core, maps: Some(maps) }) = &held.0.engines
            && let Some(softwire) = core.get().softwire()
            && let Err(error) = maps.replace(softwire.bindings().iter().map(|it| it.binding))
        {
            debug!("{}: the user engine carries some bindings alone: {error}", self.name);
        }
    }
}

impl Held<'_> {
    /// A core with the file's bindings and those that are lent. Where both have an address, the file is right.
    /// `running`: what knows of paths.
    pub(super) fn with_lent(&self, core: Core, written: &[Binding], running: &Core) -> Core {
        let Some(softwire) = core.softwire() else { return core };
        let mut bindings = Bindings::default();
        for binding in written.iter().chain(&self.0.lent) {
            let _ = bindings.add(*binding);
        }
        bindings.keep_paths(softwire.bindings());
        if let Some(running) = running.softwire() {
            bindings.keep_paths(running.bindings());
        }
        with(softwire, bindings).unwrap_or(core)
    }

    /// Its engines run, with what is lent.
    pub(crate) fn attach(&mut self, core: Current, maps: Option<Arc<SoftwireMaps>>) {
        self.0.engines = Some(Engines { core, maps });
    }

    /// They do not run any more.
    pub(super) fn detach(&mut self) {
        self.0.engines = None;
    }
}

fn with(softwire: &Softwire, bindings: Bindings) -> Option<Core> {
    softwire.with_bindings(bindings).ok().map(|softwire| Core::Softwire(Arc::new(softwire)))
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tunnel({})", self.name)
    }
}
