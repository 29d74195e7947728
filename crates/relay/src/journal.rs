//! Log lines that a client can cause: at most one of a kind every ten seconds.

use std::time::{Duration, Instant};

/// Least time between two lines of a kind.
const QUIET: Duration = Duration::from_secs(10);

/// The rate limit of one kind of line.
#[derive(Debug, Default)]
pub(super) struct Line {
    last: Option<Instant>,
    kept: u64,
}

impl Line {
    /// Whether a line is to be written now: then the number of lines left out since the last one.
    pub(super) fn due(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < QUIET) {
            self.kept += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.kept))
    }
}

/// The kinds.
#[derive(Debug, Default)]
pub(super) struct Journal {
    pub(super) limit: Line,
    pub(super) resources: Line,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_a_while() {
        let start = Instant::now();
        let mut line = Line::default();
        assert_eq!(line.due(start), Some(0));
        assert_eq!(line.due(start + QUIET / 2), None);
        assert_eq!(line.due(start + QUIET / 2), None);
        assert_eq!(line.due(start + QUIET), Some(2));
    }
}
