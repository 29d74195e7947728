//! A user's own mechanism, by the command lines of the experiment file.

use std::path::PathBuf;
use std::time::Duration;

use fordway_data::spec::{Commands, End, Kind, MechanismSpec, filled, fixed};
use serde_json::{Value, json};

use super::{Availability, Context, Counted, Deployed, Forget, Mechanism, Placement, run_dir};
use crate::backend::{Backend, Place};
use crate::error::{LabError, Result};
use crate::process::{self, Output, find_program, run_str};
use crate::state::Down;
use crate::topology::Network;

/// How long one of its commands may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The command lines.
pub(super) struct Command {
    pub(super) commands: Commands,
}

impl Command {
    /// The program that is measured: the one that stays, or else the first that sets it up.
    fn program(&self) -> Option<PathBuf> {
        let first = self.commands.run.first();
        find_program(first.or(self.commands.up.first().and_then(|argv| argv.first()))?)
    }

    fn version(&self) -> String {
        let argv: Vec<&str> = self.commands.version.iter().map(String::as_str).collect();
        let said = (!argv.is_empty()).then(|| run_str(&argv).ok()).flatten();
        // Programs say it on either.
        let said = said.map(|out| format!("{}\n{}", out.stdout, out.stderr)).unwrap_or_default();
        let line = said.lines().map(str::trim).find(|line| !line.is_empty());
        line.unwrap_or("(version not told)").to_owned()
    }
}

/// The texts of a command line or a file, with the placeholders of a deployment.
struct Fill<'a> {
    context: Context<'a>,
    end: End,
    folder: String,
}

impl Fill<'_> {
    fn text(&self, text: &str) -> String {
        let spec = self.context.spec;
        filled(text, |name| match name {
            "dir" => Some(self.folder.clone()),
            "name" => Some(self.context.name.to_owned()),
            "sessions" => Some(self.context.room.sessions.to_string()),
            "threads" => {
                // As many as it may use.
                let all = Placement::of(Some(0), self.context.backend.pin()).threads;
                Some(all.to_string())
            }
            name => fixed(spec.kind, self.end, spec.hops, name),
        })
    }

    fn argv(&self, argv: &[String]) -> Vec<String> {
        argv.iter().map(|word| self.text(word)).collect()
    }
}

/// Runs a command in a place to its end and demands success.
fn must(backend: &dyn Backend, place: &Place, argv: &[String]) -> Result<()> {
    backend.run(Some(place), argv, Output::Keep)?.wait(PATIENCE)?.ok().map(drop)
}

/// Puts its files below the folder; what they say, for the record.
fn configure(fill: &Fill<'_>, place: &Place, commands: &Commands) -> Result<String> {
    let (backend, folder) = (fill.context.backend, &fill.folder);
    must(backend, place, &["mkdir", "-p", folder].map(str::to_owned))?;
    let mut record = String::new();
    for (file, text) in &commands.config {
        let text = fill.text(text);
        let name = format!("{}-{}", fill.context.name, file.replace('/', "-"));
        let deployed = backend.deploy(&name, text.as_bytes())?.display().to_string();
        let target = format!("{folder}/{file}");
        let argv = ["install", "-D", "-m", "0644", &deployed, &target].map(str::to_owned);
        must(backend, place, &argv)?;
        record.push_str(&text);
    }
    Ok(record)
}

impl Mechanism for Command {
    fn availability(&self, _kind: Kind) -> Availability {
        let missing: Vec<&str> = self
            .commands
            .requires
            .iter()
            .map(String::as_str)
            .filter(|program| find_program(program).is_none())
            .collect();
        if !missing.is_empty() {
            let how = self.commands.install.as_deref().map(|how| format!("; {how}"));
            let hint = format!("not installed: {}{}", missing.join(", "), how.unwrap_or_default());
            return Availability::Missing { hint };
        }
        Availability::Ready { version: self.version(), program: self.program() }
    }

    fn deploy(&self, context: Context<'_>) -> Result<Deployed> {
        let commands = &self.commands;
        let Some(client) = &commands.client else {
            let place = context.network.translator(context.spec);
            return deploy(context, commands, place, End::Only);
        };
        let host = context.network.host.as_ref().ok_or_else(|| super::no_middle(context.spec))?;
        let names = [End::Middle, End::Client]
            .map(|end| format!("{}-{}", context.name, end.part().unwrap_or_default()));
        // Who serves is there before who asks.
        let middle = deploy(Context { name: &names[0], ..context }, commands, host, End::Middle)?;
        let place = &context.network.client;
        let client = deploy(Context { name: &names[1], ..context }, client, place, End::Client)?;
        let config = format!("{}\n{}", client.config, middle.config);
        let argv = [&client.argv[..], &[";".to_owned()], &middle.argv[..]].concat();
        Ok(Deployed { config, argv, parts: vec![client, middle], ..Deployed::default() })
    }

    fn counters(&self, deployed: &Deployed) -> Result<Option<Value>> {
        let [client, middle] = &deployed.parts[..] else { return counters(deployed) };
        let (client, middle) = (counters(client)?, counters(middle)?);
        let told = client.is_some() || middle.is_some();
        Ok(told.then(|| json!({ "client": client, "middle": middle })))
    }

    /// Of two ends what passed both, so the lesser count, and what either dropped; or what the one that counts says.
    fn read(&self, before: &Value, after: &Value, to_v6: bool) -> Option<Counted> {
        if self.commands.client.is_none() {
            return read(before, after, to_v6);
        }
        // What the client's end turns into IPv6, or wraps up in it, the other turns into IPv4.
        let client = read(&before["client"], &after["client"], to_v6);
        let middle = read(&before["middle"], &after["middle"], !to_v6);
        match (client, middle) {
            (Some(client), Some(middle)) => Some(client.and(middle)),
            (one, other) => one.or(other),
        }
    }

    fn created(&self, before: &Value, after: &Value) -> Option<u64> {
        // Sessions are those of the end that is shared.
        let of = |all: &Value| match self.commands.client {
            Some(_) => all["middle"].clone(),
            None => all.clone(),
        };
        grown(&of(before), &of(after), "sessions")
    }

    fn asked(&self, before: &Value, after: &Value) -> Option<u64> {
        grown(before, after, "questions")
    }

    fn requests(&self, before: &Value, after: &Value) -> Option<u64> {
        grown(before, after, "requests")
    }

    fn tracks_connections(&self, kind: Kind) -> bool {
        // Whether it does is its own affair; room that nobody needs costs nothing.
        kind.is_stateful() || matches!(kind, Kind::DualStack | Kind::Softwire)
    }

    fn tracks_at<'a>(&self, spec: &MechanismSpec, network: &'a Network) -> Option<&'a Place> {
        match spec.kind {
            Kind::Softwire if network.has_hosts_behind() => Some(&network.client),
            kind if kind.is_stateful() => network.host.as_ref(),
            _ => None,
        }
    }

    fn forget<'a>(&self, context: Context<'a>) -> Forget<'a> {
        let tracked = self.tracks_at(context.spec, context.network);
        let host = context.network.host.as_ref();
        let (commands, end, place) = match (&self.commands.client, host) {
            (Some(client), _) if !client.forget.is_empty() => {
                (&**client, End::Client, &context.network.client)
            }
            (Some(_), Some(host)) => (&self.commands, End::Middle, host),
            _ => (&self.commands, End::Only, context.network.translator(context.spec)),
        };
        if commands.forget.is_empty() {
            return Forget::AtItsEnd(tracked);
        }
        let name = end
            .part()
            .map_or_else(|| context.name.to_owned(), |part| format!("{}-{part}", context.name));
        let context = Context { name: &name, ..context };
        let folder = run_dir(context).display().to_string();
        Forget::By(place, Fill { context, end, folder }.argv(&commands.forget))
    }
}

/// Puts one end in its box.
fn deploy(context: Context<'_>, commands: &Commands, place: &Place, end: End) -> Result<Deployed> {
    let folder = run_dir(context);
    let fill = Fill { context, end, folder: folder.display().to_string() };
    let inside = |argv: &Vec<String>| context.backend.inside(place, &fill.argv(argv));
    let mut deployed = Deployed {
        config: configure(&fill, place, commands)?,
        run_dir: Some(folder.clone()),
        ..Deployed::default()
    };
    if !commands.down.is_empty() {
        let down: Vec<Vec<String>> = commands.down.iter().map(inside).collect();
        // From here on a failure takes down what was set up before it.
        deployed.down = Some(Down::note(&down, &folder)?);
    }
    for argv in &commands.up {
        let argv = fill.argv(argv);
        must(context.backend, place, &argv)?;
        deployed.argv.extend(argv);
        deployed.argv.push(";".into());
    }
    if !commands.run.is_empty() {
        let argv = fill.argv(&commands.run);
        let log = context.logs.join(format!("{}-run.log", context.name));
        deployed.daemon = Some(context.backend.run(Some(place), &argv, Output::Log(&log))?);
        deployed.argv.extend(argv);
    }
    if !commands.ready.is_empty() {
        wait(&fill, place, &commands.ready, &mut deployed)?;
    }
    if !commands.counters.is_empty() {
        deployed.reader = inside(&commands.counters);
    }
    Ok(deployed)
}

/// Reads the counters of one end.
fn counters(deployed: &Deployed) -> Result<Option<Value>> {
    if deployed.reader.is_empty() {
        return Ok(None);
    }
    let argv: Vec<&str> = deployed.reader.iter().map(String::as_str).collect();
    let out = run_str(&argv)?.ok()?;
    let bad = |why| LabError::Parse { tool: "the command `counters`", why };
    let value: Value = serde_json::from_str(&out.stdout).map_err(|error| bad(error.to_string()))?;
    if !COUNTERS.iter().any(|name| value.get(name).is_some()) {
        // What is not there could not disagree.
        return Err(bad(format!("it prints none of {}", COUNTERS.join(", "))));
    }
    Ok(Some(value))
}

/// What two readings of one end say of packets that it turned into IPv6, or into IPv4.
fn read(before: &Value, after: &Value, to_v6: bool) -> Option<Counted> {
    let way = if to_v6 { "to_v6" } else { "to_v4" };
    let (before, after) = (before.get(way)?, after.get(way)?);
    let drops = after["drops"].as_object().into_iter().flatten().filter_map(|(why, now)| {
        let then = before["drops"][why.as_str()].as_u64().unwrap_or(0);
        let new = now.as_u64()?.saturating_sub(then);
        (new > 0).then(|| (why.clone(), new))
    });
    Some(Counted {
        octets: grown(before, after, "octets")?,
        packets: grown(before, after, "packets")?,
        drops: drops.collect(),
    })
}

/// What a command's counters may hold.
const COUNTERS: [&str; 5] = ["to_v6", "to_v4", "sessions", "questions", "requests"];

fn grown(before: &Value, after: &Value, name: &str) -> Option<u64> {
    Some(after[name].as_u64()?.saturating_sub(before[name].as_u64()?))
}

/// Asks until the mechanism says that it is ready, or has ended.
fn wait(fill: &Fill<'_>, place: &Place, ready: &[String], deployed: &mut Deployed) -> Result<()> {
    let argv = fill.argv(ready);
    let mut last = String::new();
    let up = process::poll(PATIENCE, || {
        let outcome = fill.context.backend.run(Some(place), &argv, Output::Keep);
        match outcome.and_then(|run| run.wait(PATIENCE)).and_then(process::Finished::ok) {
            Ok(_) => Some(true),
            Err(error) => {
                last = error.to_string();
                deployed.gone().then_some(false)
            }
        }
    })?;
    let why = match up {
        Some(true) => return Ok(()),
        Some(false) => "its process has ended".to_owned(),
        None => format!("it is not ready within {} s: {last}", PATIENCE.as_secs()),
    };
    let log = fill.context.logs.join(format!("{}-run.log", fill.context.name));
    let said = process::complaint(&std::fs::read_to_string(log).unwrap_or_default());
    let said = if said.is_empty() { said } else { format!("; it said: {said}") };
    let mechanism = fill.context.spec.name.clone();
    Err(LabError::NotReady { mechanism, why: format!("{why}{said}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_differences_and_what_is_not_told_is_not_known() {
        let own = Command { commands: Commands::default() };
        let of = |packets: u64, lost: u64| {
            serde_json::json!({"to_v6": {"packets": packets, "octets": 100 * packets,
                "drops": {"too big": lost, "none": 0}}, "sessions": packets})
        };
        let counted = own.read(&of(3, 1), &of(10, 5), true).unwrap();
        assert_eq!((counted.packets, counted.octets), (7, 700));
        assert_eq!(counted.drops, [("too big".to_owned(), 4)]);
        assert_eq!(own.created(&of(3, 0), &of(10, 0)), Some(7));
        assert_eq!(own.read(&of(3, 1), &of(10, 5), false), None);
        assert_eq!(own.asked(&of(3, 1), &of(10, 5)), None);
    }

    #[test]
    fn two_ends_tell_what_passed_both_or_what_the_one_that_counts_says() {
        let client = Some(Box::new(Commands::default()));
        let own = Command { commands: Commands { client, ..Commands::default() } };
        let of = |packets: u64| json!({"packets": packets, "octets": 100 * packets});
        let all = |client: u64, middle: u64| json!({"client": {"to_v6": of(client)}, "middle": {"to_v4": of(middle), "sessions": middle}});
        assert_eq!(own.read(&all(0, 0), &all(9, 7), true).unwrap().packets, 7);
        assert_eq!(own.created(&all(0, 0), &all(9, 7)), Some(7));
        let one = |middle: u64| json!({"client": null, "middle": {"to_v4": of(middle)}});
        assert_eq!(own.read(&one(1), &one(5), true).unwrap().packets, 4);
        assert_eq!(own.read(&one(1), &one(5), false), None);
    }

    #[test]
    fn a_missing_program_is_a_skip_that_says_what_to_do() {
        let requires = vec!["ip".to_owned(), "no-such-program".to_owned()];
        let install = Some("see example.org".to_owned());
        let own = Command { commands: Commands { requires, install, ..Commands::default() } };
        let hint = "not installed: no-such-program; see example.org".to_owned();
        assert_eq!(own.availability(Kind::Clat), Availability::Missing { hint });
    }
}
