//! The daemon's log, on standard error.

mod journal;

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use fordway_config::{LOG_LEVELS, Log, LogFormat};
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

use crate::failure::Failure;

/// Target of lines about who has changed what. They are written at every level but `off`.
pub(crate) const AUDIT: &str = "audit";

/// Sets the least severity of what is written. Absent before [`start`].
static SET_LEVEL: OnceLock<Box<SetLevel>> = OnceLock::new();

type SetLevel = dyn Fn(LevelFilter) -> Result<(), reload::Error> + Send + Sync;

/// Starts logging. The journal puts its own time before each line, so none is written there; text goes to it with its
/// severity and its fields.
pub(crate) fn start(log: Log) {
    if log.format == LogFormat::Text
        && let Some(journal) = journal::Journal::open()
    {
        return install(tracing_subscriber::registry().with(journal), log.level);
    }
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let builder = tracing_subscriber::fmt()
        .with_writer(|| Lossy(io::stderr()))
        .with_target(false)
        .with_ansi(io::stderr().is_terminal() && !no_color);
    let builder = builder.with_max_level(LevelFilter::TRACE);
    match (log.format, journal) {
        (LogFormat::Text, false) => install(builder.finish(), log.level),
        (LogFormat::Text, true) => install(builder.without_time().finish(), log.level),
        (LogFormat::Json, false) => {
            install(builder.json().flatten_event(true).finish(), log.level);
        }
        (LogFormat::Json, true) => {
            install(builder.json().flatten_event(true).without_time().finish(), log.level);
        }
    }
}

fn install<S>(subscriber: S, level: LevelFilter)
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync + 'static,
{
    let (layer, handle) = reload::Layer::new(targets(level));
    subscriber.with(layer).init();
    // There is one log, so this is the first value.
    let _ = SET_LEVEL.set(Box::new(move |level| handle.reload(targets(level))));
}

/// Writes lines of another least severity from now on. Returns a sentence for people.
pub(crate) fn set_level(word: &str) -> Result<String, Failure> {
    let level = LOG_LEVELS.iter().find(|(known, _)| *known == word).map(|(_, level)| *level);
    let level = level.ok_or_else(|| {
        Failure::usage(
            format!("\"{word}\" is no log level"),
            "write off, error, warn, info, debug or trace",
        )
    })?;
    let set = SET_LEVEL.get().ok_or_else(|| Failure::failed("no log has been started"))?;
    set(level).map_err(|error| Failure::failed(format!("cannot set the log level: {error}")))?;
    Ok(format!("the log level is {word}, until the daemon ends or another one is set"))
}

/// Libraries that parse messages from the network log oddities in them, which lets remote hosts fill the log, or what says
/// nothing to who knows nothing of them. Their warnings are shown at level debug only.
fn targets(level: LevelFilter) -> Targets {
    let of_strangers =
        if level > LevelFilter::INFO { level } else { level.min(LevelFilter::ERROR) };
    let libraries = ["hickory_proto", "hickory_net", "h2", "hyper", "rustls", "async_nats"];
    let audit = if level == LevelFilter::OFF { level } else { level.max(LevelFilter::INFO) };
    let targets = Targets::new().with_default(level).with_target(AUDIT, audit);
    libraries
        .into_iter()
        .fold(targets, |targets, library| targets.with_target(library, of_strangers))
}

/// Accepts everything and never fails. If standard error is closed (`| head`), lines are lost: the tracing library would
/// report a write error on standard error, and panic there.
struct Lossy<W>(W);

impl<W: Write> Write for Lossy<W> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let _ = self.0.write_all(octets);
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}
