//! Waiting for packets, with a way to be woken.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// Wakes threads that wait on a queue.
///
/// Clones share one state: once woken, every wait with any clone returns at once until a call of [`Waker::clear`].
/// One waker that is never cleared is thus a stop signal for any number of threads.
#[derive(Clone, Debug)]
pub struct Waker {
    event: Arc<OwnedFd>,
}

impl Waker {
    /// Makes a waker that has not been woken.
    ///
    /// Errors: the process is out of descriptors (`EMFILE`, `ENFILE`) or memory.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event: Arc::new(event) })
    }

    /// Wakes all present and future waits until [`Waker::clear`].
    pub fn wake(&self) {
        // The only failure is EAGAIN when the counter is full: then it is readable, which is what is wanted.
        let _ = rustix::io::write(&*self.event, &1u64.to_ne_bytes());
    }

    /// Takes the wake-ups back; tells whether there had been one.
    pub fn clear(&self) -> bool {
        rustix::io::read(&*self.event, &mut [0u8; 8]).is_ok()
    }
}

impl AsFd for Waker {
    /// The event descriptor, readable once woken; for a poller of one's own.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// What a wait ended for. All false: the time was up, or a signal came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Ready {
    /// A packet can be received.
    pub readable: bool,
    /// The waker was woken (and still is).
    pub woken: bool,
    /// The interface was deleted.
    pub gone: bool,
}

/// Waits until `queue` is readable or gone, `waker` is woken, `timeout` is over or a signal was handled.
pub(crate) fn wait(
    queue: BorrowedFd<'_>,
    waker: &Waker,
    timeout: Option<Duration>,
) -> io::Result<Ready> {
    // A time too long for the kernel's clock is as good as none.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    let mut fds = [
        PollFd::from_borrowed_fd(queue, PollFlags::IN),
        PollFd::from_borrowed_fd(waker.as_fd(), PollFlags::IN),
    ];
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(Ready::default()),
        Err(error) => return Err(error.into()),
    }
    let queue = fds[0].revents();
    let gone = queue.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
    Ok(Ready {
        readable: queue.contains(PollFlags::IN) && !gone,
        woken: fds[1].revents().contains(PollFlags::IN),
        gone,
    })
}
