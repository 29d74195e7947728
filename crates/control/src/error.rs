//! Why the daemon could not be asked, or has not done what it was asked.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::ParseError;

/// Why a request has failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No daemon listens on the socket.
    #[error("no daemon listens on the control socket {}", .0.display())]
    Absent(PathBuf),
    /// No reply came that can be read.
    #[error("no answer on the control socket {}: {text}", .socket.display())]
    NoAnswer {
        /// The socket.
        socket: PathBuf,
        /// What was wrong.
        text: String,
        /// What to do about it.
        hint: Option<&'static str>,
    },
    /// The request was not understood, or the reply is that to another one.
    #[error("the daemon on {} says: {text}", .socket.display())]
    Says {
        /// The socket.
        socket: PathBuf,
        /// What it says.
        text: String,
    },
    /// There is no translator of this name.
    #[error("no translator is called {0}")]
    Unknown(String),
    /// It was understood and could not be done.
    #[error("{text}")]
    Failed {
        /// A sentence, or a report of several lines.
        text: String,
        /// What to do about it.
        hint: Option<String>,
        /// The configuration is at fault.
        config: bool,
    },
}

impl Error {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            Error::Absent(_) => {
                Some("start one (fordway run -c FILE), or name its socket with --socket")
            }
            Error::NoAnswer { hint, .. } => *hint,
            Error::Failed { hint, .. } => hint.as_deref(),
            Error::Says { .. } | Error::Unknown(_) => None,
        }
    }

    /// What reading or writing met.
    pub(crate) fn io(socket: &Path, error: &io::Error) -> Error {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::no_answer(
                socket,
                "it takes too long",
                "the daemon is busy or stopped: its log says what it does",
            ),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Error::closed(socket),
            ErrorKind::PermissionDenied => Error::no_answer(
                socket,
                error.to_string(),
                "the socket is for root; members of the group of [control] read_group may read",
            ),
            _ => Error::NoAnswer { socket: socket.to_owned(), text: error.to_string(), hint: None },
        }
    }

    pub(crate) fn closed(socket: &Path) -> Error {
        let text = "the daemon has closed the connection";
        Error::no_answer(socket, text, "it may just be ending: its log says why")
    }

    pub(crate) fn parse(socket: &Path, error: &ParseError) -> Error {
        let hint = match error {
            ParseError::Protocol(_) => "use the fordway program of the daemon's version",
            ParseError::Json(_) => "are the daemon and this program of one version?",
        };
        Error::no_answer(socket, error.to_string(), hint)
    }

    fn no_answer(socket: &Path, text: impl Into<String>, hint: &'static str) -> Error {
        Error::NoAnswer { socket: socket.to_owned(), text: text.into(), hint: Some(hint) }
    }
}
