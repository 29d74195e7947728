//! What the tests of drawn cases share.

use std::fmt;

/// How often each of a few things happened.
#[derive(Debug)]
pub(crate) struct Tally<T>(Vec<(T, usize)>);

impl<T> Default for Tally<T> {
    fn default() -> Self {
        Tally(Vec::new())
    }
}

impl<T: PartialEq> Tally<T> {
    pub(crate) fn add(&mut self, what: T) {
        match self.0.iter_mut().find(|(found, _)| *found == what) {
            Some((_, times)) => *times += 1,
            None => self.0.push((what, 1)),
        }
    }

    pub(crate) fn of(&self, what: &T) -> usize {
        self.0.iter().find(|(found, _)| found == what).map_or(0, |(_, times)| *times)
    }
}

impl<T: fmt::Debug> fmt::Display for Tally<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, times) in &self.0 {
            writeln!(f, "{times:8} {what:?}")?;
        }
        Ok(())
    }
}

/// A number that the environment sets, or this one.
pub(crate) fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}
