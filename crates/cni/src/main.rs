//! `fordway-cni`: the plugin as a container runtime calls it, and a list of pods for people.
#![forbid(unsafe_code)]

use std::env;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use fordway_cni::{
    Code, Command, Failure, Installation, Request, Result, Steps, answer, clean, list, versions,
};
use tokio::signal::unix::{SignalKind, signal};

/// The newest version of the specification, for answers to what could not be read.
const VERSION: &str = "1.1.0";

/// The longest configuration that is read, in octets.
const LONGEST: u64 = 4 << 20;

/// Gives each pod of an IPv6-only cluster a CLAT, so that IPv4 applications work in it.
///
/// A container runtime calls the plugin with CNI_COMMAND and other variables, and with a network configuration on standard
/// input. List it after the plugin that gives pods their addresses:
///
///   { "type": "fordway-cni", "pref64": "64:ff9b::/96" }
#[derive(Parser)]
#[command(
    name = "fordway-cni",
    version,
    after_help = "\
Examples:
  fordway-cni list            pods of this node, with what their CLATs translated and lost
  fordway-cni list --json     the same for scripts
  fordway-cni clean           removes what pods have left that are gone, where no runtime calls DEL
  fordway-cni install --config '{\"pref64\":\"64:ff9b::/96\"}'
  CNI_COMMAND=VERSION fordway-cni </dev/null"
)]
struct Cli {
    #[command(subcommand)]
    action: Action,
}

#[derive(Args)]
struct Place {
    /// Folder of plugins' programs.
    #[arg(long, value_name = "FOLDER", default_value = "/opt/cni/bin")]
    bin_dir: PathBuf,
    /// Folder of network configurations.
    #[arg(long, value_name = "FOLDER", default_value = "/etc/cni/net.d")]
    conf_dir: PathBuf,
}

#[derive(Subcommand)]
enum Action {
    /// Installs the plugin on this node, at the end of the first list of plugins.
    Install {
        #[command(flatten)]
        place: Place,
        /// The plugin's own keys, as a JSON object.
        #[arg(long, value_name = "JSON", default_value = "{}")]
        config: String,
        /// Keep running, and install it again whenever it is missing: network plugins write their lists anew.
        #[arg(long)]
        watch: bool,
    },
    /// Takes the plugin out of all lists, and cleans. Pods keep their CLATs until they end; with the last one the program goes.
    Uninstall {
        #[command(flatten)]
        place: Place,
        /// Keep running, clean again as pods end, and remove the program after the last one.
        #[arg(long)]
        watch: bool,
    },
    /// Removes the entries and routes of pods that are gone, which no runtime removes after `uninstall`.
    Clean,
    /// Lists the pods of this node that have a CLAT.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    let Some(name) = env::var_os("CNI_COMMAND") else {
        return people();
    };
    let mut version = VERSION.to_owned();
    match plugin(&name.to_string_lossy(), &mut version) {
        Ok(text) => print(&text.unwrap_or_default()),
        Err(failure) => {
            print(&failure.json(&version));
            ExitCode::FAILURE
        }
    }
}

/// `version`: becomes that of the request, which answers repeat.
fn plugin(name: &str, version: &mut String) -> Result<Option<String>> {
    let mut input = Vec::new();
    let read = io::stdin().lock().take(LONGEST).read_to_end(&mut input);
    read.map_err(|error| failure(Code::Io, format!("standard input can't be read: {error}")))?;
    if name == "VERSION" {
        return Ok(Some(versions(&input)));
    }
    let command = Command::from_name(name).ok_or_else(|| {
        failure(Code::Environment, format!("CNI_COMMAND {name:?} is no command of CNI"))
    })?;
    let variable = |name: &str| env::var(name).ok();
    let request = Request::read(command, variable, &input)?;
    version.clear();
    version.push_str(request.version());
    answer(&request, Steps::all())
}

fn failure(code: Code, message: String) -> Failure {
    Failure { code, message, details: String::new() }
}

fn people() -> ExitCode {
    let done = match Cli::parse().action {
        Action::Install { place, config, watch } => install(&place, &config, watch),
        Action::Uninstall { place, watch } => uninstall(&place, watch),
        Action::Clean => clean().map(|cleaned| cleaned.to_string()),
        Action::List { json } => list().map(|list| {
            if json {
                serde_json::to_string_pretty(&list).unwrap_or_default()
            } else {
                list.to_string()
            }
        }),
    };
    match done {
        Ok(text) => print(&text),
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// How often what was installed is looked at.
const INTERVAL: Duration = Duration::from_secs(5);

fn install(place: &Place, config: &str, watch: bool) -> Result<String> {
    let mut installation = Installation::new(&place.bin_dir, &place.conf_dir, config)?;
    let mut work = || installation.install().map(|done| done.join("\n"));
    if watch { until_ended(work) } else { work() }
}

fn uninstall(place: &Place, watch: bool) -> Result<String> {
    let installation = Installation::new(&place.bin_dir, &place.conf_dir, "{}")?;
    let done = installation.uninstall()?.join("\n");
    let work = || {
        let cleaned = clean()?;
        let removed = if cleaned.left == 0 { installation.remove_program()? } else { None };
        Ok(removed.into_iter().chain([cleaned.to_string()]).collect::<Vec<_>>().join("\n"))
    };
    if watch {
        tell(&done);
        return until_ended(work);
    }
    print(&done);
    work()
}

/// Tells what was done, if anything was, where nobody waits for an answer.
fn tell(text: &str) {
    if !text.is_empty() {
        eprintln!("{text}");
    }
}

/// Calls `work` at intervals until the process is asked to end: as a container's first process it has to do so itself. What
/// `work` returns is told when it changes. A failure is told once, and tried again: the network's plugin may come later.
fn until_ended(mut work: impl FnMut() -> Result<String>) -> Result<String> {
    let mut said = String::new();
    let failed = |error: io::Error| failure(Code::Io, error.to_string());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    runtime.block_on(async {
        let mut ended = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupted = signal(SignalKind::interrupt()).map_err(failed)?;
        loop {
            let now = work().unwrap_or_else(|failure| format!("error: {failure}"));
            if now != said {
                tell(&now);
            }
            said = now;
            tokio::select! {
                _ = ended.recv() => return Ok(String::new()),
                _ = interrupted.recv() => return Ok(String::new()),
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    })
}

/// Prints on standard output, with one end of line.
fn print(text: &str) -> ExitCode {
    let text = text.trim_end();
    let mut out = io::stdout().lock();
    let printed = if text.is_empty() { Ok(()) } else { writeln!(out, "{text}") };
    if printed.and_then(|()| out.flush()).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
