//! Leased bindings: they are added and removed while packets flow, beside those of the file.
//!
//! A DSTM server, or the agent of a server on another host, changes them from its own thread. The user engine's core is
//! changed first and is authoritative; the kernel engine's maps follow.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fordway_bpf::SoftwireMaps;
use fordway_dstmd as dstm;
use fordway_engine::{Core, Current};
use fordway_softwire::{Binding, Bindings, Softwire};
use tracing::debug;

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

impl dstm::Bindings for Tunnel {
    fn insert(&self, binding: &Binding) -> Result<(), String> {
        let mut held = self.hold();
        let Inner { lent, engines, behind } = &mut *held.0;
        let absent = || format!("the tunnel end point {} does not run", self.name);
        let engines = engines.as_ref().ok_or_else(absent)?;
        let core = engines.core.get();
        let softwire = core.softwire().ok_or_else(absent)?;
        let mut bindings = softwire.bindings().clone();
        let before = bindings.insert(*binding).map_err(|error| error.to_string())?;
        if let Some(before) = before.filter(|before| before != binding && !lent.contains(before)) {
            return Err(format!("{} has the binding {before} for good", self.name));
        }
        if let Some(core) = with(softwire, bindings) {
            engines.core.set(core);
        }
        if let Some(before) = before {
            lent.remove(&before);
        }
        lent.insert(*binding);
        if let Some(maps) = &engines.maps
            && let Err(error) = maps.insert(binding)
        {
            debug!("{}: {binding}: the kernel engine is updated later: {error}", self.name);
            *behind = true;
        }
        Ok(())
    }

    fn remove(&self, binding: &Binding) {
        let mut held = self.hold();
        let Inner { lent, engines, behind } = &mut *held.0;
        if !lent.remove(binding) {
            return;
        }
        let Some(engines) = engines else { return };
        if let Some(softwire) = engines.core.get().softwire() {
            let mut bindings = softwire.bindings().clone();
            bindings.remove(binding);
            if let Some(core) = with(softwire, bindings) {
                engines.core.set(core);
            }
        }
        if let Some(maps) = &engines.maps
            && let Err(error) = maps.remove(binding)
        {
            debug!("{}: {binding}: the kernel engine is updated later: {error}", self.name);
            *behind = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use fordway_dstmd::Bindings as _;
    use fordway_softwire::Settings;

    use super::*;

    fn binding(last: u8, remote: &str) -> Binding {
        let local = "2001:db8:f::1".parse().unwrap();
        Binding {
            v4: [192, 0, 2, last].into(),
            ports: None,
            remote: remote.parse().unwrap(),
            local,
        }
    }

    fn core(written: &[Binding]) -> Core {
        let mut bindings = Bindings::default();
        bindings.extend(written.iter().copied());
        Core::Softwire(Arc::new(Softwire::new(Settings::default(), bindings).unwrap()))
    }

    fn now(current: &Current) -> Vec<Binding> {
        let core = current.get();
        let mut all: Vec<Binding> =
            core.softwire().unwrap().bindings().iter().map(|entry| entry.binding).collect();
        all.sort();
        all
    }

    #[test]
    fn what_is_lent_comes_beside_what_the_file_has_and_outlives_another_file() {
        let tunnel = Tunnels::default().of("tep0");
        let (own, one, two) =
            (binding(1, "2001:db8:1::1"), binding(2, "2001:db8:1::2"), binding(3, "2001:db8:1::3"));
        let said = tunnel.insert(&one).unwrap_err();
        assert_eq!(said, "the tunnel end point tep0 does not run");
        let current = Current::new(core(&[own]));
        tunnel.hold().attach(current.clone(), None);
        tunnel.insert(&one).unwrap();
        tunnel.insert(&two).unwrap();
        assert_eq!(now(&current), [own, one, two]);
        let moved = binding(2, "2001:db8:1::22");
        tunnel.insert(&moved).unwrap();
        // What was in its place before is not removed in its name.
        tunnel.remove(&one);
        assert_eq!(now(&current), [own, moved, two]);
        let said = tunnel.insert(&binding(1, "2001:db8:1::9")).unwrap_err();
        assert!(said.contains("for good"), "{said}");
        tunnel.remove(&own);
        assert_eq!(now(&current), [own, moved, two]);
        // The file has one of them now, for another.
        let written = [binding(3, "2001:db8:1::33")];
        let held = tunnel.hold();
        current.set(held.with_lent(core(&written), &written, &current.get()));
        drop(held);
        assert_eq!(now(&current), [moved, written[0]]);
        tunnel.remove(&moved);
        assert_eq!(now(&current), written);
    }
}
