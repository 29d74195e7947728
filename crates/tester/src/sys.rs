//! What is shared with the kernel: the memory and the four rings of a socket of AF_XDP; variables of a program.
//!
//! All `unsafe` of this crate is here. Of the known crates for these rings one has a licence (EUPL) that does not go with
//! Apache-2.0 and MIT, and the other ones link a libbpf of their own beside ours.

use std::io::{Error, ErrorKind, Result};
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use libbpf_rs::libbpf_sys;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpDescOptions,
    XdpRingFlags, XdpRingOffset, XdpStatistics, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SendFlags, SocketType, bind, send, socket, sockopt};

/// Octets that the kernel keeps in front of a received frame (`XDP_PACKET_HEADROOM`).
pub(crate) const HEADROOM: usize = 256;
/// Octets of the mark that the program puts in front of a frame: the time of arrival and its complement.
const MARK: usize = 16;
/// What a socket may have under way in the kernel, in octets of its accounting: the rings are the limit.
const SEND_BUFFER: usize = 256 << 20;

/// What a socket is opened for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Received frames that wait for this process: a power of two.
    pub(crate) receive: u32,
    /// Frames on their way out: a power of two.
    pub(crate) send: u32,
    /// Octets of a chunk of memory, which holds one frame: 2048 or 4096.
    pub(crate) chunk: u32,
    /// Whether the driver may be asked for zero-copy.
    pub(crate) zero_copy: bool,
}

/// A region of memory shared with the kernel.
#[derive(Debug)]
struct Region {
    start: *mut u8,
    length: usize,
}

impl Region {
    /// Memory of this process.
    fn anonymous(length: usize) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: a new mapping at a place of the kernel's choice; it touches no other memory.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), length, protection, flags) }?;
        Ok(Self { start: start.cast(), length })
    }

    /// A ring of a socket, or the variables of a program.
    fn ring(descriptor: BorrowedFd<'_>, offset: u64, length: usize) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let none = std::ptr::null_mut();
        // SAFETY: a new mapping at a place of the kernel's choice; it touches no other memory.
        let start = unsafe { mmap(none, length, protection, flags, descriptor, offset) }?;
        Ok(Self { start: start.cast(), length })
    }

    /// Octets of the region; `None` where they are not all in it.
    fn octets(&self, at: usize, length: usize) -> Option<NonNull<[u8]>> {
        if at.checked_add(length)? > self.length {
            return None;
        }
        let start = NonNull::new(self.start.wrapping_add(at))?;
        Some(NonNull::slice_from_raw_parts(start, length))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `anonymous` or `ring`, to which no borrow can be left.
        let _ = unsafe { munmap(self.start.cast(), self.length) };
    }
}

// SAFETY: a region belongs to its owner, like a box; the kernel does not mind which thread uses it.
unsafe impl Send for Region {}

/// One side of a ring between this process and the kernel. `T` is what it holds.
#[derive(Debug)]
struct Ring<T> {
    region: Region,
    /// Places in the region: of this process's index, the kernel's index, flags, entries; octets.
    own_at: usize,
    other_at: usize,
    flags_at: Option<usize>,
    entries_at: usize,
    size: u32,
    /// This process's index, published by [`Ring::publish`].
    own: u32,
    /// The kernel's index as last read.
    other: u32,
    kind: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// `producer`: this process puts entries in; otherwise it takes them out.
    fn new(
        descriptor: BorrowedFd<'_>,
        page: u64,
        offsets: &XdpRingOffset,
        size: u32,
        producer: bool,
    ) -> Result<Self> {
        let entries_at = offsets.desc as usize;
        let length = entries_at + size as usize * size_of::<T>();
        let region = Region::ring(descriptor, page, length)?;
        let (own, other) = if producer {
            (offsets.producer, offsets.consumer)
        } else {
            (offsets.consumer, offsets.producer)
        };
        let words = [Some(own), Some(other), offsets.flags];
        let fits = |at: u64| at as usize + size_of::<u32>() <= entries_at && at.is_multiple_of(4);
        if !size.is_power_of_two()
            || !entries_at.is_multiple_of(align_of::<T>())
            || !words.into_iter().flatten().all(fits)
        {
            return Err(Error::new(ErrorKind::InvalidData, "a ring that this process can't use"));
        }
        Ok(Self {
            region,
            own_at: own as usize,
            other_at: other as usize,
            flags_at: offsets.flags.map(|at| at as usize),
            entries_at,
            size,
            own: 0,
            other: 0,
            kind: PhantomData,
        })
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `new` has checked that the word is inside the region and aligned. Both sides use it atomically.
        unsafe { AtomicU32::from_ptr(self.region.start.add(at).cast()) }
    }

    fn entry(&self, index: u32) -> *mut T {
        let place = (index & (self.size - 1)) as usize * size_of::<T>();
        // SAFETY: the index is below the size, whose entries `new` has mapped.
        unsafe { self.region.start.add(self.entries_at + place).cast() }
    }

    /// Entries that the other side has produced and this one has not taken yet; asks the kernel when fewer than `enough`
    /// are known.
    fn filled(&mut self, enough: u32) -> u32 {
        if self.other.wrapping_sub(self.own) < enough {
            self.other = self.word(self.other_at).load(Ordering::Acquire);
        }
        self.other.wrapping_sub(self.own)
    }

    /// Entries that may be put in; asks the kernel when fewer than `enough` are known.
    fn vacant(&mut self, enough: u32) -> u32 {
        let vacant = |ring: &Self| ring.size - ring.own.wrapping_sub(ring.other);
        if vacant(self) < enough {
            self.other = self.word(self.other_at).load(Ordering::Acquire);
        }
        vacant(self)
    }

    /// Takes the next entry, if there is one.
    fn take(&mut self) -> Option<T> {
        if self.filled(1) == 0 {
            return None;
        }
        // SAFETY: the kernel has handed this entry over and does not write it before `publish`; its octets are numbers.
        let entry = unsafe { self.entry(self.own).read() };
        self.own = self.own.wrapping_add(1);
        Some(entry)
    }

    /// Puts an entry in; whether there was room.
    fn put(&mut self, entry: T) -> bool {
        if self.vacant(1) == 0 {
            return false;
        }
        // SAFETY: the kernel has released this entry and does not read it before `publish`.
        unsafe { self.entry(self.own).write(entry) };
        self.own = self.own.wrapping_add(1);
        true
    }

    /// Shows the kernel what was put in, or taken out.
    fn publish(&self) {
        self.word(self.own_at).store(self.own, Ordering::Release);
    }

    /// Entries put in and published that the kernel has not taken yet.
    fn pending(&self) -> u32 {
        self.own.wrapping_sub(self.word(self.other_at).load(Ordering::Acquire))
    }

    /// Whether the kernel waits to be told of new entries.
    fn needs_wakeup(&self) -> bool {
        self.flags_at.is_none_or(|at| {
            self.word(at).load(Ordering::Relaxed) & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
        })
    }
}

/// A socket at one queue of a device. Each chunk of its memory is, at any time, in the list of free ones, in one ring, or
/// lent to a closure.
#[derive(Debug)]
pub(crate) struct Socket {
    // The first field is dropped first: the socket is closed before its memory vanishes.
    descriptor: OwnedFd,
    memory: Region,
    chunk: usize,
    fill: Ring<u64>,
    completion: Ring<u64>,
    received: Ring<XdpDesc>,
    outgoing: Ring<XdpDesc>,
    free: Vec<u64>,
    zero_copy: bool,
}

impl Socket {
    /// Opens a socket at a queue of a device of the calling thread's namespace.
    pub(crate) fn open(device: u32, queue: u32, shape: Shape) -> Result<Self> {
        let descriptor = socket(AddressFamily::XDP, SocketType::RAW, None)?;
        let socket = descriptor.as_fd();
        let chunks = u64::from(shape.receive) + u64::from(shape.send);
        let memory = Region::anonymous(chunks as usize * shape.chunk as usize)?;
        let registration = XdpUmemReg {
            addr: memory.start.addr() as u64,
            len: memory.length as u64,
            chunk_size: shape.chunk,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(socket, registration)?;
        sockopt::set_xdp_umem_fill_ring_size(socket, shape.receive)?;
        sockopt::set_xdp_umem_completion_ring_size(socket, shape.send)?;
        sockopt::set_xdp_rx_ring_size(socket, shape.receive)?;
        sockopt::set_xdp_tx_ring_size(socket, shape.send)?;
        // Without the right to a larger one the usual one serves lower rates.
        let _ = sockopt::set_socket_send_buffer_size_force(socket, SEND_BUFFER);
        let at = sockopt::xdp_mmap_offsets(socket)?;
        let fill = Ring::new(socket, XDP_UMEM_PGOFF_FILL_RING, &at.fr, shape.receive, true)?;
        let completion =
            Ring::new(socket, XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr, shape.send, false)?;
        let received = Ring::new(socket, XDP_PGOFF_RX_RING, &at.rx, shape.receive, false)?;
        let outgoing = Ring::new(socket, XDP_PGOFF_TX_RING, &at.tx, shape.send, true)?;
        let zero_copy = attach(socket, device, queue, shape.zero_copy)?;
        let address = |number: u32| u64::from(number) * u64::from(shape.chunk);
        let mut opened = Self {
            descriptor,
            memory,
            chunk: shape.chunk as usize,
            fill,
            completion,
            received,
            outgoing,
            free: (0..shape.send).map(|number| address(shape.receive + number)).collect(),
            zero_copy,
        };
        for number in 0..shape.receive {
            opened.fill.put(address(number));
        }
        opened.fill.publish();
        Ok(opened)
    }

    /// Whether frames pass without being copied.
    pub(crate) fn zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// For the program's map of sockets.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Frames that can be staged now.
    pub(crate) fn room(&mut self) -> usize {
        while let Some(address) = self.completion.take() {
            self.free.push(address);
        }
        self.completion.publish();
        self.free.len()
    }

    /// Stages a frame of `length` octets that `fill` writes; it leaves with [`Socket::flush`]. Whether there was room for it.
    /// What the memory held before, a frame sent earlier, is still in it.
    pub(crate) fn stage(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        if length > self.chunk || self.outgoing.vacant(1) == 0 {
            return false;
        }
        let Some(address) = self.free.pop() else { return false };
        if let Some(mut octets) = self.memory.octets(address as usize, length) {
            // SAFETY: the octets are in the mapping. The chunk was in the list of free ones, so that neither the kernel
            // nor anyone else uses it.
            fill(unsafe { octets.as_mut() });
        }
        let options = XdpDescOptions::empty();
        self.outgoing.put(XdpDesc { addr: address, len: length as u32, options })
    }

    /// Gives the kernel what was staged. In copy mode the frames have left when this returns, unless the kernel is short
    /// of memory: then a later call sends the rest.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.outgoing.publish();
        let mut pending = self.outgoing.pending();
        while pending > 0 && self.outgoing.needs_wakeup() {
            match send(self.descriptor.as_fd(), &[], SendFlags::DONTWAIT) {
                Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let left = self.outgoing.pending();
            if left == pending {
                break;
            }
            pending = left;
        }
        Ok(())
    }

    /// Hands at most `limit` received frames to `take`, each with its time of arrival (CLOCK_MONOTONIC, ns) where the
    /// device left room for it. Returns their number.
    pub(crate) fn receive(
        &mut self,
        limit: u32,
        mut take: impl FnMut(&[u8], Option<u64>),
    ) -> usize {
        let count = self.received.filled(limit).min(limit).min(self.fill.vacant(limit));
        for _ in 0..count {
            let Some(frame) = self.received.take() else { break };
            let (at, length) = (frame.addr as usize, frame.len as usize);
            let octets = at.checked_sub(MARK).map(|front| self.memory.octets(front, MARK + length));
            if let Some(mut octets) = octets.flatten() {
                // SAFETY: the octets are in the mapping. The kernel has handed the chunk over and takes it back from the
                // fill ring only, below. The mark in front of a frame is in its chunk, whose first octets are headroom.
                let (mark, frame) = unsafe { octets.as_mut() }.split_at_mut(MARK);
                take(frame, arrival(mark));
                // The chunk's next frame may come without a mark.
                mark.fill(0);
            }
            self.fill.put(frame.addr & !(self.chunk as u64 - 1));
        }
        if count > 0 {
            self.received.publish();
            self.fill.publish();
        }
        if self.zero_copy && self.fill.needs_wakeup() {
            // Drivers that ran out of memory for frames wait for a call; nothing is received by it.
            let _ = rustix::net::recv(
                &self.descriptor,
                &mut [0u8; 0],
                rustix::net::RecvFlags::DONTWAIT,
            );
        }
        count as usize
    }

    /// What the kernel counted: losses at this socket among it.
    pub(crate) fn statistics(&self) -> Result<XdpStatistics> {
        Ok(sockopt::xdp_statistics(&self.descriptor)?)
    }
}

/// Binds a socket; whether zero-copy.
fn attach(socket: BorrowedFd<'_>, device: u32, queue: u32, zero_copy: bool) -> Result<bool> {
    let wakeup = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    if zero_copy {
        let flags = wakeup | SocketAddrXdpFlags::XDP_ZEROCOPY;
        if bind(socket, &SocketAddrXdp::new(flags, device, queue)).is_ok() {
            return Ok(true);
        }
    }
    let flags = wakeup | SocketAddrXdpFlags::XDP_COPY;
    bind(socket, &SocketAddrXdp::new(flags, device, queue))?;
    Ok(false)
}

/// The time in a mark, if it is one.
fn arrival(mark: &[u8]) -> Option<u64> {
    let word = |at: usize| Some(u64::from_ne_bytes(mark.get(at..at + 8)?.try_into().ok()?));
    let time = word(0)?;
    (word(8)? == !time).then_some(time)
}

/// Variables of programs: words of 64 bits that a program and this process share.
#[derive(Debug)]
pub(crate) struct Variables(Region);

impl Variables {
    /// The value of a map of so many octets, which can be mapped into memory.
    pub(crate) fn new(map: BorrowedFd<'_>, octets: usize) -> Result<Self> {
        Region::ring(map, 0, octets.next_multiple_of(8)).map(Self)
    }

    /// All words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is that long, page-aligned, and lives as long as `self`; the program changes it meanwhile,
        // which is what atomics are for.
        unsafe { std::slice::from_raw_parts(self.0.start.cast_const().cast(), self.0.length / 8) }
    }
}

// SAFETY: what is shared are atomics, at a place that stays the same until the drop.
unsafe impl Sync for Variables {}

/// Runs a program `times` times over live frames that begin as `frame`, `batch` at a time. A signal ends it early, which is no
/// error.
pub(crate) fn repeat(program: BorrowedFd<'_>, frame: &[u8], times: u32, batch: u32) -> Result<()> {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        repeat: times as i32,
        flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
        batch_size: batch,
        ..Default::default()
    };
    // SAFETY: the options say their own size and outlive the call, as does the frame, which the kernel only reads.
    let outcome =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if outcome == 0 || outcome == -libc::EINTR {
        return Ok(());
    }
    Err(Error::from_raw_os_error(-outcome))
}

/// Does something on a thread in a network namespace of its own, which lives as long as the file that is returned.
pub(crate) fn apart<T: Send>(
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<(T, std::fs::File)> {
    let thread = || {
        // SAFETY: tables of open files stay shared; only the thread's network is another one.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }?;
        Ok((work()?, std::fs::File::open("/proc/thread-self/ns/net")?))
    };
    let joined = std::thread::scope(|scope| scope.spawn(thread).join());
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The signal that ends a thread's [`repeat`].
pub(crate) const WAKE: libc::c_int = libc::SIGUSR1;

/// Sends [`WAKE`] to one thread of this process.
pub(crate) fn interrupt(thread: rustix::process::Pid) {
    let (process, thread) = (std::process::id(), thread.as_raw_nonzero().get());
    // SAFETY: the call takes three numbers and touches no memory. A thread that has ended is an error that means nothing here.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, WAKE) };
}
