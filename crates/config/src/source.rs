//! What a configuration is read from: the text of a file, and settings that replace values of it.

use std::ops::Range;

/// What stands for a file's name in messages about settings.
const ORIGIN: &str = "--set";

/// A text and settings. Places count octets through the text, one octet between, and the settings, each a line.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The name of the text that errors show, usually the file's.
    pub(crate) origin: String,
    pub(crate) text: String,
    /// Each setting behind so many blanks that the octets of the line count as places.
    pub(crate) settings: Vec<String>,
    /// The settings, one below the other.
    lines: String,
}

/// A text that errors show lines of.
#[derive(Clone, Copy)]
pub(crate) struct Part<'s> {
    pub(crate) origin: &'s str,
    pub(crate) text: &'s str,
    /// The place of its first octet.
    pub(crate) start: usize,
}

impl Source {
    /// `settings`: each a line of TOML.
    pub(crate) fn new(origin: &str, text: &str, settings: &[String]) -> Source {
        let (mut lines, mut padded) = (String::new(), Vec::new());
        for line in settings {
            padded.push(" ".repeat(text.len() + 1 + lines.len()) + line);
            lines = lines + line + "\n";
        }
        Source { origin: origin.to_owned(), text: text.to_owned(), settings: padded, lines }
    }

    /// The part that a place lies in.
    pub(crate) fn part(&self, at: usize) -> Part<'_> {
        match at > self.text.len() && !self.lines.is_empty() {
            true => Part { origin: ORIGIN, text: &self.lines, start: self.text.len() + 1 },
            false => Part { origin: &self.origin, text: &self.text, start: 0 },
        }
    }

    /// Line and column of a place in the text, both from 1; the column counts characters. 0 in settings.
    pub(crate) fn position(&self, at: usize) -> (usize, usize) {
        if self.part(at).start > 0 {
            return (0, 0);
        }
        let before = self.text.get(..at.min(self.text.len())).unwrap_or(&self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
        (line, column)
    }
}

impl Part<'_> {
    /// A place as octets of this text.
    pub(crate) fn clip(&self, place: &Range<usize>) -> Range<usize> {
        let least = |at: usize| at.saturating_sub(self.start).min(self.text.len());
        let start = least(place.start);
        start..least(place.end).max(start)
    }
}
