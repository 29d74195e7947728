//! The short forms: options that stand for a configuration file.

use std::marker::PhantomData;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use fordway_config::{Loaded, Settings, parse_with};
use fordway_daemon::failure::Failure;
use toml::{Table, Value};

use super::flag::{self, Flag};

/// The name under which errors show the file that the options stand for.
const ORIGIN: &str = "(the options, as a file)";

/// A section that options stand for.
#[derive(Debug)]
pub(crate) struct Part {
    /// As it begins in the file: `[dns64]`, `[[translator]]`.
    pub(super) title: &'static str,
    /// The sections of the reference that describe its keys.
    pub(super) sections: &'static [&'static str],
    /// Keys that no option stands for.
    pub(super) fixed: &'static [(&'static str, &'static str)],
    pub(super) flags: &'static [&'static [Flag]],
}

impl Part {
    pub(super) fn flags(&self) -> impl Iterator<Item = &'static Flag> {
        self.flags.iter().copied().flatten()
    }

    /// The section's name.
    fn name(&self) -> &'static str {
        self.title.trim_matches(['[', ']'])
    }

    fn table(&self, matches: &ArgMatches) -> Result<Table, Failure> {
        let mut table = Table::new();
        for (key, word) in self.fixed {
            table.insert((*key).to_owned(), (*word).into());
        }
        flag::put(self.sections, self.flags(), matches, &mut table)?;
        Ok(table)
    }
}

/// A short form.
pub(crate) trait Short {
    /// The sections that it stands for. `--set` without a section is for the first.
    const PARTS: &'static [Part];

    /// What follows from several options together.
    fn finish(_part: &Part, _table: &mut Table, _matches: &ArgMatches) {}
}

/// The options of a short form.
#[derive(Debug)]
pub(crate) struct Options<S>(ArgMatches, PhantomData<S>);

impl<S: Short> Options<S> {
    /// The configuration that the options stand for.
    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        let mut file = Table::new();
        for part in S::PARTS {
            let mut table = part.table(&self.0)?;
            S::finish(part, &mut table, &self.0);
            let section = match part.title.starts_with("[[") {
                true => Value::from(vec![table]),
                false => Value::from(table),
            };
            file.insert(part.name().to_owned(), section);
        }
        let settings = self.0.get_many::<String>("set").into_iter().flatten();
        let settings: Vec<String> = settings.cloned().collect();
        let first = S::PARTS.first().map_or("", Part::name);
        parsed(&file, &Settings::of(first, &settings))
    }

    /// The configuration is to be written, not run.
    pub(crate) fn print_config(&self) -> bool {
        self.0.get_flag("print-config")
    }
}

/// Reads tables as a file.
pub(super) fn parsed(file: &Table, settings: &Settings) -> Result<Loaded, Failure> {
    let text = toml::to_string(file)
        .map_err(|error| Failure::failed(format!("cannot write the options: {error}")))?;
    parse_with(ORIGIN, &text, settings).map_err(Failure::Config)
}

impl<S: Short> Args for Options<S> {
    fn augment_args(command: Command) -> Command {
        let args = S::PARTS.iter().flat_map(|part| flag::args(part.sections, part.flags()));
        let first = S::PARTS.first().map_or("", |part| part.title);
        let set = format!(
            "Any key of {first}, or SECTION.KEY, with its value as in the file; may be given several times"
        );
        let print =
            "Write the configuration that the options stand for to standard output, and end";
        command
            .args(args)
            .arg(
                Arg::new("set")
                    .long("set")
                    .value_name("KEY=VALUE")
                    .action(ArgAction::Append)
                    .help(set),
            )
            .arg(
                Arg::new("print-config")
                    .long("print-config")
                    .action(ArgAction::SetTrue)
                    .help(print),
            )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S> FromArgMatches for Options<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Options(matches.clone(), PhantomData))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = matches.clone();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{servers, translators};

    fn check<S: Short>() {
        let mut names = Vec::new();
        for part in S::PARTS {
            for flag in part.flags() {
                let key = flag.description(part.sections);
                names.push(flag.name(key.unwrap_or_else(|| panic!("{flag:?}: no such key"))));
            }
        }
        let number = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), number, "{names:?}");
    }

    #[test]
    fn a_word_is_an_item_of_a_list_or_stands_for_all_of_it() {
        fn table<S: Short>(options: &str) -> Table {
            let command = Options::<S>::augment_args(Command::new("short"));
            let matches = command.try_get_matches_from(options.split(' ')).unwrap();
            S::PARTS[0].table(&matches).unwrap()
        }
        let nat64 = "nat64 --pool6 64:ff9b::/96 --pool4 192.0.2.1 --alg ftp";
        let nat64 = table::<translators::Nat64>(nat64);
        assert_eq!(nat64.get("alg"), Some(&Value::from(vec!["ftp"])));
        let dns64 = "dns64 --listen ::1 --pref64 64:ff9b::/96 --upstream 192.0.2.53 --allow local";
        assert_eq!(table::<servers::Dns64>(dns64).get("allow"), Some(&Value::from("local")));
    }

    #[test]
    fn every_option_is_a_key_that_is_described() {
        check::<translators::Clat>();
        check::<translators::Siit>();
        check::<translators::Nat64>();
        #[cfg(feature = "nat-pt")]
        check::<crate::cli::nat_pt::NatPt>();
        check::<translators::Softwire>();
        #[cfg(feature = "nat44")]
        check::<crate::cli::nat44::Nat44>();
        check::<translators::DualStack>();
        check::<servers::Dns64>();
        check::<servers::Trt>();
        check::<servers::Proxy>();
        #[cfg(feature = "dstm")]
        {
            check::<crate::cli::dstm::DstmServer>();
            check::<crate::cli::dstm::DstmClient>();
        }
    }
}
