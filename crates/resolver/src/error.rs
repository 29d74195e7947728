//! Errors of resolvers, lookups, and single tries.

use std::io;
use std::path::PathBuf;

use fordway_dns64::Failure;
use rustix::io::Errno;
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
        source: io::Error,
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

/// Why a server has given no answer to a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptError {
    /// It can't be reached, or its certificate is not valid.
    Unreachable,
    /// This host has no socket, port or memory left.
    Exhausted,
    /// The connection was closed with the question unanswered.
    Closed,
    /// What came can't be read.
    Malformed,
    /// The answer by UDP is truncated.
    Truncated,
    /// The answer by UDP has its name in another case.
    OtherCase,
    /// The response by UDP is an error without a question: it may be forged by guessing port and identifier.
    NoQuestion,
    /// The answer by UDP has no cookie, or not the right one: of a server that has given one before.
    NoCookie,
    /// The server wants to be shown the cookie that it has just given.
    BadCookie,
    /// So many datagrams do not answer the query that an attacker seems to guess.
    Suspicious,
}

impl From<io::Error> for AttemptError {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(
                Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::ADDRNOTAVAIL,
            ) => Self::Exhausted,
            _ => Self::Unreachable,
        }
    }
}
