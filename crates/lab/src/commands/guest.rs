//! `run --guest`, and `resume` of such a run.

use std::path::Path;

use crate::cli::{GuestArgs, PlanArgs, ResumeArgs, RunArgs, Switch};
use crate::error::{EXIT_DONE, Result};
use crate::guest::{self, JOB, Order};
use crate::mechanism::locate_fordway;
use crate::process::catch_signals;
use crate::state;
use fordway_data::spec::{Experiment, Guest, is_file};

/// Name of a user's own experiment in the guest.
const FILE: &str = "experiment.toml";

/// Runs an experiment in a guest, and prints its summary.
pub(super) fn run(args: &RunArgs) -> Result<u8> {
    let GuestArgs { guest_suite, guest_cpus, guest_memory, icount, .. } = &args.guest;
    let fordway = locate_fordway(args.plan.fordway.as_deref())?;
    let experiment = Experiment::named(&args.plan.name)?;
    let out = args.out.clone().unwrap_or_else(|| super::run::default_folder(&experiment.name));
    super::run::free(&out)?;
    if args.pdf {
        crate::pdf::need()?;
    }
    state::need_root()?;
    catch_signals();
    let guest = guest::choose(guest_suite, *guest_cpus, *guest_memory, *icount)?;
    let own = is_file(&args.plan.name);
    let order = Order {
        arguments: arguments(&args.plan, own),
        file: own.then_some((FILE, Path::new(&args.plan.name))),
        continued: None,
        fordway: fordway.as_deref(),
        out: &out,
    };
    end(guest::run(&guest, &order)?, &out, args.plan.json, args.pdf)
}

/// Continues a run in a guest like the one that it began in.
pub(super) fn resume(args: &ResumeArgs, guest: &Guest) -> Result<u8> {
    let fordway = locate_fordway(args.fordway.as_deref())?;
    state::need_root()?;
    catch_signals();
    let arguments = ["resume".to_owned(), format!("{JOB}/out")].to_vec();
    let continued = Some(args.dir.as_path());
    let order =
        Order { arguments, file: None, continued, fordway: fordway.as_deref(), out: &args.dir };
    end(guest::run(guest, &order)?, &args.dir, args.json, false)
}

/// The report is made again by this program: the guest has printed nothing that a caller reads.
fn end(status: u8, out: &Path, json: bool, pdf: bool) -> Result<u8> {
    if status != EXIT_DONE {
        if out.join("spec.toml").exists() {
            crate::note!("Continue with: fordway-lab resume {}", out.display());
        }
        return Ok(status);
    }
    super::report::report(out, json, pdf)
}

/// The arguments of `run` in the guest. `own`: the experiment is a file of the user.
fn arguments(args: &PlanArgs, own: bool) -> Vec<String> {
    fn list<T: ToString>(all: &mut Vec<String>, option: &str, items: &[T]) {
        if !items.is_empty() {
            let joined = items.iter().map(T::to_string).collect::<Vec<_>>().join(",");
            all.extend([option.to_owned(), joined]);
        }
    }
    let name = if own { format!("{JOB}/{FILE}") } else { args.name.clone() };
    let mut all =
        vec!["run".to_owned(), name, "--yes".into(), "--out".into(), format!("{JOB}/out")];
    list(&mut all, "--profile", &[args.profile.key()]);
    list(&mut all, "--seed", args.seed.as_slice());
    list(&mut all, "--blocks", args.blocks.as_slice());
    list(&mut all, "--duration", &args.duration);
    list(&mut all, "--only", &args.only);
    list(&mut all, "--clocksource", &args.clocksource);
    list(&mut all, "--cached", &args.cached);
    list(&mut all, "--native", &args.native);
    list(&mut all, "--aa", args.aa.as_slice());
    list(&mut all, "--cv", args.cv.as_slice());
    list(&mut all, "--pin", args.pin.as_slice());
    if args.offloads == Switch::Off {
        list(&mut all, "--offloads", &["off"]);
    }
    all
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parsed(argv: &[String]) -> RunArgs {
        let argv = ["fordway-lab".to_owned()].into_iter().chain(argv.iter().cloned());
        match Cli::try_parse_from(argv).unwrap().command {
            Command::Run(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_guest_gets_every_choice_but_those_of_the_host() {
        let line = "run nat64 --guest --guest-suite bookworm --profile standard --seed 7 --blocks 3 --duration 1,2 \
                    --only nat44,nat64-jool --clocksource tsc --offloads off --cached 0,50 --native 5 --cv 0.02 --pin client=0,mechanism=1 \
                    --fordway /x --out /y";
        let line: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let host = parsed(&line);
        let mut guest = parsed(&arguments(&host.plan, false));
        assert_eq!(guest.out.as_deref(), Some(Path::new("/job/out")));
        assert!(guest.yes && !guest.guest.guest);
        // The job's script names the program that it has brought along.
        guest.plan.fordway.clone_from(&host.plan.fordway);
        assert_eq!(format!("{:?}", guest.plan), format!("{:?}", host.plan));
        let aa: Vec<String> = "run aa --guest --aa 3".split(' ').map(str::to_owned).collect();
        let guest = parsed(&arguments(&parsed(&aa).plan, false));
        assert_eq!(guest.plan.aa, Some(3));
    }

    #[test]
    fn a_file_of_the_user_has_another_name_in_the_guest() {
        let line = ["run".to_owned(), "mine.toml".into(), "--guest".into()];
        assert_eq!(parsed(&arguments(&parsed(&line).plan, true)).plan.name, "/job/experiment.toml");
    }

    #[test]
    fn choices_of_a_guest_need_one() {
        for wrong in [
            "run nat64 --icount",
            "run nat64 --guest-cpus 4",
            "run nat64 --guest --icount --guest-cpus 4",
            "run nat64 --guest --hosts hosts.toml",
            "run nat64 --guest --earlier lab-results/x",
            "run nat64 --guest --guest-suite jessie",
        ] {
            let argv = ["fordway-lab"].into_iter().chain(wrong.split(' '));
            assert!(Cli::try_parse_from(argv).is_err(), "{wrong}");
        }
    }
}
