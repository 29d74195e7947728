//! Why an operation failed, and what to do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why this host, device or configuration can't have the kernel engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// One sentence without a full stop.
    pub reason: String,
    /// The way out, where there is one: one sentence without a full stop.
    pub hint: Option<String>,
}

impl Unsupported {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Unsupported { reason: reason.into(), hint: None }
    }

    pub(crate) fn with_hint(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Unsupported { reason: reason.into(), hint: Some(hint.into()) }
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Unsupported {}

/// Why an operation failed. The text names operation, object and reason; [`Error::hint`] gives the
/// way out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel engine is not for this host, device or configuration.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),

    /// The kernel refused programs or maps.
    #[error("cannot load the {object} programs: {source}{}", log_lines(log))]
    Load {
        /// Which object: `tc` or `xdp`.
        object: &'static str,
        /// The kernel's reason.
        source: io::Error,
        /// The last lines of the verifier's log; empty if it was not the verifier.
        log: String,
    },

    /// Another program has the device's XDP hook.
    #[error("another XDP program is attached to {device}")]
    Busy {
        /// Name or index of the device.
        device: String,
    },

    /// A program can't be attached, switched or detached.
    #[error("cannot {operation} {device}: {source}")]
    Attach {
        /// What was tried, such as `attach to the egress of`.
        operation: String,
        /// Name or index of the device.
        device: String,
        /// The kernel's reason.
        source: io::Error,
    },

    /// No device has the index.
    #[error("there is no device with index {ifindex}")]
    NoDevice {
        /// The index.
        ifindex: u32,
    },

    /// A pin can't be made, opened or removed.
    #[error("cannot {operation} {}: {source}", path.display())]
    Pin {
        /// What was tried.
        operation: &'static str,
        /// The pin or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },

    /// A map can't be read or written.
    #[error("cannot {operation} map {map}: {source}")]
    Map {
        /// What was tried.
        operation: &'static str,
        /// The map's name.
        map: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },

    /// A program can't be run on a test frame.
    #[error("cannot run {program} on a frame: {source}")]
    Run {
        /// The program's name.
        program: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl Error {
    /// The way out, where there is one: one sentence without a full stop.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Error::Unsupported(unsupported) => return unsupported.hint.clone(),
            Error::Busy { device } => {
                return Some(format!(
                    "see what it is with `ip link show {device}`; choose another attach point, or take that program off"
                ));
            }
            Error::Load { source, .. }
            | Error::Attach { source, .. }
            | Error::Pin { source, .. }
            | Error::Map { source, .. }
            | Error::Run { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => {
                    "CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON are needed (or root)"
                }
                _ => return None,
            },
            Error::NoDevice { .. } => return None,
        };
        Some(hint.to_owned())
    }
}

fn log_lines(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("\n{log}") }
}
