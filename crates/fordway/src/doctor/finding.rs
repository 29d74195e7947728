//! What a check found.

use std::fmt::Write;

use fordway_daemon::output::{ERROR, FAINT, GOOD, STRONG, WARNING};
use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// As it should be.
    Good,
    /// Could not be looked at, or does not apply.
    Skipped,
    /// Works, but may not always.
    Warning,
    /// Does not work.
    Bad,
}

/// One check, and what it found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// What was looked at, for instance `prefix`.
    pub(crate) check: &'static str,
    pub(crate) state: State,
    /// What was seen.
    pub(crate) seen: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) advice: Option<String>,
}

/// All that was found, in the order of the checks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings(Vec<Finding>);

impl Findings {
    fn push(&mut self, check: &'static str, state: State, seen: String, advice: Option<String>) {
        self.0.push(Finding { check, state, seen, advice });
    }

    pub(crate) fn good(&mut self, check: &'static str, seen: impl Into<String>) {
        self.push(check, State::Good, seen.into(), None);
    }

    pub(crate) fn skipped(&mut self, check: &'static str, seen: impl Into<String>) {
        self.push(check, State::Skipped, seen.into(), None);
    }

    pub(crate) fn warning(
        &mut self,
        check: &'static str,
        seen: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.push(check, State::Warning, seen.into(), Some(advice.into()));
    }

    pub(crate) fn bad(
        &mut self,
        check: &'static str,
        seen: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.push(check, State::Bad, seen.into(), Some(advice.into()));
    }

    pub(crate) fn all(&self) -> &[Finding] {
        &self.0
    }

    /// How many are in a state.
    pub(crate) fn count(&self, state: State) -> usize {
        self.0.iter().filter(|finding| finding.state == state).count()
    }

    /// A line for each, with what to do below it, and the sum.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        for finding in &self.0 {
            let (style, word) = match finding.state {
                State::Good => (GOOD, "ok"),
                State::Skipped => (FAINT, "skipped"),
                State::Warning => (WARNING, "warning"),
                State::Bad => (ERROR, "BAD"),
            };
            let _ = writeln!(
                text,
                "{style}{word:<8}{style:#} {STRONG}{:<12}{STRONG:#} {}",
                finding.check, finding.seen
            );
            if let Some(advice) = &finding.advice {
                let _ = writeln!(text, "{:22}-> {advice}", "");
            }
        }
        let _ = writeln!(text, "{}", self.sum());
        text
    }

    fn sum(&self) -> String {
        let count = |state, word: &str| match self.count(state) {
            0 => None,
            number => Some(format!("{number} {word}")),
        };
        let parts = [
            count(State::Bad, "bad"),
            count(State::Warning, "to be looked at"),
            count(State::Skipped, "skipped"),
            count(State::Good, "ok"),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_each_with_the_advice_below_it() {
        let mut findings = Findings::default();
        findings.good("ipv6", "2001:db8::2 on eth0");
        findings.bad("prefix", "none is found", "ask the network's operator");
        let text = anstream::adapter::strip_str(&findings.render()).to_string();
        assert_eq!(
            text,
            "ok       ipv6         2001:db8::2 on eth0\n\
             BAD      prefix       none is found\n\
             \x20                     -> ask the network's operator\n\
             1 bad, 1 ok\n"
        );
    }
}
