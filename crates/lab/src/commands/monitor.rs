//! `monitor`: records a gateway at work, and shows recordings.

use std::path::{Path, PathBuf};

use fordway_data::plan::in_words;
use fordway_data::report::terminal::print_rows;
use fordway_data::spec::{Experiment, RunSpec};

use super::run::{clean_orphans, default_folder, free};
use crate::cli::MonitorArgs;
use crate::environment;
use crate::error::{EXIT_DONE, LabError, Result};
use crate::mechanism::locate_fordway;
use crate::monitor::compare::{compare, warnings};
use crate::monitor::echo::Echo;
use crate::monitor::folder::{Recording, Spec, Writer};
use crate::monitor::snmp::Snmp;
use crate::monitor::stage::{EXPERIMENT, Stage, raw};
use crate::monitor::system::System;
use crate::monitor::{Source, page, record};
use crate::process::{catch_signals, find_program};
use crate::snmp::Access;
use crate::state;

/// Records, reports or compares.
pub(super) fn monitor(args: &MonitorArgs) -> Result<u8> {
    if let Some(dir) = &args.report {
        return report(dir, args.json);
    }
    if let [first, second] = &args.compare[..] {
        return comparison(first, second, args);
    }
    if args.length.is_some_and(|length| length < args.every) {
        return Err(LabError::Usage(
            "--for is shorter than --every: there would be no sample".into(),
        ));
    }
    catch_signals();
    let out = args.out.clone().unwrap_or_else(|| default_folder("monitor"));
    free(&out)?;
    recording(args, &out)?;
    report(&out, args.json)
}

/// Everything that is asked for each sample.
struct Watch {
    watched: String,
    sources: Vec<Box<dyn Source>>,
    targets: Vec<String>,
    absent: Vec<String>,
    /// The network that is watched, when the lab made it.
    _stage: Option<Stage>,
}

fn recording(args: &MonitorArgs, out: &Path) -> Result<()> {
    let mut watch = watch(args, out)?;
    let spec = Spec {
        started: crate::host::now(),
        watched: watch.watched.clone(),
        every_s: args.every.as_secs_f64(),
        for_s: args.length.map(|length| length.as_secs_f64()),
        targets: watch.targets.clone(),
        absent: watch.absent.clone(),
        replay: replay(args),
    };
    // Of the experiment's mechanisms, only the one that is on the stage is part of the environment.
    let mut experiment = Experiment::find(EXPERIMENT)?;
    experiment.run =
        Some(RunSpec { mechanisms: args.lab.iter().cloned().collect(), ..RunSpec::bare() });
    let fordway = locate_fordway(args.fordway.as_deref())?;
    let environment = environment::record(&experiment, fordway.as_deref())?;
    let mut writer = Writer::begin(out, &spec, &environment)?;
    let length = args.length.map_or_else(
        || "until Ctrl-C".into(),
        |length| format!("for {}", in_words(length.as_secs_f64())),
    );
    crate::note!(
        "recording {}, every {} s, {length}, into {}",
        spec.watched,
        spec.every_s,
        out.display()
    );
    for name in &spec.absent {
        crate::note!("  note      the agent does not have {name}");
    }
    let ended = record::record(&mut watch.sources, &mut writer, args.every, args.length)?;
    drop(watch);
    if ended.samples == 0 {
        return Err(LabError::Interrupted);
    }
    let how = if ended.stopped { "stopped" } else { "done" };
    crate::note!("{how}: {} samples", ended.samples);
    Ok(())
}

fn watch(args: &MonitorArgs, out: &Path) -> Result<Watch> {
    let mut targets = args.target.iter().map(|t| named(t)).collect::<Result<Vec<_>>>()?;
    let mut sources: Vec<Box<dyn Source>> = Vec::new();
    let mut absent = Vec::new();
    let mut pinged_via = Vec::new();
    let mut stage = None;
    let watched;
    if let Some(arm) = &args.lab {
        let set = on_stage(arm, args, out)?;
        let staged = set.staged();
        let network = staged.network();
        pinged_via = staged.backend().inside(&network.app, &[]);
        targets.push(("server".into(), network.target.to_string()));
        let host = network.host.as_ref().unwrap_or(&network.client);
        let via = staged.backend().inside(host, &[]);
        let device = Some("to-iperf".to_owned());
        sources.push(Box::new(System::new(via, staged.processes(), device)));
        sources.push(Box::new(set.pages()));
        watched = format!("{}, {} pages a second", staged.label, args.pages);
        stage = Some(set);
    } else if let Some(agent) = &args.snmp {
        let snmp = Snmp::connect(agent, &access(args)?, args.interface.as_deref())?;
        absent.clone_from(&snmp.absent);
        watched = format!("{agent} by SNMP ({})", snmp.agent.description.trim());
        sources.push(Box::new(snmp));
    } else {
        let via: Vec<String> =
            args.via.iter().flat_map(|via| via.split_whitespace()).map(str::to_owned).collect();
        watched =
            args.via.as_ref().map_or_else(|| "this machine".into(), |via| format!("via {via}"));
        let mut system = System::new(via, args.process.clone(), args.interface.clone());
        // What can't be reached at all is told now, and not in a thousand samples.
        system.read()?;
        sources.push(Box::new(system));
    }
    if !targets.is_empty() {
        if find_program("ping").is_none() {
            return Err(LabError::Missing(
                "not installed: ping; apt-get install iputils-ping".into(),
            ));
        }
        let every = args.every.as_secs_f64();
        sources.push(Box::new(Echo::new(pinged_via, targets.clone(), every)));
    }
    let targets = targets.into_iter().map(|(name, address)| match name == address {
        true => address,
        false => format!("{name}={address}"),
    });
    Ok(Watch { watched, sources, targets: targets.collect(), absent, _stage: stage })
}

/// Puts a mechanism on the lab's own network.
fn on_stage(arm: &str, args: &MonitorArgs, out: &Path) -> Result<Stage> {
    state::need_root()?;
    if let Some(hint) = crate::load::ab::missing() {
        return Err(LabError::Missing(format!("--lab needs ab and nginx: {hint}")));
    }
    clean_orphans();
    let experiment = Experiment::find(EXPERIMENT)?;
    let fordway = locate_fordway(args.fordway.as_deref())?;
    let spec = experiment.mechanism(arm)?;
    let own = [arm.to_owned()];
    let found = crate::runner::survey(&experiment, &own, fordway.as_deref(), false)?;
    if let Some(hint) = found.skipped.get(arm) {
        return Err(LabError::Missing(format!("{}: {hint}", spec.label)));
    }
    let raw = raw(out);
    std::fs::create_dir_all(&raw).map_err(LabError::file(&raw))?;
    Stage::set(arm, args.pages, &raw, fordway.as_deref())
}

fn access(args: &MonitorArgs) -> Result<Access> {
    let Some(name) = &args.snmp_user else {
        return Ok(Access::Community(args.community.clone()));
    };
    let password = std::env::var("FORDWAY_SNMP_PASSWORD").map_err(|_| {
        LabError::Usage(
            "--snmp-user needs its password in the variable FORDWAY_SNMP_PASSWORD".into(),
        )
    })?;
    let privacy = std::env::var("FORDWAY_SNMP_PRIVACY").ok();
    Ok(Access::User { name: name.clone(), password, sha1: args.snmp_sha1, privacy })
}

/// `NAME=ADDRESS`, or an address that is its own name.
fn named(target: &str) -> Result<(String, String)> {
    let (name, address) = target.split_once('=').unwrap_or((target, target));
    if name.is_empty() || address.is_empty() || address.starts_with('-') {
        return Err(LabError::Usage(format!(
            "--target {target}: write an address, or NAME=ADDRESS"
        )));
    }
    Ok((name.into(), address.into()))
}

/// The command line again, without secrets.
fn replay(args: &MonitorArgs) -> String {
    let mut words = vec!["fordway-lab monitor".to_owned()];
    let mut add = |flag: &str, value: String| {
        let quoted = if value.contains(' ') { format!("'{value}'") } else { value };
        words.push(format!("--{flag} {quoted}"));
    };
    add("every", format!("{}s", args.every.as_secs_f64()));
    if let Some(length) = args.length {
        add("for", format!("{}s", length.as_secs_f64()));
    }
    args.target.iter().for_each(|target| add("target", target.clone()));
    args.process.iter().for_each(|process| add("process", process.to_string()));
    let options = [
        ("interface", &args.interface),
        ("via", &args.via),
        ("snmp", &args.snmp),
        ("snmp-user", &args.snmp_user),
        ("lab", &args.lab),
    ];
    for (flag, value) in options {
        if let Some(value) = value {
            add(flag, value.clone());
        }
    }
    if args.lab.is_some() {
        add("pages", args.pages.to_string());
    }
    if args.snmp_sha1 {
        words.push("--snmp-sha1".into());
    }
    words.join(" ")
}

fn report(dir: &Path, json: bool) -> Result<u8> {
    let recording = Recording::read(dir)?;
    let summed = page::sum(&recording);
    let path = page::write_report(dir, &recording)?;
    if json {
        return super::print_json(&summed);
    }
    print_rows(&page::table(&summed));
    for (series, why) in &summed.never {
        anstream::println!("{series}: never: {why}");
    }
    anstream::println!("\nReport  {}", path.display());
    Ok(EXIT_DONE)
}

fn comparison(first: &Path, second: &Path, args: &MonitorArgs) -> Result<u8> {
    let (a, b) = (Recording::read(first)?, Recording::read(second)?);
    let all = compare(&a, &b);
    let out: PathBuf = args.out.clone().unwrap_or_else(|| default_folder("comparison"));
    free(&out)?;
    let path = page::write_comparison(&out, &a, &b)?;
    if args.json {
        return super::print_json(&all);
    }
    anstream::println!("A  {}: {}\nB  {}: {}\n", a.name, a.spec.watched, b.name, b.spec.watched);
    print_rows(&page::comparison(&all));
    for warning in warnings(&a, &b, &all) {
        let yellow = anstyle::AnsiColor::Yellow.on_default();
        anstream::println!("{yellow}warning{yellow:#}  {warning}");
    }
    anstream::println!("\nReport  {}", path.display());
    Ok(EXIT_DONE)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(words: &str) -> MonitorArgs {
        let all = ["fordway-lab", "monitor"].into_iter().chain(words.split_whitespace());
        match Cli::try_parse_from(all).unwrap().command {
            Command::Monitor(args) => args,
            _ => unreachable!("another command"),
        }
    }

    #[test]
    fn what_is_kept_of_the_command_line_holds_no_secret() {
        let kept = replay(&args(
            "--snmp 192.0.2.1 --community hush --every 5 --for 2h --target a=192.0.2.2",
        ));
        assert_eq!(
            kept,
            "fordway-lab monitor --every 5s --for 7200s --target a=192.0.2.2 --snmp 192.0.2.1"
        );
    }

    #[test]
    fn targets_have_names() {
        assert_eq!(named("192.0.2.1").unwrap(), ("192.0.2.1".into(), "192.0.2.1".into()));
        assert_eq!(named("a=2001:db8::1").unwrap(), ("a".into(), "2001:db8::1".into()));
        assert!(named("=x").is_err() && named("a=").is_err() && named("-f").is_err());
    }
}
