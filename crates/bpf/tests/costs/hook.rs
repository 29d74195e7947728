//! Lets libbpf load programs that count their blocks. All unsafe code of this binary is here.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_long};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::{ptr, slice};

use libbpf_rs::libbpf_sys::{
    BPF_PROG_TYPE_SCHED_CLS, BPF_PROG_TYPE_XDP, BPF_XDP, bpf_func_info, bpf_insn,
    bpf_map_create_opts, bpf_prog_load, bpf_prog_load_opts, bpf_program, bpf_program__insn_cnt,
    bpf_program__insns, bpf_program__name, bpf_program__set_insns, bpf_program__type,
    libbpf_prog_handler_opts, libbpf_register_prog_handler,
};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::bytecode::{self, Work};
use crate::verifier;

/// Octets for what the verifier says.
const LOG: usize = 1 << 29;
/// It prints each instruction that it simulates, with the registers that the instruction uses.
const EACH_INSTRUCTION: u32 = 2;

/// A loaded program that counts.
pub(crate) struct Counting {
    blocks: Vec<Work>,
    counters: MapHandle,
}

/// The programs by name; of several loads the last one.
static PROGRAMS: LazyLock<Mutex<BTreeMap<String, Counting>>> = LazyLock::new(Mutex::default);

/// From now on every program of this process counts.
pub(crate) fn install() {
    for (section, kind, attach) in
        [(c"tc", BPF_PROG_TYPE_SCHED_CLS, 0), (c"xdp", BPF_PROG_TYPE_XDP, BPF_XDP)]
    {
        let options = libbpf_prog_handler_opts {
            sz: size_of::<libbpf_prog_handler_opts>() as u64,
            prog_prepare_load_fn: Some(prepare),
            ..Default::default()
        };
        // SAFETY: the strings are constants; libbpf copies the options.
        let done = unsafe {
            libbpf_register_prog_handler(section.as_ptr(), kind, attach, &raw const options)
        };
        assert!(done >= 0, "libbpf took no handler: {done}");
    }
}

/// Sets the counters of a program to 0.
pub(crate) fn begin(program: &str) {
    with(program, |counting| {
        let zeros = vec![0; counting.counters.value_size() as usize];
        counting.counters.update(&[0; 4], &zeros, MapFlags::ANY).expect("counters");
    });
}

/// What a program has done since.
pub(crate) fn done(program: &str) -> Work {
    with(program, |counting| {
        let octets = counting.counters.lookup(&[0; 4], MapFlags::ANY).expect("counters");
        let counts = octets.expect("an array has all its entries");
        let (counts, _) = counts.as_chunks::<8>();
        let mut sum = Work::default();
        for (block, count) in counting.blocks.iter().zip(counts) {
            sum.add(block, u64::from_ne_bytes(*count));
        }
        sum
    })
}

fn with<T>(program: &str, act: impl FnOnce(&Counting) -> T) -> T {
    let programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    act(programs.get(program).unwrap_or_else(|| panic!("{program} was not loaded")))
}

/// Called by libbpf before it loads a program: its bytecode has the descriptors of maps and all relocations.
unsafe extern "C" fn prepare(
    program: *mut bpf_program,
    options: *mut bpf_prog_load_opts,
    _cookie: c_long,
) -> c_int {
    // SAFETY: libbpf's pointers are good until this returns.
    let (name, old, options) = unsafe {
        let name = CStr::from_ptr(bpf_program__name(program)).to_string_lossy().into_owned();
        let len = bpf_program__insn_cnt(program) as usize;
        (name, slice::from_raw_parts(bpf_program__insns(program), len).to_vec(), &mut *options)
    };
    // SAFETY: as above; records have at least these two fields, and each has as many octets as is said.
    let functions: Vec<bpf_func_info> = (0..options.func_info_cnt as usize)
        .map(|number| unsafe {
            let record = number * options.func_info_rec_size as usize;
            ptr::read_unaligned(options.func_info.cast::<u8>().add(record).cast())
        })
        .collect();
    let log = explain(program, &old, options);
    let targets = verifier::targets(&log);
    let begins: Vec<usize> = functions.iter().map(|function| function.insn_off as usize).collect();
    let made = MapHandle::create(
        MapType::Array,
        Some("costs"),
        4,
        // More than there can be blocks.
        (old.len() * 8) as u32,
        1,
        &bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as u64, ..Default::default() },
    );
    let counters = made.expect("an array");
    let mut counted = bytecode::count(&old, &begins, &targets, counters.as_fd().as_raw_fd());
    // The kernel wants to know of each function where it begins. Lines are not needed.
    let moved: Vec<bpf_func_info> = functions
        .iter()
        .map(|function| bpf_func_info {
            insn_off: counted.place(function.insn_off as usize) as u32,
            type_id: function.type_id,
        })
        .collect();
    let moved: &'static [bpf_func_info] = moved.leak();
    options.func_info = moved.as_ptr().cast();
    options.func_info_rec_size = size_of::<bpf_func_info>() as u32;
    options.line_info_cnt = 0;
    // SAFETY: libbpf copies the instructions.
    let done = unsafe {
        bpf_program__set_insns(
            program,
            counted.instructions.as_mut_ptr(),
            counted.instructions.len() as u64,
        )
    };
    let blocks = counted.blocks;
    let mut programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    programs.insert(name, Counting { blocks, counters });
    done
}

/// What the verifier says of the program as it was compiled.
fn explain(program: *mut bpf_program, old: &[bpf_insn], options: &bpf_prog_load_opts) -> String {
    let mut log = vec![0_u8; LOG];
    let mut options = bpf_prog_load_opts {
        log_level: EACH_INSTRUCTION,
        log_size: LOG as u32,
        log_buf: log.as_mut_ptr().cast::<c_char>(),
        ..*options
    };
    // SAFETY: the name is the program's; instructions and log outlive the call.
    let loaded = unsafe {
        bpf_prog_load(
            bpf_program__type(program),
            bpf_program__name(program),
            c"Dual MIT/GPL".as_ptr(),
            old.as_ptr(),
            old.len() as u64,
            &raw mut options,
        )
    };
    let end = log.iter().position(|&octet| octet == 0).unwrap_or(log.len());
    log.truncate(end);
    let text = String::from_utf8_lossy(&log).into_owned();
    assert!(loaded >= 0, "the verifier refused the program ({loaded}): {text}");
    // SAFETY: a new descriptor, nobody else's.
    drop(unsafe { OwnedFd::from_raw_fd(loaded) });
    text
}
