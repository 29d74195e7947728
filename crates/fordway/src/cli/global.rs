//! Options of every command.

use std::path::PathBuf;

use clap::Args;

/// Options of every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// Control socket of the daemon [default: control.sock in the run directory]
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Folder for locks, for the ledger of host changes and for the control socket
    #[arg(long, global = true, value_name = "DIR", default_value = fordway_net::DEFAULT_RUN_DIR)]
    pub(crate) run_dir: PathBuf,
    /// Least severity of log lines: off, error, warn, info, debug or trace
    #[arg(long, global = true, value_name = "LEVEL", value_parser = level)]
    pub(crate) log_level: Option<fordway_config::LevelFilter>,
}

impl Global {
    /// Where a daemon listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(|| self.default_socket())
    }

    /// Where the daemons listen that are only looked at: the one that is named, or all of the host; without any, the usual
    /// place. What changes something goes to [`Global::socket`].
    pub(crate) fn sockets_to_read(&self) -> Vec<PathBuf> {
        let found = match self.socket {
            Some(_) => Vec::new(),
            None => crate::daemons::sockets(&self.run_dir),
        };
        if found.is_empty() { vec![self.socket()] } else { found }
    }

    /// The first of [`Global::sockets_to_read`].
    pub(crate) fn socket_to_read(&self) -> PathBuf {
        self.sockets_to_read().swap_remove(0)
    }

    /// Where a daemon listens unless told otherwise.
    pub(crate) fn default_socket(&self) -> PathBuf {
        self.run_dir.join("control.sock")
    }
}

pub(super) fn level(text: &str) -> Result<fordway_config::LevelFilter, &'static str> {
    let known = fordway_config::LOG_LEVELS.iter().find(|(word, _)| *word == text);
    known.map(|(_, level)| *level).ok_or("write off, error, warn, info, debug or trace")
}
