//! A program that ends with the test.

use std::process::{Child, Command, ExitStatus};

/// A process; it is killed when dropped.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Process {
        Process(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        fordway_testhost::wait(&mut self.0, "a process")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
