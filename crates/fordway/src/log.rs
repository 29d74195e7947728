//! The daemon's log, on standard error.

mod journal;

use std::io::{self, IsTerminal, Write};

use fordway_config::{Log, LogFormat};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Starts logging. The journal puts its own time before each line, so none is written there; text goes to it with its
/// severity and its fields.
pub(crate) fn start(log: Log) {
    let targets = targets(log.level);
    if log.format == LogFormat::Text
        && let Some(journal) = journal::Journal::open()
    {
        return tracing_subscriber::registry().with(journal).with(targets).init();
    }
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let builder = tracing_subscriber::fmt()
        .with_writer(|| Lossy(io::stderr()))
        .with_target(false)
        .with_ansi(io::stderr().is_terminal() && !no_color);
    let builder = builder.with_max_level(LevelFilter::TRACE);
    match (log.format, journal) {
        (LogFormat::Text, false) => builder.finish().with(targets).init(),
        (LogFormat::Text, true) => builder.without_time().finish().with(targets).init(),
        (LogFormat::Json, false) => {
            builder.json().flatten_event(true).finish().with(targets).init();
        }
        (LogFormat::Json, true) => {
            builder.json().flatten_event(true).without_time().finish().with(targets).init();
        }
    }
}

/// Libraries that parse messages from the network log oddities in them, which lets remote hosts fill the log. Their
/// warnings are shown at level debug only.
fn targets(level: LevelFilter) -> Targets {
    let of_strangers =
        if level > LevelFilter::INFO { level } else { level.min(LevelFilter::ERROR) };
    let libraries = ["hickory_proto", "hickory_net", "h2", "hyper", "rustls"];
    libraries.into_iter().fold(Targets::new().with_default(level), |targets, library| {
        targets.with_target(library, of_strangers)
    })
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
