//! Where `explain` and `pcap` take their translator from.

use std::path::PathBuf;

use clap::Args;
use fordway_config::{Translator, load};

use super::short::InlineArgs;
use crate::failure::Failure;

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
        let loaded = match (&self.config, self.inline.load(self.v6.as_ref())?) {
            (Some(file), _) => load(file)?,
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
