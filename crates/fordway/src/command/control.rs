//! `fordway reload`, `fordway down` and `fordway leave`.

use std::collections::BTreeSet;

use fordway_config::LevelFilter;
use fordway_control::{Answer, Client, Request};
use fordway_daemon::failure::Failure;
use fordway_daemon::{output, pins};
use fordway_net::Manager;

use crate::cli::{DownArgs, Global, MeasureArgs, ReloadArgs, Switch};
use crate::report::Render;

/// Has the daemon read its file again, or say what that would do.
pub(crate) fn reload(global: &Global, args: &ReloadArgs) -> Result<(), Failure> {
    let client = Client::new(global.socket());
    if !args.dry_run {
        return tell(&client, &Request::Reload { dry_run: false });
    }
    let plan = client.reload_plan()?;
    if args.json { output::print_json(&plan) } else { output::print(&plan.render()) }
}

/// Has the daemon write log lines of another least severity.
pub(crate) fn log_level(global: &Global, level: LevelFilter) -> Result<(), Failure> {
    tell(&Client::new(global.socket()), &Request::LogLevel { level: level.to_string() })
}

/// Has the daemon measure what a translator's kernel engine takes for packets, or not.
pub(crate) fn measure(global: &Global, args: &MeasureArgs) -> Result<(), Failure> {
    let on = matches!(args.switch, Switch::On);
    let request = Request::Measure { name: args.name.clone(), on };
    match Client::new(global.socket()).ask(&request)? {
        Answer::Done(text) => output::print(&format!("{text}\n")),
        Answer::Unknown => Err(Failure::failed(format!("no translator is called {}", args.name))
            .hint("fordway status shows them")),
    }
}

/// Has the daemon do something, and shows what it says.
pub(super) fn tell(client: &Client, request: &Request) -> Result<(), Failure> {
    match client.ask(request)? {
        Answer::Done(text) => output::print(&format!("{text}\n")),
        Answer::Unknown => Ok(()),
    }
}

/// Ends the daemon, without its kernel engines. When this is done, another can start.
pub(crate) fn leave(global: &Global) -> Result<(), Failure> {
    let text = Client::new(global.socket()).leave()?;
    output::print(&format!("{text}\n"))
}

/// Takes a translator down: the daemon's, or what a dead one left.
pub(crate) fn down(global: &Global, args: &DownArgs) -> Result<(), Failure> {
    if args.all {
        return down_all(global);
    }
    let name = args.name.as_deref().unwrap_or_default();
    let client = Client::new(global.socket());
    if !client.is_absent() {
        let request = Request::Down { name: name.to_owned() };
        if let Answer::Done(text) = client.ask(&request)? {
            return output::print(&format!("{text}\n"));
        }
    }
    match left_behind(global, name)? {
        Left::Done(text) => output::print(&format!("{text}\n")),
        Left::InUse => {
            Err(Failure::failed(format!("{name} is in use: a running process has it open"))
                .hint("name the socket (--socket) or the run directory (--run-dir) of its daemon"))
        }
        Left::Nothing => {
            Err(Failure::failed(format!("there is nothing of a translator called {name}"))
                .hint("fordway status shows the daemon's; name another socket or run directory"))
        }
    }
}

/// Takes down what dead daemons left in this network namespace. Running ones are left alone.
fn down_all(global: &Global) -> Result<(), Failure> {
    let mut names: BTreeSet<String> = fordway_net::owners(&global.run_dir)?.into_keys().collect();
    names.extend(pins::names()?);
    let mut failed = None;
    for name in names {
        match left_behind(global, &name) {
            Ok(Left::Done(text)) => output::print(&format!("{text}\n"))?,
            Ok(Left::InUse) => output::print(&format!("{name}: stays: its daemon runs\n"))?,
            Ok(Left::Nothing) => {}
            // The others are taken down all the same.
            Err(failure) => failed = Some(failure.prefix(&format!("{name}: "))),
        }
    }
    failed.map_or(Ok(()), Err)
}

/// What a dead daemon left of a translator.
pub(super) enum Left {
    /// It is taken down: a line that says what it was.
    Done(String),
    /// A process has it in use.
    InUse,
    Nothing,
}

/// Takes down what a dead daemon left of a translator. Routes first, so that nothing untranslated leaves;
/// programs last.
pub(super) fn left_behind(global: &Global, name: &str) -> Result<Left, Failure> {
    // No daemon answers at the socket, but a process has the interface open.
    if fordway_tun::is_open(name).unwrap_or(false) {
        return Ok(Left::InUse);
    }
    let mut manager = match Manager::open(&global.run_dir, name) {
        Err(fordway_net::Error::OwnerRunning { .. }) => return Ok(Left::InUse),
        opened => opened?,
    };
    let report = manager.restore()?;
    let programs = fordway_bpf::take_down(&pins::dir(name)?)?;
    if report.is_empty() && !programs {
        return Ok(Left::Nothing);
    }
    let programs = if programs { "kernel engine and " } else { "" };
    Ok(Left::Done(format!("{name}: {programs}set-up of a dead daemon: {report}")))
}
