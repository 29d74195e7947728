//! The table's chains and rules.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::Nat44;
use crate::netfilter::connection::{
    INVALID, NEW, clamp_mss, comes_more_often, count, destination_translated, has_more_connections,
    jump, log, map_network, masquerade, network, notrack, original_destination, original_port,
    share_of_sources, state, syn, translate_destination, translate_source,
    translate_source_to_original_destination,
};
use crate::netfilter::expression::{
    Base, Expression, Place, accept, device, drop, field, goto, protocol,
};
use crate::netfilter::{Ip, Set, Table};
use ipnet::Ipv4Net;

/// Offsets in an IPv4 header (RFC 791 section 3.1).
const SOURCE: Place = (Base::Network, 12);
const DESTINATION: Place = (Base::Network, 16);

/// The destination port in the transport header.
const PORT: Place = (Base::Transport, 2);

/// Right behind `dstnat` (-100), `filter` (0) and `srcnat` (100), where operators have their own rules.
const PREROUTING: i32 = -95;
/// Right behind `raw` (-300), and in front of conntrack (-200).
const RAW: i32 = -295;
const FORWARD: i32 = 5;
const POSTROUTING: i32 = 105;

/// What is counted, in the order in which it is shown.
const COUNTERS: [&str; 10] = [
    "out",
    "in",
    "sessions",
    "forwarded",
    "hairpin",
    "mapped",
    "unsolicited",
    "invalid",
    "sessions_limit",
    "rate_limit",
];

/// Lines in the kernel's log at most, each second.
const LOG_RATE: u32 = 100;

/// The sets of the limits.
const SESSIONS: &str = "sessions";
const RATES: &str = "rates";

/// The table of `nat44`.
pub(super) fn table(nat44: &Nat44) -> Table {
    let mut table = Table::new(Ip::V4, &nat44.table());
    if nat44.own {
        add_own(&mut table, nat44);
        return table;
    }
    COUNTERS.iter().for_each(|name| table.counter(name));
    add_sets(&mut table, nat44);
    table.nat_chain("prerouting", libc::NF_INET_PRE_ROUTING, PREROUTING);
    add_arriving_destinations(&mut table, nat44);
    add_forward(&mut table, nat44);
    add_postrouting(&mut table, nat44);
    table
}

/// What this host itself sends. Before there is an address for it, it is not remembered: a connection that is remembered
/// untranslated would stay so.
fn add_own(table: &mut Table, nat44: &Nat44) {
    table.nat_chain("postrouting", libc::NF_INET_POST_ROUTING, POSTROUTING);
    if nat44.waits {
        table.base_chain("output", libc::NF_INET_LOCAL_OUT, RAW);
    }
    for uplink in &nat44.uplinks {
        for net in &nat44.clients {
            let from = || [device(libc::NFT_META_OIFNAME, uplink), network(SOURCE, *net)];
            let translate = masquerade(nat44.ports, nat44.choice);
            table.rule("postrouting", from().into_iter().chain([translate]));
            if nat44.waits {
                table.rule("output", from().into_iter().chain([notrack()]));
            }
        }
    }
}

/// What is kept for each client.
fn add_sets(table: &mut Table, nat44: &Nat44) {
    let set = |id, timeout| Set { id, key_type: Set::IPV4_ADDRESS, key_len: 4, timeout };
    if nat44.most_sessions.is_some() {
        table.set(SESSIONS, set(1, None));
    }
    if nat44.most_per_second.is_some() {
        // The limit is by the second; a client that sends nothing for ten seconds is forgotten.
        table.set(RATES, set(2, Some(10_000)));
    }
}

/// Destinations of what is forwarded.
fn add_arriving_destinations(table: &mut Table, nat44: &Nat44) {
    let from_outside = || nat44.uplinks.iter().map(|name| device(libc::NFT_META_IIFNAME, name));
    // From clients as from outside, if they may.
    let ways: Vec<Vec<Expression>> =
        if nat44.hairpin { vec![Vec::new()] } else { from_outside().collect() };
    for forward in &nat44.forwards {
        for way in &ways {
            let wanted = [
                way.clone(),
                network(DESTINATION, forward.outside.0.into()),
                protocol(forward.protocol),
                field(PORT, &forward.outside.1.to_be_bytes()),
                count("forwarded"),
                translate_destination(forward.inside.0, forward.inside.1),
            ];
            table.rule("prerouting", wanted);
        }
    }
    for (inside, outside) in &nat44.netmap {
        for way in &ways {
            let steps = [
                way.clone(),
                network(DESTINATION, *outside),
                count("mapped"),
                map_network(*inside, false),
            ];
            table.rule("prerouting", steps);
        }
    }
}

/// All networks of hosts behind the translation.
fn inside(nat44: &Nat44) -> Vec<Ipv4Net> {
    let mapped = nat44.netmap.iter().map(|(inside, _)| *inside);
    Ipv4Net::aggregate(&nat44.clients.iter().copied().chain(mapped).collect())
}

/// What is forwarded: limits, segment sizes, counters.
fn add_forward(table: &mut Table, nat44: &Nat44) {
    for chain in ["out", "leaving", "in", "arriving"] {
        table.chain(chain);
    }
    table.base_chain("forward", libc::NF_INET_FORWARD, FORWARD);
    for uplink in &nat44.uplinks {
        table.rule("forward", [device(libc::NFT_META_OIFNAME, uplink), goto("leaving")]);
        table.rule("forward", [device(libc::NFT_META_IIFNAME, uplink), goto("arriving")]);
    }
    for net in inside(nat44) {
        table.rule("leaving", [network(SOURCE, net), goto("out")]);
        table.rule("arriving", [network(DESTINATION, net), goto("in")]);
    }
    // What belongs to no connection is not translated, and would tell the client's address.
    table.rule("out", [state(INVALID), count("invalid"), drop()]);
    if let Some(most) = nat44.most_per_second {
        let steps = [state(NEW), comes_more_often(RATES, most), count("rate_limit"), drop()];
        table.rule("out", steps);
    }
    if let Some(most) = nat44.most_sessions {
        let more = has_more_connections(SESSIONS, most);
        table.rule("out", [state(NEW), more, count("sessions_limit"), drop()]);
    }
    if nat44.drop_unsolicited {
        let steps = [state(NEW), destination_translated(false), count("unsolicited"), drop()];
        table.rule("in", steps);
    }
    for chain in ["out", "in"] {
        if nat44.mss_clamp {
            table.rule(chain, [syn(), clamp_mss()]);
        }
        table.rule(chain, [count(chain), accept()]);
    }
}

/// Sources.
fn add_postrouting(table: &mut Table, nat44: &Nat44) {
    for chain in ["map", "source", "leave", "hairpin"] {
        table.chain(chain);
    }
    table.nat_chain("postrouting", libc::NF_INET_POST_ROUTING, POSTROUTING);
    if nat44.hairpin {
        table.rule("postrouting", [destination_translated(true), jump("hairpin")]);
        add_hairpin(table, nat44);
    }
    for uplink in &nat44.uplinks {
        table.rule("postrouting", [device(libc::NFT_META_OIFNAME, uplink), goto("leave")]);
    }
    if nat44.devices.is_empty() {
        table.rule("leave", [goto("source")]);
    }
    for name in &nat44.devices {
        table.rule("leave", [device(libc::NFT_META_IIFNAME, name), goto("source")]);
    }
    for (inside, outside) in &nat44.netmap {
        let steps = [network(SOURCE, *inside), count("sessions"), map_network(*outside, true)];
        table.rule("source", steps);
    }
    for net in &nat44.clients {
        table.rule("source", [network(SOURCE, *net), goto("map")]);
    }
    if nat44.log {
        table.rule("map", [log(&format!("{}: ", nat44.name), LOG_RATE)]);
    }
    table.rule("map", [count("sessions")]);
    add_pools(table, nat44);
}

/// Clients that ask for what is forwarded to others of them: the answer has to come back this way, so the question
/// gets the address that it was sent to (RFC 4787 REQ-9).
fn add_hairpin(table: &mut Table, nat44: &Nat44) {
    let nets = inside(nat44);
    let mut from_clients = |asked: Vec<Vec<Expression>>| {
        for net in &nets {
            let steps = [
                vec![network(SOURCE, *net)],
                asked.clone(),
                vec![count("hairpin"), translate_source_to_original_destination()],
            ];
            table.rule("hairpin", steps.into_iter().flatten());
        }
    };
    let forwards: BTreeSet<(u8, Ipv4Addr, u16)> =
        nat44.forwards.iter().map(|it| (it.protocol, it.outside.0, it.outside.1)).collect();
    for (number, address, port) in forwards {
        from_clients(vec![original_destination(address), protocol(number), original_port(port)]);
    }
    for (other, _) in &nat44.netmap {
        // A host of a mapped network has an outer address of its own.
        for (own, outside) in &nat44.netmap {
            let steps = [
                network(SOURCE, *own),
                network(DESTINATION, *other),
                count("hairpin"),
                map_network(*outside, true),
            ];
            table.rule("hairpin", steps);
        }
        for net in &nat44.clients {
            let steps = [
                network(SOURCE, *net),
                network(DESTINATION, *other),
                count("hairpin"),
                translate_source_to_original_destination(),
            ];
            table.rule("hairpin", steps);
        }
    }
}

/// What clients get.
fn add_pools(table: &mut Table, nat44: &Nat44) {
    let choice = nat44.choice;
    if nat44.pools.is_empty() {
        table.rule("map", [masquerade(nat44.ports, choice)]);
        return;
    }
    let pools = nat44.pools.len();
    for (index, pool) in nat44.pools.iter().enumerate() {
        // Each client belongs to one pool; the last pool has no match, so that it takes all that are left.
        let share = match index + 1 == pools {
            true => Vec::new(),
            false => share_of_sources(index as u32, pools as u32),
        };
        let translate = translate_source((pool.first, pool.last), Some(pool.ports), choice);
        table.rule("map", [share, translate]);
    }
}
