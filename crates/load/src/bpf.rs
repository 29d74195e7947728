//! The few calls of bpf(2) that the testers need, behind a safe interface.

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;

/// One instruction of a program, as the kernel reads it (RFC 9669 section 3).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    /// What to do.
    pub(super) code: u8,
    /// Destination in the low four bits, source in the high ones (little-endian hosts).
    pub(super) registers: u8,
    /// Offset of a jump or of a memory access.
    pub(super) offset: i16,
    /// Immediate value.
    pub(super) value: i32,
}

const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP: libc::c_long = 1;
const PROG_LOAD: libc::c_long = 5;
const PROG_TEST_RUN: libc::c_long = 10;
const LINK_CREATE: libc::c_long = 28;

const MAP_TYPE_ARRAY: u32 = 2;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// In the driver: a generic hook would cost the very copies that are to be avoided.
const XDP_DRIVER: u32 = 1 << 2;
/// Frames go where the program says instead of back to the caller.
const LIVE_FRAMES: u32 = 1 << 1;
/// A map that this process can have in its own memory.
const MAPPABLE: u32 = 1 << 10;

/// The argument of bpf(2): long enough for every command used here, zero where nothing is said.
#[repr(C, align(8))]
struct Attributes([u32; 32]);

impl Attributes {
    fn new() -> Self {
        Self([0; 32])
    }

    /// Sets the 32-bit field at this octet.
    fn word(mut self, at: usize, value: u32) -> Self {
        self.0[at / 4] = value;
        self
    }

    /// Sets the 64-bit field at this octet to an address.
    fn address<T: ?Sized>(mut self, at: usize, of: *const T) -> Self {
        let value = of.cast::<u8>() as u64;
        let [low, high] = [value as u32, (value >> 32) as u32];
        let halves = if cfg!(target_endian = "little") { [low, high] } else { [high, low] };
        self.0[at / 4..at / 4 + 2].copy_from_slice(&halves);
        self
    }

    /// Calls bpf(2).
    ///
    /// Every address set before must point to memory of the length that the fields beside it name,
    /// alive until this returns; memory that the command writes must have been borrowed mutably.
    fn call(&mut self, command: libc::c_long) -> Result<i32> {
        let size = std::mem::size_of::<Self>();
        // SAFETY: the pointer is to this very struct, whose size is given; what its addresses point
        // to is kept alive by the callers below, which borrow it over the call.
        let answer = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut self.0, size) };
        i32::try_from(answer).ok().filter(|a| *a >= 0).ok_or_else(Error::last_os_error)
    }

    fn descriptor(mut self, command: libc::c_long) -> Result<OwnedFd> {
        let number = self.call(command)?;
        // SAFETY: these commands return a new descriptor, which nobody else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    }
}

/// A number that a program counts up.
#[derive(Debug)]
pub(super) struct Counter(OwnedFd);

impl Counter {
    /// A counter at zero.
    pub(super) fn new() -> Result<Self> {
        let (key, value, entries) = (4, 8, 1);
        let attributes = Attributes::new().word(0, MAP_TYPE_ARRAY).word(4, key).word(8, value);
        attributes.word(12, entries).descriptor(MAP_CREATE).map(Self)
    }

    /// How a program names it.
    pub(super) fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// What it stands at.
    pub(super) fn read(&self) -> Result<u64> {
        let key = 0u32;
        let mut value = 0u64;
        Attributes::new()
            .word(0, self.0.as_raw_fd() as u32)
            .address(8, &raw const key)
            .address(16, &raw mut value)
            .call(MAP_LOOKUP)?;
        Ok(value)
    }
}

/// A loaded XDP program.
#[derive(Debug)]
pub(super) struct Program(OwnedFd);

/// A program at a device; dropping it takes the program off.
#[derive(Debug)]
pub(super) struct Link(#[expect(dead_code, reason = "held, never read")] OwnedFd);

impl Program {
    /// Loads a program; the error holds what the verifier said.
    pub(super) fn load(instructions: &[Instruction]) -> Result<Self> {
        let license = c"GPL";
        let mut log = vec![0u8; 16_384];
        let attributes = Attributes::new()
            .word(0, PROG_TYPE_XDP)
            .word(4, instructions.len() as u32)
            .address(8, instructions.as_ptr())
            .address(16, license.as_ptr())
            .word(24, 1)
            .word(28, log.len() as u32)
            .address(32, log.as_mut_ptr());
        attributes.descriptor(PROG_LOAD).map(Self).map_err(|error| {
            let said = String::from_utf8_lossy(&log);
            let said = said.trim_end_matches('\0').trim();
            let last = said.lines().last().unwrap_or_default();
            Error::new(error.kind(), format!("{error} {last}"))
        })
    }

    /// Puts the program at a device's driver hook.
    pub(super) fn attach(&self, device: u32) -> Result<Link> {
        let attributes = Attributes::new().word(0, self.0.as_raw_fd() as u32).word(4, device);
        attributes.word(8, ATTACH_XDP).word(12, XDP_DRIVER).descriptor(LINK_CREATE).map(Link)
    }

    /// Runs the program `times` times over live frames that begin as `frame`, `batch` at a time.
    /// A signal ends it early, which is no error.
    pub(super) fn repeat(&self, frame: &[u8], times: u32, batch: u32) -> Result<()> {
        let mut attributes = Attributes::new()
            .word(0, self.0.as_raw_fd() as u32)
            .word(8, frame.len() as u32)
            .address(16, frame.as_ptr())
            .word(32, times)
            .word(64, LIVE_FRAMES)
            .word(72, batch);
        match attributes.call(PROG_TEST_RUN) {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Runs the program once over a copy of `frame`: its verdict, and the frame as it left it.
    #[cfg(test)]
    pub(super) fn run(&self, frame: &[u8]) -> Result<(u32, Vec<u8>)> {
        let mut out = vec![0u8; frame.len() + 64];
        let mut attributes = Attributes::new()
            .word(0, self.0.as_raw_fd() as u32)
            .word(8, frame.len() as u32)
            .word(12, out.len() as u32)
            .address(16, frame.as_ptr())
            .address(24, out.as_mut_ptr());
        attributes.call(PROG_TEST_RUN)?;
        out.truncate(attributes.0[12 / 4] as usize);
        Ok((attributes.0[1], out))
    }
}

/// An array of values that programs and this process share.
#[derive(Debug)]
pub(super) struct Table {
    descriptor: OwnedFd,
    start: *const AtomicU64,
    words: usize,
}

impl Table {
    /// `entries` values of `value_words` 64-bit words, all zero.
    pub(super) fn new(value_words: u32, entries: u32) -> Result<Self> {
        let attributes = Attributes::new().word(0, MAP_TYPE_ARRAY).word(4, 4);
        let attributes = attributes.word(8, 8 * value_words).word(12, entries).word(16, MAPPABLE);
        let descriptor = attributes.descriptor(MAP_CREATE)?;
        let words = value_words as usize * entries as usize;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let none = std::ptr::null_mut();
        // SAFETY: a new mapping at a place of the kernel's choice; it touches no other memory.
        let start =
            unsafe { libc::mmap(none, 8 * words, protection, flags, descriptor.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        Ok(Self { descriptor, start: start.cast(), words })
    }

    /// How a program names it.
    pub(super) fn number(&self) -> i32 {
        self.descriptor.as_raw_fd()
    }

    /// All words of all values.
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is that long, page-aligned, and lives as long as `self`; programs change
        // it meanwhile, which is what atomics are for.
        unsafe { std::slice::from_raw_parts(self.start, self.words) }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, to which no borrow can be left.
        unsafe { libc::munmap(self.start.cast_mut().cast(), 8 * self.words) };
    }
}

/// The signal that ends a thread's [`Program::repeat`].
pub(super) const WAKE: libc::c_int = libc::SIGUSR1;

/// Sends [`WAKE`] to one thread of this process.
pub(super) fn interrupt(thread: rustix::process::Pid) {
    let (process, thread) = (std::process::id(), thread.as_raw_nonzero().get());
    // SAFETY: the call takes three numbers and touches no memory. A thread that has ended is an error
    // that means nothing here.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, WAKE) };
}
