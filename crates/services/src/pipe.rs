//! Pipes, through which octets go from socket to socket without being copied.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// Octets that are taken at once: what a direction whose reader is slow makes a relay hold, beside the sockets'
/// buffers.
pub(crate) const CHUNK: usize = 256 << 10;

/// Octets that are passed on before another connection has its turn.
pub(crate) const TURN: u64 = 2 << 20;

/// Room of a pipe, in octets. The kernel counts it in pages, and a segment's octets lie on several that are not full;
/// so this is four times what is read at once.
const ROOM: usize = 4 * CHUNK;

/// Pipes that are kept for the next one.
const SPARE: usize = 16;

/// A pipe.
#[derive(Debug)]
pub(crate) struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
}

impl Pipe {
    const FLAGS: SpliceFlags = SpliceFlags::NONBLOCK.union(SpliceFlags::MOVE);

    /// Takes what a socket has, [`CHUNK`] octets at most; 0: it has ended, or urgent data is next. The pipe must be
    /// empty: EAGAIN would not tell which of both has no room or no octets.
    pub(crate) fn take(&self, from: impl AsFd) -> Result<usize, Errno> {
        splice(from, None, &self.into, None, CHUNK, Pipe::FLAGS)
    }

    /// Gives `held` octets, which are in the pipe, to a socket; tells how many there was room for.
    pub(crate) fn give(&self, to: impl AsFd, held: usize) -> Result<usize, Errno> {
        splice(&self.out, None, to, None, held, Pipe::FLAGS)
    }
}

/// Pipes with nothing in them.
///
/// A process without privileges gets smaller ones when its pipes have more room together than
/// /proc/sys/fs/pipe-user-pages-soft says. So what slow readers make the relay hold is bounded twice.
#[derive(Debug, Default)]
pub(crate) struct Pipes(Vec<Pipe>);

impl Pipes {
    /// A pipe; `None` if the system has none left.
    pub(crate) fn lend(&mut self) -> Option<Pipe> {
        if let Some(pipe) = self.0.pop() {
            return Some(pipe);
        }
        let (out, into) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).ok()?;
        // Where it is refused, what the system gives is enough to go on.
        let _ = fcntl_setpipe_size(&into, ROOM);
        Some(Pipe { out, into })
    }

    /// Takes a pipe back, which must be empty.
    pub(crate) fn give(&mut self, pipe: Pipe) {
        if self.0.len() < SPARE {
            self.0.push(pipe);
        }
    }
}
