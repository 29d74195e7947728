//! `fordway discover`: which translation prefix the network has.

mod render;

use fordway_discovery::{self as discovery, Found, Report, Settings, Watcher};
use fordway_net::Netlink;
use serde::Serialize;

use crate::cli::DiscoverArgs;
use crate::failure::Failure;
use crate::output::{self, WARNING};
use render::{Json, advice, known, tried};

pub(crate) fn run(args: &DiscoverArgs) -> Result<(), Failure> {
    if let Some(device) = &args.device {
        Netlink::open()?.link(device)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot wait for events: {error}")))?;
    let (watcher, hears) = open(args)?;
    // What strangers send is read from here on.
    fordway_net::privilege::drop_all_but(&[])?;
    if args.watch {
        return runtime.block_on(watch(watcher, args.json, hears));
    }
    let looked = runtime.block_on(watcher.look(args.timeout));
    let (found, report) = looked.map_err(|error| failure(&error))?;
    show(&found, &report, args.json, hears)?;
    if !found.prefixes.is_empty() {
        return Ok(());
    }
    if args.json {
        return Err(Failure::Logged);
    }
    output::print(&tried(&report, hears))?;
    let hint = advice(&report, hears);
    Err(Failure::failed("no translation prefix was found").hint(hint))
}

/// A watcher, and whether it hears router advertisements.
fn open(args: &DiscoverArgs) -> Result<(Watcher, bool), Failure> {
    let settings = Settings {
        device: args.device.clone(),
        trusted_domains: args.trusted.clone(),
        // Everything is to be seen, and somebody waits.
        both: true,
        diagnose: true,
        solicitation_delay: std::time::Duration::ZERO,
        ..Settings::default()
    };
    match Watcher::open(settings.clone()) {
        Err(error) if error.is_privilege() => {
            output::complain(&format!(
                "{WARNING}warning{WARNING:#}: router advertisements are not listened to, which needs \
                 CAP_NET_RAW; only resolvers are asked"
            ));
            let settings = Settings { advertisements: false, ..settings };
            Ok((Watcher::open(settings).map_err(|error| failure(&error))?, false))
        }
        opened => Ok((opened.map_err(|error| failure(&error))?, true)),
    }
}

async fn watch(watcher: Watcher, json: bool, hears: bool) -> Result<(), Failure> {
    let (mut found, report) = (watcher.found(), watcher.report());
    let tell = async {
        let mut told: Option<Found> = None;
        loop {
            let now = found.borrow_and_update().clone();
            // That a lifetime begins anew is no change.
            if told.as_ref().is_none_or(|told| !render::same(told, &now)) {
                let report = report.borrow().clone();
                if json {
                    print_line(&Json::new(&now, &report, hears))?;
                } else if now.prefixes.is_empty() {
                    output::print("no prefix\n")?;
                } else {
                    output::print(&known(&now, &report))?;
                }
                told = Some(now);
            }
            if found.changed().await.is_err() {
                return Ok(());
            }
        }
    };
    tokio::select! {
        ended = watcher.run() => ended.map_err(|error| failure(&error)),
        told = tell => told,
    }
}

fn show(found: &Found, report: &Report, json: bool, hears: bool) -> Result<(), Failure> {
    if json {
        return output::print_json(&Json::new(found, report, hears));
    }
    output::print(&known(found, report))
}

fn print_line(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::failed(format!("cannot make JSON of the result: {error}")))?;
    output::print(&format!("{text}\n"))
}

fn failure(error: &discovery::Error) -> Failure {
    let failure = Failure::failed(error.to_string());
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
