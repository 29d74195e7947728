//! Softwires against the rest of the file.

use fordway_softwire::Binding;
use ipnet::{Ipv4Net, Ipv6Net};
use toml::Spanned;

use super::read::Draft;
use crate::diagnostic::{Diagnostic, Sink};

/// IPv4 networks that are the tunnel end point's to give.
pub(crate) fn networks4(draft: &Draft) -> impl Iterator<Item = (Ipv4Net, std::ops::Range<usize>)> {
    let mut seen = std::collections::BTreeSet::new();
    let first = move |it: &&Spanned<Binding>| seen.insert(it.get_ref().v4);
    draft.bindings.iter().filter(first).map(|it| (it.get_ref().v4.into(), it.span()))
}

/// IPv6 addresses that are routed into the interface.
pub(crate) fn networks6(draft: &Draft) -> impl Iterator<Item = (Ipv6Net, std::ops::Range<usize>)> {
    draft.locals.iter().map(|it| ((*it.get_ref()).into(), it.span()))
}

/// What is sent to a client must not come back to this end.
pub(crate) fn loops(draft: &Draft, sink: &mut Sink) {
    for binding in &draft.bindings {
        let remote = binding.get_ref().remote;
        if let Some(local) = draft.locals.iter().find(|local| *local.get_ref() == remote) {
            let message = format!("`bindings`: the client's address {remote} is this end's own");
            sink.push(
                Diagnostic::error(binding.span(), message)
                    .related(local.span(), "here")
                    .help("write the address that the client's own end of the tunnel has"),
            );
        }
    }
}
