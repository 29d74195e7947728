//! The steps of a command, which a test can end between any two.

use crate::{Code, Failure, Result};

/// How many steps a command may take. The plugin takes all; a test that ends it after some has what `kill -9` there leaves.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    left: Option<usize>,
}

impl Steps {
    /// All steps.
    #[must_use]
    pub const fn all() -> Self {
        Steps { left: None }
    }

    /// So many, then [`Code::Interrupted`] without any clean-up.
    #[must_use]
    pub const fn only(number: usize) -> Self {
        Steps { left: Some(number) }
    }

    /// Stands in front of each step that changes something.
    pub(crate) fn next(&mut self, step: &str) -> Result<()> {
        match &mut self.left {
            Some(0) => {
                Err(Failure::new(Code::Interrupted, format!("ended before this step: {step}")))
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}
