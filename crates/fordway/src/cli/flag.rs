//! Options that stand for keys of the configuration. The description of a key gives an option its name, its help, its
//! placeholder and the words that it takes; the reader of configuration files checks the value.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, ValueHint};
use fordway_config::Key;
use fordway_daemon::failure::Failure;
use toml::{Table, Value};

use super::described::{Suggestions, explained_words, list, plain, sentences, value, words};

/// The description of every key, by section.
static SECTIONS: LazyLock<BTreeMap<&str, Vec<Key>>> =
    LazyLock::new(|| fordway_config::sections().into_iter().collect());

/// Reads a value that stands for several keys of a table. The option's name is for messages.
pub(super) type Parse = fn(option: &str, text: &str) -> Result<Table, Failure>;

/// An option that stands for a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flag {
    key: &'static str,
    long: Option<&'static str>,
    placeholder: Option<&'static str>,
    help: Option<&'static str>,
    more: Option<&'static str>,
    default: Option<&'static str>,
    required: Option<bool>,
    unless: &'static [&'static str],
    requires: Option<&'static str>,
    conflicts: &'static [&'static str],
    several: bool,
    word: Option<&'static str>,
    parse: Option<Parse>,
}

/// The option of a key, which is required if the key is. A key of a table within the section is `TABLE.KEY`.
pub(super) const fn flag(key: &'static str) -> Flag {
    Flag {
        key,
        long: None,
        placeholder: None,
        help: None,
        more: None,
        default: None,
        required: None,
        unless: &[],
        requires: None,
        conflicts: &[],
        several: false,
        word: None,
        parse: None,
    }
}

impl Flag {
    /// With another name than the key's.
    pub(super) const fn long(self, long: &'static str) -> Flag {
        Flag { long: Some(long), ..self }
    }

    pub(super) const fn placeholder(self, placeholder: &'static str) -> Flag {
        Flag { placeholder: Some(placeholder), ..self }
    }

    /// With another help than the first sentence of the key's description.
    pub(super) const fn help(self, help: &'static str) -> Flag {
        Flag { help: Some(help), ..self }
    }

    /// With this behind the help of `--help`.
    pub(super) const fn more(self, more: &'static str) -> Flag {
        Flag { more: Some(more), ..self }
    }

    /// With a default that the key has not.
    pub(super) const fn default(self, default: &'static str) -> Flag {
        Flag { default: Some(default), ..self }
    }

    pub(super) const fn required(self, required: bool) -> Flag {
        Flag { required: Some(required), ..self }
    }

    /// Required where none of these options is there.
    pub(super) const fn unless(self, unless: &'static [&'static str]) -> Flag {
        Flag { unless, ..self }
    }

    pub(super) const fn requires(self, other: &'static str) -> Flag {
        Flag { requires: Some(other), ..self }
    }

    pub(super) const fn conflicts(self, conflicts: &'static [&'static str]) -> Flag {
        Flag { conflicts, ..self }
    }

    /// One option may have several values.
    pub(super) const fn several(self) -> Flag {
        Flag { several: true, ..self }
    }

    /// Without a value: the key gets this word.
    #[cfg(feature = "nat44")]
    pub(super) const fn word(self, word: &'static str) -> Flag {
        Flag { word: Some(word), ..self }
    }

    pub(super) const fn parse(self, parse: Parse) -> Flag {
        Flag { parse: Some(parse), ..self }
    }

    /// The key's description, in the first of these sections that has the key.
    pub(super) fn description(&self, sections: &[&str]) -> Option<&'static Key> {
        let (table, name) = match self.key.rsplit_once('.') {
            Some((table, name)) => (format!(".{table}"), name),
            None => (String::new(), self.key),
        };
        let mut sections =
            sections.iter().filter_map(|it| SECTIONS.get(format!("{it}{table}").as_str()));
        sections.find_map(|keys| keys.iter().find(|key| key.name == name))
    }

    /// The option's name: a key that is true by default is made false by `--no-KEY`.
    pub(super) fn name(&self, key: &Key) -> String {
        match self.long {
            Some(long) => long.to_owned(),
            None if key.default == "`true`" => format!("no-{}", key.name.replace('_', "-")),
            None => key.name.replace('_', "-"),
        }
    }

    /// The option.
    fn arg(&self, key: &'static Key) -> Arg {
        let name = self.name(key);
        let arg = Arg::new(name.clone()).long(name);
        let help = self.short_help(key);
        let more = match (self.more, explained_words(&key.meaning)) {
            (Some(more), _) => more.to_owned(),
            (None, words) if self.help.is_none() && !is_switch(self, key) => words,
            _ => String::new(),
        };
        let arg = match more.as_str() {
            "" => arg.help(help),
            more => arg.long_help(format!("{help}\n\n{more}")).help(help),
        };
        let arg = arg.conflicts_with_all(self.conflicts).required_unless_present_any(self.unless);
        let arg = match self.requires {
            Some(other) => arg.requires(other),
            None => arg,
        };
        if is_switch(self, key) {
            return arg.action(ArgAction::SetTrue);
        }
        let has_default = self.default.is_some() || !self.unless.is_empty();
        let required = self.required.unwrap_or(key.is_needed() && !has_default);
        let placeholder = self.placeholder.unwrap_or(key.placeholder);
        let arg = arg.value_name(placeholder).required(required);
        let arg = match self.default {
            Some(default) => arg.default_value(default),
            None => arg,
        };
        let arg = match placeholder {
            "FILE" => arg.value_hint(ValueHint::FilePath),
            "DEV" => arg.value_hint(ValueHint::Other),
            _ => arg,
        };
        let arg = match list(&key.schema) {
            Some(_) if self.several => arg.action(ArgAction::Append).num_args(1..),
            Some(_) => arg.action(ArgAction::Append),
            None => arg,
        };
        let (words, open) = words(&key.schema);
        match words.is_empty() {
            true => arg,
            false if open => arg.value_parser(Suggestions(words)).hide_possible_values(true),
            false => arg.value_parser(PossibleValuesParser::new(words)),
        }
    }

    /// The first sentence of the key's description, with the default.
    fn short_help(&self, key: &Key) -> String {
        let mut help = match self.help {
            Some(help) => help.to_owned(),
            None => plain(sentences(&key.meaning).next().unwrap_or_default()),
        };
        if is_switch(self, key) {
            return help;
        }
        if list(&key.schema).is_some() && !self.several {
            help += "; may be given several times";
        }
        let default = plain(&key.default).replace('"', "");
        let default = default.trim_matches(['(', ')', '[', ']']);
        let is_told = self.default.is_some() || self.required.is_some() || !self.unless.is_empty();
        let is_some = !default.contains(';') && !["", "none"].contains(&default);
        if !is_told && !key.default.starts_with("(needed") && is_some {
            help += &format!(" [default: {default}]");
        }
        help
    }

    /// Puts what the option says into a table.
    fn put(&self, key: &Key, matches: &ArgMatches, table: &mut Table) -> Result<(), Failure> {
        let name = self.name(key);
        if is_switch(self, key) {
            if matches.get_flag(&name) {
                let other = Value::from(key.default != "`true`");
                self.insert(table, key, self.word.map_or(other, Value::from));
            }
            return Ok(());
        }
        let Some(texts) = matches.get_many::<String>(&name) else { return Ok(()) };
        let option = format!("--{name}");
        let list = list(&key.schema);
        if let Some(parse) = self.parse {
            let tables = texts.map(|text| parse(&option, text)).collect::<Result<Vec<_>, _>>()?;
            match list {
                Some(_) => drop(table.insert(key.name.to_owned(), Value::from(tables))),
                None => table.extend(tables.into_iter().flatten()),
            }
            return Ok(());
        }
        let placeholder = self.placeholder.unwrap_or(key.placeholder);
        let item = |text: &String| value(list.unwrap_or(&key.schema), &option, placeholder, text);
        let mut values = texts.map(item).collect::<Result<Vec<_>, _>>()?;
        let value = match (list, &values[..]) {
            // A word that stands for the whole list, not for one of its items.
            (Some(item), [Value::String(word)])
                if words(&key.schema).0.contains(&word.as_str())
                    && !words(item).0.contains(&word.as_str()) =>
            {
                values.pop()
            }
            (Some(_), _) => Some(Value::Array(values)),
            (None, _) => values.pop(),
        };
        value.into_iter().for_each(|value| self.insert(table, key, value));
        Ok(())
    }

    fn insert(&self, table: &mut Table, key: &Key, value: Value) {
        let (name, value) = match self.key.rsplit_once('.') {
            Some((within, name)) => (within, Table::from_iter([(name.to_owned(), value)]).into()),
            None => (key.name, value),
        };
        table.insert(name.to_owned(), value);
    }
}

/// An option without a value.
fn is_switch(flag: &Flag, key: &Key) -> bool {
    flag.word.is_some() || key.schema["type"] == "boolean"
}

/// Arguments of options, in the sections that describe their keys.
pub(super) fn args<'f>(
    sections: &'f [&'f str],
    flags: impl Iterator<Item = &'f Flag> + 'f,
) -> impl Iterator<Item = Arg> + 'f {
    flags.filter_map(|flag| flag.description(sections).map(|key| flag.arg(key)))
}

/// Puts what the options say into a table.
pub(super) fn put<'f>(
    sections: &[&str],
    flags: impl Iterator<Item = &'f Flag>,
    matches: &ArgMatches,
    table: &mut Table,
) -> Result<(), Failure> {
    for flag in flags {
        if let Some(key) = flag.description(sections) {
            flag.put(key, matches, table)?;
        }
    }
    Ok(())
}
