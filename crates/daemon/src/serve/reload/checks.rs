//! What can't change while the daemon runs.

use std::collections::BTreeSet;

use fordway_config::{Config, InterfaceName, Translator};

use crate::failure::Failure;

/// A name is either a translator's with an interface or one of the kernel's, which are taken up and down at other
/// times.
pub(super) fn check_names(old: &Config, new: &Config) -> Result<(), Failure> {
    let with_interface = |config: &Config| -> BTreeSet<InterfaceName> {
        config.translators.iter().map(|it| it.name.clone()).collect()
    };
    let of_kernel = |config: &Config| -> BTreeSet<InterfaceName> {
        let nat44 = config.nat44.iter().map(|it| it.name.clone());
        nat44.chain(config.dual_stack.iter().map(|it| it.name.clone())).collect()
    };
    let (one, other) = (with_interface(old), of_kernel(new));
    let (more, most) = (of_kernel(old), with_interface(new));
    let Some(name) = one.intersection(&other).chain(more.intersection(&most)).next() else {
        return Ok(());
    };
    let text = format!("{name}: mode can't change at run time");
    Err(Failure::failed(text).hint(down(name)))
}

/// Keys and sections that only a start of the daemon reads, and all of a `[[dstm_client]]`.
pub(super) fn check_sections(old: &Config, new: &Config) -> Result<(), Failure> {
    let differ = old.needs_restart(new);
    if !differ.is_empty() {
        let text = format!("{} can't change at run time", differ.join(", "));
        return Err(Failure::failed(text).hint("restart the daemon; nothing has been changed now"));
    }
    for old in &old.dstm_clients {
        let new = new.dstm_clients.iter().find(|new| new.name == old.name);
        if new.is_some_and(|new| new != old) {
            let text = format!("{}: a [[dstm_client]] can't change at run time", old.name);
            return Err(Failure::failed(text).hint(down(&old.name)));
        }
    }
    Ok(())
}

/// Keys that a translator is started with.
pub(super) fn check_translator(old: &Translator, new: &Translator) -> Result<(), Failure> {
    let addresses = |it: &Translator| it.dynamic4().map(|it| it.settings().sizes);
    let partly = [
        ("pref64 (from a prefix to auto, or back)", old.is_automatic() == new.is_automatic()),
        ("dynamic4 (to another number of addresses)", addresses(old) == addresses(new)),
        ("pool6 (but for prefixes that are added at its end)", keeps_prefixes(old, new)),
    ];
    let partly = partly.into_iter().filter(|(_, same)| !same).map(|(key, _)| key);
    let differ: Vec<&str> = match old.mode_name() == new.mode_name() {
        true => old.fixed_keys(new).into_iter().chain(partly).collect(),
        false => vec!["mode"],
    };
    if differ.is_empty() {
        return Ok(());
    }
    let text = format!("{}: {} can't change at run time", new.name, differ.join(", "));
    Err(Failure::failed(text).hint(down(&new.name)))
}

fn down(name: &InterfaceName) -> String {
    format!("fordway down {name}, then fordway reload; nothing has been changed now")
}

/// Whether sessions, which know the number of their prefix, find it again.
fn keeps_prefixes(old: &Translator, new: &Translator) -> bool {
    old.nat64().is_none() || new.pool6().starts_with(old.pool6())
}
