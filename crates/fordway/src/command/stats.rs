//! `fordway stats`.

use std::fmt::Write;
use std::io::IsTerminal;
use std::thread;
use std::time::{Duration, Instant};

use fordway_control::{Client, Nat44Stats, Stats, TranslatorStats};
use fordway_daemon::failure::Failure;
use fordway_daemon::metrics::counters::{
    CLUSTER_CHANNEL, CLUSTER_SHARDS, CLUSTER_STORE, DSTM_CLIENT, DSTM_SERVER, DSTM_TEP, TRT, table,
};
use fordway_daemon::metrics::encode;
use fordway_daemon::output::{self, STRONG};
use fordway_nameserver as dns64;

use crate::cli::{Global, StatsArgs};
use crate::report::{
    advertise_table, dns64_table, dual_stack_table, kernel_table, nat44_table, proxy_table,
    totals_table,
};

pub(crate) fn run(global: &Global, args: &StatsArgs) -> Result<(), Failure> {
    let client = Client::new(global.socket_to_read());
    if args.watch {
        return watch(&client);
    }
    let mut stats = client.stats()?;
    if args.prometheus {
        return output::print(&encode(stats)?);
    }
    if args.json {
        if !args.per_queue {
            for translator in &mut stats.translators {
                translator.queues.clear();
            }
        }
        return output::print_json(&stats);
    }
    let mut text = String::new();
    for translator in &stats.translators {
        heading(&mut text, translator);
        text.push_str(&totals_table(&translator.totals));
        if let Some(kernel) = &translator.kernel {
            text.push_str(&kernel_table(kernel));
        }
        if args.per_queue {
            for (number, queue) in translator.queues.iter().enumerate() {
                let _ = writeln!(text, " {STRONG}queue {number}{STRONG:#}");
                text.push_str(&totals_table(queue));
            }
        }
    }
    services(&mut text, &stats);
    output::print(&text)
}

/// What runs beside the translators.
fn services(text: &mut String, stats: &Stats) {
    let mut part = |name: &str, what: &str, table: String| {
        let _ = writeln!(text, "{STRONG}{name}{STRONG:#} ({what})");
        text.push_str(&table);
    };
    stats.nat44.iter().for_each(|it| part(&it.name, "nat44", nat44_table(it)));
    stats.dual_stack.iter().for_each(|it| part(&it.name, "dual-stack", dual_stack_table(it)));
    stats.dns64.iter().for_each(|it| part("dns64", "DNS64 server", dns64_table(it)));
    let devices = stats.router.iter().flat_map(|router| &router.devices);
    devices.for_each(|it| part(&it.device, "router advertisements", advertise_table(it)));
    stats.trt.iter().for_each(|it| part(&it.name, "transport relay", table(TRT, &it.counters)));
    stats.proxies.iter().for_each(|it| part(&it.name, "HTTP proxy", proxy_table(it)));
    let (server, tep) = (stats.dstm_server.iter(), stats.dstm_tep.iter());
    server.for_each(|it| part("dstm-server", "DSTM server", table(DSTM_SERVER, it)));
    tep.for_each(|it| part("dstm-tep", "DSTM tunnel end point", table(DSTM_TEP, it)));
    let clients = stats.dstm_clients.iter();
    clients.for_each(|it| part(&it.name, "DSTM client", table(DSTM_CLIENT, &it.stats)));
    if let Some(it) = &stats.cluster {
        part("cluster", "its shards", table(CLUSTER_SHARDS, &it.moves));
        part("cluster", "the store", table(CLUSTER_STORE, &it.store));
        part("cluster", "other gateways", table(CLUSTER_CHANNEL, &it.channel));
    }
}

/// Shows rates until interrupted.
fn watch(client: &Client) -> Result<(), Failure> {
    let mut before = (Instant::now(), client.stats()?);
    loop {
        thread::sleep(Duration::from_secs(1));
        let now = (Instant::now(), client.stats()?);
        let seconds = now.0.duration_since(before.0).as_secs_f64();
        let mut text = String::new();
        if std::io::stdout().is_terminal() {
            // Clear the screen, cursor to its start.
            text.push_str("\x1b[2J\x1b[H");
        }
        text.push_str(&rates(&before.1, &now.1, seconds));
        output::print(&text)?;
        before = now;
    }
}

fn rates(before: &Stats, now: &Stats, seconds: f64) -> String {
    let mut text = String::new();
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
    for translator in &now.translators {
        let earlier = before.translators.iter().find(|earlier| earlier.name == translator.name);
        let difference = match earlier {
            Some(earlier) => translator.totals.since(&earlier.totals),
            None => translator.totals.clone(),
        };
        heading(&mut text, translator);
        for (label, direction) in difference.directions() {
            let _ = writeln!(
                text,
                "  {:<10}{:>14.0} packets/s{:>14.0} segments/s{:>12.3} Mbit/s",
                label.replace('_', " "),
                direction.packets as f64 / seconds,
                direction.segments as f64 / seconds,
                direction.octets as f64 * 8.0 / 1e6 / seconds
            );
        }
        let _ =
            writeln!(text, "  dropped   {:>14.0} packets/s", difference.dropped() as f64 / seconds);
        for (reason, count) in difference.drops.iter().filter(|(_, count)| **count > 0) {
            let _ = writeln!(text, "    {reason:<24}{:>14.0}", *count as f64 / seconds);
        }
    }
    for nat44 in &now.nat44 {
        let earlier = before.nat44.iter().find(|earlier| earlier.name == nat44.name);
        let of = |stats: Option<&Nat44Stats>, name: &str| {
            stats.and_then(|stats| stats.counters.get(name)).copied().unwrap_or_default()
        };
        let _ = writeln!(text, "{STRONG}{}{STRONG:#} (nat44)", nat44.name);
        for name in ["out", "in"] {
            let (now, before) = (of(Some(nat44), name), of(earlier, name));
            let _ = writeln!(
                text,
                "  {name:<10}{:>14.0} packets/s{:>12.3} Mbit/s",
                rate(now.packets, before.packets),
                rate(now.octets, before.octets) * 8.0 / 1e6
            );
        }
    }
    if let Some(dns64) = &now.dns64 {
        let earlier = before.dns64.clone().unwrap_or_default();
        let queries = |it: &dns64::Stats| it.udp_queries.wrapping_add(it.tcp_queries);
        let _ = writeln!(text, "{STRONG}dns64{STRONG:#} (DNS64 server)");
        let _ = writeln!(
            text,
            "  {:<10}{:>14.0} queries/s{:>14.0} cached/s{:>14.0} synthesised/s",
            "asked",
            rate(queries(dns64), queries(&earlier)),
            rate(dns64.cached, earlier.cached),
            rate(dns64.synthesised, earlier.synthesised)
        );
    }
    for relay in &now.trt {
        let earlier = before.trt.iter().find(|it| it.name == relay.name);
        let earlier = earlier.map(|it| it.counters.clone()).unwrap_or_default();
        let now = &relay.counters;
        let _ = writeln!(text, "{STRONG}{}{STRONG:#} (transport relay)", relay.name);
        for (label, tcp, udp) in [
            (
                "up",
                rate(now.tcp_octets_up, earlier.tcp_octets_up),
                rate(now.udp_octets_up, earlier.udp_octets_up),
            ),
            (
                "down",
                rate(now.tcp_octets_down, earlier.tcp_octets_down),
                rate(now.udp_octets_down, earlier.udp_octets_down),
            ),
        ] {
            let _ = writeln!(
                text,
                "  {label:<10}{:>12.3} Mbit/s of TCP{:>12.3} Mbit/s of UDP",
                tcp * 8.0 / 1e6,
                udp * 8.0 / 1e6
            );
        }
        let _ = writeln!(
            text,
            "  opened    {:>14.0} connections/s{:>14.0} UDP sessions/s",
            rate(now.tcp_accepted, earlier.tcp_accepted),
            rate(now.udp_opened, earlier.udp_opened)
        );
    }
    text
}

fn heading(text: &mut String, translator: &TranslatorStats) {
    let _ = writeln!(text, "{STRONG}{}{STRONG:#} ({})", translator.name, translator.mode);
}
