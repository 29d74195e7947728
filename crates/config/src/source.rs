//! What a configuration is read from: the text of a file, and settings that replace values of it.

use std::ops::Range;

/// A text and settings. Places count octets through the text, one octet between, and the settings, each a line.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The name of the text that errors show, usually the file's.
    pub(crate) origin: String,
    pub(crate) text: String,
    /// The settings.
    pub(crate) settings: Vec<Setting>,
    /// The settings of each giver, one below the other, and the place of the first octet.
    given: Vec<(Giver, String, usize)>,
}

/// A setting: a line of TOML behind so many blanks that the octets of the line count as places.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) giver: Giver,
    pub(crate) line: String,
}

/// Who has given a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Giver {
    CommandLine,
    Controller,
}

impl Giver {
    /// What stands for a file's name in messages about a setting.
    fn origin(self) -> &'static str {
        match self {
            Giver::CommandLine => "--set",
            Giver::Controller => "keys of a controller",
        }
    }
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
    /// `settings`: each a line of TOML; those of one giver stand together.
    pub(crate) fn new(origin: &str, text: &str, settings: &[(Giver, String)]) -> Source {
        let mut given: Vec<(Giver, String, usize)> = Vec::new();
        let (mut padded, mut place) = (Vec::new(), text.len() + 1);
        for (giver, line) in settings {
            padded.push(Setting { giver: *giver, line: " ".repeat(place) + line });
            match given.last_mut() {
                Some((last, lines, _)) if last == giver => *lines += &format!("{line}\n"),
                _ => given.push((*giver, format!("{line}\n"), place)),
            }
            place += line.len() + 1;
        }
        Source { origin: origin.to_owned(), text: text.to_owned(), settings: padded, given }
    }

    /// The part that a place lies in.
    pub(crate) fn part(&self, at: usize) -> Part<'_> {
        match self.given.iter().rev().find(|(_, _, start)| at >= *start) {
            Some((giver, lines, start)) => {
                Part { origin: giver.origin(), text: lines, start: *start }
            }
            None => Part { origin: &self.origin, text: &self.text, start: 0 },
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
