//! What has to go together in DSTM.

use std::fmt::Display;
use std::hash::Hash;
use std::net::Ipv4Addr;

use fordway_softwire::Binding;
use ipnet::Ipv4Net;
use toml::Spanned;

use super::{DstmClient, DstmServer, DstmTep, DstmTepPlace, same_place};
use crate::diagnostic::Sink;
use crate::findings::{clashing, duplicates, twice};
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
            sink.error(
                name.span(),
                message,
                "leave [dstm_tep] out where the server is on the same host",
            )
            .beside(other.span(), "here");
        }
    }
    names(clients, around, sink);
}

fn server_alone(draft: &Read<DstmServer>, sink: &mut Sink) {
    let Read { value: server, at, complete } = draft;
    let all = at.each("listen", &server.listen);
    for (first, second) in clashing(&all, same_place) {
        let message = format!("`listen`: {} is taken already", second.get_ref());
        sink.error(second.span(), message, "leave one out").beside(first.span(), "here");
    }
    duplicates("pool", &at.each("pool", &server.pool), sink);
    let clients = server.clients.iter().zip(at.tables("client"));
    let ids: Vec<_> = clients.filter_map(|(client, at)| at.of("id", &client.id)).collect();
    once("id", &ids, sink);
    once("v4", &reserved(draft), sink);
    let prefixes = server.prefixes.iter().zip(at.tables("prefix"));
    let prefixes: Vec<_> =
        prefixes.filter_map(|(prefix, at)| at.of("prefix", &prefix.prefix)).collect();
    once("prefix", &prefixes, sink);
    if !complete {
        return;
    }
    if let Some(span) = at.key("max_lifetime").filter(|_| server.max_lifetime < server.lifetime) {
        let lifetime = humantime::format_duration(server.lifetime);
        let message = format!("`max_lifetime` is shorter than `lifetime`, which is {lifetime}");
        sink.error(span, message, "write a longer one, or a shorter `lifetime`");
    }
    overlapping_pool(draft, sink);
    if server.clients.is_empty() && server.prefixes.is_empty() {
        let message = "[dstm_server] has no client: no host has a key";
        let help = "add [[dstm_server.client]] with id and key_file, or [[dstm_server.prefix]] with prefix \
                    and key_file";
        sink.error(at.span.clone(), message, help);
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
    let overlap = |one: &Ipv4Net, other: &Ipv4Net| {
        one != other && (one.contains(other) || other.contains(one))
    };
    for (first, second) in clashing(&pool, overlap) {
        let message = format!("`pool`: {} overlaps {}", second.get_ref(), first.get_ref());
        sink.error(second.span(), message, "write each address once").beside(first.span(), "here");
    }
    let per_address = server.ports_per_client.map_or(1, |ports| 65_536 / ports);
    let addresses: u64 = server.pool.iter().map(|net| 1u64 << (32 - net.prefix_len())).sum();
    if addresses * u64::from(per_address) > 1 << 20
        && let Some(first) = pool.first()
    {
        let message = "`pool`: a server lends at most 1048576 addresses, or port sets of them";
        sink.error(first.span(), message, "write a smaller pool, or more ports_per_client");
    }
}

/// An address that is leased can't be assigned to a host permanently.
fn given_away(draft: &Read<DstmServer>, around: &Surroundings, sink: &mut Sink) {
    let (pool, all) = (draft.at.each("pool", &draft.value.pool), reserved(draft));
    for reserved in all.iter().filter(|_| draft.value.ports_per_client.is_some()) {
        let v4 = reserved.get_ref();
        if let Some(net) = pool.iter().find(|net| net.get_ref().contains(v4)) {
            let message = format!("`v4`: {v4} is of the pool, whose addresses are shared by ports");
            let help = "a client that has an address for itself needs one outside of the pool";
            sink.error(reserved.span(), message, help).beside(net.span(), "here");
        }
    }
    for binding in &around.bindings {
        let v4 = binding.get_ref().v4;
        let pool = pool.iter().filter(|net| net.get_ref().contains(&v4)).map(Spanned::span);
        let reserved = all.iter().filter(|it| *it.get_ref() == v4).map(Spanned::span);
        if let Some(lent) = pool.chain(reserved).next() {
            let message = format!("`bindings`: {v4} is lent by [dstm_server]");
            let help = "take it out of one of the two";
            sink.error(binding.span(), message, help).beside(lent, "here");
        }
    }
}

/// Whether it is the name of a tunnel end point of this file.
fn is_tep(name: Option<&Spanned<InterfaceName>>, around: &Surroundings, sink: &mut Sink) {
    let Some(name) = name else { return };
    let help = "name a [[translator]] with mode = \"softwire\" and role = \"tep\"";
    match around.translators.iter().find(|(it, _)| it.get_ref() == name.get_ref()) {
        Some((_, true)) => {}
        Some((translator, false)) => {
            let message = format!("`tep`: {} is no tunnel end point", name.get_ref());
            sink.error(name.span(), message, help).beside(translator.span(), "this one");
        }
        None => {
            let message = format!("`tep`: no translator is called \"{}\"", name.get_ref());
            sink.error(name.span(), message, help);
        }
    }
}

/// Each interface has a name of its own.
fn names(clients: &[Read<DstmClient>], around: &Surroundings, sink: &mut Sink) {
    let mut names: Vec<_> = around.translators.iter().map(|(name, _)| name.clone()).collect();
    let others = names.len();
    names.extend(clients.iter().filter_map(|it| it.at.of("name", &it.value.name)));
    let is_client = |name: &&Spanned<_>| names[others..].iter().any(|it| it.span() == name.span());
    for (first, second) in twice(&names, |name| name).filter(|(_, second)| is_client(second)) {
        let message = format!("`name`: \"{}\" is taken", second.get_ref());
        let help = "give each its own name; the interfaces get them";
        sink.error(second.span(), message, help).beside(first.span(), "here");
    }
}

fn once<T: Hash + Eq + Display>(key: &str, items: &[Spanned<T>], sink: &mut Sink) {
    for (first, second) in twice(items, |item| item) {
        let message = format!("`{key}`: two clients have {}", second.get_ref());
        sink.error(second.span(), message, "each has its own").beside(first.span(), "here first");
    }
}
