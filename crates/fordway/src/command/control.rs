//! `fordway reload`, `fordway down` and `fordway leave`.

use fordway_config::LevelFilter;
use fordway_control::{Answer, Client, Request};
use fordway_net::Manager;

use crate::cli::{DownArgs, Global, ReloadArgs};
use crate::failure::Failure;
use crate::report::Render;
use crate::{output, pins};

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
    let client = Client::new(global.socket());
    if !client.is_absent() {
        let request = Request::Down { name: args.name.clone() };
        if let Answer::Done(text) = client.ask(&request)? {
            return output::print(&format!("{text}\n"));
        }
    }
    let text = left_behind(global, &args.name)?;
    output::print(&format!("{text}\n"))
}

/// Takes down what a dead daemon left of a translator. Routes first, so that nothing untranslated leaves;
/// programs last.
fn left_behind(global: &Global, name: &str) -> Result<String, Failure> {
    // No daemon answers at the socket, but a process has the interface open.
    if fordway_tun::is_open(name).unwrap_or(false) {
        return Err(Failure::failed(format!("{name} is in use: a running process has it open"))
            .hint("name the socket (--socket) or the run directory (--run-dir) of its daemon"));
    }
    let mut manager = Manager::open(&global.run_dir, name)?;
    let report = manager.restore()?;
    let programs = fordway_bpf::take_down(&pins::dir(name)?)?;
    if report.is_empty() && !programs {
        return Err(Failure::failed(format!("there is nothing of a translator called {name}"))
            .hint("fordway status shows the daemon's; name another socket or run directory"));
    }
    let programs = if programs { "kernel engine and " } else { "" };
    Ok(format!("{name}: {programs}set-up of a dead daemon: {report}"))
}
