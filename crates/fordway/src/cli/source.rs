//! Where `explain` and `pcap` take their translator from.

use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use fordway_config::{Loaded, Settings, Translator, load_with};
use fordway_daemon::failure::Failure;
use toml::{Table, Value};

use super::flag::{self, Flag, flag};
use super::short::parsed;

/// A configuration file, or options that stand for one.
#[derive(Debug, Args)]
pub(crate) struct SourceArgs {
    /// The configuration file
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Which translator of the file; needed where there are several
    #[arg(long, value_name = "NAME", requires = "config")]
    translator: Option<String>,
    /// The CLAT's IPv6 address, where the file leaves it to the host
    #[arg(long, value_name = "ADDR")]
    v6: Option<String>,
    #[command(flatten)]
    inline: InlineArgs,
    /// A value that replaces one of the file or of the options, as SECTION.KEY=VALUE; without a file also KEY=VALUE
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Options that stand for a translator.
#[derive(Debug)]
struct InlineArgs(ArgMatches);

/// The sections of the reference that describe the keys of [`FLAGS`].
const SECTIONS: &[&str] = &["translator.clat", "translator.nat64", "translator.siit", "translator"];

const FLAGS: &[Flag] = &[
    flag("pref64")
        .required(false)
        .conflicts(&["config", "pool6"])
        .help("Instead of a file: a CLAT with this prefix"),
    flag("v4").requires("pref64").help("The CLAT's IPv4 address"),
    flag("pool6")
        .required(false)
        .conflicts(&["config"])
        .help("Instead of a file: a stateless translator with this prefix"),
    flag("pool4")
        .conflicts(&["config", "pref64", "eam"])
        .help("Instead of a file: with --pool6, a stateful translator with these IPv4 addresses"),
    flag("eam").conflicts(&["config"]).help("Instead of a file: an explicit address mapping"),
];

impl InlineArgs {
    /// The configuration that the options stand for; `None` if there are none.
    fn load(&self, v6: Option<&String>, set: &[String]) -> Result<Option<Loaded>, Failure> {
        let has = |option| self.0.contains_id(option);
        let (mode, name) = match () {
            () if has("pref64") => ("clat", "clat0"),
            () if !has("pool6") && !has("eam") => return Ok(None),
            () if has("pool4") => ("nat64", "nat64"),
            () => ("siit", "siit0"),
        };
        let keys = [("name", name), ("mode", mode)];
        let mut table: Table =
            keys.into_iter().map(|(key, text)| (key.to_owned(), Value::from(text))).collect();
        if let Some(v6) = v6.filter(|_| mode == "clat") {
            table.insert("v6".to_owned(), v6.as_str().into());
        }
        flag::put(SECTIONS, FLAGS.iter(), &self.0, &mut table)?;
        let file = Table::from_iter([("translator".to_owned(), Value::from(vec![table]))]);
        parsed(&file, &Settings::of("translator", set)).map(Some)
    }
}

impl Args for InlineArgs {
    fn augment_args(command: Command) -> Command {
        command.args(flag::args(SECTIONS, FLAGS.iter()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for InlineArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(InlineArgs(matches.clone()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = matches.clone();
        Ok(())
    }
}

/// One translator, not bound to a host.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) translator: Translator,
    /// `--v6`, for a file that does not say.
    pub(crate) v6: Option<std::net::Ipv6Addr>,
}

impl SourceArgs {
    /// The translator that is meant.
    pub(crate) fn load(&self) -> Result<Source, Failure> {
        let v6 = match &self.v6 {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| {
                let text = format!("--v6 {text}: this is not an IPv6 address");
                Failure::usage(text, "write --v6 2001:db8::464")
            })?),
        };
        let inline = self.inline.load(self.v6.as_ref(), &self.set)?;
        let loaded = match (&self.config, inline) {
            (Some(file), _) => load_with(file, &Settings::new(&self.set))?,
            (None, Some(loaded)) => loaded,
            (None, None) => {
                return Err(Failure::usage(
                    "no translator is given",
                    "name a file with -c FILE, or write --pool6 PREFIX or --pref64 PREFIX",
                ));
            }
        };
        let translators = loaded.config.translators;
        let translator = self.choose(translators)?;
        Ok(Source { translator, v6 })
    }

    fn choose(&self, translators: Vec<Translator>) -> Result<Translator, Failure> {
        let names: Vec<_> = translators.iter().map(|t| t.name.to_string()).collect();
        let mut matching = translators.into_iter().filter(|translator| {
            self.translator.as_ref().is_none_or(|name| translator.name.as_str() == name)
        });
        match (matching.next(), matching.next()) {
            (Some(only), None) => Ok(only),
            (None, _) if names.is_empty() => Err(Failure::usage(
                "the file has no translator",
                "name another file, or write --pool6 PREFIX or --pref64 PREFIX",
            )),
            (None, _) => Err(Failure::usage(
                format!("no translator is called {}", self.translator.clone().unwrap_or_default()),
                format!("the file has {}", names.join(", ")),
            )),
            (Some(_), Some(_)) => Err(Failure::usage(
                "the file has several translators",
                format!("choose one with --translator: {}", names.join(", ")),
            )),
        }
    }
}
