//! `fordway run`, `fordway clat` and `fordway siit`: the daemon.

use fordway_config::{Config, Loaded, load};

use super::check::print_warnings;
use crate::cli::{Global, RunArgs};
use crate::daemon::{self, Job};
use crate::failure::Failure;
use crate::output;

/// Runs what a file says.
pub(crate) fn file(global: &Global, args: &RunArgs) -> Result<(), Failure> {
    let loaded = load(&args.config)?;
    let origin = match std::path::absolute(&args.config) {
        Ok(path) if args.config.as_os_str() != "-" => path.display().to_string(),
        _ => loaded.warnings.origin().to_owned(),
    };
    start(global, loaded, origin)
}

/// Runs what options stand for, or shows it.
pub(crate) fn options(global: &Global, mut loaded: Loaded, print: bool) -> Result<(), Failure> {
    if print {
        print_warnings(&loaded.warnings);
        apply(global, &mut loaded.config);
        return output::print(&loaded.config.to_string());
    }
    start(global, loaded, "(command line)".to_owned())
}

fn start(global: &Global, loaded: Loaded, origin: String) -> Result<(), Failure> {
    print_warnings(&loaded.warnings);
    let mut config = loaded.config;
    apply(global, &mut config);
    daemon::run(&Job { config, origin, run_dir: global.run_dir.clone() })
}

/// Options of every command come before the file.
fn apply(global: &Global, config: &mut Config) {
    if config.control.socket.as_os_str() == fordway_config::DEFAULT_SOCKET {
        config.control.socket = global.default_socket();
    }
    if let Some(socket) = &global.socket {
        config.control.socket = socket.clone();
    }
    if let Some(level) = global.log_level {
        config.log.level = level;
    }
}
