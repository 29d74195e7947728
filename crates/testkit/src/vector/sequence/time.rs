//! Points in time and lifetimes, as people write them.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// A time: milliseconds, or numbers with the units `h`, `m`, `s`, `ms` (`"2h4m"`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

/// Reads a time.
fn parse(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|letter: char| letter.is_ascii_digit()).unwrap_or(rest.len());
        total += match &rest[..letters] {
            "h" => Duration::from_secs(number * 3600),
            "m" => Duration::from_secs(number * 60),
            "s" => Duration::from_secs(number),
            "ms" => Duration::from_millis(number),
            _ => return None,
        };
        rest = &rest[letters..];
    }
    (!text.is_empty()).then_some(total)
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Milliseconds(u64),
            Text(String),
        }
        match Raw::deserialize(deserializer)? {
            Raw::Milliseconds(number) => Ok(Time(Duration::from_millis(number))),
            Raw::Text(text) => parse(&text)
                .map(Time)
                .ok_or_else(|| de::Error::custom(format!("`{text}` is no time"))),
        }
    }
}
