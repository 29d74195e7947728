//! The kernel's BPF calls that the library has no safe function for.
//!
//! All `unsafe` of this crate is here.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::{align_of, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use fordway_xlat::nat64::layout;
use libbpf_rs::{MapType, ProgramType, RingBuffer, libbpf_sys};

use crate::error::io_error;

/// Options of a call of libbpf, which say their own size.
macro_rules! sized {
    ($options:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        libbpf_sys::$options {
            sz: size_of::<libbpf_sys::$options>() as libbpf_sys::size_t,
            $($field $(: $value)?,)*
            ..Default::default()
        }
    };
}

/// Where a link goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkType {
    /// In front of all that are there.
    TcxEgressFirst,
    TcxEgress,
    TcxIngress,
    XdpNative,
    XdpGeneric,
}

/// A hook of tcx.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TcxHook {
    Egress,
    Ingress,
}

impl TcxHook {
    const fn attach_type(self) -> libbpf_sys::bpf_attach_type {
        match self {
            TcxHook::Egress => libbpf_sys::BPF_TCX_EGRESS,
            TcxHook::Ingress => libbpf_sys::BPF_TCX_INGRESS,
        }
    }
}

/// Attaches a program to a device without a link: it stays as long as the device. `first`: in front of all that are there.
pub(crate) fn tcx_attach(
    program: BorrowedFd<'_>,
    ifindex: u32,
    hook: TcxHook,
    first: bool,
) -> io::Result<()> {
    let flags = if first { libbpf_sys::BPF_F_BEFORE } else { 0 };
    let options = sized!(bpf_prog_attach_opts { flags });
    let (program, ifindex) = (program.as_raw_fd(), index(ifindex)?);
    // SAFETY: the options outlive the call and say their own size; the descriptor is open.
    result(unsafe {
        libbpf_sys::bpf_prog_attach_opts(program, ifindex, hook.attach_type(), &options)
    })
}

/// Takes a program off that was attached without a link.
pub(crate) fn tcx_detach(program: BorrowedFd<'_>, ifindex: u32, hook: TcxHook) -> io::Result<()> {
    let options = sized!(bpf_prog_detach_opts {});
    let (program, ifindex) = (program.as_raw_fd(), index(ifindex)?);
    // SAFETY: the options outlive the call and say their own size; the descriptor is open.
    result(unsafe {
        libbpf_sys::bpf_prog_detach_opts(program, ifindex, hook.attach_type(), &options)
    })
}

/// A program's name, of which the kernel keeps 15 characters.
pub(crate) fn program_name(program: BorrowedFd<'_>) -> io::Result<String> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    // SAFETY: `info` outlives the call, which is told its size; it asks for no arrays, so that the kernel writes through
    // none of its pointers.
    result(unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut len)
    })?;
    let octets = info.name.iter().map(|&octet| octet.cast_unsigned());
    let name: Vec<u8> = octets.take_while(|&octet| octet != 0).collect();
    String::from_utf8(name).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The names of all programs of the kernel. Needs CAP_SYS_ADMIN.
pub(crate) fn loaded_programs() -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    let mut number = 0;
    loop {
        // SAFETY: the kernel writes a number to `number`, which outlives the call.
        match result(unsafe { libbpf_sys::bpf_prog_get_next_id(number, &mut number) }) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(names),
            next => next?,
        }
        match libbpf_rs::Program::fd_from_id(number) {
            // It has gone meanwhile.
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => {}
            opened => {
                let program = opened.map_err(|error| io_error(&error))?;
                names.push(program_name(program.as_fd())?);
            }
        }
    }
}

/// Loads a program that writes `value` to the first two words of the packet's control block, the lower half first, and
/// continues with entry `slot` of a map of programs. Without that entry the packet goes on as it is.
pub(crate) fn load_stub(
    name: &str,
    value: u64,
    programs: BorrowedFd<'_>,
    slot: i32,
) -> io::Result<OwnedFd> {
    let [lower, upper] = [value, value >> 32].map(|half| (half as u32).cast_signed());
    // The kernel's interface: `cb` in struct __sk_buff.
    let word = |number: i16| 48 + 4 * number;
    let name = CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
    let stub: [Instruction; 10] = [
        // w3 = lower; *(u32 *)(r1 + cb[0]) = w3
        (0xb4, 0x03, 0, lower),
        (0x63, 0x31, word(0), 0),
        // w3 = upper; *(u32 *)(r1 + cb[1]) = w3
        (0xb4, 0x03, 0, upper),
        (0x63, 0x31, word(1), 0),
        // r2 = programs, in two parts; r3 = slot; tail_call(r1, r2, r3)
        (0x18, 0x12, 0, programs.as_raw_fd()),
        (0x00, 0x00, 0, 0),
        (0xb7, 0x03, 0, slot),
        (0x85, 0x00, 0, libbpf_sys::BPF_FUNC_tail_call as i32),
        // r0 = TC_ACT_UNSPEC; exit
        (0xb7, 0x00, 0, -1),
        (0x95, 0x00, 0, 0),
    ];
    load(libbpf_sys::BPF_PROG_TYPE_SCHED_CLS, 0, &name, &stub)
}

/// Attaches a program to a device by a link. The link goes with its last descriptor or pin.
pub(crate) fn link_create(
    program: BorrowedFd<'_>,
    ifindex: u32,
    link_type: LinkType,
) -> io::Result<OwnedFd> {
    let (attach_type, flags) = match link_type {
        LinkType::TcxEgressFirst => (libbpf_sys::BPF_TCX_EGRESS, libbpf_sys::BPF_F_BEFORE),
        LinkType::TcxEgress => (libbpf_sys::BPF_TCX_EGRESS, 0),
        LinkType::TcxIngress => (libbpf_sys::BPF_TCX_INGRESS, 0),
        LinkType::XdpNative => (libbpf_sys::BPF_XDP, libbpf_sys::XDP_FLAGS_DRV_MODE),
        LinkType::XdpGeneric => (libbpf_sys::BPF_XDP, libbpf_sys::XDP_FLAGS_SKB_MODE),
    };
    let options = sized!(bpf_link_create_opts { flags });
    let ifindex = index(ifindex)?;
    // SAFETY: the options outlive the call and say their own size; the descriptor is open.
    descriptor(unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), ifindex, attach_type, &options)
    })
}

/// Lets a link run another program, atomically.
pub(crate) fn link_update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both descriptors are open; no options are given.
    result(unsafe {
        libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), ptr::null())
    })
}

/// Pins a BPF object.
pub(crate) fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the path is a C string that outlives the call; the descriptor is open.
    result(unsafe { libbpf_sys::bpf_obj_pin(object.as_raw_fd(), path.as_ptr()) })
}

/// Opens a pinned BPF object.
pub(crate) fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    // SAFETY: the path is a C string that outlives the call.
    descriptor(unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) })
}

/// Whether the kernel has tcx: asks for the programs at the loopback device's egress.
pub(crate) fn has_tcx() -> bool {
    const LOOPBACK: i32 = 1;
    let mut options = sized!(bpf_prog_query_opts {});
    // SAFETY: the options outlive the call and say their own size; they ask for the number of
    // programs only, so that the kernel writes through none of their pointers.
    let returned = unsafe {
        libbpf_sys::bpf_prog_query_opts(LOOPBACK, libbpf_sys::BPF_TCX_EGRESS, &mut options)
    };
    returned == 0
}

/// The numbers of the programs at a device's hook, in the order in which they run.
pub(crate) fn tcx_programs(ifindex: u32, hook: TcxHook) -> io::Result<Vec<u32>> {
    // BPF_MPROG_MAX of the kernel.
    let mut numbers = [0u32; 64];
    let mut options = sized!(bpf_prog_query_opts { prog_ids: numbers.as_mut_ptr() });
    options.__bindgen_anon_1.count = numbers.len() as u32;
    // SAFETY: the options outlive the call and say their own size and how many numbers there is room for.
    result(unsafe {
        libbpf_sys::bpf_prog_query_opts(index(ifindex)?, hook.attach_type(), &mut options)
    })?;
    // SAFETY: both fields of the union are this number.
    let count = unsafe { options.__bindgen_anon_1.count } as usize;
    Ok(numbers[..count.min(numbers.len())].to_vec())
}

/// The kernel measures the runs of all programs while this is open.
pub(crate) fn measure_programs() -> io::Result<OwnedFd> {
    // SAFETY: the call takes a number and gives a descriptor, or an error.
    descriptor(unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) })
}

/// Timers that give so many samples a second, one for each processor that is online.
pub(crate) fn sampling_timers(per_second: u64) -> io::Result<Vec<OwnedFd>> {
    let possible = libbpf_rs::num_possible_cpus().map_err(io::Error::other)?;
    let mut timers = Vec::new();
    for processor in 0..index(possible as u32)? {
        match sampling_timer(per_second, processor) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
            timer => timers.push(timer?),
        }
    }
    Ok(timers)
}

fn sampling_timer(per_second: u64, processor: i32) -> io::Result<OwnedFd> {
    let mut event = libbpf_sys::perf_event_attr {
        type_: libbpf_sys::PERF_TYPE_SOFTWARE,
        size: size_of::<libbpf_sys::perf_event_attr>() as u32,
        config: u64::from(libbpf_sys::PERF_COUNT_SW_CPU_CLOCK),
        ..Default::default()
    };
    event.set_freq(1);
    event.__bindgen_anon_1.sample_freq = per_second;
    // SAFETY: the event outlives the call and says its own size; no pid means all processes, and no group is given.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const event,
            -1,
            processor,
            -1,
            libbpf_sys::PERF_FLAG_FD_CLOEXEC,
        )
    };
    if returned < 0 { Err(io::Error::last_os_error()) } else { descriptor(returned as i32) }
}

/// Loads the shortest program that there is.
pub(crate) fn load_trivial() -> io::Result<OwnedFd> {
    load(libbpf_sys::BPF_PROG_TYPE_SCHED_CLS, 0, PROBE, &ENDS)
}

/// Whether the kernel lets XDP programs see frames in several buffers.
pub(crate) fn takes_xdp_frags() -> bool {
    load(libbpf_sys::BPF_PROG_TYPE_XDP, libbpf_sys::BPF_F_XDP_HAS_FRAGS, PROBE, &ENDS).is_ok()
}

/// A feature that the programs need and older kernels lack. Distributions also backport features to older releases, so
/// the kernel is probed instead of comparing its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    /// Ring buffers: events of a trace.
    RingBuffer,
    /// `bpf_ktime_get_coarse_ns`: the time of sessions.
    CoarseTime,
    /// `bpf_check_mtu`: whether a packet may leave an uplink.
    CheckMtu,
    /// Compare-and-swap: the tables of state. It came with functions that take pointers.
    CompareAndSwap,
}

/// Whether the kernel has a feature. What can't be found out is taken for missing.
pub(crate) fn has(feature: Feature) -> bool {
    let helper = match feature {
        Feature::RingBuffer => return MapType::RingBuf.is_supported().unwrap_or(false),
        Feature::CompareAndSwap => {
            return load(libbpf_sys::BPF_PROG_TYPE_SCHED_CLS, 0, PROBE, &SWAPS).is_ok();
        }
        Feature::CoarseTime => libbpf_sys::BPF_FUNC_ktime_get_coarse_ns,
        Feature::CheckMtu => libbpf_sys::BPF_FUNC_check_mtu,
    };
    ProgramType::SchedCls.is_helper_supported(helper).unwrap_or(false)
}

/// An instruction: code, registers (the destination in the low four bits), offset, number.
pub(crate) type Instruction = (u8, u8, i16, i32);

/// `r0 = 0; exit`.
const ENDS: [Instruction; 2] = [(0xb7, 0x00, 0, 0), (0x95, 0x00, 0, 0)];

/// `r0 = 0; *(u64 *)(r10 - 8) = r0; r0 = cmpxchg_64(r10 - 8, r0, r0); r0 = 0; exit`.
const SWAPS: [Instruction; 5] = [
    (0xb7, 0x00, 0, 0),
    (0x7b, 0x0a, -8, 0),
    (0xdb, 0x0a, -8, 0xf1),
    (0xb7, 0x00, 0, 0),
    (0x95, 0x00, 0, 0),
];

/// The name of programs that only show what the kernel accepts.
const PROBE: &CStr = c"fordway_probe";

/// Loads a program.
pub(crate) fn load(
    kind: libbpf_sys::bpf_prog_type,
    flags: u32,
    name: &CStr,
    program: &[Instruction],
) -> io::Result<OwnedFd> {
    let instruction = |&(code, registers, off, imm): &Instruction| {
        let mut instruction = libbpf_sys::bpf_insn { code, off, imm, ..Default::default() };
        instruction.set_dst_reg(registers & 15);
        instruction.set_src_reg(registers >> 4);
        instruction
    };
    let instructions: Vec<libbpf_sys::bpf_insn> = program.iter().map(instruction).collect();
    let mut options = sized!(bpf_prog_load_opts { prog_flags: flags });
    // SAFETY: name, licence, instructions and options outlive the call, which is told how many instructions
    // there are; the options say their own size.
    descriptor(unsafe {
        libbpf_sys::bpf_prog_load(
            kind,
            name.as_ptr(),
            c"Dual MIT/GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as libbpf_sys::size_t,
            &mut options,
        )
    })
}

/// A device's XDP hook.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XdpState {
    /// Whether the program that is attached runs in front of the stack.
    pub(crate) generic: bool,
    /// Whether the device takes redirected frames; `None`: the kernel does not report it (before 6.3).
    pub(crate) takes_redirected: Option<bool>,
}

/// Asks for a device's XDP hook.
pub(crate) fn xdp_state(ifindex: u32) -> io::Result<XdpState> {
    // XDP_ATTACHED_SKB and NETDEV_XDP_ACT_* of the kernel's interface.
    const GENERIC: u8 = 2;
    const BASIC: u64 = 1;
    const NDO_XMIT: u64 = 4;
    let mut options = sized!(bpf_xdp_query_opts {});
    // SAFETY: the options outlive the call and say their own size.
    result(unsafe { libbpf_sys::bpf_xdp_query(index(ifindex)?, 0, &mut options) })?;
    let features = options.feature_flags;
    Ok(XdpState {
        generic: options.attach_mode == GENERIC,
        // A driver without any feature looks like a kernel that does not report them, and takes no frames.
        takes_redirected: (features & (BASIC | NDO_XMIT) != 0).then_some(features & NDO_XMIT != 0),
    })
}

/// Adds the clsact queueing discipline to a device. `false`: there is one.
pub(crate) fn clsact_create(ifindex: u32) -> io::Result<bool> {
    let mut hook = clsact_hook(ifindex)?;
    // SAFETY: the hook outlives the call and says its own size.
    match result(unsafe { libbpf_sys::bpf_tc_hook_create(&mut hook) }) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes a device's clsact queueing discipline with all its filters.
pub(crate) fn clsact_destroy(ifindex: u32) -> io::Result<()> {
    let mut hook = clsact_hook(ifindex)?;
    // SAFETY: the hook outlives the call and says its own size.
    result(unsafe { libbpf_sys::bpf_tc_hook_destroy(&mut hook) })
}

fn clsact_hook(ifindex: u32) -> io::Result<libbpf_sys::bpf_tc_hook> {
    Ok(sized!(bpf_tc_hook {
        ifindex: index(ifindex)?,
        attach_point: libbpf_sys::BPF_TC_INGRESS | libbpf_sys::BPF_TC_EGRESS
    }))
}

fn index(ifindex: u32) -> io::Result<i32> {
    i32::try_from(ifindex).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// What libbpf's functions return: 0 or more, or a negative error number.
fn result(returned: i32) -> io::Result<()> {
    if returned < 0 { Err(io::Error::from_raw_os_error(-returned)) } else { Ok(()) }
}

fn descriptor(returned: i32) -> io::Result<OwnedFd> {
    result(returned)?;
    // SAFETY: the callers pass what a function returned that opens a descriptor for its caller.
    Ok(unsafe { OwnedFd::from_raw_fd(returned) })
}

/// Memory of a map, shared with the kernel and all users of the map; or of this process alone.
pub(crate) struct Mapped {
    start: NonNull<u8>,
    len: usize,
}

/// Types for which any octets are a value, and whose values other threads may change while they are read.
///
/// # Safety
///
/// All fields that are written after creation have to be atomic integers.
pub(crate) unsafe trait Shared {}

// SAFETY: heads of chains are changed by atomic operations alone.
unsafe impl Shared for AtomicU64 {}
// SAFETY: all fields are atomic integers, except reserved ones that are never written.
unsafe impl Shared for layout::Bib {}
// SAFETY: as for `Bib`.
unsafe impl Shared for layout::Session {}
// SAFETY: as for `Bib`.
unsafe impl Shared for layout::Subscriber {}
// SAFETY: as for `Bib`.
unsafe impl Shared for layout::Free {}
// SAFETY: as for `Bib`.
unsafe impl Shared for layout::Meta {}

impl Mapped {
    /// The first `len` octets of a map's memory.
    pub(crate) fn of(map: BorrowedFd<'_>, len: usize) -> io::Result<Mapped> {
        Mapped::new(libc::MAP_SHARED, map.as_raw_fd(), len)
    }

    /// So many octets of zero, whose pages take memory when they are first written.
    pub(crate) fn anonymous(len: usize) -> io::Result<Mapped> {
        Mapped::new(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, len)
    }

    fn new(flags: i32, descriptor: i32, len: usize) -> io::Result<Mapped> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses where; nothing that is mapped already is touched. It refuses a length
        // beyond a map's.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, descriptor, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Mapped { start, len })
    }

    /// The memory as values, one behind the other.
    pub(crate) fn slice<T: Shared>(&self) -> &[T] {
        assert!(align_of::<T>() <= 4096, "pages are aligned so far");
        // SAFETY: the memory is mapped as long as `self` lives, starts at a page and has room for so many
        // values; by the trait any octets make a value, and changes by others are of atomic integers.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.len / size_of::<T>()) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: this range was mapped for `self`, and what borrowed it from `self` is gone.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

// SAFETY: the memory stays mapped wherever the value goes; all access is by atomic operations.
unsafe impl Send for Mapped {}
// SAFETY: all access is by atomic operations.
unsafe impl Sync for Mapped {}

/// The descriptor that tells when a ring buffer has something to read.
pub(crate) fn ring_fd<'a>(ring: &'a RingBuffer<'_>) -> BorrowedFd<'a> {
    // SAFETY: the descriptor belongs to the ring buffer, which outlives the borrow.
    unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) }
}
