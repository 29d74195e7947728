//! Every metric: name, labels, meaning, and where its values are. OpenMetrics and docs/metrics.md are made of it.

use std::collections::BTreeMap;

use fordway_bpf::PassReason;
use fordway_control::{
    AutoStatus, COUNTERS, ConntrackStats, DirectionStats, KernelStats, LogStats, Nat44Count,
    Nat64Stats, NatPtStats, OccupancyStats, PoolStats, Stats,
};
use fordway_xlat::DropReason;

use super::counters::{
    Counter, DNS64, DSTM_CLIENT, DSTM_SERVER, DSTM_TEP, PROXY, ROUTER, TRT, UPSTREAM, words,
};

/// Metrics of one name.
pub(super) struct Family {
    /// Its name, without `fordway_` and `_total`.
    pub(super) name: &'static str,
    pub(super) labels: &'static [&'static str],
    /// What it means, in Markdown.
    pub(super) help: &'static str,
    pub(super) values: Values,
}

/// Takes a value with those of its labels.
pub(super) type Put<'a, T> = &'a mut dyn FnMut(&[&str], T);

/// Where values are; the functions are told the name of the family.
pub(super) enum Values {
    Counter(fn(&Stats, &str, Put<'_, u64>)),
    Gauge(fn(&Stats, &str, Put<'_, u64>)),
    Histogram(fn(&Stats, Put<'_, Histogram>)),
}

/// How often a time was within each bound.
pub(super) struct Histogram {
    /// Seconds in all.
    pub(super) sum: f64,
    /// Upper bounds in seconds, each with those that are within it but not within the one before.
    pub(super) buckets: Vec<(f64, u64)>,
}

/// Metrics that belong together, and what they are of.
pub(super) type Group = (&'static str, &'static [Family]);

/// Lines: what it is, name, labels, meaning, where its values are.
macro_rules! families {
    ($($kind:ident $name:ident[$($label:ident),*] $help:literal $values:expr;)*) => {
        &[$(Family {
            name: stringify!($name),
            labels: &[$(stringify!($label)),*],
            help: $help,
            values: Values::$kind($values),
        }),*]
    };
}

mod cluster;

pub(super) const GROUPS: &[Group] = &[
    (
        "Translators",
        families! {
            Counter packets[translator, queue, direction] "Packets translated; a super-packet is one. The queue of the kernel engine is `kernel`" |s, _, put| directions(s, put, |it| it.packets);
            Counter segments[translator, queue, direction] "Packets translated, as they are on a wire" |s, _, put| directions(s, put, |it| it.segments);
            Counter octets[translator, queue, direction] "Octets of the IP packets taken in and translated" |s, _, put| directions(s, put, |it| it.octets);
            Counter fragments[translator, queue, direction] "Fragments made" |s, _, put| directions(s, put, |it| it.fragments);
            Counter queue_errors[translator, queue, error] "Errors of the device's queues: `receive_errors`, `send_full`, `send_down`, `send_no_buffers`, `send_refused`" queue_errors;
            Counter drops[translator, reason] "Packets dropped, by [reason](drop-reasons.md)" drops;
            Counter handed_over[translator] "Packets whose shard another gateway of the [cluster](cluster.md#packets) owns, handed over to it" |s, _, put| {
                s.translators.iter().for_each(|it| put(&[&it.name], it.totals.handed_over));
            };
            Counter kernel_passed_on[translator, reason] "Packets that the kernel engine passed to the user engine, by [cause](operations.md#passed-packets)" passed_on;
            Counter kernel_unmatched[translator] "Packets seen by the kernel engine, at the uplink or at XDP, that were none of the translator's" |s, _, put| kernel(s, put, |it| it.unmatched);
            Counter kernel_elsewhere[translator] "Frames for other link-layer addresses, seen by programs in front of routing (`ingress`, XDP); not those for many" |s, _, put| kernel(s, put, |it| it.elsewhere);
            Counter kernel_tagged[translator] "Frames with a VLAN tag, seen by programs in front of routing" |s, _, put| kernel(s, put, |it| it.tagged);
            Counter kernel_routed[translator] "With `forward = \"direct\"`: translated packets that the host's stack had to route" |s, _, put| kernel(s, put, |it| it.routed);
            Counter kernel_measured_packets[translator] "With `measure`: packets whose time was taken" |s, _, put| kernel(s, put, |it| it.measured_packets);
            Counter kernel_measured_nanoseconds[translator] "With `measure`: the time that these took in the programs" |s, _, put| kernel(s, put, |it| it.measured_ns);
            Counter kernel_trace_lost[translator] "Trace events that were not told" |s, _, put| kernel(s, put, |it| it.trace_lost);
            Counter icmp_errors[translator, ip_version] "ICMP errors sent, by IP version" icmp_errors;
            Counter icmp_errors_suppressed[translator] "ICMP errors not sent: rate limit, switched off, or no source address" |s, _, put| {
                s.translators.iter().for_each(|it| put(&[&it.name], it.totals.icmp_errors.suppressed));
            };
        },
    ),
    (
        "CLATs that set themselves up ([clat.md](clat.md)), whether they translate or not",
        families! {
            Gauge clat_state[translator, state] "1 for the state that it is in: `active`, `waiting` or `aside`" |s, _, put| {
                clats(s, put, &["active", "waiting", "aside"], |it, state| (it.state == state).into());
            };
            Gauge clat_prefixes[translator, source] "Prefixes that the network tells, by source: `router advertisement`, `dns` or `configured`" |s, _, put| {
                clats(s, put, &["router advertisement", "dns", "configured"], |it, source| {
                    it.prefixes.iter().filter(|found| found.source == source).count() as u64
                });
            };
            Gauge clat_failed[translator] "1: the host could not be set up, which is tried again; `fordway status` says why" |s, _, put| {
                s.automatic.iter().for_each(|it| put(&[&it.name], it.error.is_some().into()));
            };
            Counter clat_changes[translator] "How often state, prefix, uplink or address have changed" |s, _, put| {
                s.automatic.iter().for_each(|it| put(&[&it.name], it.changes));
            };
        },
    ),
    (
        "Stateful translators. Packets that they refuse are among the drops: `pool_exhausted`, `bib_full`, `sessions_full`, `subscribers_full`, `port_quota`, `session_quota`, `rate_quota` and others",
        families! {
            Gauge nat64_table_entries[translator, table] "Entries in use of `bib`, `sessions`, `subscribers`; entries that wait to be freed count" |s, _, put| tables(s, put, |it| it.used);
            Gauge nat64_table_size[translator, table] "Entries that a table holds" |s, _, put| tables(s, put, |it| it.size);
            Gauge nat64_bib[translator, protocol] "BIB entries, by protocol; `all`: dynamic 1:1 mappings" |s, _, put| maps(s, put, |it| &it.bib);
            Gauge nat64_sessions[translator, protocol] "Sessions, by protocol" |s, _, put| maps(s, put, |it| &it.sessions);
            Gauge nat64_tcp_sessions[translator, state] "TCP sessions, by state (RFC 6146)" |s, _, put| maps(s, put, |it| &it.tcp_states);
            Gauge nat64_resting_ports[translator] "Ports in hold-down, which are not assigned yet" |s, _, put| one(s, put, |it| it.resting);
            Gauge nat64_draining[translator] "1: no new sessions are made" |s, _, put| one(s, put, |it| it.draining.into());
            Gauge nat_pt_addresses[translator] "Addresses that hosts can have for themselves (NAT-PT)" |s, _, put| nat_pt(s, put, |it| it.addresses.size);
            Gauge nat_pt_bound[translator] "Addresses that are bound to a host" |s, _, put| nat_pt(s, put, |it| it.addresses.used);
            Gauge nat_pt_held[translator] "Addresses that were asked for by name and not used yet" |s, _, put| nat_pt(s, put, |it| it.held);
            Counter nat_pt_dns[translator, what] "What the DNS-ALG has done, in messages: [nat-pt.md](nat-pt.md) has the words" |s, _, put| {
                nat64(s).for_each(|(name, it)| it.nat_pt.iter().for_each(|it| map(put, &[name], &it.dns)));
            };
            Gauge nat64_pool_ports[translator, pool] "Ports that a pool has for each protocol. Pools are numbered as `fordway status` lists them" |s, _, put| pools(s, put, |it| Some(it.ports));
            Gauge nat64_pool_bib[translator, pool, protocol] "Ports of a pool that are bound, by protocol" |s, _, put| {
                each_pool(s, &mut |names, it| map(put, names, &it.bib));
            };
            Gauge nat64_pool_subscribers[translator, pool] "Subscribers that have something of a pool" |s, _, put| pools(s, put, |it| Some(it.subscribers));
            Gauge nat64_pool_blocks[translator, pool] "Blocks of ports that a pool has" |s, _, put| pools(s, put, |it| Some(it.blocks?.size));
            Gauge nat64_pool_blocks_used[translator, pool] "Blocks of ports that subscribers have" |s, _, put| pools(s, put, |it| Some(it.blocks?.used));
            Counter nat64_bib_created[translator, protocol] "BIB entries made" |s, _, put| maps(s, put, |it| &it.bib_created);
            Counter nat64_sessions_created[translator, protocol] "Sessions made" |s, _, put| maps(s, put, |it| &it.sessions_created);
            Counter nat64_sessions_ended[translator, protocol, cause] "Sessions that have ended: `expired`, or `withdrawn` with their BIB entry, by hand or by a changed configuration" |s, _, put| {
                for (name, nat64) in nat64(s) {
                    for (cause, counts) in &nat64.sessions_ended {
                        counts.iter().for_each(|(protocol, count)| put(&[name, protocol, cause], *count));
                    }
                }
            };
            Counter nat64_ended_by_reload[translator] "Sessions and 1:1 mappings that a changed configuration had no place for" |s, _, put| one(s, put, |it| it.ended_by_reload);
            Gauge nat64_alg_connections[translator] "Connections that application level gateways watch ([alg.md](alg.md))" |s, _, put| one(s, put, |it| it.alg_connections);
            Counter nat64_alg_events[translator, alg, event] "What application level gateways have done, by event" |s, _, put| {
                for (name, nat64) in nat64(s) {
                    nat64.algs.iter().for_each(|(alg, events)| map(put, &[name, alg], events));
                }
            };
            Counter nat64_log_records[translator, to] "Records written to a log" |s, _, put| logs(s, put, |it| it.written);
            Counter nat64_log_lost[translator, to] "Records that a log has lost" |s, _, put| logs(s, put, |it| it.lost);
            Histogram nat64_session_creation_seconds[translator] "Time that packets took in the user engine that made a session" creation;
        },
    ),
    (
        "Modes nat44 and dual-stack ([nat44.md](nat44.md))",
        families! {
            Counter nat44_packets[translator, direction] "Packets that left translated (`out`) and that came `in`" |s, _, put| nat44(s, put, |it| it.packets);
            Counter nat44_octets[translator, direction] "Octets of these packets" |s, _, put| nat44(s, put, |it| it.octets);
            Counter nat44_connections[translator, how] "Connections: `sessions` of clients, `forwarded` and `mapped` ones from outside, `hairpin` those of clients among them" |s, _, put| nat44_kinds(s, put, false);
            Counter nat44_drops[translator, reason] "Packets dropped: `unsolicited`, `invalid`, `sessions_limit`, `rate_limit`; [what they mean](nat44.md#nftables-rules)" |s, _, put| nat44_kinds(s, put, true);
            Gauge conntrack_connections[] "Connections that the host tracks" |s, _, put| conntrack(s, put, |it| it.connections);
            Gauge conntrack_most[] "Connections that the host can track" |s, _, put| conntrack(s, put, |it| it.most);
            Counter forwarded[translator, ip_version] "Mode dual-stack: packets that the whole host has forwarded, by IP version" forwarded;
        },
    ),
    (
        "The DNS64 server. Each query is one of those that `fordway_dns64_answered_total` tells apart, or dropped",
        families! {
            Counter dns64_queries[transport] "Messages received, by transport" dns64;
            Counter dns64_answers[rcode] "Answers, by response code" dns64;
            Counter dns64_answered[how] "Queries, by what became of them" dns64;
            Counter dns64_dropped[reason] "Messages that got no answer, by reason" dns64;
            Counter dns64_https_refused[] "Requests by HTTPS with an HTTP status other than 200" dns64;
            Counter dns64_certificate[how] "Changed certificates since the last reload, by what became of them" dns64;
            Counter dns64_cookies[cookie] "Queries with a DNS cookie, by what it is worth" dns64;
            Counter dns64_blocked[] "Answers from which private addresses of public names were removed (`rebind_protection`)" dns64;
            Counter dns64_renewed[] "Answers asked for again before they expired (`prefetch`)" dns64;
            Counter dns64_truncated[] "Answers by UDP that were cut" dns64;
            Counter dns64_connections[how] "TCP connections, by what became of them" dns64;
            Gauge dns64_open_connections[] "TCP connections that are open" dns64;
            Gauge dns64_waiting[] "Queries that wait for an upstream server" dns64;
            Counter dns64_lookups[] "Questions for upstream servers" dns64;
            Counter dns64_lookup_results[how] "Of these, what became of some" dns64;
            Counter dns64_validated[security] "With `validate`: answers that were validated, by result" dns64;
            Counter dns64_cache_evictions[] "Answers pushed out of the cache before their time" dns64;
            Gauge dns64_cache_entries[] "Answers in the cache" dns64;
            Gauge dns64_cache_octets[] "Octets of answers in the cache" dns64;
            Counter dns64_upstream_queries[server] "Questions sent, by server" upstream;
            Counter dns64_upstream_results[server, result] "What came of questions, by server" upstream;
            Gauge dns64_upstream_alive[server] "1: the server answers" upstream;
            Gauge dns64_upstream_rtt_microseconds[server] "Round-trip time of a server, in microseconds; 0: it has never answered" upstream;
            Histogram dns64_answer_seconds[] "Time from a query to its answer; its sum is an estimate" answer_time;
        },
    ),
    (
        "Router advertisements and DHCPv6",
        families! {
            Counter router_advertisements_sent[device, to] "Router advertisements sent, to `all` hosts or to one `host`" router;
            Counter router_unsent[device] "Advertisements that could not be sent" router;
            Counter router_solicitations[device] "Valid router solicitations" router;
            Counter router_advertisements_heard[device] "Advertisements of other routers" router;
            Counter router_inconsistent[device] "Of these, those that contradict ours (RFC 4861 section 6.2.7)" router;
            Counter router_invalid[device] "Messages that are not valid" router;
            Counter router_dhcpv6_replies[device] "INFORMATION-REQUESTs that were answered" router;
            Counter router_dhcpv6_ignored[device] "DHCPv6 messages that were ignored" router;
            Counter router_dhcpv6_limited[device] "INFORMATION-REQUESTs over the rate" router;
            Gauge router_advertising[device] "1: the device advertises" router;
        },
    ),
    (
        "Transport relays ([trt.md](trt.md))",
        families! {
            Counter trt_connections[relay, step] "TCP connections of clients, by how far they came" trt;
            Counter trt_ended[relay, how] "TCP connections that were relayed, by how they ended" trt;
            Counter trt_refused[relay, reason] "Connections and datagrams that were refused, by reason" trt;
            Counter trt_failed[relay, reason] "Connections to servers that did not come about, by reason" trt;
            Counter trt_tcp_octets[relay, direction] "Octets of TCP, by direction" trt;
            Counter trt_udp_sessions[relay, how] "UDP sessions, by what became of them" trt;
            Counter trt_udp_datagrams[relay, how] "Datagrams, by what became of them" trt;
            Counter trt_udp_octets[relay, direction] "Octets in datagrams, by direction" trt;
            Counter trt_icmp_errors[relay, how] "ICMPv6 errors for clients, by what became of them" trt;
            Counter trt_urgent_octets[relay] "Urgent octets of TCP" trt;
            Gauge trt_open_connections[relay] "TCP connections that are open" trt;
            Gauge trt_open_sessions[relay] "UDP sessions that are open" trt;
        },
    ),
    (
        "HTTP proxies ([proxy.md](proxy.md))",
        families! {
            Counter proxy_requests[proxy, version] "Requests, by the version of HTTP" proxy;
            Counter proxy_responses[proxy, class] "Final responses, of servers and the proxy's own, by the class of their status" proxy;
            Counter proxy_connections[proxy, how] "Connections of clients, by what became of them" proxy;
            Counter proxy_server_connections[proxy, family] "Connections made to servers, by family" proxy;
            Counter proxy_octets[proxy, direction] "Octets passed on, by direction" proxy;
            Counter proxy_tunnels[proxy] "Tunnels made by CONNECT or Upgrade" proxy;
            Counter proxy_fallbacks[proxy] "Connections made to the second family (RFC 8305); if it grows, the first family, mostly IPv6, is broken" proxy;
            Counter proxy_reused[proxy] "Requests on connections that had served before" proxy;
            Counter proxy_retries[proxy] "Requests sent again on another connection" proxy;
            Counter proxy_abandoned[proxy] "Requests whose client had gone before there was an answer" proxy;
            Counter proxy_headers_refused[proxy] "Connections of proxies in front that did not begin with a PROXY header" proxy;
            Counter proxy_certificates[proxy, result] "Changed certificate files, by what became of them: in use, or of no use" proxy;
            Counter proxy_checks[proxy, server, result] "Active checks of the servers of a site" |s, _, put| {
                for it in &s.proxies {
                    for server in &it.servers {
                        let good = server.checks.saturating_sub(server.checks_failed);
                        put(&[&it.name, &server.server, "success"], good);
                        put(&[&it.name, &server.server, "failure"], server.checks_failed);
                    }
                }
            };
            Counter proxy_log_lost[proxy] "Lines that the access log did not take" proxy;
            Counter proxy_refused[proxy, reason] "Error responses of the proxy itself, by [reason](proxy.md#error-responses)" |s, _, put| {
                s.proxies.iter().for_each(|it| map(put, &[&it.name], &it.refused));
            };
            Gauge proxy_open_connections[proxy] "Connections of clients that are open" proxy;
            Gauge proxy_open_tunnels[proxy] "Tunnels that are open" proxy;
            Gauge proxy_idle_connections[proxy] "Connections to servers that wait" proxy;
            Gauge proxy_server_alive[proxy, server] "1: requests go to this server of a site" |s, _, put| {
                for it in &s.proxies {
                    it.servers.iter().for_each(|server| put(&[&it.name, &server.server], server.alive.into()));
                }
            };
        },
    ),
    (
        "DSTM ([dstm.md](dstm.md))",
        families! {
            Gauge dstm_leases[] "Leases at this moment" dstm;
            Gauge dstm_free[] "Addresses, or port sets, that can be lent" dstm;
            Gauge dstm_tep_up[] "1: the tunnel end point has been told everything; while it is 0 nothing new is lent" dstm;
            Counter dstm_server_events[event] "What the server has done" dstm;
            Gauge dstm_tep_bindings[] "Bindings that a server has told" dstm;
            Counter dstm_tep_events[event] "What a server has told" dstm;
            Gauge dstm_client_bound[client] "1: the client has an address" dstm;
            Counter dstm_client_leases[client, what] "Leases of clients, by what became of them" dstm;
            Counter dstm_client_packets[client, what] "Packets that have waited for an address, by what became of them" dstm;
        },
    ),
    cluster::GROUP,
];

type Map = BTreeMap<String, u64>;

/// A value for each entry of a map, whose key is the last label.
fn map(put: Put<'_, u64>, names: &[&str], map: &Map) {
    map.iter().for_each(|(word, count)| put(&[names, &[word]].concat(), *count));
}

/// The counters of a family.
fn counters<S>(all: &[Counter<S>], family: &str, names: &[&str], it: &S, put: Put<'_, u64>) {
    for (word, count) in words(all, family, it) {
        let word = Some(word).filter(|word| !word.is_empty());
        put(&[names, word.as_slice()].concat(), count);
    }
}

fn dns64(s: &Stats, family: &str, put: Put<'_, u64>) {
    s.dns64.iter().for_each(|it| counters(DNS64, family, &[], it, put));
}

fn upstream(s: &Stats, family: &str, put: Put<'_, u64>) {
    let servers = s.dns64.iter().flat_map(|it| &it.upstream.servers);
    servers.for_each(|it| counters(UPSTREAM, family, &[&it.server], it, put));
}

fn router(s: &Stats, family: &str, put: Put<'_, u64>) {
    let devices = s.router.iter().flat_map(|it| &it.devices);
    devices.for_each(|it| counters(ROUTER, family, &[&it.device], it, put));
}

fn trt(s: &Stats, family: &str, put: Put<'_, u64>) {
    s.trt.iter().for_each(|it| counters(TRT, family, &[&it.name], &it.counters, put));
}

fn proxy(s: &Stats, family: &str, put: Put<'_, u64>) {
    s.proxies.iter().for_each(|it| counters(PROXY, family, &[&it.name], it, put));
}

fn dstm(s: &Stats, family: &str, put: Put<'_, u64>) {
    s.dstm_server.iter().for_each(|it| counters(DSTM_SERVER, family, &[], it, put));
    s.dstm_tep.iter().for_each(|it| counters(DSTM_TEP, family, &[], it, put));
    let clients = s.dstm_clients.iter();
    clients.for_each(|it| counters(DSTM_CLIENT, family, &[&it.name], &it.stats, put));
}

/// The kernel engine stands beside the queues, so that sums over them are right.
fn directions(s: &Stats, put: Put<'_, u64>, pick: fn(&DirectionStats) -> u64) {
    for it in &s.translators {
        let queues = it.queues.iter().enumerate();
        let queues = queues.map(|(number, totals)| (number.to_string(), totals.directions()));
        let kernel = it.kernel.iter();
        let kernel = kernel.map(|it| ("kernel".to_owned(), it.as_totals().directions()));
        for (queue, directions) in queues.chain(kernel) {
            directions.iter().for_each(|(direction, counts)| {
                put(&[&it.name, &queue, direction], pick(counts));
            });
        }
    }
}

fn queue_errors(s: &Stats, _: &str, put: Put<'_, u64>) {
    for it in &s.translators {
        for (number, totals) in it.queues.iter().enumerate() {
            let (queue, errors) = (number.to_string(), totals.io.labelled());
            errors.iter().for_each(|(error, count)| put(&[&it.name, &queue, error], *count));
        }
    }
}

fn drops(s: &Stats, _: &str, put: Put<'_, u64>) {
    for it in &s.translators {
        for reason in DropReason::ALL.iter().map(|reason| reason.label()) {
            put(&[&it.name, reason], it.totals.drops.get(reason).copied().unwrap_or(0));
        }
    }
}

fn icmp_errors(s: &Stats, _: &str, put: Put<'_, u64>) {
    for it in &s.translators {
        put(&[&it.name, "4"], it.totals.icmp_errors.v4);
        put(&[&it.name, "6"], it.totals.icmp_errors.v6);
    }
}

fn kernels(s: &Stats) -> impl Iterator<Item = (&str, &KernelStats)> {
    s.translators.iter().filter_map(|it| Some((it.name.as_str(), it.kernel.as_ref()?)))
}

fn kernel(s: &Stats, put: Put<'_, u64>, pick: fn(&KernelStats) -> u64) {
    kernels(s).for_each(|(name, it)| put(&[name], pick(it)));
}

fn passed_on(s: &Stats, _: &str, put: Put<'_, u64>) {
    for (name, it) in kernels(s) {
        for reason in PassReason::ALL.iter().map(|reason| reason.label()) {
            put(&[name, reason], it.passed_on.get(reason).copied().unwrap_or(0));
        }
    }
}

fn clats(s: &Stats, put: Put<'_, u64>, words: &[&str], pick: fn(&AutoStatus, &str) -> u64) {
    for it in &s.automatic {
        words.iter().for_each(|word| put(&[&it.name, word], pick(it, word)));
    }
}

fn nat64(s: &Stats) -> impl Iterator<Item = (&str, &Nat64Stats)> {
    s.translators.iter().filter_map(|it| Some((it.name.as_str(), it.nat64.as_ref()?)))
}

fn one(s: &Stats, put: Put<'_, u64>, pick: fn(&Nat64Stats) -> u64) {
    nat64(s).for_each(|(name, it)| put(&[name], pick(it)));
}

fn maps(s: &Stats, put: Put<'_, u64>, pick: fn(&Nat64Stats) -> &Map) {
    nat64(s).for_each(|(name, it)| map(put, &[name], pick(it)));
}

fn tables(s: &Stats, put: Put<'_, u64>, pick: fn(&OccupancyStats) -> u64) {
    for (name, it) in nat64(s) {
        it.tables.iter().for_each(|(table, occupancy)| put(&[name, table], pick(occupancy)));
    }
}

fn nat_pt(s: &Stats, put: Put<'_, u64>, pick: fn(&NatPtStats) -> u64) {
    nat64(s).for_each(|(name, it)| it.nat_pt.iter().for_each(|it| put(&[name], pick(it))));
}

fn each_pool(s: &Stats, each: &mut dyn FnMut(&[&str], &PoolStats)) {
    for (name, it) in nat64(s) {
        it.pools.iter().for_each(|pool| each(&[name, &pool.number.to_string()], pool));
    }
}

fn pools(s: &Stats, put: Put<'_, u64>, pick: fn(&PoolStats) -> Option<u64>) {
    each_pool(s, &mut |names, pool| pick(pool).into_iter().for_each(|count| put(names, count)));
}

/// Several logs may have one place.
fn logs(s: &Stats, put: Put<'_, u64>, pick: fn(&LogStats) -> u64) {
    for (name, it) in nat64(s) {
        let mut places = Map::new();
        it.logs.iter().for_each(|log| *places.entry(log.to.clone()).or_default() += pick(log));
        map(put, &[name], &places);
    }
}

fn nat44(s: &Stats, put: Put<'_, u64>, pick: fn(&Nat44Count) -> u64) {
    for it in &s.nat44 {
        for direction in ["out", "in"] {
            put(&[&it.name, direction], it.counters.get(direction).map_or(0, pick));
        }
    }
}

fn nat44_kinds(s: &Stats, put: Put<'_, u64>, drops: bool) {
    for it in &s.nat44 {
        let kinds = COUNTERS.iter().filter(|(name, _, _)| !matches!(*name, "out" | "in"));
        for (name, ..) in kinds.filter(|(_, dropped, _)| *dropped == drops) {
            put(&[&it.name, name], it.counters.get(*name).map_or(0, |it| it.packets));
        }
    }
}

/// There is one connection tracking for all.
fn conntrack(s: &Stats, put: Put<'_, u64>, pick: fn(&ConntrackStats) -> u64) {
    s.nat44.iter().find_map(|it| it.conntrack).iter().for_each(|it| put(&[], pick(it)));
}

fn forwarded(s: &Stats, _: &str, put: Put<'_, u64>) {
    for it in &s.dual_stack {
        for (version, count) in [("4", it.v4), ("6", it.v6)] {
            count.into_iter().for_each(|count| put(&[&it.name, version], count));
        }
    }
}

fn creation(s: &Stats, put: Put<'_, Histogram>) {
    for (name, nat64) in nat64(s) {
        let times = &nat64.creation;
        let bounds = times.bounds_us.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
        let buckets = bounds.zip(times.counts.iter().copied()).collect();
        put(&[name], Histogram { sum: times.sum_ns as f64 / 1e9, buckets });
    }
}

/// The class of the server's times that has no upper bound.
const LAST_CLASS: usize = 23;

/// `latency[i]`: answers within 2^i microseconds, but not within half of that; the last of 24 counts all the rest.
fn answer_time(s: &Stats, put: Put<'_, Histogram>) {
    if let Some(it) = &s.dns64 {
        let count = |class: usize| it.latency.get(class).copied().unwrap_or(0);
        let micros = |class: usize| (1u64 << class) as f64 / 1e6;
        let mut buckets: Vec<_> = (0..LAST_CLASS).map(|it| (micros(it), count(it))).collect();
        buckets.push((f64::INFINITY, count(LAST_CLASS)));
        // The server keeps no sum: the middle of a class stands for its answers.
        let sum = (0..=LAST_CLASS).map(|it| 0.75 * micros(it) * count(it) as f64).sum();
        put(&[], Histogram { sum, buckets });
    }
}
