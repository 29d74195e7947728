//! Pipes, through which octets go from socket to socket without being copied.

use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

/// Room of a pipe, in octets. The kernel counts it in pages, and a segment's octets lie on several that are not full;
/// so this is four times what is read at once.
const ROOM: usize = 1 << 20;

/// Pipes that are kept for the next one.
const SPARE: usize = 16;

/// A pipe.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) out: OwnedFd,
    pub(super) into: OwnedFd,
}

/// Pipes with nothing in them.
///
/// A process without privileges gets smaller ones when its pipes have more room together than
/// /proc/sys/fs/pipe-user-pages-soft says. So what slow readers make the relay hold is bounded twice.
#[derive(Debug, Default)]
pub(super) struct Pipes(Vec<Pipe>);

impl Pipes {
    /// A pipe; `None` if the system has none left.
    pub(super) fn lend(&mut self) -> Option<Pipe> {
        if let Some(pipe) = self.0.pop() {
            return Some(pipe);
        }
        let (out, into) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).ok()?;
        // Where it is refused, what the system gives is enough to go on.
        let _ = fcntl_setpipe_size(&into, ROOM);
        Some(Pipe { out, into })
    }

    /// Takes a pipe back, which must be empty.
    pub(super) fn give(&mut self, pipe: Pipe) {
        if self.0.len() < SPARE {
            self.0.push(pipe);
        }
    }
}
