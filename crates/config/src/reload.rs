//! What `fordway reload` can change: each key's description says it.

use crate::keys::{self, Key, Keys, Reload};
use crate::mode::{Clat, Mode, Siit};
use crate::nat64::Nat64;
use crate::softwire;
use crate::translator::Translator;
use crate::types::Config;

impl Translator {
    /// Keys whose value differs in `new`, and that change only after `fordway down NAME`.
    #[must_use]
    pub fn fixed_keys(&self, new: &Translator) -> Vec<&'static str> {
        self.differing(new, is_fixed)
    }

    /// Keys whose value differs in `new`.
    #[must_use]
    pub fn changed_keys(&self, new: &Translator) -> Vec<&'static str> {
        self.differing(new, |_| true)
    }

    fn differing(&self, new: &Translator, wanted: fn(&Key) -> bool) -> Vec<&'static str> {
        let mode = match &self.mode {
            Mode::Siit(_) => Siit::keys(),
            Mode::Clat(_) => Clat::keys(),
            Mode::Nat64(_) => Nat64::keys(),
            Mode::Softwire(_) => softwire::all_keys(),
        };
        let keys = Translator::keys().into_iter().chain(mode).filter(wanted);
        let differ = differing(self, new, keys);
        // The other keys of another mode or role are others.
        let whole = ["mode", "role"].into_iter().find(|key| differ.contains(key));
        whole.map_or(differ, |key| vec![key])
    }
}

impl Config {
    /// Sections, or keys of sections, whose values differ in `new`, and that only a start of the daemon reads.
    #[must_use]
    pub fn needs_restart(&self, new: &Config) -> Vec<String> {
        let whole = [
            ("[control]", self.control == new.control),
            ("[metrics]", self.metrics == new.metrics),
            ("[log]", self.log == new.log),
            ("[cluster]", self.cluster == new.cluster),
            ("[dstm_tep]", kept(self.dstm_tep.as_ref(), new.dstm_tep.as_ref())),
        ];
        let whole = whole.into_iter().filter(|(_, same)| !same).map(|(title, _)| title.to_owned());
        let server = self.dstm_server.as_ref().zip(new.dstm_server.as_ref());
        let keys = || crate::DstmServer::keys().into_iter().filter(is_fixed);
        let keys = server.map(|(old, new)| differing(old, new, keys()));
        let keys = keys.filter(|keys| !keys.is_empty());
        let keys = keys.map(|keys| format!("[dstm_server]: {}", keys.join(", ")));
        whole.chain(keys).chain(self.disagrees(new)).collect()
    }

    /// Keys of the shared translator that all gateways of an unchanged `[cluster]` have alike, and that differ in `new`; and
    /// its name.
    fn disagrees(&self, new: &Config) -> Option<String> {
        let (one, other) = (self.clustered()?, new.clustered()?);
        let pairs = one.0.agreement(one.2).into_iter().zip(other.0.agreement(other.2));
        let differ = pairs.filter(|(a, b)| a != b).map(|(a, _)| a.0);
        let name = (one.1.name != other.1.name).then_some("name");
        let differ: Vec<_> = differ.chain(name).collect();
        let is_own = one.0 == other.0 && !differ.is_empty();
        is_own.then(|| format!("{} of a [cluster]: {}", other.1.name, differ.join(", ")))
    }
}

/// Whether a section that there was and still is says the same.
fn kept<T: PartialEq>(old: Option<&T>, new: Option<&T>) -> bool {
    old.zip(new).is_none_or(|(old, new)| old == new)
}

/// Whether no reload changes a key.
fn is_fixed(key: &Key) -> bool {
    matches!(key.reload, Reload::Down | Reload::Restart)
}

/// Those of `keys` whose values differ.
fn differing<T: Keys>(old: &T, new: &T, keys: impl IntoIterator<Item = Key>) -> Vec<&'static str> {
    let (old, new) = (keys::write(old), keys::write(new));
    let keys = keys.into_iter().map(|key| key.name);
    keys.filter(|key| old.get(key) != new.get(key)).collect()
}
