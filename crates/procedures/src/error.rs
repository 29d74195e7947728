//! Why a procedure ended without a result.

/// Why a procedure ended without a result; `E` is the Tester's own error.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Ended<E> {
    /// The Tester could not run a trial.
    #[error("the tester failed: {0}")]
    Tester(E),
    /// The caller cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The Tester reports more frames received than sent: its counts can't be used.
    #[error("the tester reports {received} frames received of {sent} sent")]
    Counts {
        /// Frames sent.
        sent: u64,
        /// Frames received, without duplicates.
        received: u64,
    },
    /// The generator did not reach the rate in any of several attempts, so the trial says nothing about the device.
    #[error("the generator sent {sent} of {intended} frames in the last of {attempts} attempts")]
    Generator {
        /// Frames sent.
        sent: u64,
        /// Frames that were ordered.
        intended: u64,
        /// Trials that were run.
        attempts: u32,
    },
    /// The Tester's report lacks what was ordered.
    #[error("the report of a trial lacks {0}")]
    Missing(&'static str),
    /// Test phase 1 lost frames, so the table is not filled (RFC 9693 section 4.2).
    #[error("test phase 1: {received} of {sent} frames arrived, so the table is not full")]
    NotFilled {
        /// Frames sent, one per connection.
        sent: u64,
        /// Frames received.
        received: u64,
    },
    /// A precondition of the RFC does not hold.
    #[error("{0}")]
    Precondition(&'static str),
}

impl<E> Ended<Ended<E>> {
    /// The reason of a procedure whose Tester is itself a procedure.
    pub fn flatten(self) -> Ended<E> {
        match self {
            Self::Tester(inner) => inner,
            Self::Cancelled => Ended::Cancelled,
            Self::Counts { sent, received } => Ended::Counts { sent, received },
            Self::Generator { sent, intended, attempts } => {
                Ended::Generator { sent, intended, attempts }
            }
            Self::Missing(what) => Ended::Missing(what),
            Self::NotFilled { sent, received } => Ended::NotFilled { sent, received },
            Self::Precondition(what) => Ended::Precondition(what),
        }
    }
}
