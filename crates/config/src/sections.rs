//! Values that are tables; `[control]`, `[metrics]` and `[log]`.

use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostic::Sink;
use crate::section::{Problem, Problems, Section, Value};
use crate::types::{Control, Log, LogFormat, LogLevel, Metrics, OnSigterm};
use crate::value;

/// A table and its place.
pub(crate) type Table<'t, 'i> = (&'t DeTable<'i>, std::ops::Range<usize>);

/// Reads a value that is a table.
pub(crate) fn table<'t, 'i>(value: &'t Value<'i>) -> Result<Table<'t, 'i>, Problems> {
    match value.get_ref().as_table() {
        Some(table) => Ok((table, value.span())),
        None => Err(Problem::new(
            value.span(),
            "this is the name of a section",
            "write it in brackets on a line of its own, and its keys below",
        )
        .into()),
    }
}

/// Reads a list of tables, whose lines people begin with `title`.
pub(crate) fn tables<'t, 'i>(
    value: &'t Value<'i>,
    title: &str,
) -> Result<Vec<Table<'t, 'i>>, Problems> {
    match value.get_ref() {
        DeValue::Array(items) => Problems::collect(items.iter().map(table)),
        _ => {
            let message = "there may be several, so this is a list";
            let help = format!("write {title}, with two brackets");
            Err(Problem::new(value.span(), message, help).into())
        }
    }
}

pub(crate) fn control((table, span): Table<'_, '_>, sink: &mut Sink) -> Control {
    let mut section = Section::new("[control]", table, span);
    let mut control = Control::default();
    let range = Duration::from_millis(100)..=Duration::from_secs(60);
    set(&mut control.socket, section.read(sink, "socket", value::path));
    set(&mut control.timeout, section.read(sink, "timeout", |v| value::duration(v, range)));
    set(&mut control.on_sigterm, section.read(sink, "on_sigterm", |v| value::choice(v, &SIGTERM)));
    section.finish(sink);
    control
}

pub(crate) const SIGTERM: [(&str, OnSigterm); 2] =
    [("down", OnSigterm::Down), ("leave", OnSigterm::Leave)];

pub(crate) fn metrics((table, span): Table<'_, '_>, sink: &mut Sink) -> Metrics {
    let mut section = Section::new("[metrics]", table, span);
    let help = "write a list such as [\"[::1]:9464\"]";
    let listen = section.read(sink, "listen", |v| value::list(v, help, value::socket_address));
    section.finish(sink);
    let listen = listen.map(Spanned::into_inner).unwrap_or_default();
    Metrics { listen: listen.into_iter().map(Spanned::into_inner).collect() }
}

pub(crate) const LEVELS: [(&str, LogLevel); 6] = [
    ("off", LogLevel::Off),
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];

pub(crate) const FORMATS: [(&str, LogFormat); 2] =
    [("text", LogFormat::Text), ("json", LogFormat::Json)];

pub(crate) fn log((table, span): Table<'_, '_>, sink: &mut Sink) -> Log {
    let mut section = Section::new("[log]", table, span);
    let mut log = Log::default();
    set(&mut log.level, section.read(sink, "level", |v| value::choice(v, &LEVELS)));
    set(&mut log.format, section.read(sink, "format", |v| value::choice(v, &FORMATS)));
    section.finish(sink);
    log
}

/// Puts what was read in the place of the default.
pub(crate) fn set<T>(target: &mut T, read: Option<Spanned<T>>) {
    if let Some(read) = read {
        *target = read.into_inner();
    }
}
