//! The recording itself: a sample every so often, until the time is over or somebody stops it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fordway_data::numbers::nice;
use fordway_data::plan::in_words;

use super::folder::{Sample, Writer};
use super::{Reading, Source, label};
use crate::error::Result;
use crate::process::interrupted;

/// The longest sleep between two looks at the clock and at Ctrl-C.
const NAP: Duration = Duration::from_millis(50);

/// How a recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Samples written.
    pub(crate) samples: u64,
    /// Whether somebody stopped it before its time.
    pub(crate) stopped: bool,
}

/// Records. Samples are due at whole multiples of `every`; one that comes too late is left out, and the next one is
/// on time again. What a source can't say is noted in the sample.
pub(crate) fn record(
    sources: &mut [Box<dyn Source>],
    writer: &mut Writer,
    every: Duration,
    length: Option<Duration>,
) -> Result<Ended> {
    let bar = line();
    let began = Instant::now();
    // Rates are those since the last look: this one has none to tell.
    let _ = look(sources);
    let mut samples = 0;
    let mut turn: u32 = 1;
    loop {
        let due = every * turn;
        if length.is_some_and(|length| due > length) {
            return Ok(Ended { samples, stopped: false });
        }
        while began.elapsed() < due {
            if interrupted() {
                return Ok(Ended { samples, stopped: true });
            }
            std::thread::sleep(NAP.min(due.saturating_sub(began.elapsed())));
        }
        let at_s = began.elapsed().as_secs_f64();
        let Reading { values, missing } = look(sources);
        if interrupted() {
            // What was under way was cut short.
            return Ok(Ended { samples, stopped: true });
        }
        show(&bar, at_s, length, &values);
        writer.append(&Sample { at_s, time: crate::host::now(), values, missing })?;
        samples += 1;
        let passed = began.elapsed().as_secs_f64() / every.as_secs_f64();
        turn = (turn + 1).max(passed.ceil() as u32);
    }
}

/// One look at all sources. A source that fails is noted, and asked again next time.
fn look(sources: &mut [Box<dyn Source>]) -> Reading {
    let mut all = Reading::default();
    let mut note = |error: crate::error::LabError| {
        all.missing.insert("source".into(), error.to_string());
    };
    for source in sources.iter_mut() {
        if let Err(error) = source.begin() {
            note(error);
        }
    }
    let mut found = Vec::new();
    for source in sources.iter_mut() {
        match source.read() {
            Ok(reading) => found.push(reading),
            Err(error) => note(error),
        }
    }
    for reading in found {
        all.values.extend(reading.values);
        all.missing.extend(reading.missing);
    }
    all
}

/// A line that is written over, where there is a terminal.
fn line() -> Option<indicatif::ProgressBar> {
    use std::io::IsTerminal;
    std::io::stderr().is_terminal().then(|| {
        let bar = indicatif::ProgressBar::new_spinner();
        if let Ok(style) = indicatif::ProgressStyle::with_template("  {wide_msg}") {
            bar.set_style(style);
        }
        bar
    })
}

fn show(
    bar: &Option<indicatif::ProgressBar>,
    at_s: f64,
    length: Option<Duration>,
    values: &BTreeMap<String, f64>,
) {
    let Some(bar) = bar else { return };
    let left = length.map_or_else(
        || "Ctrl-C ends it".into(),
        |length| format!("{} left", in_words(length.as_secs_f64() - at_s)),
    );
    let each = values.iter().map(|(series, value)| {
        let (name, unit) = label(series);
        format!("{name} {} {unit}", nice(*value))
    });
    bar.set_message(format!("{}, {left}: {}", in_words(at_s), each.collect::<Vec<_>>().join(", ")));
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::error::LabError;
    use crate::monitor::folder::{Recording, Spec};

    struct Steps(u32);

    impl Source for Steps {
        fn read(&mut self) -> Result<Reading> {
            self.0 += 1;
            if self.0 == 3 {
                return Err(LabError::Watched("gone".into()));
            }
            let values = BTreeMap::from([("steps".to_owned(), f64::from(self.0))]);
            Ok(Reading { values, ..Reading::default() })
        }
    }

    #[test]
    fn samples_are_kept_and_a_source_that_fails_once_is_asked_again() {
        let dir = tempfile::tempdir().unwrap();
        let spec = Spec {
            started: "2026-01-01T00:00:00Z".into(),
            watched: "steps".into(),
            every_s: 0.01,
            for_s: Some(0.04),
            targets: Vec::new(),
            absent: Vec::new(),
            replay: "fordway-lab monitor".into(),
        };
        let environment = fordway_data::fixture::environment();
        let mut writer = Writer::begin(dir.path(), &spec, &environment).unwrap();
        let mut sources: [Box<dyn Source>; 1] = [Box::new(Steps(0))];
        let every = Duration::from_millis(10);
        // Samples that come late are left out: there may be fewer than there is time for.
        let ended = record(&mut sources, &mut writer, every, Some(every * 400)).unwrap();
        assert!(!ended.stopped && ended.samples >= 3, "{ended:?}");
        // A line that a crash cut short.
        let path = dir.path().join("samples.jsonl");
        let mut file = std::fs::File::options().append(true).open(&path).unwrap();
        file.write_all(b"{\"at_s\":").unwrap();
        let read = Recording::read(dir.path()).unwrap();
        assert_eq!(read.samples.len() as u64, ended.samples);
        assert_eq!(read.values("steps")[..2], [2.0, 4.0]);
        assert_eq!(read.gaps("source"), (1, Some("gone")));
        assert_eq!(read.never(), [("source".to_owned(), "gone".to_owned())]);
        assert_eq!((read.series(), &read.spec), (vec!["steps"], &spec));
    }
}
