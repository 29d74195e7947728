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
    #[error("{}", refusal(object, source, log))]
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
            Error::Load { log, .. } if verifier_reason(log).is_some() => {
                "engine = \"auto\" takes the user engine instead; please report this with the kernel's release and the \
                 log of --log-level debug"
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

/// Which program was refused and why, in the first line; then the log.
fn refusal(object: &str, source: &io::Error, log: &str) -> String {
    let mut text = match (refused_program(log), verifier_reason(log)) {
        (program, Some(reason)) => {
            let program = program.unwrap_or(object);
            format!("the kernel's verifier refuses the program {program}: {reason}")
        }
        _ => format!("cannot load the {object} programs: {source}"),
    };
    if !log.is_empty() {
        text.push('\n');
        text.push_str(log);
    }
    text
}

/// The program that a log of libbpf is about.
fn refused_program(log: &str) -> Option<&str> {
    let (_, after) = log.rsplit_once("prog '")?;
    after.split_once('\'').map(|(name, _)| name)
}

/// The verifier's message before its summary: lines that are neither instructions nor source. `None`: it was not the
/// verifier that refused.
fn verifier_reason(log: &str) -> Option<String> {
    let lines: Vec<&str> = log.lines().map(str::trim).collect();
    let sum = lines.iter().rposition(|line| line.starts_with("processed "))?;
    let says_why = |line: &&&str| {
        let is_instruction = line.split_once(':').is_some_and(|(number, _)| {
            !number.is_empty() && number.bytes().all(|octet| octet.is_ascii_digit())
        });
        let is_frame = ["cur state:", "old state:", ";", "libbpf:", "--"];
        !is_instruction && !is_frame.iter().any(|it| line.starts_with(it))
    };
    let mut why: Vec<&str> = lines[..sum]
        .iter()
        .rev()
        .skip_while(|line| !says_why(line))
        .take_while(|line| says_why(line))
        .take(2)
        .copied()
        .collect();
    why.reverse();
    Some(if why.is_empty() { "it does not say why".to_owned() } else { why.join("; ") })
}

/// An error of libbpf as the system's.
pub(crate) fn io_error(error: &libbpf_rs::Error) -> io::Error {
    use libbpf_rs::ErrorKind;
    let kind = match error.kind() {
        ErrorKind::NotFound => io::ErrorKind::NotFound,
        ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
        ErrorKind::AlreadyExists => io::ErrorKind::AlreadyExists,
        ErrorKind::InvalidInput => io::ErrorKind::InvalidInput,
        ErrorKind::InvalidData => io::ErrorKind::InvalidData,
        ErrorKind::OutOfMemory => io::ErrorKind::OutOfMemory,
        ErrorKind::Unsupported => io::ErrorKind::Unsupported,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(log: &str) -> Error {
        let source = io::ErrorKind::PermissionDenied.into();
        Error::Load { object: "tc", source, log: log.to_owned() }
    }

    #[test]
    fn who_refuses_which_program_and_why_stands_first() {
        let log = "8156: (0f) r0 += r1\n8157: (61) r1 = *(u32 *)(r0 +60)\n\
                   R0 unbounded memory access, make sure to bounds check any such access\n\
                   processed 31830 insns (limit 1000000)\n-- END PROG LOAD LOG --\n\
                   libbpf: prog 'fordway_interface': failed to load: -EACCES";
        let error = refused(log);
        let text = error.to_string();
        assert_eq!(
            text.lines().next(),
            Some(
                "the kernel's verifier refuses the program fordway_interface: R0 unbounded memory access, make sure \
                 to bounds check any such access"
            )
        );
        assert!(text.ends_with("-EACCES"), "the log follows: {text}");
        let hint = error.hint().unwrap();
        assert!(hint.contains("auto") && !hint.contains("CAP_BPF"), "{hint}");
    }

    #[test]
    fn states_are_no_reason() {
        let log = "libbpf: prog 'p': -- BEGIN PROG LOAD LOG --\n; flow->session = found;\ninfinite loop detected at insn 7440\ncur state: R0=1\n\
                   old state: R0=1\nprocessed 35635 insns\nlibbpf: prog 'p': failed";
        let text = refused(log).to_string();
        let first = text.lines().next().unwrap();
        assert_eq!(
            first,
            "the kernel's verifier refuses the program p: infinite loop detected at insn 7440"
        );
    }

    #[test]
    fn the_frame_of_the_log_is_no_reason() {
        let log = "libbpf: prog 'p': -- BEGIN PROG LOAD LOG --\nBPF_STX uses reserved fields\n\
                   processed 0 insns\n-- END PROG LOAD LOG --";
        let text = refused(log).to_string();
        let first = text.lines().next().unwrap();
        assert_eq!(
            first,
            "the kernel's verifier refuses the program p: BPF_STX uses reserved fields"
        );
    }

    #[test]
    fn missing_privileges_are_not_the_verifiers_business() {
        let error = refused("libbpf: failed to create map: -EPERM");
        assert!(error.to_string().starts_with("cannot load the tc programs: "), "{error}");
        assert!(error.hint().unwrap().contains("CAP_BPF"));
    }
}
