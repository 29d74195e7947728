//! `run` and `resume`.

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fordway_data::artefacts;
use fordway_data::files::write_file;
use fordway_data::plan::{in_words, lay_out};
use fordway_data::spec::Hosts;
use fordway_data::spec::{Experiment, METHOD};
use fordway_data::trial::FLAG_OTHER;
use fordway_data::trial::Ledger;

use super::plan::{choose, found, notes, own_clocksource, print_skipped};
use super::power::sizes;
use crate::cli::{PlanArgs, ResumeArgs, RunArgs};
use crate::error::{LabError, Result};
use crate::host::cpu::{self, Watch};
use crate::hosts::Pair;
use crate::hosts::orders::Surveyed;
use crate::mechanism::locate_fordway;
use crate::process::{catch_signals, find_program};
use crate::runner::Runner;
use crate::state;

/// Where results go that were told no place.
pub(super) const RESULTS: &str = "lab-results";
/// Runs longer than this ask first.
const ASK_ABOVE_S: f64 = 3600.0;

/// Starts a run.
pub(super) fn run(args: &RunArgs) -> Result<u8> {
    if args.guest.guest {
        return super::guest::run(args);
    }
    let fordway = locate_fordway(args.plan.fordway.as_deref())?;
    if let Some(out) = &args.out {
        free(out)?;
    }
    need_tools()?;
    if args.pdf {
        crate::pdf::need()?;
    }
    // Without root nothing can be tried out; that is said below, after what is missing.
    let rehearse = state::is_root();
    if rehearse {
        catch_signals();
        clean_orphans();
    }
    let experiment = Experiment::named(&args.plan.name)?;
    match args.plan.aa {
        Some(_) => crate::note!("{}: A/A", experiment.name),
        None => crate::note!("{}: {}", experiment.name, experiment.question),
    }
    crate::note!("  first     {}", beforehand(&experiment, &args.plan)?);
    let watch = Watch::begin();
    let hosts = args.plan.hosts.as_deref().map(Hosts::read).transpose()?;
    let pair = hosts.as_ref().map(|hosts| open(hosts, fordway.as_deref())).transpose()?;
    let (mut experiment, run) = choose(&args.plan, fordway.as_deref(), rehearse, pair.as_deref())?;
    for name in &experiment.requires {
        if let Some(hint) = run.skipped.get(name) {
            return Err(LabError::Missing(format!("{} needs {name}: {hint}", experiment.name)));
        }
    }
    if run.mechanisms.is_empty() {
        print_skipped(&run);
        return Err(LabError::Missing("no mechanism of this choice can run here".into()));
    }
    state::need_root()?;
    let clock = pair.as_ref().map(|pair| pair.clocksource()).transpose()?;
    let plan = lay_out(&experiment, &run, &clock.unwrap_or_else(own_clocksource));
    crate::note!(
        "  {} mechanisms, {} blocks, {} trials, about {} (seed {})",
        run.mechanisms.len(),
        run.blocks,
        plan.trials,
        in_words(plan.seconds),
        run.seed
    );
    if let Some(pin) = &run.pin {
        crate::note!("  pin       {}", super::plan::pin_words(pin));
    }
    print_skipped(&run);
    for note in notes(&experiment, &run).into_iter().chain(sizes(&experiment, &run, &args.plan)?) {
        crate::note!("  note      {note}");
    }
    let others = pair.is_none().then(|| watch.end());
    warn_of_others(others);
    if plan.seconds > ASK_ABOVE_S && !args.yes && !agreed(plan.seconds)? {
        return Err(LabError::Usage("not started; --yes starts without asking".into()));
    }
    let out = args.out.clone().unwrap_or_else(|| default_folder(&experiment.name));
    free(&out)?;
    std::fs::create_dir_all(&out).map_err(|error| {
        LabError::Usage(format!(
            "cannot make the folder {}: {error}; choose another place with --out",
            out.display()
        ))
    })?;
    if let Some(hosts) = &run.hosts {
        // The replay line names it.
        let text = toml::to_string(hosts).map_err(|e| LabError::Usage(e.to_string()))?;
        write_file(&out.join("hosts.toml"), text.as_bytes())?;
    }
    experiment.run = Some(run);
    let text = toml::to_string(&experiment).map_err(|e| LabError::Usage(e.to_string()))?;
    write_file(&out.join("spec.toml"), text.as_bytes())?;
    execute(experiment, &out, fordway.as_deref(), pair, others, (args.plan.json, args.pdf))
}

/// What happens before anything is measured, and how long all of it takes.
fn beforehand(experiment: &Experiment, args: &PlanArgs) -> Result<String> {
    let arms = match args.only.len() {
        0 => experiment.mechanisms.len(),
        named => named,
    };
    let whole = experiment.profile(args.profile.key())?.budget_s.filter(|_| args.blocks.is_none());
    let whole = whole.map_or_else(
        || "says how long it takes, and measures".to_owned(),
        |seconds| format!("measures for about {}", in_words(seconds as f64)),
    );
    Ok(format!("finds out which of {arms} mechanisms run here, a second or two each; then {whole}"))
}

/// Continues a run.
pub(super) fn resume(args: &ResumeArgs) -> Result<u8> {
    let fordway = locate_fordway(args.fordway.as_deref())?;
    let experiment = artefacts::read_experiment(&args.dir)?;
    let run = experiment.run()?.clone();
    let environment = artefacts::read_environment(&args.dir)?;
    if run.method != METHOD {
        let by = environment.as_ref().and_then(|e| e.versions.get("fordway-lab"));
        return Err(LabError::Usage(format!(
            "the run was begun by fordway-lab {}, which measures by method {}; this one measures by method {METHOD}, and \
             numbers of both must not be mixed: end it with that version, or start a new run. `fordway-lab report {}` \
             reads what is there",
            by.map_or("of an unknown version", String::as_str),
            run.method,
            args.dir.display()
        )));
    }
    match (&run.guest, crate::guest::around()) {
        (Some(guest), None) => return super::guest::resume(args, guest),
        (was, is) if *was != is => {
            return Err(LabError::Usage(
                "the run was not made in this guest; numbers of both must not be mixed: start a new run"
                    .into(),
            ));
        }
        _ => {}
    }
    need_tools()?;
    state::need_root()?;
    catch_signals();
    clean_orphans();
    let watch = Watch::begin();
    let pair = run.hosts.as_ref().map(|hosts| open(hosts, fordway.as_deref())).transpose()?;
    let Surveyed { versions, skipped, .. } =
        found(&experiment, &run.mechanisms, fordway.as_deref(), true, pair.as_deref())?;
    for name in &run.mechanisms {
        if let Some(hint) = skipped.get(name) {
            return Err(LabError::Missing(format!("the run used {name}: {hint}")));
        }
        let (was, is) = (run.versions.get(name), versions.get(name));
        if was != is {
            return Err(LabError::Usage(format!(
                "{name} was {} when the run began and is {} now; numbers of both must not be \
                 mixed: start a new run",
                was.map_or("?", String::as_str),
                is.map_or("?", String::as_str)
            )));
        }
    }
    let others = pair.is_none().then(|| watch.end());
    warn_of_others(others);
    execute(experiment, &args.dir, fordway.as_deref(), pair, others, (args.json, false))
}

/// Opens both hosts of a run.
fn open(hosts: &Hosts, fordway: Option<&Path>) -> Result<Arc<Pair>> {
    // What the file itself forbids is told to everybody, root or not.
    hosts.allowed()?;
    state::need_root()?;
    if find_program("ssh").is_none() {
        return Err(LabError::Missing(
            "ssh is not installed: apt-get install openssh-client".into(),
        ));
    }
    let pair = Pair::open(hosts, fordway)?;
    crate::note!(
        "  hosts     client and translators on {}, server on {}{}",
        hosts.client().name,
        hosts.server().name,
        hosts.cap_gbit_s().map_or(String::new(), |cap| format!(", loads held under {cap} Gbit/s"))
    );
    Ok(pair)
}

fn execute(
    experiment: Experiment,
    out: &Path,
    fordway: Option<&Path>,
    pair: Option<Arc<Pair>>,
    others: Option<f64>,
    (json, pdf): (bool, bool),
) -> Result<u8> {
    let done = same_environment(&experiment, out, fordway, pair.as_deref(), others)
        .and_then(|()| Runner::new(experiment, out, fordway, pair)?.execute())
        .and_then(|()| super::report::report(out, json, pdf));
    if let Err(error) = &done {
        let first = match error {
            LabError::Interrupted => "Stopped.",
            error if error.is_no_room() => "Nothing more can be written: make room.",
            LabError::Host { .. } => "A host is gone; what it runs goes with its connection.",
            _ => return done,
        };
        crate::note!(
            "{first} Namespaces and processes are gone; what was measured is kept.\n\
             Continue with: fordway-lab resume {}",
            out.display()
        );
    }
    done
}

/// Notes what the machine is like, or makes sure that it is still as it was when the run began.
fn same_environment(
    experiment: &Experiment,
    out: &Path,
    fordway: Option<&Path>,
    pair: Option<&Pair>,
    others: Option<f64>,
) -> Result<()> {
    let mut now = match pair {
        Some(pair) => pair.environment(experiment, fordway)?,
        None => crate::environment::record(experiment, fordway)?,
    };
    now.other_cores = others;
    match artefacts::read_environment(out)? {
        Some(then) => match then.changed(&now) {
            Some(why) => Err(LabError::Usage(format!(
                "{why}; numbers of both must not be mixed: start a new run"
            ))),
            None => Ok(()),
        },
        None if Ledger::of(out).read(experiment)?.is_empty() => {
            let text = serde_json::to_vec_pretty(&now).unwrap_or_default();
            Ok(write_file(&out.join("environment.json"), &text)?)
        }
        None => Err(artefacts::without_environment(out).into()),
    }
}

/// Whether a run may be written here: into a folder that is new or empty.
pub(super) fn free(out: &Path) -> Result<()> {
    let shown = out.display();
    let why = match std::fs::read_dir(out) {
        Ok(_) if out.join("spec.toml").exists() => format!(
            "{shown} already holds a run; continue it with `fordway-lab resume {shown}`, or choose \
             another --out"
        ),
        Ok(mut entries) => {
            if entries.next().is_none() {
                return Ok(());
            }
            format!("{shown} holds other files; choose a new or an empty folder with --out")
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            format!("{shown} is, or lies below, a file; name a new folder with --out")
        }
        // Whether it can be made is found out when it is.
        Err(_) => return Ok(()),
    };
    Err(LabError::Usage(why))
}

/// Removes what crashed runs left, and says who else measures here now.
pub(super) fn clean_orphans() {
    for other in state::others() {
        crate::note!(
            "  warning   process {} measures on this machine, too ({}): both runs will disturb each \
             other",
            other.pid,
            other.out.display()
        );
    }
    for orphan in state::orphans() {
        let removed = state::undo(&orphan);
        crate::note!(
            "  cleaned   a run that ended without tidying up (process {}): {} namespaces",
            orphan.pid,
            removed.len()
        );
    }
}

pub(super) fn need_tools() -> Result<()> {
    let tools = ["ip", "nsenter", "setpriv", "taskset", "sysctl", "iperf3", "ping", "ethtool"];
    let missing: Vec<&str> =
        tools.into_iter().filter(|tool| find_program(tool).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(LabError::Missing(format!(
        "not installed: {}; apt-get install {}",
        missing.join(", "),
        super::doctor::packages(&missing).join(" ")
    )))
}

fn warn_of_others(cores: Option<f64>) {
    if let Some(cores) = cores.filter(|cores| *cores > FLAG_OTHER) {
        crate::note!(
            "  warning   other programs keep {cores:.1} of {} processors busy: they will disturb the \
             numbers",
            cpu::processors()
        );
    }
}

fn agreed(seconds: f64) -> Result<bool> {
    crate::note!("This run takes about {}.", in_words(seconds));
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    anstream::eprint!("Start? [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(LabError::file("standard input"))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The folder of a run that was told no place.
pub(super) fn default_folder(name: &str) -> PathBuf {
    let now = crate::host::now().replace([':', '-'], "").replace('Z', "");
    PathBuf::from(RESULTS).join(format!("{name}-{now}"))
}
