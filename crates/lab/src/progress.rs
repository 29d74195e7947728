//! How far a run is: a bar with the remaining time on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::Instant;

use fordway_data::plan::in_words;
use indicatif::{ProgressBar, ProgressStyle};

/// Shows progress in expected seconds, scaled by how long things really take.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    total: f64,
    done: f64,
}

impl Progress {
    /// `total`: expected seconds of all that is to be done.
    pub(crate) fn new(total: f64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1000);
            let colour = if std::env::var_os("NO_COLOR").is_some() { "" } else { ".cyan/dim" };
            let template =
                format!("  {{bar:32{colour}}} {{percent:>3}} %  {{prefix}} left  {{wide_msg}}");
            if let Ok(style) = ProgressStyle::with_template(&template) {
                bar.set_style(style.progress_chars("━╸─"));
            }
            bar
        });
        Self { bar, started: Instant::now(), total: total.max(0.1), done: 0.0 }
    }

    /// Says what begins now.
    pub(crate) fn begin(&self, what: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_prefix(in_words(self.left()));
                bar.set_message(what.to_owned());
                bar.tick();
            }
            None => crate::note!(
                "[{:>3.0} %, {} left] {what}",
                100.0 * self.done / self.total,
                in_words(self.left())
            ),
        }
    }

    /// Counts `seconds` of expected time as done.
    pub(crate) fn advance(&mut self, seconds: f64) {
        self.done = (self.done + seconds).min(self.total);
        if let Some(bar) = &self.bar {
            bar.set_position((1000.0 * self.done / self.total) as u64);
        }
    }

    /// Prints a line without breaking the bar.
    pub(crate) fn note(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| crate::note!("{line}")),
            None => crate::note!("{line}"),
        }
    }

    fn left(&self) -> f64 {
        let expected = self.total - self.done;
        if self.done < 5.0 {
            return expected;
        }
        // The machine may be slower than the plan thought; let what happened correct it.
        expected * (self.started.elapsed().as_secs_f64() / self.done).clamp(0.5, 3.0)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
