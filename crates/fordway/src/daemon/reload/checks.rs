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
    let hint = format!("fordway down {name}, then fordway reload; nothing has been changed now");
    Err(Failure::failed(text).hint(hint))
}

/// Parts of DSTM that a start decides.
pub(super) fn check_lending(old: &Config, new: &Config) -> Result<(), Failure> {
    let mut differ = Vec::new();
    if let (Some(old), Some(new)) = (&old.dstm_server, &new.dstm_server) {
        let keys = [
            ("listen", old.listen == new.listen),
            ("state", old.state == new.state),
            ("the tunnel end point", old.tep == new.tep),
        ];
        let keys = keys.into_iter().filter(|(_, same)| !same);
        differ.extend(keys.map(|(key, _)| format!("[dstm_server]: {key}")));
    }
    if let (Some(old), Some(new)) = (&old.dstm_tep, &new.dstm_tep)
        && old != new
    {
        differ.push("[dstm_tep]".to_owned());
    }
    if let Some(first) = differ.first() {
        let text = format!("{first} can't change at run time");
        return Err(Failure::failed(text).hint("restart the daemon; nothing has been changed now"));
    }
    for old in &old.dstm_clients {
        let new = new.dstm_clients.iter().find(|new| new.name == old.name);
        if new.is_some_and(|new| new != old) {
            let name = &old.name;
            let text = format!("{name}: a [[dstm_client]] can't change at run time");
            let hint =
                format!("fordway down {name}, then fordway reload; nothing has been changed now");
            return Err(Failure::failed(text).hint(hint));
        }
    }
    Ok(())
}

/// Sections that only a start looks at.
pub(super) fn check_sections(old: &Config, new: &Config) -> Result<(), Failure> {
    let sections = [
        ("[control]", old.control == new.control),
        ("[metrics]", old.metrics == new.metrics),
        ("[log]", old.log == new.log),
    ];
    let differ: Vec<&str> =
        sections.iter().filter(|(_, same)| !same).map(|(name, _)| *name).collect();
    if differ.is_empty() {
        return Ok(());
    }
    let text = format!("{} can't change at run time", differ.join(", "));
    Err(Failure::failed(text).hint("restart the daemon; nothing has been changed now"))
}

/// Keys that a translator is started with.
pub(super) fn check_translator(old: &Translator, new: &Translator) -> Result<(), Failure> {
    let uplink = |it: &Translator| {
        let client = it.softwire().and_then(|softwire| softwire.client());
        let client = client.and_then(|client| client.uplink.clone());
        it.clat().and_then(|clat| clat.uplink.clone()).or(client)
    };
    let is_client =
        |it: &Translator| it.softwire().is_some_and(|softwire| softwire.client().is_some());
    let dynamic4 = |it: &Translator| it.dynamic4().map(|it| (it.file.clone(), it.settings().sizes));
    let sizes = |it: &Translator| it.nat64().map(|nat64| nat64.sizes);
    let subscriber_len = |it: &Translator| it.nat64().map(|nat64| nat64.subscriber_len);
    let keys = [
        ("mode", old.mode_name() == new.mode_name()),
        ("pref64 (from a prefix to auto, or back)", old.is_automatic() == new.is_automatic()),
        ("role", is_client(old) == is_client(new)),
        ("engine", old.engine == new.engine),
        ("attach", old.attach == new.attach),
        ("devices", old.devices == new.devices),
        ("uplink", uplink(old) == uplink(new)),
        ("queues", old.queues == new.queues),
        ("pin_queues", old.pin_queues == new.pin_queues),
        ("manage", old.manage == new.manage),
        ("dynamic4", dynamic4(old) == dynamic4(new)),
        ("max_sessions, max_bib and max_subscribers", sizes(old) == sizes(new)),
        ("subscriber_len", subscriber_len(old) == subscriber_len(new)),
        ("pool6 (but for prefixes that are added at its end)", keeps_prefixes(old, new)),
    ];
    let differ: Vec<&str> = keys.iter().filter(|(_, same)| !same).map(|(key, _)| *key).collect();
    if differ.is_empty() {
        return Ok(());
    }
    let name = &new.name;
    let text = format!("{name}: {} can't change at run time", differ.join(", "));
    let hint = format!("fordway down {name}, then fordway reload; nothing has been changed now");
    Err(Failure::failed(text).hint(hint))
}

/// Whether sessions, which know the number of their prefix, find it again.
fn keeps_prefixes(old: &Translator, new: &Translator) -> bool {
    old.nat64().is_none() || new.pool6().starts_with(old.pool6())
}
