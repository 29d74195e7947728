//! Errors of resolvers and lookups.

use std::path::PathBuf;

use fordway_dns64::Failure;
use thiserror::Error;

/// Why a resolver could not be made.
#[derive(Debug, Error)]
pub enum Error {
    /// No servers.
    #[error("no upstream server is given")]
    NoServers,
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file has no usable certificate.
    #[error("{}: no certificate authority in it: {reason}", path.display())]
    Certificates {
        /// Which file.
        path: PathBuf,
        /// What was found instead.
        reason: String,
    },
    /// The system has no certificate authorities.
    #[error("the system's certificate authorities can't be read: {0}")]
    SystemCertificates(String),
    /// TLS could not be set up.
    #[error("TLS can't be set up: {0}")]
    Tls(String),
    /// A server's name can't be in a certificate.
    #[error("`{0}` is not a name that a certificate can have")]
    ServerName(String),
    /// A server's certificate is to be checked, and its name is not configured.
    #[error("`{0}` needs the name of its certificate: `#name`")]
    NameNeeded(String),
    /// A trust anchor could not be read.
    #[error("{}, line {line}: {reason}", path.display())]
    TrustAnchor {
        /// Which file.
        path: PathBuf,
        /// Where in it, from 1; 0 if it is about the whole.
        line: usize,
        /// What is wrong.
        reason: String,
    },
}

/// Why a question has no answer.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash)]
pub enum LookupError {
    /// No server answered in time (RFC 8914 section 4.24: No Reachable Authority fits).
    #[error("no upstream server answered in time")]
    Timeout,
    /// No server could be reached: refused, unreachable, or its TLS certificate is not valid.
    #[error("no upstream server could be reached")]
    Unreachable,
    /// The servers' answers can't be used: malformed, or not to the question.
    #[error("no upstream server gave a usable answer")]
    Unusable,
    /// Too many questions are under way.
    #[error("too many questions are under way")]
    Busy,
}

impl From<LookupError> for Failure {
    fn from(error: LookupError) -> Self {
        match error {
            LookupError::Timeout => Self::Timeout,
            LookupError::Unreachable => Self::Unreachable,
            LookupError::Unusable => Self::Malformed,
            LookupError::Busy => Self::Overload,
        }
    }
}
