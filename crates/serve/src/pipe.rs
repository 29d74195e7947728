//! Pipes, through which octets go from socket to socket without being copied.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Once;

use rustix::io::Errno;
use rustix::pipe::{
    PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice,
};

/// Octets that are taken at once: what a direction whose reader is slow makes a relay hold, beside the sockets'
/// buffers.
pub const CHUNK: usize = 256 << 10;

/// Octets that are forwarded before another connection is served.
pub const TURN: u64 = 2 << 20;

/// Room of a pipe, in octets. The kernel counts it in pages, and a segment's octets lie on several that are not full;
/// so this is four times what is read at once.
const ROOM: usize = 4 * CHUNK;

/// The default size of a pipe while the user has room left (pipe(7)).
const USUAL: usize = 64 << 10;

/// Pipes of a thread that are enlarged.
const LARGE: usize = 8;

/// Pipes that are kept for the next one.
const SPARE: usize = 16;

/// A pipe.
#[derive(Debug)]
struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
    /// It is enlarged.
    _large: Option<Rc<()>>,
}

impl Pipe {
    const FLAGS: SpliceFlags = SpliceFlags::NONBLOCK.union(SpliceFlags::MOVE);
}

/// One direction from socket to socket: octets that were read and not yet written, in a pipe that is borrowed as long as
/// there are any.
#[derive(Debug, Default)]
pub struct Splice {
    pipe: Option<Pipe>,
    held: usize,
}

impl Splice {
    /// Octets that were read and not yet written.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Borrows a pipe, unless it has one; `false`: the system has none left.
    pub fn borrow_pipe(&mut self, pipes: &mut Pipes) -> bool {
        self.pipe = self.pipe.take().or_else(|| pipes.lend());
        self.pipe.is_some()
    }

    /// Returns the pipe if nothing is in it.
    pub fn return_pipe(&mut self, pipes: &mut Pipes) {
        if self.held == 0
            && let Some(pipe) = self.pipe.take()
        {
            pipes.give(pipe);
        }
    }

    /// Reads what a socket has, [`CHUNK`] octets at most; 0: it has ended, or urgent data is next. There must be a pipe
    /// with nothing in it: EAGAIN would not tell which of both has no room or no octets.
    pub fn read(&mut self, from: impl AsFd) -> Result<usize, Errno> {
        let pipe = self.pipe.as_ref().ok_or(Errno::BADF)?;
        self.held = splice(from, None, &pipe.into, None, CHUNK, Pipe::FLAGS)?;
        Ok(self.held)
    }

    /// Writes what is held to a socket, as far as it has room; tells how many octets.
    pub fn write(&mut self, to: impl AsFd) -> Result<usize, Errno> {
        let pipe = self.pipe.as_ref().ok_or(Errno::BADF)?;
        let written = splice(&pipe.out, None, to, None, self.held, Pipe::FLAGS)?;
        self.held = self.held.saturating_sub(written);
        Ok(written)
    }
}

/// Pipes with nothing in them.
///
/// A process without privileges gets pipes of two pages when its pipes have more room together than
/// /proc/sys/fs/pipe-user-pages-soft says (16,384 pages by default). So only [`LARGE`] pipes of a thread are enlarged:
/// fast connections return theirs at once and borrow the same ones again and again; connections with slow readers need
/// no room, but would keep it.
#[derive(Debug, Default)]
pub struct Pipes {
    spare: Vec<Pipe>,
    /// Each enlarged pipe has one more.
    large: Rc<()>,
}

impl Pipes {
    /// A pipe; `None` if the system has none left.
    fn lend(&mut self) -> Option<Pipe> {
        if let Some(pipe) = self.spare.pop() {
            return Some(pipe);
        }
        let (out, into) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).ok()?;
        let may_be_large = Rc::strong_count(&self.large) <= LARGE;
        // Where that is refused, the default size will do.
        let is_large = may_be_large && fcntl_setpipe_size(&into, ROOM).is_ok();
        if !is_large && fcntl_getpipe_size(&into).is_ok_and(|size| size < USUAL) {
            tell_once();
        }
        Some(Pipe { out, into, _large: is_large.then(|| Rc::clone(&self.large)) })
    }

    /// Takes a pipe back, which must be empty.
    fn give(&mut self, pipe: Pipe) {
        if self.spare.len() < SPARE {
            self.spare.push(pipe);
        }
    }
}

/// Logs once that pipes are small, which only the operator can change.
fn tell_once() {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        tracing::warn!(
            "the system has little room left for pipes, so octets are forwarded in small pieces: a higher \
             fs.pipe-user-pages-soft (sysctl) gives more"
        );
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(pipe: &Pipe) -> usize {
        fcntl_getpipe_size(&pipe.into).unwrap()
    }

    #[test]
    fn few_pipes_are_large_however_many_there_are() {
        let mut pipes = Pipes::default();
        // Where the user has used its room up, there are none.
        let possible = pipes.lend().map_or(0, |pipe| size(&pipe)) >= ROOM;
        let mut lent: Vec<Pipe> = (0..40).map(|_| pipes.lend().unwrap()).collect();
        let large = |lent: &[Pipe]| lent.iter().filter(|pipe| size(pipe) >= ROOM).count();
        assert_eq!(large(&lent), if possible { LARGE } else { 0 });
        // One that is closed with its octets makes room for another; one that comes back is lent again.
        lent.remove(0);
        lent.push(pipes.lend().unwrap());
        assert_eq!(large(&lent), if possible { LARGE } else { 0 });
        lent.drain(..).for_each(|pipe| pipes.give(pipe));
        assert_eq!(pipes.spare.len(), SPARE);
    }
}
