//! Capabilities: asking for them and giving them up; and system calls that a thread without any does not need.

use std::collections::BTreeMap;
use std::fs;

use caps::{CapSet, CapsHashSet};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

pub use caps::Capability;

use crate::{Error, Result};

/// Whether the calling thread may use `capability` now.
///
/// # Errors
///
/// [`Error::Privilege`] if the kernel does not tell.
pub fn has(capability: Capability) -> Result<bool> {
    caps::has_cap(None, CapSet::Effective, capability).map_err(failed("read capabilities"))
}

/// Checks that the calling thread may use all of `wanted`.
///
/// # Errors
///
/// [`Error::Capability`] names all that are missing.
pub fn require(wanted: &[Capability]) -> Result<()> {
    let have = caps::read(None, CapSet::Effective).map_err(failed("read capabilities"))?;
    let missing: Vec<_> = wanted
        .iter()
        .filter(|capability| !have.contains(capability))
        .map(ToString::to_string)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::Capability(missing))
}

/// Gives up, for good, every capability outside `keep`, and the way to new ones through programs that would grant
/// them (`no_new_privs`).
///
/// Capabilities belong to threads: call it while the process has one thread. All threads started later, and all
/// programs, have no more than `keep`. The user stays: root without capabilities still owns root's files.
///
/// # Errors
///
/// [`Error::Capability`] if the thread lacks one of `keep`; [`Error::Privilege`] if the process has more than one
/// thread, or the kernel refuses. Nothing has been given up in the first two cases.
pub fn drop_all_but(keep: &[Capability]) -> Result<()> {
    let threads = fs::read_dir("/proc/self/task").map_err(failed("count threads"))?.count();
    if threads != 1 {
        return Err(Error::Privilege {
            operation: "drop privileges",
            reason: format!("the process has {threads} threads, and each has its own"),
        });
    }
    let keep: CapsHashSet = keep.iter().copied().collect();
    let permitted = caps::read(None, CapSet::Permitted).map_err(failed("read capabilities"))?;
    let missing: Vec<_> = keep.difference(&permitted).map(ToString::to_string).collect();
    if !missing.is_empty() {
        return Err(Error::Capability(missing));
    }

    rustix::thread::set_no_new_privs(true).map_err(failed("set no_new_privs"))?;
    // The bounding set can be lowered with CAP_SETPCAP only. Without it, no_new_privs already keeps every program at
    // or below what we have.
    if permitted.contains(&Capability::CAP_SETPCAP) {
        caps::raise(None, CapSet::Effective, Capability::CAP_SETPCAP)
            .map_err(failed("use CAP_SETPCAP"))?;
        let bounding =
            caps::read(None, CapSet::Bounding).map_err(failed("read the bounding set"))?;
        for capability in bounding.difference(&keep) {
            caps::drop(None, CapSet::Bounding, *capability)
                .map_err(failed("lower the bounding set"))?;
        }
    }
    caps::clear(None, CapSet::Ambient).map_err(failed("clear ambient capabilities"))?;
    caps::clear(None, CapSet::Inheritable).map_err(failed("clear inheritable capabilities"))?;
    caps::set(None, CapSet::Effective, &keep).map_err(failed("lower capabilities"))?;
    caps::set(None, CapSet::Permitted, &keep).map_err(failed("lower capabilities"))
}

/// Gives up, for good, every capability of the calling thread and of those that it starts.
///
/// # Errors
///
/// [`Error::Privilege`].
pub fn drop_all_of_thread() -> Result<()> {
    let sets = [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable];
    let failed = failed("drop the capabilities of a thread");
    sets.into_iter().try_for_each(|set| caps::clear(None, set)).map_err(failed)
}

/// System calls that a thread which only reads and writes files and sockets does not need: those for other programs
/// and processes, other namespaces and roots, mounts, the kernel's modules, keys and programs.
const FORBIDDEN: [libc::c_long; 38] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_personality,
];

/// Forbids the calling thread, and those that it starts from here on, system calls that a thread has no use for which
/// reads what others send: they fail with `EPERM`.
///
/// # Errors
///
/// [`Error::Privilege`]: the kernel has no seccomp, or this architecture is not known. Nothing is forbidden then.
pub fn confine() -> Result<()> {
    let operation = "forbid system calls";
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(failed(operation))?;
    #[allow(clippy::useless_conversion, reason = "they are shorter on machines of 32 bits")]
    let rules: BTreeMap<i64, _> =
        FORBIDDEN.into_iter().map(|number| (i64::from(number), Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch);
    let program: BpfProgram = filter.and_then(BpfProgram::try_from).map_err(failed(operation))?;
    apply_filter(&program).map_err(failed(operation))
}

fn failed<E: ToString>(operation: &'static str) -> impl FnOnce(E) -> Error {
    move |error| Error::Privilege { operation, reason: error.to_string() }
}
