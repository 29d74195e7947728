//! What is wrong with a value.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

/// A value and its place.
pub(crate) type Value<'i> = Spanned<DeValue<'i>>;

/// What is wrong with a value. Several, since a list may have several wrong items.
#[derive(Debug)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

/// One thing that is wrong with a value, at the value's place.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) span: Range<usize>,
    pub(crate) message: String,
    pub(crate) help: String,
}

impl Problem {
    /// `message` completes "`key`: ..."; `help` says what to write.
    pub(crate) fn new(
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Problem {
        Problem { span, message: message.into(), help: help.into() }
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Problems {
        Problems(vec![problem])
    }
}

impl Problems {
    /// All values, or all problems of all of them.
    pub(crate) fn collect<T>(
        results: impl Iterator<Item = Result<T, Problems>>,
    ) -> Result<Vec<T>, Problems> {
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for result in results {
            match result {
                Ok(value) => good.push(value),
                Err(problems) => bad.extend(problems.0),
            }
        }
        if bad.is_empty() { Ok(good) } else { Err(Problems(bad)) }
    }
}

/// The known word that a mistyped one most likely stands for.
pub(crate) fn closest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_ascii_lowercase().replace('-', "_");
    let scored = known.iter().map(|known| (strsim::jaro_winkler(&word, known), *known));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > 0.8).then_some(best.1)
}
