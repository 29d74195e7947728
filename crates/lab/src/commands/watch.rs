//! `watch`: a live view of a run, by its folder alone.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use console::Term;

use super::run::RESULTS;
use crate::cli::WatchArgs;
use crate::error::{EXIT_DONE, LabError, Result};
use crate::process::{catch_signals, interrupted};
use crate::state;
use crate::watch::{Line, Watched, screen};

/// How often the folder is read.
const PAUSE: Duration = Duration::from_millis(500);
/// Another screen, without a cursor; and back.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";
/// The first place of the screen; the rest of a line; the rest of the screen.
const HOME: &str = "\u{1b}[H";
const CLEAR_LINE: &str = "\u{1b}[K";
const CLEAR_REST: &str = "\u{1b}[J";

/// Shows a run.
pub(super) fn watch(args: &WatchArgs) -> Result<u8> {
    let dir = args.dir.clone().map_or_else(newest, Ok)?;
    let mut watched = Watched::open(&dir)?;
    if args.once {
        watched.read()?;
        let state = watched.state()?;
        if args.json {
            return super::print_json(&state);
        }
        print(&screen::lines(&state, width(), None));
        return Ok(EXIT_DONE);
    }
    catch_signals();
    if args.json || !std::io::stdout().is_terminal() {
        return follow(&mut watched, args.json);
    }
    draw(&mut watched)?;
    if !interrupted() {
        print(&screen::lines(&watched.state()?, width(), None));
        let report = dir.join("report.html");
        if report.exists() {
            anstream::println!("\nReport  {}", report.display());
        }
    }
    Ok(EXIT_DONE)
}

/// The run that goes on, or else the newest one in the usual place.
fn newest() -> Result<PathBuf> {
    let has_begun = |dir: &PathBuf| dir.join("spec.toml").exists();
    if let Some(state) = state::others().into_iter().find(|state| has_begun(&state.out)) {
        return Ok(state.out);
    }
    let entries = std::fs::read_dir(RESULTS).into_iter().flatten().flatten();
    let written = |dir: &PathBuf| {
        let of = |name: &str| std::fs::metadata(dir.join(name)).ok()?.modified().ok();
        of("trials.jsonl").or_else(|| of("spec.toml"))
    };
    let newest = entries.map(|entry| entry.path()).filter(has_begun).max_by_key(written);
    newest.ok_or_else(|| {
        LabError::Usage(format!("no run goes on, and {RESULTS} holds none: name the folder of one"))
    })
}

fn width() -> usize {
    Term::stdout().size_checked().map_or(100, |(_, columns)| columns.into())
}

fn print(lines: &[String]) {
    for line in lines {
        anstream::println!("{line}");
    }
}

/// A line for each trial, until the run has ended or nobody reads.
fn follow(watched: &mut Watched, json: bool) -> Result<u8> {
    loop {
        // What is there after the end was seen is read once more.
        let ended = watched.state()?.ended;
        for line in watched.read()? {
            let text = match json {
                true => serde_json::to_string(&line).map_err(|e| LabError::Usage(e.to_string()))?,
                false => words(&line),
            };
            let mut out = std::io::stdout().lock();
            if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
                return Ok(EXIT_DONE);
            }
        }
        if (ended && watched.state()?.ended) || interrupted() {
            return Ok(EXIT_DONE);
        }
        std::thread::sleep(PAUSE);
    }
}

/// A trial in a line.
fn words(line: &Line) -> String {
    let point = line.point.as_ref().map_or_else(String::new, |point| format!(" ({point})"));
    let block = match line.block {
        0 => "gate".to_owned(),
        block => format!("block {block}/{}", line.blocks),
    };
    let value = match line.value {
        Some(value) => format!(" {} {}", fordway_data::numbers::nice(value), line.unit),
        None => String::new(),
    };
    let told = [("discarded", &line.invalid), ("failed", &line.failed), ("remark", &line.flags)];
    let told = told.into_iter().filter(|(_, why)| !why.is_empty());
    let told: String = told.map(|(what, why)| format!("; {what}: {}", why.join(", "))).collect();
    format!(
        "{}/{} {block} {} {}{point}{value}{told}",
        line.done, line.of, line.mechanism, line.metric
    )
}

/// The terminal while the view is on it. Dropping it gives it back as it was.
struct Screen(Term);

impl Screen {
    fn enter() -> Result<Self> {
        let screen = Self(Term::stdout());
        screen.write(ENTER)?;
        Ok(screen)
    }

    fn write(&self, text: &str) -> Result<()> {
        let failed = LabError::file(Path::new("the terminal"));
        self.0.write_str(text).and_then(|()| self.0.flush()).map_err(failed)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing back.
        let _ = self.write(LEAVE);
    }
}

/// Draws the state again and again, until the run has ended or the user interrupts.
fn draw(watched: &mut Watched) -> Result<()> {
    let screen = Screen::enter()?;
    let colours = anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never;
    loop {
        watched.read()?;
        let state = watched.state()?;
        let (rows, columns) = screen.0.size();
        let lines = screen::lines(&state, columns.into(), Some(rows.into()));
        let text = lines.join(&format!("{CLEAR_LINE}\r\n"));
        let text = if colours { text } else { stripped(&lines) };
        screen.write(&format!("{HOME}{text}{CLEAR_LINE}{CLEAR_REST}"))?;
        if state.ended || interrupted() {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
}

fn stripped(lines: &[String]) -> String {
    let plain = lines.iter().map(|line| anstream::adapter::strip_str(line).to_string());
    plain.collect::<Vec<String>>().join(&format!("{CLEAR_LINE}\r\n"))
}
