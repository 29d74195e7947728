//! `fordway apply`, `fordway get` and `fordway watch`.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use fordway_control::{Applied, Change, Client, Event, MAX_DOCUMENT};
use fordway_daemon::failure::Failure;
use fordway_daemon::output;

use crate::cli::{ApplyArgs, GetArgs, Global, WatchArgs};

/// Has the daemon set keys of its configuration.
pub(crate) fn apply(global: &Global, args: &ApplyArgs) -> Result<(), Failure> {
    let mut document = read(&args.file)?;
    if let Some(key) = &args.key {
        let value: serde_json::Value = serde_json::from_slice(&document).map_err(|error| {
            Failure::usage(format!("{}: {error}", args.file.display()), "write the value as JSON")
        })?;
        document = serde_json::to_vec(&serde_json::json!({ key.as_str(): value }))?;
    }
    let client = Client::new(global.socket());
    let applied = client.apply(&document, args.replace, args.dry_run)?;
    if args.json { output::print_json(&applied) } else { output::print(&text(&applied)) }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut octets = Vec::new();
    let source: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(io::stdin()),
        false => Box::new(fs::File::open(path).map_err(|error| cannot_read(path, &error))?),
    };
    let read = source.take(MAX_DOCUMENT + 1).read_to_end(&mut octets);
    read.map_err(|error| cannot_read(path, &error))?;
    match octets.len() as u64 > MAX_DOCUMENT {
        true => Err(Failure::usage(
            format!("{} has more than {} MiB", path.display(), MAX_DOCUMENT >> 20),
            "apply one key after the other",
        )),
        false => Ok(octets),
    }
}

fn cannot_read(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot read {}: {error}", path.display()))
}

fn text(applied: &Applied) -> String {
    let line = |it: &fordway_control::AppliedKey| {
        format!(
            "{}: {} added, {} removed, {} unchanged\n",
            it.key, it.added, it.removed, it.unchanged
        )
    };
    let mut text: String = applied.keys.iter().map(line).collect();
    if applied.keys.is_empty() {
        text.push_str("no key is set\n");
    }
    if applied.dry_run {
        text.push_str("nothing is changed: this was a dry run\n");
    } else if !applied.stored {
        text.push_str("the next start will not know of it: the daemon's log says why\n");
    }
    text
}

/// Shows values of keys, as JSON that `fordway apply` reads.
pub(crate) fn get(global: &Global, args: &GetArgs) -> Result<(), Failure> {
    output::print_json(&Client::new(global.socket()).values(&args.keys)?)
}

/// Shows changes as they come.
pub(crate) fn watch(global: &Global, args: &WatchArgs) -> Result<(), Failure> {
    let mut left = args.count;
    Client::new(global.socket()).watch(|event| {
        if args.json {
            output::print(&format!("{}\n", serde_json::to_string(&event)?))?;
        } else {
            output::print(&line(&event))?;
        }
        if !matches!(event.change, Change::Watching {}) {
            left = left.map(|left| left.saturating_sub(1));
        }
        Ok::<bool, Failure>(left != Some(0))
    })
}

fn line(event: &Event) -> String {
    let what = match &event.change {
        Change::Watching {} => "watching".to_owned(),
        Change::Reloaded { text } | Change::Bib { text } => text.clone(),
        Change::Applied { keys } => {
            let one = |it: &fordway_control::AppliedKey| {
                format!("{} ({} added, {} removed)", it.key, it.added, it.removed)
            };
            format!("applied: {}", keys.iter().map(one).collect::<Vec<_>>().join(", "))
        }
        Change::Down { name } => format!("{name} is taken down"),
        Change::Drain { name, drains: true } => format!("{name}: no new sessions"),
        Change::Drain { name, drains: false } => format!("{name}: new sessions again"),
        Change::Lost { changes } => format!("{changes} changes were not told"),
    };
    format!("{} {what}\n", event.generation)
}
