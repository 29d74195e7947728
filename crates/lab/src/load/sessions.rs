//! Sessions and pages: runs the tester's web server and its client.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use fordway_data::spec::By;
use fordway_load::web::session::Timed;

use super::read_json;
use crate::backend::{Backend, Place};
use crate::error::{LabError, Result};
use crate::process::own_program;
use crate::process::{Finished, Output, Running, poll};

/// Objects of a page: the order of what pages have, all from one server.
pub(crate) const OBJECTS: u32 = 32;
/// Octets of each.
pub(crate) const SIZE: u32 = 12_000;

/// What to time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// How the server is found.
    pub(crate) by: By,
    /// Whether whole pages are loaded.
    pub(crate) pages: bool,
    /// How often.
    pub(crate) count: u32,
}

/// Starts the server in a place, and waits until it listens.
pub(crate) fn serve(backend: &dyn Backend, place: &Place, log: &Path) -> Result<Running> {
    let argv = [&own_program()?, "tester", "web-serve"].map(str::to_owned);
    let mut server = backend.run(Some(place), &argv, Output::Log(log))?;
    let said = || std::fs::read_to_string(log).unwrap_or_default();
    let listening = poll(Duration::from_secs(5), || {
        (said().contains("listening") || !server.alive()).then_some(())
    })?;
    if listening.is_none() || !server.alive() {
        return Err(LabError::Command {
            argv: argv.join(" "),
            status: "not listening".into(),
            stderr: said(),
        });
    }
    Ok(server)
}

/// Times sessions or pages from a place.
pub(crate) fn measure(
    backend: &dyn Backend,
    place: &Place,
    resolver: SocketAddr,
    literal: IpAddr,
    wanted: Wanted,
) -> Result<(Finished, Timed)> {
    let (program, resolver) = (own_program()?, resolver.to_string());
    let (literal, count) = (literal.to_string(), wanted.count.to_string());
    // Each load has names of its own: those of another would be known.
    let series = if wanted.pages { "2" } else { "1" };
    let mut argv = vec![program.as_str(), "tester", "sessions", "--count", &count];
    argv.extend(match wanted.by {
        By::Literal => ["--literal", &literal],
        By::FreshName | By::KnownName => ["--resolver", &resolver],
    });
    if wanted.by == By::KnownName {
        argv.push("--known");
    }
    let (objects, size) = (OBJECTS.to_string(), SIZE.to_string());
    if wanted.pages {
        argv.extend(["--objects", &objects, "--size", &size]);
    }
    argv.extend(["--series", series]);
    let argv: Vec<String> = argv.into_iter().map(str::to_owned).collect();
    let limit = Duration::from_secs(30 + u64::from(wanted.count));
    let finished = backend.run(Some(place), &argv, Output::Keep)?.wait(limit)?.ok()?;
    let timed = read_json(&finished.stdout)?;
    Ok((finished, timed))
}
