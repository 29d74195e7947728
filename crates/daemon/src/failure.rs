//! Errors of commands, for people: the text, a hint and an exit code.

use std::io::ErrorKind;

use fordway_config::{Feature, LoadError, Report, Severity};

/// Why a command failed, in words for people.
#[derive(Debug)]
pub enum Failure {
    /// The configuration is wrong (exit code 2).
    Config(Report),
    /// The command was used wrongly (exit code 2).
    Usage(Message),
    /// It could not be done (exit code 1).
    Failed(Message),
    /// The configuration is wrong, as the daemon has reported it (exit code 2).
    Rendered(String),
    /// The configuration is wrong, and that has been said (exit code 2).
    Reported,
    /// It could not be done, and the log says why (exit code 1).
    Logged,
    /// The reader of the output has closed it (exit code 0).
    Closed,
}

/// One sentence, and what to do about it.
#[derive(Debug)]
pub struct Message {
    text: String,
    hint: Option<String>,
}

impl Failure {
    /// Used wrongly; `hint` says how it is right.
    pub fn usage(text: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure::Usage(Message { text: text.into(), hint: Some(hint.into()) })
    }

    /// It could not be done.
    pub fn failed(text: impl Into<String>) -> Failure {
        Failure::Failed(Message { text: text.into(), hint: None })
    }

    /// It could not be done, with a hint if there is one.
    pub fn with(text: String, hint: Option<impl Into<String>>) -> Failure {
        Failure::Failed(Message { text, hint: hint.map(Into::into) })
    }

    /// With this hint, in the place of another; what is no [`Failure::Failed`] stays as it is.
    pub fn hint(self, hint: impl Into<String>) -> Failure {
        match self {
            Failure::Failed(message) => {
                Failure::Failed(Message { hint: Some(hint.into()), ..message })
            }
            other => other,
        }
    }

    /// What a daemon has answered with [`Failure::parts`].
    fn told(text: String, hint: Option<String>, config: bool) -> Failure {
        // A report of a file has its own words in front of every message.
        if config && ["error", "warning"].iter().any(|word| text.starts_with(word)) {
            return Failure::Rendered(text);
        }
        let message = Message { text, hint };
        if config { Failure::Usage(message) } else { Failure::Failed(message) }
    }

    /// The hint, where there is no better one.
    pub fn hint_if_none(self, hint: &str) -> Failure {
        match self {
            Failure::Failed(Message { hint: None, .. }) => self.hint(hint),
            other => other,
        }
    }

    /// Says in front what it is about.
    pub fn prefix(self, prefix: &str) -> Failure {
        match self {
            Failure::Failed(message) => {
                Failure::Failed(Message { text: format!("{prefix}{}", message.text), ..message })
            }
            other => other,
        }
    }

    /// The text and the hint for a client, and whether it is the configuration's fault.
    pub fn parts(&self) -> (String, Option<String>, bool) {
        match self {
            Failure::Config(report) => (report.to_string(), None, true),
            Failure::Rendered(text) => (text.clone(), None, true),
            Failure::Usage(message) => (message.text.clone(), message.hint.clone(), true),
            Failure::Failed(message) => (message.text.clone(), message.hint.clone(), false),
            Failure::Reported | Failure::Logged | Failure::Closed => (String::new(), None, false),
        }
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Config(_) | Failure::Rendered(_) | Failure::Usage(_) | Failure::Reported => 2,
            Failure::Failed(_) | Failure::Logged => 1,
            Failure::Closed => 0,
        }
    }

    /// Shows it on standard error.
    pub fn print(&self) {
        match self {
            Failure::Config(report) => crate::terminal::complain(&report.render(true)),
            Failure::Rendered(text) => crate::terminal::complain(text.trim_end()),
            Failure::Usage(message) | Failure::Failed(message) => message.print(),
            Failure::Reported | Failure::Logged | Failure::Closed => {}
        }
    }

    /// The failure as one line for a log.
    pub fn line(&self) -> String {
        match self {
            Failure::Config(report) => {
                let place = |(severity, line, column, message)| {
                    let place = match line {
                        0 => "a key that was set".to_owned(),
                        _ => format!("{}:{line}:{column}", report.origin()),
                    };
                    (severity == Severity::Error).then(|| format!("{place}: {message}"))
                };
                let lines = report.lines().filter_map(place);
                lines.chain(report.note().map(str::to_owned)).collect::<Vec<_>>().join("; ")
            }
            Failure::Rendered(text) => text.clone(),
            Failure::Usage(message) | Failure::Failed(message) => match &message.hint {
                Some(hint) => format!("{} ({hint})", message.text),
                None => message.text.clone(),
            },
            Failure::Reported | Failure::Logged | Failure::Closed => String::new(),
        }
    }
}

impl Message {
    fn print(&self) {
        let (red, bold, reset) = (crate::terminal::ERROR, crate::terminal::STRONG, anstyle::Reset);
        crate::terminal::complain(&format!("{red}error{reset}{bold}:{reset} {}", self.text));
        if let Some(hint) = &self.hint {
            crate::terminal::complain(&format!("  {bold}hint:{reset} {hint}"));
        }
    }
}

impl From<Feature> for Failure {
    fn from(feature: Feature) -> Failure {
        Failure::usage(feature.refusal(), feature.help())
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Failure {
        match error {
            LoadError::Invalid(report) => Failure::Config(report),
            LoadError::Read { ref path, ref source } => {
                let hint = match source.kind() {
                    ErrorKind::NotFound => {
                        format!("name another file with -c, or make {}", path.display())
                    }
                    ErrorKind::PermissionDenied => format!(
                        "run as root, or let this user read it (ls -l {} shows who may)",
                        path.display()
                    ),
                    ErrorKind::IsADirectory => {
                        format!("name a file in it, such as -c {}/fordway.toml", path.display())
                    }
                    _ => "name a configuration file that can be read with -c".to_owned(),
                };
                Failure::usage(error.to_string(), hint)
            }
        }
    }
}

impl From<fordway_net::Error> for Failure {
    fn from(error: fordway_net::Error) -> Failure {
        let failure = Failure::failed(error.to_string());
        match (error.hint(), &error) {
            (Some(hint), _) => failure.hint(hint),
            // Owners of host changes are translators here.
            (None, fordway_net::Error::Conflict { owners, .. }) => failure.hint(format!(
                "give one of them other addresses or another metric, or end the other first: fordway \
                 down {}",
                owners.join(" and ")
            )),
            (None, _) => failure,
        }
    }
}

impl From<fordway_bpf::Error> for Failure {
    fn from(error: fordway_bpf::Error) -> Failure {
        Failure::with(error.to_string(), error.hint())
    }
}

impl From<fordway_discovery::Error> for Failure {
    fn from(error: fordway_discovery::Error) -> Failure {
        Failure::with(error.to_string(), error.hint())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Failure {
        Failure::failed(format!("cannot make JSON of the result: {error}"))
    }
}

impl From<getrandom::Error> for Failure {
    fn from(error: getrandom::Error) -> Failure {
        Failure::failed(format!("cannot draw a random number: {error}"))
    }
}

impl From<fordway_control::Error> for Failure {
    fn from(error: fordway_control::Error) -> Failure {
        let hint = error.hint().map(str::to_owned);
        match error {
            fordway_control::Error::Failed { text, hint, config } => {
                Failure::told(text, hint, config)
            }
            _ => Failure::Failed(Message { text: error.to_string(), hint }),
        }
    }
}

impl From<fordway_tun::Error> for Failure {
    fn from(error: fordway_tun::Error) -> Failure {
        Failure::failed(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::Failure;

    #[test]
    fn a_report_that_begins_with_a_warning_is_shown_as_it_is() {
        let text = "[[translator]]\nicmp_errors = 'off'\nicmp_errors_burst = 5\nmode = 'siit'\n";
        let report = fordway_config::parse("test.toml", text).unwrap_err();
        for report in [report.to_string(), "warning: doubtful\n\nerror: wrong".to_owned()] {
            assert!(matches!(Failure::told(report, None, true), Failure::Rendered(_)));
        }
    }

    #[test]
    fn whoever_is_in_the_way_is_named_with_a_way_out() {
        let conflict = fordway_net::Error::Conflict {
            wanted: "add route 192.0.2.0/24 dev siit1".to_owned(),
            present: "add route 192.0.2.0/24 dev siit0".to_owned(),
            owners: vec!["siit0".to_owned()],
        };
        let line = Failure::from(conflict).line();
        assert!(line.ends_with("or end the other first: fordway down siit0)"), "{line}");
    }

    #[test]
    fn a_line_of_a_log_names_the_place_of_a_mistake() {
        let report = fordway_config::parse("test.toml", "[[translator]]\nname = ").unwrap_err();
        let line = Failure::Config(report).line();
        assert!(line.starts_with("test.toml:2:"), "{line}");
        assert!(!line.contains('\n') && !line.contains("error:"), "{line}");
        let settings = fordway_config::Settings::new(&["log.level=loud".to_owned()]);
        let report = fordway_config::parse_with("test.toml", "", &settings).unwrap_err();
        let line = Failure::Config(report.with_note("it was set".to_owned())).line();
        assert!(
            line.contains("; a key that was set: `level`") && line.ends_with("; it was set"),
            "{line}"
        );
    }
}
