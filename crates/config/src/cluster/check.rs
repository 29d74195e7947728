//! What has to go together in `[cluster]`.

use std::fmt::Display;
use std::hash::Hash;

use fordway_cluster::{WrongShards, WrongTiming};
use fordway_xlat::nat64::Allocation;
use toml::Spanned;

use super::{Cluster, ClusterGateway};
use crate::diagnostic::Sink;
use crate::findings::{duplicates, twice};
use crate::keys::common::is_kernels;
use crate::keys::{Places, Read};
use crate::nat64::{Nat64, Pool4Source, places_of};
use crate::translator::Translator;
use crate::trt::Trt;

/// Checks the section. `unread`: there are translators whose mode could not be read.
pub(crate) fn cluster(
    draft: &Read<Cluster>,
    translators: &[Read<Translator>],
    trt: &[Read<Trt>],
    unread: bool,
    sink: &mut Sink,
) {
    let Read { value: cluster, at, .. } = draft;
    shared(draft, translators, unread, sink);
    gateways(cluster, at, sink);
    store(cluster, at, sink);
    let written = at.key("outage").or_else(|| at.key("ttl"));
    match cluster.timing().check() {
        Err(WrongTiming::Outage) => {
            let message =
                "`outage` is shorter than `ttl`: gateways would stop before the store is missed";
            let span = written.unwrap_or_else(|| at.span.clone());
            sink.error(span, message, "write a longer `outage`, or a shorter `ttl`");
        }
        Err(WrongTiming::Renew) => {
            let message = "`ttl` leaves no time for three renewals";
            let span = at.key("ttl").unwrap_or_else(|| at.span.clone());
            sink.error(span, message, "write a longer one");
        }
        Ok(()) => {}
    }
    tables(cluster, at, trt, sink);
}

/// Routing tables: that of announced routes, and those of the ways to gateways.
fn tables(cluster: &Cluster, at: &Places, trt: &[Read<Trt>], sink: &mut Sink) {
    let span = at.key("route_table").unwrap_or_else(|| at.span.clone());
    let ways = cluster.gateways.iter().map(|gateway| (cluster.table_of(gateway), gateway.number));
    if let Some((table, number)) = ways.clone().find(|(table, _)| is_kernels(*table)) {
        let message = format!(
            "`route_table`: {table}, for the way to gateway {number}, is a table of the kernel's own"
        );
        sink.error(span.clone(), message, "write a number above 255");
    }
    for relay in trt.iter().filter(|it| it.complete) {
        let table = relay.value.table;
        let what = match ways.clone().find(|(way, _)| *way == table) {
            _ if table == cluster.route_table => String::new(),
            Some((_, number)) => format!(", for the way to gateway {number},"),
            None => continue,
        };
        let message = format!("`route_table`: {table}{what} is the table of a relay");
        let relay = relay.at.key("table").unwrap_or_else(|| relay.at.span.clone());
        sink.error(span.clone(), message, "write a table of its own into one of the two")
            .beside(relay, "the relay");
    }
}

/// The translator that the gateways share, and what none of them can have.
fn shared(draft: &Read<Cluster>, translators: &[Read<Translator>], unread: bool, sink: &mut Sink) {
    let place =
        |draft: &Read<Translator>, key| draft.at.key(key).unwrap_or_else(|| draft.at.span.clone());
    let alone = "leave it out, or run it on a host that is in no cluster";
    for translator in translators {
        if translator.value.nat_pt().is_some() {
            let message = "`mode`: gateways of a [cluster] can't share bindings of mode nat-pt";
            sink.error(place(translator, "mode"), message, alone);
        }
        if translator.value.dynamic4().is_some() {
            let message = "`dynamic4`: gateways of a [cluster] can't share mappings that are made on first use";
            sink.error(place(translator, "dynamic4"), message, alone);
        }
    }
    let is_shared =
        |it: &&Read<Translator>| it.value.nat64().is_some() && it.value.nat_pt().is_none();
    let all: Vec<_> = translators.iter().filter(is_shared).collect();
    match (all.as_slice(), unread) {
        ([], false) => {
            let message = "[cluster] needs a translator of mode nat64, which its gateways share";
            let help = "add a [[translator]] with mode = \"nat64\"";
            sink.error(draft.at.span.clone(), message, help);
        }
        ([], true) => {}
        ([one], _) => translator(draft, one, sink),
        ([first, second, ..], _) => {
            let message =
                "the gateways of [cluster] share one translator of mode nat64, and this is another";
            let help = "write the pools of both into one, as [[translator.pool]]";
            sink.error(place(second, "mode"), message, help)
                .beside(place(first, "mode"), "the first one");
            translator(draft, first, sink);
        }
    }
}

fn translator(draft: &Read<Cluster>, shared: &Read<Translator>, sink: &mut Sink) {
    let (at, Some(nat64)) = (&shared.at, shared.value.nat64()) else { return };
    if let Some(span) = at.key("bib").filter(|_| !nat64.bib.is_empty()) {
        let message = "`bib`: a [cluster] can't have static BIB entries yet: the port and the host may belong to different \
                       shards";
        sink.error(
            span,
            message,
            "leave it out, or forward these ports on a host that is in no cluster",
        );
    }
    let mut is_known = true;
    for pool in places_of(&nat64.pools, at) {
        if let Allocation::Deterministic { .. } = pool.pool.allocation {
            let message = "`deterministic`: a [cluster] can't have computed blocks yet: they may be of another shard than \
                           their subscriber";
            sink.error(pool.allocation.clone(), message, "write port_blocks instead");
        }
        let device = |it: &&Spanned<_>| is_device(it.get_ref());
        for entry in pool.pool4.iter().filter(device) {
            is_known = false;
            let message = "`pool4`: all gateways of a [cluster] share these addresses, so they are no gateway's own";
            let help = "write addresses that are routed to the gateways, such as \"192.0.2.0/26\"";
            sink.error(entry.span(), message, help);
        }
    }
    if is_known && shared.complete {
        divided(draft, nat64, at, sink);
    }
}

fn is_device(entry: &crate::nat64::Pool4) -> bool {
    matches!(entry.source, Pool4Source::Interface(_))
}

/// Each shard has a part of each pool.
fn divided(draft: &Read<Cluster>, nat64: &Nat64, at: &Places, sink: &mut Sink) {
    let shards = draft.value.shards;
    // Which key does not matter.
    let Err(WrongShards::Small(small)) = draft.value.shard_map(nat64, [0; 2]) else { return };
    let pools = places_of(&nat64.pools, at);
    let span = pools.get(small).map_or_else(|| at.span.clone(), |pool| pool.span.clone());
    let message = format!("`pool4`: too few ports to give each of {shards} shards a part");
    let help = "write more addresses or ports, or fewer `shards` in [cluster]";
    let wrong = sink.error(span, message, help);
    if let Some(shards) = draft.at.key("shards") {
        wrong.beside(shards, "here");
    }
}

/// A key of all gateways, where it is right.
fn each<T: Clone>(
    cluster: &Cluster,
    at: &Places,
    key: &str,
    value: impl Fn(&ClusterGateway) -> Option<T>,
) -> Vec<Spanned<T>> {
    let all = cluster.gateways.iter().zip(at.tables("gateway"));
    all.filter_map(|(gateway, at)| at.of(key, &value(gateway)?)).collect()
}

fn gateways(cluster: &Cluster, at: &Places, sink: &mut Sink) {
    once("number", &each(cluster, at, "number", |it| Some(it.number)), sink);
    let names = each(cluster, at, "name", |it| Some(it.name.clone()));
    once("name", &names, sink);
    once("address", &each(cluster, at, "address", |it| Some(it.address)), sink);
    once("next_hop", &each(cluster, at, "next_hop", |it| it.next_hop), sink);
    once("next_hop4", &each(cluster, at, "next_hop4", |it| it.next_hop4), sink);
    let tables = at.tables("gateway");
    if tables.is_empty() && (!at.has("gateway") || at.key("gateway").is_some()) {
        let message = "[cluster] has no gateway";
        let help =
            "add a [[cluster.gateway]] with number, name and address for each, this one among them";
        sink.error(at.span.clone(), message, help);
    }
    if let Some(name) = &cluster.name
        && let Some(span) =
            at.key("name").filter(|_| names.len() == tables.len() && !names.is_empty())
        && !names.iter().any(|it| it.get_ref() == name)
    {
        let message = format!("`name`: no [[cluster.gateway]] is called \"{name}\"");
        let known: Vec<_> = names.iter().map(|name| format!("\"{}\"", name.get_ref())).collect();
        sink.error(span, message, format!("write one of {}", known.join(", ")));
    }
    if tables.len() < 2 {
        return;
    }
    // Packets of a shard that has just moved, and of addresses whose ports several gateways have, come to another one.
    for (gateway, at) in
        cluster.gateways.iter().zip(tables).filter(|(_, at)| at.key("address").is_some())
    {
        let needed = [
            ("next_hop", "IPv6", gateway.next_hop6().is_some(), "2001:db8:1::1"),
            ("next_hop4", "IPv4", gateway.next_hop4().is_some(), "192.0.2.1"),
        ];
        for (key, family, has, example) in needed {
            if !has && !at.has(key) {
                let message = format!(
                    "this gateway has no `{key}`: others could hand no {family} packets over to it"
                );
                let help = format!(
                    "write its address on the common segment, such as {key} = \"{example}\""
                );
                sink.error(at.span.clone(), message, help);
            }
        }
    }
}

fn once<T: Hash + Eq + Display>(key: &str, items: &[Spanned<T>], sink: &mut Sink) {
    for (first, second) in twice(items, |item| item) {
        let message = format!("`{key}`: two gateways have {}", second.get_ref());
        sink.error(second.span(), message, "each has its own").beside(first.span(), "here first");
    }
}

fn store(cluster: &Cluster, at: &Places, sink: &mut Sink) {
    let store = &cluster.store;
    let [at] = at.tables("store") else {
        if !at.has("store") {
            let message = "[cluster] has no store";
            let help = "add [cluster.store] with servers = [\"tls://nats1.example:4222\"]";
            sink.error(at.span.clone(), message, help);
        }
        return;
    };
    let servers = at.each("servers", &store.servers);
    duplicates("servers", &servers, sink);
    if let (Some(one), None) | (None, Some(one)) = (at.key("certificate"), at.key("key")) {
        let message = "a certificate needs its key, and a key its certificate";
        sink.error(one, message, "write `certificate` and `key`");
    }
    if let Some(span) = at.key("replicas").filter(|_| store.replicas == 1) {
        let message = "`replicas`: while the one server is gone, no gateway can take another's shards, and what it loses is \
                       lost";
        sink.warn(span, message, "write 3, with three servers");
    }
    for server in servers.iter().filter(|it| !store.is_encrypted(it.get_ref())) {
        let message = "`servers`: without TLS, whoever is on the way can take shards from gateways";
        sink.warn(
            server.span(),
            message,
            "write tls://, and the servers' authority as `authority`",
        );
    }
}
