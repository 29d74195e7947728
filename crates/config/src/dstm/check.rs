//! What has to go together in DSTM.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::net::Ipv4Addr;
use std::ops::Range;

use fordway_softwire::Binding;
use ipnet::Ipv4Net;
use toml::Spanned;

use super::{DstmClient, DstmServer, DstmTep, DstmTepPlace, same_place};
use crate::check::duplicates;
use crate::diagnostic::{Diagnostic, Sink};
use crate::keys::Read;
use crate::name::InterfaceName;

/// The parts of the file that DSTM is held against.
pub(crate) struct Surroundings {
    /// The names of the translators, and whether each is a tunnel end point.
    pub(crate) translators: Vec<(Spanned<InterfaceName>, bool)>,
    /// The bindings that tunnel end points have of the file.
    pub(crate) bindings: Vec<Spanned<Binding>>,
}

/// Checks all sections of DSTM.
pub(crate) fn dstm(
    server: Option<&Read<DstmServer>>,
    tep: Option<&Read<DstmTep>>,
    clients: &[Read<DstmClient>],
    around: &Surroundings,
    sink: &mut Sink,
) {
    let here = server.and_then(|server| match &server.value.tep {
        DstmTepPlace::Here(name) => server.at.of("tep", name),
        DstmTepPlace::There { .. } => None,
    });
    if let Some(draft) = server {
        server_alone(draft, sink);
        is_tep(here.as_ref(), around, sink);
        given_away(draft, around, sink);
    }
    if let Some(name) = tep.and_then(|tep| tep.at.of("tep", &tep.value.tep)) {
        is_tep(Some(&name), around, sink);
        if let Some(other) = here.filter(|other| other.get_ref() == name.get_ref()) {
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

fn server_alone(draft: &Read<DstmServer>, sink: &mut Sink) {
    let Read { value: server, at, complete } = draft;
    let all = at.each("listen", &server.listen);
    for (index, listen) in all.iter().enumerate() {
        let earlier = all[..index].iter().find(|it| same_place(it.get_ref(), listen.get_ref()));
        if let Some(earlier) = earlier {
            let message = format!("`listen`: {} is taken already", listen.get_ref());
            sink.push(
                Diagnostic::error(listen.span(), message)
                    .related(earlier.span(), "here")
                    .help("leave one out"),
            );
        }
    }
    duplicates("pool", &at.each("pool", &server.pool), sink);
    let clients = server.clients.iter().zip(at.tables("client"));
    let ids: Vec<_> = clients.filter_map(|(client, at)| at.of("id", &client.id)).collect();
    twice("id", &ids, sink);
    twice("v4", &reserved(draft), sink);
    let prefixes = server.prefixes.iter().zip(at.tables("prefix"));
    let prefixes: Vec<_> =
        prefixes.filter_map(|(prefix, at)| at.of("prefix", &prefix.prefix)).collect();
    twice("prefix", &prefixes, sink);
    if !complete {
        return;
    }
    if let Some(span) = at.key("max_lifetime")
        && server.max_lifetime < server.lifetime
    {
        let lifetime = humantime::format_duration(server.lifetime);
        let message = format!("`max_lifetime` is shorter than `lifetime`, which is {lifetime}");
        let help = "write a longer one, or a shorter `lifetime`";
        sink.push(Diagnostic::error(span, message).help(help));
    }
    overlapping_pool(draft, sink);
    if server.clients.is_empty() && server.prefixes.is_empty() {
        let message = "[dstm_server] has no client: nobody has a key";
        let help = "add [[dstm_server.client]] with id and key_file, or [[dstm_server.prefix]] with prefix \
                    and key_file";
        sink.push(Diagnostic::error(at.span.clone(), message).help(help));
    }
}

/// Addresses that clients have for good.
fn reserved(draft: &Read<DstmServer>) -> Vec<Spanned<Ipv4Addr>> {
    let clients = draft.value.clients.iter().zip(draft.at.tables("client"));
    clients.filter_map(|(client, at)| at.of("v4", &client.v4?)).collect()
}

fn overlapping_pool(draft: &Read<DstmServer>, sink: &mut Sink) {
    let Read { value: server, at, .. } = draft;
    let pool = at.each("pool", &server.pool);
    for (index, net) in pool.iter().enumerate() {
        let inside = |it: &&Spanned<Ipv4Net>| {
            let (one, other) = (it.get_ref(), net.get_ref());
            one != other && (one.contains(other) || other.contains(one))
        };
        if let Some(earlier) = pool[..index].iter().find(inside) {
            let message = format!("`pool`: {} overlaps {}", net.get_ref(), earlier.get_ref());
            sink.push(
                Diagnostic::error(net.span(), message)
                    .related(earlier.span(), "here")
                    .help("write each address once"),
            );
        }
    }
    let per_address = server.ports_per_client.map_or(1, |ports| 65_536 / ports);
    let addresses: u64 = server.pool.iter().map(|net| 1u64 << (32 - net.prefix_len())).sum();
    if addresses * u64::from(per_address) > 1 << 20
        && let Some(first) = pool.first()
    {
        let message = "`pool`: a server lends at most 1048576 addresses, or port sets of them";
        let help = "write a smaller pool, or more ports_per_client";
        sink.push(Diagnostic::error(first.span(), message).help(help));
    }
}

/// What is lent can't be somebody's for good.
fn given_away(draft: &Read<DstmServer>, around: &Surroundings, sink: &mut Sink) {
    let (pool, all) = (draft.at.each("pool", &draft.value.pool), reserved(draft));
    for reserved in all.iter().filter(|_| draft.value.ports_per_client.is_some()) {
        let v4 = reserved.get_ref();
        if let Some(net) = pool.iter().find(|net| net.get_ref().contains(v4)) {
            let message = format!("`v4`: {v4} is of the pool, whose addresses are shared by ports");
            let help = "a client that has an address for itself needs one outside of the pool";
            sink.push(
                Diagnostic::error(reserved.span(), message).related(net.span(), "here").help(help),
            );
        }
    }
    for binding in &around.bindings {
        let v4 = binding.get_ref().v4;
        let pool = pool.iter().filter(|net| net.get_ref().contains(&v4)).map(Spanned::span);
        let reserved = all.iter().filter(|it| *it.get_ref() == v4).map(Spanned::span);
        if let Some(lent) = pool.chain(reserved).next() {
            let message = format!("`bindings`: {v4} is lent by [dstm_server]");
            let help = "take it out of one of the two";
            sink.push(Diagnostic::error(binding.span(), message).related(lent, "here").help(help));
        }
    }
}

/// Whether it is the name of a tunnel end point of this file.
fn is_tep(name: Option<&Spanned<InterfaceName>>, around: &Surroundings, sink: &mut Sink) {
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
fn names(clients: &[Read<DstmClient>], around: &Surroundings, sink: &mut Sink) {
    let mut first: HashMap<&InterfaceName, Range<usize>> =
        around.translators.iter().map(|(name, _)| (name.get_ref(), name.span())).collect();
    for client in clients {
        let (name, Some(at)) = (&client.value.name, client.at.key("name")) else { continue };
        match first.get(name) {
            Some(earlier) => {
                let message = format!("`name`: \"{name}\" is taken");
                sink.push(
                    Diagnostic::error(at, message)
                        .related(earlier.clone(), "here")
                        .help("give each its own name; the interfaces get them"),
                );
            }
            None => drop(first.insert(name, at)),
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
