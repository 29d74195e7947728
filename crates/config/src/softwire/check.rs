//! Softwires against the rest of the file.

use fordway_softwire::Binding;
use ipnet::{Ipv4Net, Ipv6Net};
use toml::Spanned;

use super::read::Draft;
use crate::diagnostic::{Diagnostic, Sink};
use crate::nat44::read::Draft as Nat44Draft;
use crate::translator::Draft as TranslatorDraft;
use crate::types::Attach;

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

/// What is taken at the ingress of NAT44's uplink on its way to a client has not passed NAT44's rules.
pub(crate) fn past_nat44(draft: &TranslatorDraft, nat44: &Nat44Draft, sink: &mut Sink) {
    let Some(translator) = draft.translator().filter(|it| it.attach == Attach::Ingress) else {
        return;
    };
    let own = networks4(&draft.softwire).map(|it| it.0);
    let routed = draft.routes4.iter().map(|it| *it.get_ref());
    let is_client = |net: Ipv4Net| {
        nat44.clients.iter().any(|it| it.get_ref().contains(&net) || net.contains(it.get_ref()))
    };
    if translator.softwire().is_none() || !own.chain(routed).any(is_client) {
        return;
    }
    let shared = nat44.uplinks.iter().find(|uplink| translator.devices.contains(uplink.get_ref()));
    if let Some(uplink) = shared {
        let message = format!(
            "`devices`: {} is the uplink of a NAT44 whose clients are behind this softwire; what comes in there for \
             their own addresses passes NAT44's rules by",
            uplink.get_ref()
        );
        sink.push(
            Diagnostic::warning(draft.span.clone(), message)
                .related(uplink.span(), "its uplink")
                .help("name only the device towards the clients in devices"),
        );
    }
}
