//! The forms that values have: how each is read and written, and what is said of it.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Value as Json, json};
use toml::Value as Toml;

use crate::problem::{Problem, Problems, Value};
use crate::value;

type Parsed<T> = Result<T, Problems>;

/// How a value is written in the file.
pub(crate) trait Form {
    type Value;

    fn read(&self, value: &Value<'_>) -> Parsed<Self::Value>;

    /// `None`: the key is left out.
    fn write(&self, value: &Self::Value) -> Option<Toml>;

    /// What it may be, in words.
    fn values(&self) -> String;

    /// What items of a list are, in words.
    fn many(&self) -> String {
        self.values()
    }

    /// What stands for it in the usage of an option: `PREFIX`.
    fn placeholder(&self) -> &'static str;

    /// JSON Schema.
    fn schema(&self) -> Json;
}

/// A value with a syntax of its own.
pub(crate) struct Plain<T> {
    pub(crate) read: fn(&Value<'_>) -> Parsed<T>,
    pub(crate) write: fn(&T) -> Toml,
    /// What it is, in words; several of it; what stands for it in the usage of an option.
    pub(crate) named: (&'static str, &'static str, &'static str),
    pub(crate) schema: fn() -> Json,
}

/// A text that is read back from what [`ToString`] writes.
pub(crate) const fn text<T: ToString>(
    read: fn(&Value<'_>) -> Parsed<T>,
    named: (&'static str, &'static str, &'static str),
) -> Plain<T> {
    Plain {
        read,
        write: |value| value.to_string().into(),
        named,
        schema: || json!({"type": "string"}),
    }
}

impl<T> Form for Plain<T> {
    type Value = T;

    fn read(&self, value: &Value<'_>) -> Parsed<T> {
        (self.read)(value)
    }

    fn write(&self, value: &T) -> Option<Toml> {
        Some((self.write)(value))
    }

    fn values(&self) -> String {
        self.named.0.to_owned()
    }

    fn many(&self) -> String {
        self.named.1.to_owned()
    }

    fn placeholder(&self) -> &'static str {
        self.named.2
    }

    fn schema(&self) -> Json {
        (self.schema)()
    }
}

/// JSON Schema of a list of so many texts.
pub(crate) fn texts(number: usize) -> Json {
    json!({"type": "array", "items": {"type": "string"}, "minItems": number, "maxItems": number})
}

/// `true` or `false`.
pub(crate) const BOOLEAN: Plain<bool> = Plain {
    read: value::boolean,
    write: |value| (*value).into(),
    named: ("`true`, `false`", "`true`, `false`", "BOOLEAN"),
    schema: || json!({"type": "boolean"}),
};

/// A whole number.
pub(crate) struct Integer<T> {
    range: RangeInclusive<i64>,
    unit: &'static str,
    write: fn(&T) -> i64,
    of: fn(i64) -> Option<T>,
}

/// A whole number of a range that the type has.
pub(crate) const fn integer<T>(range: RangeInclusive<i64>, unit: &'static str) -> Integer<T>
where
    T: TryFrom<i64> + TryInto<i64> + Copy,
{
    Integer {
        range,
        unit,
        write: |value| (*value).try_into().unwrap_or(i64::MAX),
        of: |number| T::try_from(number).ok(),
    }
}

impl<T> Form for Integer<T> {
    type Value = T;

    fn read(&self, value: &Value<'_>) -> Parsed<T> {
        let number = value::integer(value, self.range.clone(), self.unit)?;
        (self.of)(number)
            .ok_or_else(|| Problem::new(value.span(), "out of range", "write less").into())
    }

    fn write(&self, value: &T) -> Option<Toml> {
        Some((self.write)(value).into())
    }

    fn values(&self) -> String {
        let space = if self.unit.is_empty() { "" } else { " " };
        format!("{} to {}{space}{}", self.range.start(), self.range.end(), self.unit)
    }

    fn many(&self) -> String {
        format!("numbers from {}", self.values())
    }

    fn placeholder(&self) -> &'static str {
        match self.unit {
            "octets" => "OCTETS",
            "bits" => "BITS",
            "ports" => "PORTS",
            _ => "NUMBER",
        }
    }

    fn schema(&self) -> Json {
        json!({"type": "integer", "minimum": self.range.start(), "maximum": self.range.end()})
    }
}

/// A number of octets, plain or with a unit.
pub(crate) struct Octets<T>(Integer<T>);

pub(crate) const fn octets<T>(range: RangeInclusive<i64>) -> Octets<T>
where
    T: TryFrom<i64> + TryInto<i64> + Copy,
{
    Octets(integer(range, "octets"))
}

impl<T> Form for Octets<T> {
    type Value = T;

    fn read(&self, value: &Value<'_>) -> Parsed<T> {
        let number = value::octets(value, self.0.range.clone())?;
        (self.0.of)(number.into())
            .ok_or_else(|| Problem::new(value.span(), "out of range", "write less").into())
    }

    fn write(&self, value: &T) -> Option<Toml> {
        self.0.write(value)
    }

    fn values(&self) -> String {
        self.0.values()
    }

    fn placeholder(&self) -> &'static str {
        "OCTETS"
    }

    fn schema(&self) -> Json {
        json!({"anyOf": [self.0.schema(), {"type": "string"}]})
    }
}

/// An amount of memory, in octets.
pub(crate) struct Memory(pub(crate) RangeInclusive<i64>);

impl Form for Memory {
    type Value = u64;

    fn read(&self, value: &Value<'_>) -> Parsed<u64> {
        value::memory(value, self.0.clone())
    }

    fn write(&self, value: &u64) -> Option<Toml> {
        Some(value::memory_text(&i64::try_from(*value).unwrap_or(i64::MAX)).into())
    }

    fn values(&self) -> String {
        let [least, most] = [self.0.start(), self.0.end()].map(value::memory_text);
        format!("`\"{least}\"` to `\"{most}\"`")
    }

    fn placeholder(&self) -> &'static str {
        "OCTETS"
    }

    fn schema(&self) -> Json {
        json!({"anyOf": [{"type": "integer", "minimum": self.0.start(), "maximum": self.0.end()}, {"type": "string"}]})
    }
}

/// A duration.
pub(crate) struct Time {
    range: RangeInclusive<Duration>,
    /// Parts of a second can't be told.
    whole: bool,
}

/// A duration between two numbers of milliseconds.
pub(crate) const fn time(least: u64, most: u64) -> Time {
    Time { range: Duration::from_millis(least)..=Duration::from_millis(most), whole: false }
}

/// A duration between two numbers of seconds, in seconds.
pub(crate) const fn seconds(least: u64, most: u64) -> Time {
    Time { range: Duration::from_secs(least)..=Duration::from_secs(most), whole: true }
}

impl Form for Time {
    type Value = Duration;

    fn read(&self, value: &Value<'_>) -> Parsed<Duration> {
        let duration = value::duration(value, self.range.clone())?;
        if !self.whole || duration.subsec_nanos() == 0 {
            return Ok(duration);
        }
        let help = format!("write \"{}s\"", duration.as_secs());
        Err(Problem::new(value.span(), "parts of a second can't be told", help).into())
    }

    fn write(&self, value: &Duration) -> Option<Toml> {
        Some(humantime::format_duration(*value).to_string().into())
    }

    fn values(&self) -> String {
        let [least, most] = [self.range.start(), self.range.end()]
            .map(|it| humantime::format_duration(*it).to_string());
        match *self.range.end() > Duration::from_secs(10 * 365 * 86_400) {
            true => format!("`\"{least}\"` and longer"),
            false => format!("`\"{least}\"` to `\"{most}\"`"),
        }
    }

    fn placeholder(&self) -> &'static str {
        "TIME"
    }

    fn schema(&self) -> Json {
        json!({"type": "string", "examples": [humantime::format_duration(*self.range.end()).to_string()]})
    }
}

/// One of several words.
pub(crate) struct Choice<T: 'static>(pub(crate) &'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Form for Choice<T> {
    type Value = T;

    fn read(&self, value: &Value<'_>) -> Parsed<T> {
        value::choice(value, self.0)
    }

    fn write(&self, value: &T) -> Option<Toml> {
        self.0.iter().find(|(_, known)| known == value).map(|(word, _)| (*word).into())
    }

    fn values(&self) -> String {
        let words: Vec<String> = self.0.iter().map(|(word, _)| format!("`\"{word}\"`")).collect();
        words.join(", ")
    }

    fn placeholder(&self) -> &'static str {
        "WORD"
    }

    fn schema(&self) -> Json {
        json!({"enum": self.0.iter().map(|(word, _)| *word).collect::<Vec<_>>()})
    }
}

/// A word that stands for no value, or a value.
pub(crate) struct Or<F> {
    word: &'static str,
    form: F,
}

pub(crate) const fn or<F>(word: &'static str, form: F) -> Or<F> {
    Or { word, form }
}

impl<F: Form> Form for Or<F> {
    type Value = Option<F::Value>;

    fn read(&self, value: &Value<'_>) -> Parsed<Option<F::Value>> {
        match value.get_ref().as_str() {
            Some(word) if word == self.word => Ok(None),
            _ => self.form.read(value).map(Some),
        }
    }

    fn write(&self, value: &Option<F::Value>) -> Option<Toml> {
        value.as_ref().map_or(Some(self.word.into()), |value| self.form.write(value))
    }

    fn values(&self) -> String {
        format!("{}, `\"{}\"`", self.form.values(), self.word)
    }

    fn placeholder(&self) -> &'static str {
        self.form.placeholder()
    }

    fn schema(&self) -> Json {
        json!({"anyOf": [self.form.schema(), {"const": self.word}]})
    }
}

/// A key that may be absent.
pub(crate) struct Given<F>(pub(crate) F);

impl<F: Form> Form for Given<F> {
    type Value = Option<F::Value>;

    fn read(&self, value: &Value<'_>) -> Parsed<Option<F::Value>> {
        self.0.read(value).map(Some)
    }

    fn write(&self, value: &Option<F::Value>) -> Option<Toml> {
        value.as_ref().and_then(|value| self.0.write(value))
    }

    fn values(&self) -> String {
        self.0.values()
    }

    fn placeholder(&self) -> &'static str {
        self.0.placeholder()
    }

    fn schema(&self) -> Json {
        self.0.schema()
    }
}

/// A list.
pub(crate) struct List<F> {
    item: F,
    help: &'static str,
    /// Without an item it would mean something else.
    some: bool,
}

/// A list; `help` says what to write.
pub(crate) const fn list<F>(item: F, help: &'static str) -> List<F> {
    List { item, help, some: false }
}

/// A list that is not empty.
pub(crate) const fn some<F>(item: F, help: &'static str) -> List<F> {
    List { item, help, some: true }
}

impl<F: Form> Form for List<F> {
    type Value = Vec<F::Value>;

    fn read(&self, value: &Value<'_>) -> Parsed<Vec<F::Value>> {
        let items = value::list(value, self.help, |value| self.item.read(value))?;
        match self.some && items.is_empty() {
            true => Err(Problem::new(value.span(), "the list is empty", self.help).into()),
            false => Ok(items.into_iter().map(toml::Spanned::into_inner).collect()),
        }
    }

    fn write(&self, value: &Vec<F::Value>) -> Option<Toml> {
        Some(Toml::Array(value.iter().filter_map(|item| self.item.write(item)).collect()))
    }

    fn values(&self) -> String {
        format!("list of {}", self.item.many())
    }

    fn placeholder(&self) -> &'static str {
        self.item.placeholder()
    }

    fn schema(&self) -> Json {
        json!({"type": "array", "items": self.item.schema(), "minItems": usize::from(self.some)})
    }
}

/// A list, or its only item without brackets.
pub(crate) struct OneOr<F>(pub(crate) List<F>);

impl<F: Form> Form for OneOr<F> {
    type Value = Vec<F::Value>;

    fn read(&self, value: &Value<'_>) -> Parsed<Vec<F::Value>> {
        match value.get_ref().as_str() {
            Some(_) => self.0.item.read(value).map(|item| vec![item]),
            None => self.0.read(value),
        }
    }

    fn write(&self, value: &Vec<F::Value>) -> Option<Toml> {
        self.0.write(value)
    }

    fn values(&self) -> String {
        format!("{}, {}", self.0.item.values(), self.0.values())
    }

    fn placeholder(&self) -> &'static str {
        self.0.placeholder()
    }

    fn schema(&self) -> Json {
        json!({"anyOf": [self.0.item.schema(), self.0.schema()]})
    }
}

/// A positive number of 32 bits.
pub(crate) const NUMBER: Integer<u32> = integer(1..=u32::MAX as i64, "");
