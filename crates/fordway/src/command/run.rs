//! `fordway run` and the short forms: the daemon.

use std::path::PathBuf;

use fordway_config::{Config, Engine, LoadError, Loaded, Settings, load_with, parse_with};
use fordway_daemon::failure::Failure;
use fordway_daemon::output;
use fordway_daemon::{Adjust, Job, with_kept};

use super::check::print_warnings;
use crate::cli::{Global, RunArgs};

/// Runs what a file says.
pub(crate) fn file(global: &Global, args: &RunArgs) -> Result<(), Failure> {
    let given = args.file.path();
    let settings = args.set.settings();
    let loaded = load_with(given, &settings)?;
    let file = match std::path::absolute(given) {
        Ok(path) if given.as_os_str() != "-" => Some(path),
        _ => None,
    };
    let origin = match &file {
        Some(path) => path.display().to_string(),
        None => loaded.warnings.origin().to_owned(),
    };
    start(global, loaded, origin, file, settings, args.measure)
}

/// Runs what options stand for, or shows it.
pub(crate) fn options(global: &Global, mut loaded: Loaded, print: bool) -> Result<(), Failure> {
    if print {
        print_warnings(&loaded.warnings);
        adjust(global, false).apply(&mut loaded.config);
        return output::print(&loaded.config.to_string());
    }
    start(global, loaded, "(command line)".to_owned(), None, Settings::default(), false)
}

fn start(
    global: &Global,
    loaded: Loaded,
    origin: String,
    file: Option<PathBuf>,
    settings: Settings,
    measure: bool,
) -> Result<(), Failure> {
    print_warnings(&loaded.warnings);
    let mut config = loaded.config;
    let base = file.is_none().then(|| config.to_string());
    let adjust = adjust(global, measure);
    adjust.apply(&mut config);
    let again = |settings: &Settings| -> Result<Config, Failure> {
        let loaded = match &file {
            Some(path) => load_with(path, settings)?,
            None => parse_with(&origin, base.as_deref().unwrap_or_default(), settings)
                .map_err(LoadError::Invalid)?,
        };
        let mut config = loaded.config;
        adjust.apply(&mut config);
        Ok(config)
    };
    let (config, desired) = with_kept(config, again, &settings)?;
    let run_dir = global.run_dir.clone();
    fordway_daemon::run(Job { config, origin, file, base, settings, desired, adjust, run_dir })
}

/// Options come before the file.
pub(super) fn adjust(global: &Global, measure: bool) -> Adjust {
    let global = global.clone();
    Adjust::new(move |config: &mut Config| {
        if config.control.socket.as_os_str() == fordway_config::DEFAULT_SOCKET {
            config.control.socket = global.default_socket();
        }
        if let Some(socket) = &global.socket {
            config.control.socket = socket.clone();
        }
        if let Some(level) = global.log_level {
            config.log.level = level;
        }
        for translator in &mut config.translators {
            translator.measure |= measure && translator.engine != Engine::User;
        }
    })
}
