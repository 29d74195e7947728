//! Loading of the testers' programs, with libbpf; memory shared with them; and their links to devices.
//!
//! All `unsafe` of this crate is here.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{DataSec, Var};
use libbpf_rs::{
    Map, MapCore, Object, ObjectBuilder, PrintLevel, ProgramInput, ProgramOutput, libbpf_sys,
    set_print,
};

/// Frames go where the program says instead of back to the caller.
const LIVE_FRAMES: u32 = libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES;

/// A compiled object. ELF structures are read where they lie.
#[repr(C, align(8))]
pub(super) struct Compiled<T: ?Sized>(pub(super) T);

/// The objects.
macro_rules! compiled {
    ($name:literal) => {{
        static OBJECT: &$crate::bpf::Compiled<[u8]> =
            &$crate::bpf::Compiled(*include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".o")));
        &OBJECT.0
    }};
}
pub(super) use compiled;

/// A program at a device; dropping it takes the program off.
#[derive(Debug)]
pub(super) struct Link(#[expect(dead_code, reason = "held, never read")] OwnedFd);

/// Programs of an object, with the variables and the map that they share with this process.
#[derive(Debug)]
pub(super) struct Loaded {
    object: Object,
    /// Where each variable in `.bss` lies, in octets.
    places: BTreeMap<String, usize>,
    variables: Shared,
}

impl Loaded {
    /// Loads an object's programs after setting variables to these octets; `entries` is the length of its maps.
    pub(super) fn new(octets: &'static [u8], set: &[(&str, &[u8])], entries: u32) -> Result<Self> {
        set_print(Some((PrintLevel::Warn, keep)));
        let sections = sections(octets)?;
        let mut object = ObjectBuilder::default().open_memory(octets).map_err(explained)?;
        let mut unset: Vec<&str> = set.iter().map(|(name, _)| *name).collect();
        for mut map in object.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let section = sections.iter().find(|(section, _)| name.ends_with(section.as_str()));
            let Some((_, places)) = section else {
                map.set_max_entries(entries).map_err(explained)?;
                continue;
            };
            let content = map.initial_value_mut().unwrap_or_default();
            for (name, value) in set {
                let Some(place) = places.get(*name) else { continue };
                let there = content.get_mut(*place..).and_then(|c| c.get_mut(..value.len()));
                there.ok_or_else(|| unknown(name))?.copy_from_slice(value);
                unset.retain(|left| left != name);
            }
        }
        if let Some(name) = unset.first() {
            return Err(unknown(name));
        }
        let object = object.load().map_err(explained)?;
        let variables = shared(&object, |map| map.to_string_lossy().ends_with(BSS), BSS)?;
        let places = sections.into_iter().find(|(name, _)| name == BSS).map(|(_, places)| places);
        Ok(Self { object, places: places.unwrap_or_default(), variables })
    }

    /// The words from a variable in `.bss` on. It must be there.
    pub(super) fn words(&self, name: &str) -> &[AtomicU64] {
        &self.variables.words()[self.places[name] / 8..]
    }

    /// Sets all variables in `.bss` to zero.
    pub(super) fn clear(&self) {
        for word in self.variables.words() {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Memory of a map.
    pub(super) fn map(&self, name: &str) -> Result<Shared> {
        shared(&self.object, |map| map == name, name)
    }

    fn test_run<'a>(
        &self,
        program: &str,
        input: ProgramInput<'a>,
    ) -> libbpf_rs::Result<ProgramOutput<'a>> {
        let found = self.object.progs_mut().find(|found| found.name() == program);
        found.ok_or_else(|| libbpf_rs::Error::from(unknown(program)))?.test_run(input)
    }

    /// Puts a program at a device's driver hook: a generic hook would cost the very copies that are to be avoided.
    pub(super) fn attach(&self, program: &str, device: u32) -> Result<Link> {
        let options = libbpf_sys::bpf_link_create_opts {
            sz: std::mem::size_of::<libbpf_sys::bpf_link_create_opts>() as u64,
            flags: libbpf_sys::XDP_FLAGS_DRV_MODE,
            ..Default::default()
        };
        let found = self.object.progs().find(|found| found.name() == program);
        let program = found.ok_or_else(|| unknown(program))?.as_fd().as_raw_fd();
        let kind = libbpf_sys::BPF_XDP;
        // SAFETY: the options outlive the call and say their own size; the descriptor is open.
        let link = unsafe {
            libbpf_sys::bpf_link_create(program, device as i32, kind, &raw const options)
        };
        if link < 0 {
            return Err(Error::from_raw_os_error(-link));
        }
        // SAFETY: the call returned a new descriptor, which nobody else owns.
        Ok(Link(unsafe { OwnedFd::from_raw_fd(link) }))
    }

    /// Runs a program `times` times over live frames that begin as `frame`, as many at a time as the kernel likes (64).
    /// A signal ends it early, which is no error.
    pub(super) fn repeat(&self, program: &str, frame: &[u8], times: u32) -> Result<()> {
        let input = ProgramInput {
            data_in: Some(frame),
            flags: LIVE_FRAMES,
            repeat: times,
            ..Default::default()
        };
        match self.test_run(program, input) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::Interrupted => {
                Err(explained(error))
            }
            _ => Ok(()),
        }
    }

    /// Runs a program once over a copy of `frame`: its verdict, and the frame as it left it.
    #[cfg(test)]
    pub(super) fn run(&self, program: &str, frame: &[u8]) -> Result<(u32, Vec<u8>)> {
        let mut out = vec![0u8; frame.len() + 64];
        let input =
            ProgramInput { data_in: Some(frame), data_out: Some(&mut out), ..Default::default() };
        let output = self.test_run(program, input).map_err(explained)?;
        let left = output.data.map(|data| data.to_vec()).unwrap_or_default();
        Ok((output.return_value, left))
    }
}

/// The section of variables that are zero at first.
const BSS: &str = ".bss";

/// Sections of variables by their names: where each variable lies, in octets.
fn sections(octets: &'static [u8]) -> Result<Vec<(String, BTreeMap<String, usize>)>> {
    let btf = Btf::from_raw("object", octets).map_err(explained)?.ok_or_else(|| unknown("BTF"))?;
    let all = btf.type_by_kind::<DataSec<'_>>().map(|section| {
        let places = section.iter().filter_map(|variable| {
            let var: Var<'_> = btf.type_by_id(variable.ty)?;
            Some((var.name()?.to_string_lossy().into_owned(), variable.offset as usize))
        });
        let name = section.name().unwrap_or_default().to_string_lossy().into_owned();
        (name, places.collect())
    });
    Ok(all.collect())
}

fn shared(object: &Object, wanted: impl Fn(&OsStr) -> bool, name: &str) -> Result<Shared> {
    let map = object.maps().find(|map| wanted(map.name()));
    Shared::new(&map.ok_or_else(|| unknown(name))?)
}

fn unknown(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("the object has no {name}"))
}

/// What libbpf has said since an error was explained: the verifier's reasons among it.
static SAID: Mutex<String> = Mutex::new(String::new());
/// Lines of it that an error repeats: a verifier explains itself at its end.
const KEPT_LINES: usize = 12;

#[allow(clippy::needless_pass_by_value, reason = "the library's signature")]
fn keep(_: PrintLevel, message: String) {
    SAID.lock().unwrap_or_else(PoisonError::into_inner).push_str(&message);
}

#[allow(clippy::needless_pass_by_value, reason = "an argument of map_err")]
fn explained(error: libbpf_rs::Error) -> Error {
    let said = std::mem::take(&mut *SAID.lock().unwrap_or_else(PoisonError::into_inner));
    let lines: Vec<&str> = said.lines().collect();
    let end = lines[lines.len().saturating_sub(KEPT_LINES)..].join("\n");
    Error::other(format!("{error:#} {end}"))
}

/// A map of 64-bit words that programs and this process share.
#[derive(Debug)]
pub(super) struct Shared {
    start: *const AtomicU64,
    words: usize,
}

impl Shared {
    fn new(map: &Map<'_>) -> Result<Self> {
        // The kernel rounds values up to 8 octets.
        let words = (map.value_size() as usize).div_ceil(8) * map.max_entries() as usize;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let descriptor: BorrowedFd<'_> = map.as_fd();
        let none = std::ptr::null_mut();
        // SAFETY: a new mapping at a place of the kernel's choice; it touches no other memory.
        let start =
            unsafe { libc::mmap(none, 8 * words, protection, flags, descriptor.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        Ok(Self { start: start.cast(), words })
    }

    /// All words of all values.
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is that long, page-aligned, and lives as long as `self`; programs change
        // it meanwhile, which is what atomics are for.
        unsafe { std::slice::from_raw_parts(self.start, self.words) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, to which no borrow can be left.
        unsafe { libc::munmap(self.start.cast_mut().cast(), 8 * self.words) };
    }
}

// SAFETY: what is shared are atomics, at a place that stays the same until the drop.
unsafe impl Sync for Shared {}

/// The signal that ends a thread's [`Loaded::repeat`].
pub(super) const WAKE: libc::c_int = libc::SIGUSR1;

/// Sends [`WAKE`] to one thread of this process.
pub(super) fn interrupt(thread: rustix::process::Pid) {
    let (process, thread) = (std::process::id(), thread.as_raw_nonzero().get());
    // SAFETY: the call takes three numbers and touches no memory. A thread that has ended is an error
    // that means nothing here.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, WAKE) };
}
