//! What can go wrong, and the exit code it means.

use std::path::PathBuf;

use fordway_data::error::DataError;

/// Exit code: everything asked for was done.
pub(crate) const EXIT_DONE: u8 = 0;
/// Exit code: something failed.
pub(crate) const EXIT_FAILED: u8 = 1;
/// Exit code: the command line is wrong.
pub(crate) const EXIT_USAGE: u8 = 2;
/// Exit code: not done, because something is not installed.
pub(crate) const EXIT_SKIPPED: u8 = 4;

/// An error of the workbench.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LabError {
    /// What was read or written is wrong.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A program could not be started.
    #[error("cannot start `{argv}`: {source}")]
    Start {
        /// The command line.
        argv: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A program ended with an error.
    #[error("`{argv}` ended with {status}: {stderr}")]
    Command {
        /// The command line.
        argv: String,
        /// Exit status in words.
        status: String,
        /// The last lines it wrote.
        stderr: String,
    },
    /// A program did not end in time.
    #[error("`{argv}` did not end within {seconds} s")]
    Timeout {
        /// The command line.
        argv: String,
        /// The deadline that passed.
        seconds: u64,
    },
    /// A mechanism was started but does not carry packets.
    #[error("{mechanism} does not come up: {why}")]
    NotReady {
        /// The mechanism's name in the experiment.
        mechanism: String,
        /// The last thing seen.
        why: String,
    },
    /// A mechanism that had come up did not carry a load.
    #[error("{0}")]
    Failed(String),
    /// The tester did not do what was asked of it.
    #[error("the tester: {0}")]
    Tester(String),
    /// Output of a tool that is not as expected.
    #[error("cannot read the output of {tool}: {why}")]
    Parse {
        /// The tool.
        tool: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The user asked for something that does not exist or does not fit.
    #[error("{0}")]
    Usage(String),
    /// Something needed is not installed on this machine.
    #[error("{0}")]
    Missing(String),
    /// What is watched can't be asked.
    #[error("{0}")]
    Watched(String),
    /// Something that was to be done on another host failed there.
    #[error("on host {host}: {why}")]
    There {
        /// Its name in the hosts file.
        host: String,
        /// What that host's end said.
        why: String,
    },
    /// Another host can't be reached, or its end has gone.
    #[error("host {host}: {why}")]
    Host {
        /// Its name in the hosts file.
        host: String,
        /// What happened, and what helps.
        why: String,
    },
    /// A guest that could not be made, or did not do what it was booted for.
    #[error("guest: {0}")]
    Guest(String),
    /// Ctrl-C or SIGTERM.
    #[error("interrupted")]
    Interrupted,
}

impl From<fordway_load::Unfit> for LabError {
    fn from(unfit: fordway_load::Unfit) -> Self {
        Self::Usage(unfit.0)
    }
}

impl LabError {
    /// The exit code that this error means.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Data(DataError::Usage(_) | DataError::Experiment(_)) => {
                EXIT_USAGE
            }
            Self::Missing(_) => EXIT_SKIPPED,
            _ => EXIT_FAILED,
        }
    }

    /// Whether nothing more can be written: what is measured from here on would be lost.
    pub(crate) fn is_no_room(&self) -> bool {
        matches!(self, Self::Data(error) if error.is_no_room())
    }

    /// Whether the run must end here; any other error is that of one trial.
    pub(crate) fn ends_the_run(&self) -> bool {
        matches!(self, Self::Interrupted) || self.is_lost_host() || self.is_no_room()
    }

    /// Whether a host has gone: what was under way on it is lost, and nothing more can be measured.
    pub(crate) fn is_lost_host(&self) -> bool {
        matches!(self, Self::Host { .. })
    }

    /// Whether the mechanism failed, and not the workbench.
    pub(crate) fn is_the_mechanisms(&self) -> bool {
        matches!(self, Self::NotReady { .. } | Self::Failed(_))
    }

    /// Wraps an input/output error with the file it happened on.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let wrap = DataError::file(path);
        move |source| wrap(source).into()
    }
}

/// Result of the workbench's own functions.
pub(crate) type Result<T> = std::result::Result<T, LabError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_ends_the_run_and_any_other_error_is_one_trials() {
        let file = |kind: std::io::ErrorKind| LabError::file("/x")(kind.into());
        assert!(file(std::io::ErrorKind::StorageFull).ends_the_run());
        assert!(file(std::io::ErrorKind::ReadOnlyFilesystem).ends_the_run());
        assert!(LabError::Interrupted.ends_the_run());
        assert!(!file(std::io::ErrorKind::NotFound).ends_the_run());
        assert!(!LabError::Missing(String::new()).ends_the_run());
    }
}
