//! Files of a run's folder.

use std::path::Path;

use crate::error::{DataError, Result};

/// Writes a whole file, making its folder when there is none.
pub fn write_file(path: &Path, content: &[u8]) -> Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(DataError::file(parent))?;
    }
    std::fs::write(path, content).map_err(DataError::file(path))
}
