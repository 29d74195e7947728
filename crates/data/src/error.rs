//! What can go wrong with what is read and written here.

use std::path::PathBuf;

/// An error of a file, a table or a figure.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// An artefact does not hold what it should.
    #[error("{}: {why}", path.display())]
    Artefact {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The report could not be drawn.
    #[error("cannot draw {what}: {why}")]
    Draw {
        /// The figure or page.
        what: String,
        /// What the library said.
        why: String,
    },
    /// An experiment file is wrong.
    #[error("the experiment file is refused\n\n{0}")]
    Experiment(Box<crate::findings::Findings>),
    /// The user asked for something that does not exist or does not fit.
    #[error("{0}")]
    Usage(String),
}

impl DataError {
    /// Whether nothing more can be written: what is measured from here on would be lost.
    pub fn is_no_room(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        let Self::File { source, .. } = self else { return false };
        matches!(source.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem)
    }

    /// Wraps an input/output error with the file it happened on.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, DataError>;
