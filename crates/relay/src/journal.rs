//! Log lines that strangers can cause: at most one of a kind in a while.

use std::time::{Duration, Instant};

/// How long a kind of line is not written again.
const QUIET: Duration = Duration::from_secs(10);

/// When a kind of line may be written.
#[derive(Debug, Default)]
pub(super) struct Line {
    last: Option<Instant>,
    kept: u64,
}

impl Line {
    /// Whether it is to be written now; then how many were kept back since the last one.
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
