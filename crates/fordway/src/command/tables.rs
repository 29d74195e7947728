//! `fordway bib`, `fordway sessions`, `fordway subscribers`, `fordway dns64-cache` and `fordway drain`.

use std::thread;
use std::time::{Duration, Instant};

use fordway_config::load;
use fordway_control::{Client, Entries, EntryFilter, Request, ReverseReport, Table};
use fordway_daemon::failure::Failure;
use fordway_daemon::output;
use fordway_daemon::tables::deterministic;

use crate::cli::{
    BibArgs, BibCommand, Dns64CacheArgs, Dns64CacheCommand, DrainArgs, Global, ListArgs,
    SessionsArgs, ShownArgs, SubscribersArgs,
};
use crate::report::{Render, heading};

use super::control::tell;

/// How often the sessions that are left are counted.
const LOOK: Duration = Duration::from_millis(500);

pub(crate) fn bib(global: &Global, args: BibArgs) -> Result<(), Failure> {
    let request = match args.change {
        Some(BibCommand::Add { protocol, v4, v6, translator }) => {
            Request::BibAdd { name: translator.translator, protocol, v4, v6 }
        }
        Some(BibCommand::Del { protocol, v4, translator }) => {
            Request::BibDel { name: translator.translator, protocol, v4 }
        }
        None => {
            let filter = EntryFilter {
                protocol: args.protocol,
                v6: args.v6.v6,
                v4: args.v4.v4,
                only_static: args.only_static,
                ..EntryFilter::default()
            };
            return list_of(global, Table::Bib, filter, args.list);
        }
    };
    tell(&Client::new(global.socket()), &request)
}

pub(crate) fn sessions(global: &Global, args: SessionsArgs) -> Result<(), Failure> {
    let filter = EntryFilter {
        protocol: args.protocol,
        v6: args.v6.v6,
        v4: args.v4.v4,
        remote: args.remote,
        state: args.state,
        ..EntryFilter::default()
    };
    list_of(global, Table::Sessions, filter, args.list)
}

pub(crate) fn subscribers(global: &Global, args: SubscribersArgs) -> Result<(), Failure> {
    let Some(v4) = args.reverse else {
        let filter = EntryFilter { v6: args.v6.v6, v4: args.v4.v4, ..EntryFilter::default() };
        return list_of(global, Table::Subscribers, filter, args.list);
    };
    let name = args.list.translator.translator.clone();
    let report = match &args.config {
        Some(file) => {
            let mut report = ReverseReport::of(v4);
            let mut translators = load(file)?.config.translators;
            if let Some(name) = name {
                let names = translators.iter().map(|it| it.name.to_string()).collect::<Vec<_>>();
                translators.retain(|translator| translator.name.as_str() == name);
                if translators.is_empty() {
                    let hint = format!("the file has {}", names.join(", "));
                    let text = format!("no translator is called {name}");
                    return Err(Failure::usage(text, hint));
                }
            }
            for translator in translators {
                if let Some(nat64) = translator.nat64() {
                    let settings = nat64.settings(|_| Vec::new());
                    let found = deterministic(translator.name.as_str(), &settings, v4);
                    report.deterministic.extend(found);
                }
            }
            report
        }
        None => Client::new(global.socket()).reverse(&Request::Reverse { name, v4 })?,
    };
    if args.list.shown.json { output::print_json(&report) } else { output::print(&report.render()) }
}

pub(crate) fn dns64_cache(global: &Global, args: Dns64CacheArgs) -> Result<(), Failure> {
    if let Some(Dns64CacheCommand::Flush { name, subtree }) = args.change {
        return tell(&Client::new(global.socket()), &Request::Dns64Flush { name, subtree });
    }
    let (dns_name, subtree) = (args.name, args.subtree);
    let filter = EntryFilter { dns_name, subtree, ..EntryFilter::default() };
    list(global, Table::Dns64Cache, filter, None, &args.shown)
}

/// Shows what translators have of a table.
fn list_of(
    global: &Global,
    table: Table,
    filter: EntryFilter,
    args: ListArgs,
) -> Result<(), Failure> {
    list(global, table, filter, args.translator.translator, &args.shown)
}

/// Shows what there is of a table, as it comes.
fn list(
    global: &Global,
    table: Table,
    filter: EntryFilter,
    name: Option<String>,
    args: &ShownArgs,
) -> Result<(), Failure> {
    let request = Request::List { table, name, filter, limit: args.limit, count: args.count };
    let mut first = true;
    let (matched, more) = Client::new(global.socket()).list(&request, |entries| {
        if !args.json {
            if first {
                output::print(&heading(table))?;
            }
            first = false;
            return output::print(&entries.render());
        }
        let mut text = String::new();
        for line in json_lines(&entries)? {
            text.push_str(if first { "[\n" } else { ",\n" });
            text.push_str(&line);
            first = false;
        }
        output::print(&text)
    })?;
    match (args.count, args.json) {
        (true, true) => output::print(&format!("{{\"count\":{matched}}}\n")),
        (true, false) => output::print(&format!("{matched}\n")),
        (false, true) => output::print(if first { "[]\n" } else { "\n]\n" }),
        (false, false) if first => output::print("none\n"),
        (false, false) => {
            if more {
                output::complain(&format!("... there are more than these {matched}"));
            }
            Ok(())
        }
    }
}

/// Each entry as a JSON object.
fn json_lines(entries: &Entries) -> Result<Vec<String>, serde_json::Error> {
    match entries {
        Entries::Bib(rows) => rows.iter().map(serde_json::to_string).collect(),
        Entries::Sessions(rows) => rows.iter().map(serde_json::to_string).collect(),
        Entries::Subscribers(rows) => rows.iter().map(serde_json::to_string).collect(),
        Entries::Dns64Cache(rows) => rows.iter().map(serde_json::to_string).collect(),
    }
}

pub(crate) fn drain(global: &Global, args: &DrainArgs) -> Result<(), Failure> {
    let (client, name) = (Client::new(global.socket()), args.name.clone());
    tell(&client, &Request::Drain { name: name.clone(), drains: !args.undo })?;
    if args.undo {
        return Ok(());
    }
    let until = Instant::now() + args.timeout;
    let left = loop {
        let left = sessions_left(&client, &name)?;
        let now = Instant::now();
        if left == 0 || now >= until {
            break left;
        }
        thread::sleep(LOOK.min(until - now));
    };
    if args.down {
        tell(&client, &Request::Down { name: name.clone() })?;
    }
    if left == 0 {
        return output::print(&format!("{name}: no session is left\n"));
    }
    let failure = Failure::failed(format!("{name}: {left} sessions were left"));
    Err(match args.down {
        true => failure,
        false => failure.hint(format!("wait longer, or fordway drain {name} --undo")),
    })
}

fn sessions_left(client: &Client, name: &str) -> Result<u64, Failure> {
    let stats = client.stats()?;
    let found = stats.translators.into_iter().find(|translator| translator.name == name);
    let nat64 = found.and_then(|translator| translator.nat64);
    let nat64 = nat64.ok_or_else(|| Failure::failed(format!("{name} has been taken down")))?;
    // Also those that the sweeper has not seen yet, or has not put away.
    let in_use = nat64.tables.get("sessions").map_or(0, |table| table.used);
    Ok(nat64.sessions.values().sum::<u64>().max(in_use))
}
