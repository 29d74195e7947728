//! Where a tester stands, and what it opens there.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::net::netdevice::name_to_index;
use serde::{Deserialize, Serialize};

use rustix::thread::{
    CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_getaffinity, sched_setaffinity,
};

use crate::frame::CHECK_SEQUENCE;
use crate::program::Program;
use crate::sys::{HEADROOM, Shape, Socket};
use crate::{Error, LARGEST, Result};

/// Frames in a socket's memory that are on their way out.
const SEND: u32 = 2048;
/// Most frames that may wait in a socket's memory.
const MOST_WAITING: u32 = 1 << 17;
/// Time for the kernel to release a queue whose last socket was closed a moment ago.
const RELEASE: Duration = Duration::from_secs(10);

/// One end: a device that leads to the device under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Name of the device.
    pub device: String,
    /// Its network namespace: a file that names it (`/run/netns/NAME`). None: the caller's.
    pub namespace: Option<PathBuf>,
    /// Link address of frames that leave.
    pub own: [u8; 6],
    /// Link address to which they go: the device under test's.
    pub next: [u8; 6],
    /// Receive queues of the device; all are served.
    pub queues: u32,
}

/// What puts frames on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sending {
    /// Sockets of AF_XDP: on all devices, and without a copy where the driver can.
    Sockets,
    /// A program that the kernel repeats over live frames (Linux 5.18): on devices whose driver takes redirected frames. On a
    /// veth it sends several times as many as a socket, for which each frame becomes a packet buffer. The device at the
    /// other end of a veth then needs receive offload (`ethtool -K DEVICE gro on`) or a program of its own. Opening the tester
    /// sends 64 frames of EtherType 0x88b5 to each next hop, to find whether it can. It keeps one processor busy for each
    /// direction during a trial. Learning frames are sent by sockets, as are trials with more than eight steps, and those
    /// whose pairs of networks start one after the other.
    Program,
}

/// What a tester is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// The client end.
    pub client: End,
    /// The server end.
    pub server: End,
    /// Octets of the largest frame that a trial may have, its check sequence included.
    pub largest_frame: u16,
    /// Whether drivers are asked for zero-copy; those that can't copy.
    pub zero_copy: bool,
    /// Whether one thread serves all queues of both ends. Otherwise each queue has one.
    pub one_thread: bool,
    /// What sends.
    pub sending: Sending,
    /// Whether sockets send where the kernel or a driver refuses the program; [`crate::Outcome::refusal`] says so. Otherwise
    /// the tester is not opened.
    pub falls_back: bool,
    /// Frames that may wait in a socket's memory for the tester: a power of two.
    pub waiting: u32,
    /// Processors to which threads are bound, in turn. Empty: programs send on the last processors that the caller may use, and
    /// the system places all other threads.
    pub processors: Vec<usize>,
}

impl Setup {
    /// Two ends with a thread for each queue.
    pub fn new(client: End, server: End) -> Self {
        Self {
            client,
            server,
            largest_frame: 1518,
            zero_copy: true,
            one_thread: false,
            sending: Sending::Sockets,
            falls_back: false,
            waiting: 8192,
            processors: Vec::new(),
        }
    }

    /// The sockets that this needs.
    pub(crate) fn shape(&self) -> Result<Shape> {
        if self.largest_frame > LARGEST {
            return Err(Error::Unfit(format!(
                "frames of {} octets: a socket's memory holds up to {LARGEST}",
                self.largest_frame
            )));
        }
        if !self.waiting.is_power_of_two() || self.waiting > MOST_WAITING {
            let (waiting, most) = (self.waiting, MOST_WAITING);
            let why = format!("{waiting} frames wait: a power of two up to {most} can");
            return Err(Error::Unfit(why));
        }
        let octets = usize::from(self.largest_frame - self.largest_frame.min(CHECK_SEQUENCE));
        let chunk = if octets + HEADROOM <= 2048 { 2048 } else { 4096 };
        Ok(Shape { receive: self.waiting, send: SEND, chunk, zero_copy: self.zero_copy })
    }
}

/// Opens an end, in its namespace.
pub(crate) fn open(end: &End, shape: Shape) -> std::io::Result<(Program, Vec<Socket>)> {
    let device = index(end)?;
    let program = Program::attach(device, end.queues)?;
    let mut sockets = Vec::new();
    for queue in 0..end.queues {
        let socket = claim(device, queue, shape)?;
        program.redirect(queue, socket.descriptor())?;
        sockets.push(socket);
    }
    Ok((program, sockets))
}

/// The number of an end's device, in its namespace.
pub(crate) fn index(end: &End) -> std::io::Result<u32> {
    let any = std::net::UdpSocket::bind("[::]:0")?;
    Ok(name_to_index(&any, &end.device)?)
}

/// Opens a socket; waits for a queue that is being released.
fn claim(device: u32, queue: u32, shape: Shape) -> std::io::Result<Socket> {
    let deadline = Instant::now() + RELEASE;
    loop {
        match Socket::open(device, queue, shape) {
            Err(error)
                if error.kind() == std::io::ErrorKind::ResourceBusy
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(2));
            }
            other => return other,
        }
    }
}

/// Does something in a network namespace, on a thread of its own.
pub(crate) fn elsewhere<T: Send>(
    place: Option<&PathBuf>,
    work: impl FnOnce() -> std::io::Result<T> + Send,
) -> std::io::Result<T> {
    let Some(place) = place else { return work() };
    let thread = || {
        let named = |error: std::io::Error| {
            std::io::Error::new(error.kind(), format!("{}: {error}", place.display()))
        };
        let there = std::fs::File::open(place).map_err(named)?;
        move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&there),
            Some(LinkNameSpaceType::Network),
        )?;
        work()
    };
    let joined = std::thread::scope(|scope| scope.spawn(thread).join());
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Processors on which the calling thread may run, the last one first: the first one has the most interrupts.
pub(crate) fn allowed() -> std::io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).rev().filter(|number| set.is_set(*number)).collect())
}

/// Keeps the calling thread on a processor.
pub(crate) fn bind(processor: usize) -> std::io::Result<()> {
    let mut one = CpuSet::new();
    one.set(processor);
    Ok(sched_setaffinity(None, &one)?)
}
