//! One queue of a TUN device: receiving and sending packets.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;

use crate::sys;
use crate::vnet::VnetHeader;
use crate::wait::{Ready, Waker, wait};

/// The longest packet a queue hands over, in octets: an IPv6 header and a payload of 65,535.
pub const MAX_PACKET: usize = 40 + 65_535;

/// What came of [`Queue::recv`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum RecvOutcome {
    /// A packet of `len` octets lies at `buf[headroom..headroom + len]`.
    Packet {
        /// Its offload state.
        header: VnetHeader,
        /// Its length, in octets.
        len: usize,
    },
    /// No packet is waiting (`EAGAIN`).
    Empty,
    /// A packet was longer than the buffer, or exactly as long, which cannot be told apart; it is lost.
    Truncated,
    /// The kernel took a packet from the queue and could not describe it in a header (`EINVAL`), for it is a
    /// super-packet of a kind that has no number there; it is lost.
    Unreadable,
    /// The interface was deleted (`EBADFD`).
    Gone,
}

/// What came of sending one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum SendOutcome {
    /// The kernel took the packet.
    Sent,
    /// The send buffer is full (`EAGAIN`).
    Full,
    /// The interface is down (`EIO`).
    Down,
    /// The kernel has no memory for the packet (`ENOBUFS`, `ENOMEM`).
    NoBuffers,
    /// The kernel does not accept packet or header (`EINVAL`, `EMSGSIZE`, `EPROTO`): not IP, a `csum_start` outside the
    /// packet, a GSO type that does not match.
    Refused,
    /// The interface was deleted (`EBADFD`).
    Gone,
}

/// One queue of a TUN device.
///
/// Never blocks, except in [`Queue::wait`]. The kernel keeps a flow on one queue: the one that last sent a packet of
/// the flow's other direction, else one chosen by the flow's hash. Dropping the queue takes it from the device.
#[derive(Debug)]
pub struct Queue {
    fd: OwnedFd,
    index: usize,
}

impl Queue {
    pub(crate) fn new(fd: OwnedFd, index: usize) -> Self {
        Self { fd, index }
    }

    /// The queue's number, counted from 0 in the order of opening.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Receives one packet to `buf[headroom..]`, in one system call.
    ///
    /// The ten octets in front of `headroom` are overwritten with the encoded header. Room for [`MAX_PACKET`] octets
    /// and one more behind `headroom` never truncates.
    ///
    /// Errors: `InvalidInput` if `headroom` is shorter than [`VnetHeader::LEN`] or not inside `buf`; whatever the
    /// system reports and [`RecvOutcome`] has no name for.
    pub fn recv(&mut self, buf: &mut [u8], headroom: usize) -> io::Result<RecvOutcome> {
        let space = headroom
            .checked_sub(VnetHeader::LEN)
            .filter(|_| headroom < buf.len())
            .and_then(|start| buf.get_mut(start..))
            .ok_or(io::ErrorKind::InvalidInput)?;
        let received = loop {
            match rustix::io::read(&self.fd, &mut *space) {
                Ok(received) => break received,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(RecvOutcome::Empty),
                Err(Errno::INVAL) => return Ok(RecvOutcome::Unreadable),
                Err(Errno::BADFD) => return Ok(RecvOutcome::Gone),
                Err(error) => return Err(error.into()),
            }
        };
        // The driver cuts a packet to the buffer without telling.
        if received == space.len() {
            return Ok(RecvOutcome::Truncated);
        }
        let header = space.first_chunk().copied().map(VnetHeader::decode);
        match (header, received.checked_sub(VnetHeader::LEN)) {
            (Some(header), Some(len)) => Ok(RecvOutcome::Packet { header, len }),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Sends the packet `buf[start..end]` in one system call without copying, using the ten octets in front of `start`
    /// for the header.
    ///
    /// Errors: `InvalidInput` if `start` is less than [`VnetHeader::LEN`], or `start..end` is not inside `buf`;
    /// whatever the system reports and [`SendOutcome`] has no name for.
    pub fn send_in_place(
        &mut self,
        buf: &mut [u8],
        start: usize,
        end: usize,
        header: &VnetHeader,
    ) -> io::Result<SendOutcome> {
        let frame = start
            .checked_sub(VnetHeader::LEN)
            .filter(|_| start <= end)
            .and_then(|front| buf.get_mut(front..end))
            .ok_or(io::ErrorKind::InvalidInput)?;
        if let Some(front) = frame.first_chunk_mut() {
            *front = header.encode();
        }
        outcome(|| rustix::io::write(&self.fd, frame))
    }

    /// Sends `packet`.
    ///
    /// Errors: whatever the system reports and [`SendOutcome`] has no name for.
    pub fn send(&mut self, header: &VnetHeader, packet: &[u8]) -> io::Result<SendOutcome> {
        self.send_parts(header, packet, &[])
    }

    /// Sends one packet that lies in two pieces, such as a fragment's headers and its payload.
    ///
    /// Errors: whatever the system reports and [`SendOutcome`] has no name for.
    pub fn send_parts(
        &mut self,
        header: &VnetHeader,
        head: &[u8],
        body: &[u8],
    ) -> io::Result<SendOutcome> {
        let encoded = header.encode();
        let parts = [IoSlice::new(&encoded), IoSlice::new(head), IoSlice::new(body)];
        outcome(|| rustix::io::writev(&self.fd, &parts))
    }

    /// Blocks until there is a packet, the interface is gone, `waker` is woken, `timeout` is over (`None`: no limit) or
    /// a signal was handled.
    ///
    /// Errors: the kernel is out of memory (`ENOMEM`).
    pub fn wait(&self, waker: &Waker, timeout: Option<Duration>) -> io::Result<Ready> {
        wait(self.fd.as_fd(), waker, timeout)
    }

    /// Detaches the queue from the device, so that the kernel steers no packet to it any more, or attaches it again. It
    /// can send all the same. Packets waiting in it are lost.
    ///
    /// Errors: `EINVAL` if the device is single-queue or the state is already as asked for; `EBADFD` if the interface
    /// is gone.
    pub fn set_attached(&mut self, attached: bool) -> io::Result<()> {
        sys::set_queue(self.fd.as_fd(), attached)
    }
}

impl AsFd for Queue {
    /// The queue's descriptor; for a poller of one's own.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Runs one write and sorts what came of it.
fn outcome(mut write: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<SendOutcome> {
    loop {
        return Ok(match write() {
            Ok(_) => SendOutcome::Sent,
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => SendOutcome::Full,
            Err(Errno::IO) => SendOutcome::Down,
            Err(Errno::NOBUFS | Errno::NOMEM) => SendOutcome::NoBuffers,
            Err(Errno::INVAL | Errno::MSGSIZE | Errno::PROTO) => SendOutcome::Refused,
            Err(Errno::BADFD) => SendOutcome::Gone,
            Err(error) => return Err(error.into()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_cannot_describe_is_one_lost_packet() {
        // This file refuses to be read in pieces that are no multiple of eight octets.
        let file = std::fs::File::open("/proc/self/pagemap").unwrap();
        let mut queue = Queue::new(file.into(), 0);
        let mut buf = [0; VnetHeader::LEN + 1];
        let outcome = queue.recv(&mut buf, VnetHeader::LEN).unwrap();
        assert_eq!(outcome, RecvOutcome::Unreadable);
    }
}
