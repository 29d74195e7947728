//! What has to go together in softwires, and against the rest of the file.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::ops::Range;

use fordway_softwire::{Binding, BindingError, Bindings};
use ipnet::{Ipv4Net, Ipv6Net};
use toml::Spanned;

use super::{Softwire, SoftwireEnd};
use crate::diagnostic::Sink;
use crate::keys::Places;

/// Bindings that a file may have: what fits its greatest size, generously.
const MAX_BINDINGS: usize = 200_000;

/// The bindings that stand in the file and are complete.
pub(crate) fn bindings((softwire, at): (&Softwire, &Places)) -> Vec<Spanned<Binding>> {
    let SoftwireEnd::Tep { bindings, .. } = &softwire.end else { return Vec::new() };
    let all = bindings.iter().zip(at.tables("bindings"));
    let shares = |at: &Places| ["psid", "psid_len", "psid_offset"].iter().any(|key| at.has(key));
    let complete = all.filter(|(binding, at)| {
        let given = at.key("v4").is_some() && at.key("remote").is_some();
        given && binding.ports.is_some() == shares(at)
    });
    complete.map(|(binding, at)| Spanned::new(at.span.clone(), *binding)).collect()
}

/// Own addresses of the tunnels that stand in the file.
fn locals((softwire, at): (&Softwire, &Places)) -> Vec<Spanned<Ipv6Addr>> {
    match &softwire.end {
        SoftwireEnd::Client(client) => {
            client.local.and_then(|local| at.of("local", &local)).into_iter().collect()
        }
        SoftwireEnd::Tep { local, bindings } => {
            let others = bindings.iter().zip(at.tables("bindings"));
            let others = others.filter_map(|(binding, at)| at.of("local", &binding.local));
            at.of("local", local).into_iter().chain(others).collect()
        }
    }
}

/// IPv4 networks that are the tunnel end point's to give.
pub(crate) fn networks4(softwire: (&Softwire, &Places)) -> Vec<(Ipv4Net, Range<usize>)> {
    let mut seen = BTreeSet::new();
    let bindings = bindings(softwire).into_iter().filter(|it| seen.insert(it.get_ref().v4));
    bindings.map(|it| (it.get_ref().v4.into(), it.span())).collect()
}

/// IPv6 addresses that are routed into the interface.
pub(crate) fn networks6(softwire: (&Softwire, &Places)) -> Vec<(Ipv6Net, Range<usize>)> {
    locals(softwire).iter().map(|it| ((*it.get_ref()).into(), it.span())).collect()
}

/// Checks a softwire.
pub(crate) fn softwire(softwire: &Softwire, at: &Places, sink: &mut Sink) {
    let all = bindings((softwire, at));
    let written = at.tables("bindings").len();
    if written > MAX_BINDINGS {
        let message = format!("`bindings`: {written} of them; {MAX_BINDINGS} are possible");
        sink.error(at.span.clone(), message, "divide them among several files");
        return;
    }
    contradictions(&all, sink);
    match &softwire.end {
        SoftwireEnd::Client(client) => {
            if let Some(span) = at.key("local").filter(|_| client.local == Some(client.remote)) {
                let message = "`local`: both ends of the tunnel have this address";
                sink.error(span, message, "write the client's own address, or leave it out");
            }
        }
        SoftwireEnd::Tep { bindings, .. } => {
            for (binding, at) in bindings.iter().zip(at.tables("bindings")) {
                if let Some(span) = at.key("remote").filter(|_| binding.remote == binding.local) {
                    let message = format!("`remote`: {} is this end's own address", binding.local);
                    sink.error(span, message, "write the client's");
                }
            }
        }
    }
    let locals = locals((softwire, at));
    for binding in &all {
        // What is sent to a client must not come back to this end.
        let Binding { remote, local: own, .. } = *binding.get_ref();
        let local = locals.iter().find(|local| *local.get_ref() == remote && remote != own);
        if let Some(local) = local {
            let message = format!("`bindings`: the client's address {remote} is this end's own");
            sink.error(
                binding.span(),
                message,
                "write the address that the client's own end of the tunnel has",
            )
            .beside(local.span(), "here");
        }
    }
}

/// Two bindings of one address, or of the same ports of it.
pub(crate) fn contradictions(bindings: &[Spanned<Binding>], sink: &mut Sink) {
    let mut table = Bindings::default();
    let place = |wanted: &dyn Fn(&Binding) -> bool| -> Option<Range<usize>> {
        bindings.iter().find(|it| wanted(it.get_ref())).map(Spanned::span)
    };
    for binding in bindings {
        let new = *binding.get_ref();
        let (message, first, help) = match table.insert(new) {
            Ok(None) => continue,
            Ok(Some(old)) => (
                match new.ports {
                    None => format!("`bindings`: {} is given to two clients", new.v4),
                    Some(ports) => {
                        format!("`bindings`: {ports} of {} is given to two clients", new.v4)
                    }
                },
                place(&|it| (it.v4, it.ports) == (old.v4, old.ports)),
                "give each client an address, or other ports of it by psid and psid_len",
            ),
            Err(error @ BindingError::WholeAndShared { .. }) => (
                format!("`bindings`: {error}"),
                place(&|it| it.v4 == new.v4),
                "give all clients of the address a psid, or none",
            ),
            Err(error @ BindingError::Differently(..)) => (
                format!("`bindings`: {error}"),
                place(&|it| it.v4 == new.v4),
                "write the same psid_len and psid_offset for all clients of the address",
            ),
        };
        let error = sink.error(binding.span(), message, help);
        if let Some(first) = first {
            error.beside(first, "here first");
        }
    }
}
