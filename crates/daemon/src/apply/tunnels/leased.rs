//! What a server of DSTM does to the bindings of a tunnel end point.

use fordway_softwire::Binding;
use tracing::debug;

use super::{Inner, Tunnel, with};

pub(crate) use fordway_dstmd::Waiting;

impl fordway_dstmd::Bindings for Tunnel {
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
    use std::sync::Arc;

    use fordway_dstmd::Bindings as _;
    use fordway_engine::{Core, Current};
    use fordway_softwire::{Bindings, Settings, Softwire};

    use super::*;
    use crate::apply::tunnels::Tunnels;

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
