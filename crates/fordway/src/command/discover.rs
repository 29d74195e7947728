//! `fordway discover`: which translation prefix the network has.

mod render;

use fordway_daemon::failure::Failure;
use fordway_daemon::output::{self, WARNING};
use fordway_daemon::runtime::{event_loop, open_watcher};
use fordway_discovery::{Found, Report, Watcher};
use fordway_net::Netlink;

use crate::cli::DiscoverArgs;
use render::{Json, advice, known, tried};

pub(crate) fn run(args: &DiscoverArgs) -> Result<(), Failure> {
    if let Some(device) = &args.device {
        Netlink::open()?.link(device)?;
    }
    let runtime = event_loop()?;
    let (watcher, hears) = open_watcher(args.device.as_deref(), args.trusted.clone())?;
    if !hears {
        output::complain(&format!(
            "{WARNING}warning{WARNING:#}: router advertisements are not listened to, which needs \
             CAP_NET_RAW; only resolvers are asked"
        ));
    }
    // Messages from the network are parsed from here on.
    fordway_net::privilege::drop_all_but(&[])?;
    if args.watch {
        return runtime.block_on(watch(watcher, args.json, hears));
    }
    let (found, report) = runtime.block_on(watcher.look(args.timeout))?;
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

async fn watch(watcher: Watcher, json: bool, hears: bool) -> Result<(), Failure> {
    let (mut found, report) = (watcher.found(), watcher.report());
    let tell = async {
        let mut told: Option<Found> = None;
        loop {
            let now = found.borrow_and_update().clone();
            // A renewed lifetime is no change.
            if told.as_ref().is_none_or(|told| !render::same(told, &now)) {
                let report = report.borrow().clone();
                if json {
                    output::print_json_line(&Json::new(&now, &report, hears))?;
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
        ended = watcher.run() => Ok(ended?),
        told = tell => told,
    }
}

fn show(found: &Found, report: &Report, json: bool, hears: bool) -> Result<(), Failure> {
    if json {
        return output::print_json(&Json::new(found, report, hears));
    }
    output::print(&known(found, report))
}
