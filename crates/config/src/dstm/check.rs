//! What has to go together in DSTM.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::ops::Range;

use fordway_softwire::Binding;
use toml::Spanned;

use super::read::{ClientDraft, ServerDraft, TepDraft, same_place};
use crate::check::duplicates;
use crate::diagnostic::{Diagnostic, Sink};
use crate::name::InterfaceName;

/// The parts of the file that DSTM is held against.
pub(crate) struct Surroundings<'a> {
    /// The names of the translators, and whether each is a tunnel end point.
    pub(crate) translators: Vec<(&'a Spanned<InterfaceName>, bool)>,
    /// The bindings that tunnel end points have of the file.
    pub(crate) bindings: Vec<&'a Spanned<Binding>>,
}

/// Checks all sections of DSTM.
pub(crate) fn dstm(
    server: Option<&ServerDraft>,
    tep: Option<&TepDraft>,
    clients: &[ClientDraft],
    around: &Surroundings<'_>,
    sink: &mut Sink,
) {
    if let Some(draft) = server {
        server_alone(draft, sink);
        is_tep(draft.tep.as_ref(), around, sink);
        given_away(draft, around, sink);
    }
    if let Some(name) = tep.and_then(|tep| tep.name.as_ref()) {
        is_tep(Some(name), around, sink);
        if let Some(other) = server.and_then(|server| server.tep.as_ref())
            && other.get_ref() == name.get_ref()
        {
            let message = format!("`tep`: {} is told by [dstm_server] already", name.get_ref());
            sink.push(
                Diagnostic::error(name.span(), message)
                    .related(other.span(), "here")
                    .help("leave [dstm_tep] out where the server is on the same host"),
            );
        }
    }
    names(clients, around, sink);
}

fn server_alone(draft: &ServerDraft, sink: &mut Sink) {
    for (at, listen) in draft.listen.iter().enumerate() {
        let earlier =
            draft.listen[..at].iter().find(|it| same_place(it.get_ref(), listen.get_ref()));
        if let Some(earlier) = earlier {
            let message = format!("`listen`: {} is taken already", listen.get_ref());
            sink.push(
                Diagnostic::error(listen.span(), message)
                    .related(earlier.span(), "here")
                    .help("leave one out"),
            );
        }
    }
    duplicates("pool", &draft.pool, sink);
    twice("id", &draft.ids, sink);
    twice("v4", &draft.reserved, sink);
    twice("prefix", &draft.prefixes, sink);
    let Some(server) = draft.server() else { return };
    if let Some(span) = &draft.max_lifetime
        && server.max_lifetime < server.lifetime
    {
        let lifetime = humantime::format_duration(server.lifetime);
        let message = format!("`max_lifetime` is shorter than `lifetime`, which is {lifetime}");
        let help = "write a longer one, or a shorter `lifetime`";
        sink.push(Diagnostic::error(span.clone(), message).help(help));
    }
    overlapping_pool(draft, sink);
    if server.clients.is_empty() && server.prefixes.is_empty() {
        let message = "[dstm_server] has no client: nobody has a key";
        let help = "add [[dstm_server.client]] with id and key_file, or [[dstm_server.prefix]] with prefix \
                    and key_file";
        sink.push(Diagnostic::error(draft.span.clone(), message).help(help));
    }
}

fn overlapping_pool(draft: &ServerDraft, sink: &mut Sink) {
    for (at, net) in draft.pool.iter().enumerate() {
        let inside = |it: &&Spanned<ipnet::Ipv4Net>| {
            let (one, other) = (it.get_ref(), net.get_ref());
            one != other && (one.contains(other) || other.contains(one))
        };
        if let Some(earlier) = draft.pool[..at].iter().find(inside) {
            let message = format!("`pool`: {} overlaps {}", net.get_ref(), earlier.get_ref());
            sink.push(
                Diagnostic::error(net.span(), message)
                    .related(earlier.span(), "here")
                    .help("write each address once"),
            );
        }
    }
    let server = draft.server();
    let per_address = server.and_then(|it| it.ports_per_client).map_or(1, |ports| 65_536 / ports);
    let addresses: u64 =
        draft.pool.iter().map(|net| 1u64 << (32 - net.get_ref().prefix_len())).sum();
    if addresses * u64::from(per_address) > 1 << 20
        && let Some(first) = draft.pool.first()
    {
        let message = "`pool`: a server lends at most 1048576 addresses, or port sets of them";
        let help = "write a smaller pool, or more ports_per_client";
        sink.push(Diagnostic::error(first.span(), message).help(help));
    }
}

/// What is lent can't be somebody's for good.
fn given_away(draft: &ServerDraft, around: &Surroundings<'_>, sink: &mut Sink) {
    let shared = draft.server().is_some_and(|server| server.ports_per_client.is_some());
    for reserved in draft.reserved.iter().filter(|_| shared) {
        let v4 = reserved.get_ref();
        if let Some(net) = draft.pool.iter().find(|net| net.get_ref().contains(v4)) {
            let message = format!("`v4`: {v4} is of the pool, whose addresses are shared by ports");
            let help = "a client that has an address for itself needs one outside of the pool";
            sink.push(
                Diagnostic::error(reserved.span(), message).related(net.span(), "here").help(help),
            );
        }
    }
    for binding in &around.bindings {
        let v4 = binding.get_ref().v4;
        let pool = draft.pool.iter().filter(|net| net.get_ref().contains(&v4)).map(Spanned::span);
        let reserved = draft.reserved.iter().filter(|it| *it.get_ref() == v4).map(Spanned::span);
        if let Some(lent) = pool.chain(reserved).next() {
            let message = format!("`bindings`: {v4} is lent by [dstm_server]");
            let help = "take it out of one of the two";
            sink.push(Diagnostic::error(binding.span(), message).related(lent, "here").help(help));
        }
    }
}

/// Whether it is the name of a tunnel end point of this file.
fn is_tep(name: Option<&Spanned<InterfaceName>>, around: &Surroundings<'_>, sink: &mut Sink) {
    let Some(name) = name else { return };
    let found = around.translators.iter().find(|(it, _)| it.get_ref() == name.get_ref());
    let message = match found {
        Some((_, true)) => return,
        Some(_) => format!("`tep`: {} is no tunnel end point", name.get_ref()),
        None => format!("`tep`: no translator is called \"{}\"", name.get_ref()),
    };
    let help = "name a [[translator]] with mode = \"softwire\" and role = \"tep\"";
    let diagnostic = Diagnostic::error(name.span(), message).help(help);
    sink.push(match found {
        Some((translator, _)) => diagnostic.related(translator.span(), "this one"),
        None => diagnostic,
    });
}

/// Each interface has a name of its own.
fn names(clients: &[ClientDraft], around: &Surroundings<'_>, sink: &mut Sink) {
    let mut first: HashMap<&InterfaceName, Range<usize>> =
        around.translators.iter().map(|(name, _)| (name.get_ref(), name.span())).collect();
    for name in clients.iter().filter_map(|client| client.name.as_ref()) {
        match first.get(name.get_ref()) {
            Some(earlier) => {
                let message = format!("`name`: \"{}\" is taken", name.get_ref());
                sink.push(
                    Diagnostic::error(name.span(), message)
                        .related(earlier.clone(), "here")
                        .help("give each its own name; the interfaces get them"),
                );
            }
            None => drop(first.insert(name.get_ref(), name.span())),
        }
    }
}

fn twice<T: Hash + Eq + Display>(key: &str, items: &[Spanned<T>], sink: &mut Sink) {
    let mut first: HashMap<&T, &Spanned<T>> = HashMap::new();
    for item in items {
        match first.get(item.get_ref()) {
            Some(earlier) => {
                let message = format!("`{key}`: two clients have {}", item.get_ref());
                sink.push(
                    Diagnostic::error(item.span(), message)
                        .related(earlier.span(), "here first")
                        .help("each has its own"),
                );
            }
            None => drop(first.insert(item.get_ref(), item)),
        }
    }
}
