//! `decide`: what a network would need, from runs.

use std::path::Path;

use fordway_data::artefacts::{self, Run};
use fordway_data::files::write_file;
use fordway_data::model::decide;
use fordway_data::model::inputs::{Named, User};
use fordway_data::model::options::Network;
use fordway_data::numbers::nice;
use fordway_data::report::{decision, terminal};

use super::print_json;
use crate::cli::DecideArgs;
use crate::error::{EXIT_DONE, LabError, Result};

/// Prints what three networks need, and writes the page.
pub(super) fn decide_for(args: &DecideArgs) -> Result<u8> {
    let user = user(args)?;
    let runs: Vec<Run> =
        args.dirs.iter().map(|dir| Ok(artefacts::read(dir)?)).collect::<Result<_>>()?;
    for name in &args.with {
        if !runs.iter().any(|run| run.experiment.mechanism(name).is_ok()) {
            return Err(LabError::Usage(format!("none of these runs has a mechanism `{name}`")));
        }
    }
    let folders: Vec<String> = args.dirs.iter().map(|dir| dir.display().to_string()).collect();
    let named: Vec<Named<'_>> =
        runs.iter().zip(&folders).map(|(run, folder)| Named { folder, run }).collect();
    let found = decide(&named, &args.with, &user);
    if let Some(out) = &args.out {
        write(&found, out)?;
    }
    if args.json {
        return print_json(&found);
    }
    anstream::println!("{}.\n", found.label);
    let head = std::iter::once(String::new()).chain(Network::ALL.map(|n| n.label().to_owned()));
    let mut rows = vec![head.collect::<Vec<String>>()];
    for (need, cells) in decision::needs(&found) {
        let cell = |(value, interval): (String, String)| {
            if interval.is_empty() { value } else { format!("{value} ({interval})") }
        };
        rows.push(
            std::iter::once(need.label().to_owned()).chain(cells.into_iter().map(cell)).collect(),
        );
    }
    terminal::print_rows(&rows);
    anstream::println!("\n{}", decision::break_even(&found));
    for check in &found.checks {
        anstream::println!(
            "checked   {}: predicted {}, measured {} {} ({})",
            check.label,
            nice(check.predicted),
            nice(check.measured),
            check.unit,
            check.what
        );
    }
    for quantity in &found.not_measured {
        anstream::println!("missing   not measured in these runs: {}", quantity.label());
    }
    if let Some(out) = &args.out {
        anstream::println!("\nPage    {}", out.display());
    }
    Ok(EXIT_DONE)
}

fn write(found: &fordway_data::model::Decision, out: &Path) -> Result<()> {
    Ok(write_file(out, decision::render(found)?.as_bytes())?)
}

/// The user's numbers, when they make sense.
fn user(args: &DecideArgs) -> Result<User> {
    let share = |name: &str, value: f64, least: f64| {
        let fits =
            value.is_finite() && value <= 1.0 && (value > 0.0 || value >= least && least == 0.0);
        fits.then_some(value)
            .ok_or_else(|| LabError::Usage(format!("--{name} {value} is no share: write 0 to 1")))
    };
    let positive = |name: &str, value: f64| {
        (value.is_finite() && value > 0.0)
            .then_some(value)
            .ok_or_else(|| LabError::Usage(format!("--{name} {value} has to be above 0")))
    };
    Ok(User {
        subscribers: args.subscribers as f64,
        peak_gbit_s: positive("peak-gbit-s", args.peak_gbit_s)?,
        native_v6_share: share("native-v6-share", args.native_v6_share, 0.0)?,
        sessions_per_subscriber: positive("sessions-per-subscriber", args.sessions_per_subscriber)?,
        cores: args.cores,
        packet_octets: positive("packet-octets", args.packet_octets)?,
        session_s: positive("session-s", args.session_s)?,
        names_per_session: args.names_per_session.max(0.0),
        ports_per_address: f64::from(args.ports_per_address),
        utilisation: share("utilisation", args.utilisation, f64::MIN_POSITIVE)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use fordway_data::fixture;

    fn args(more: &[&str]) -> DecideArgs {
        let own = ["fordway-lab", "decide"];
        let cli = crate::cli::Cli::try_parse_from(own.iter().chain(more)).unwrap();
        match cli.command {
            crate::cli::Command::Decide(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_page_says_what_it_is_and_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        fixture::folder(&run, "nat64", 3, 1.0);
        let (run, out) = (run.display().to_string(), dir.path().join("decision.html"));
        let out_text = out.display().to_string();
        let done = args(&[&run, "--subscribers", "500", "--cores", "2", "--out", &out_text]);
        assert_eq!(decide_for(&done).unwrap(), EXIT_DONE);
        let page = std::fs::read_to_string(out).unwrap();
        for text in [
            "A model from measurements",
            "not measured: processor time of an answer, DNS64",
            "value=\"500",
        ] {
            assert!(page.contains(text), "{text}");
        }
        assert!(!page.contains("http://") && !page.contains("https://"));
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        for (bad, what) in [
            (["--native-v6-share", "1.5"], "no share"),
            (["--utilisation", "0"], "no share"),
            (["--peak-gbit-s", "0"], "above 0"),
            (["--packet-octets", "nan"], "above 0"),
        ] {
            let error = user(&args(&["x", bad[0], bad[1]])).unwrap_err();
            assert!(matches!(&error, LabError::Usage(text) if text.contains(what)), "{error}");
        }
        assert_eq!(user(&args(&["x"])).unwrap(), User::default());
        assert_eq!(user(&args(&["x", "--native-v6-share", "0"])).unwrap().native_v6_share, 0.0);
    }
}
