//! What the host allows.

use std::fs;
use std::path::Path;

use caps::{CapSet, Capability};

use crate::capture::captured;
use crate::options::BPFFS;
use crate::{Unsupported, pins, sys};

/// The oldest kernel that the programs are made for.
const OLDEST: (u32, u32) = (5, 15);

/// What a host offers that can have the kernel engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The kernel's release, such as `6.1.0-18-amd64`.
    pub kernel: String,
    /// Whether tcx links can be made; clsact filters are made otherwise.
    pub tcx: bool,
    /// Whether the kernel compiles programs; it interprets them otherwise, which is slow.
    pub jit: bool,
    /// Whether a BPF file system is mounted at `/sys/fs/bpf`; starting mounts it otherwise.
    pub bpffs: bool,
}

/// Looks whether the host allows the kernel engine. Takes about a millisecond at most.
pub fn probe() -> Result<Host, Unsupported> {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    check_kernel(&kernel)?;
    check_capabilities()?;
    let (loaded, _) = captured(sys::load_trivial);
    loaded.map_err(|error| {
        Unsupported::with_hint(
            format!("the kernel does not load BPF programs: {error}"),
            "a container may have to be privileged; see also kernel lockdown and CONFIG_BPF_SYSCALL",
        )
    })?;
    let jit = fs::read_to_string("/proc/sys/net/core/bpf_jit_enable");
    Ok(Host {
        kernel,
        tcx: sys::has_tcx(),
        jit: jit.is_ok_and(|value| value.trim() != "0"),
        bpffs: pins::is_bpffs(Path::new(BPFFS)),
    })
}

fn check_kernel(release: &str) -> Result<(), Unsupported> {
    if version(release) < OLDEST {
        let (major, minor) = OLDEST;
        return Err(Unsupported::new(format!(
            "the kernel engine needs Linux {major}.{minor}, and this is {release}"
        )));
    }
    Ok(())
}

/// Whether XDP programs may be given frames of several buffers.
pub(crate) fn has_xdp_frags() -> bool {
    version(&rustix::system::uname().release().to_string_lossy()) >= (5, 18)
}

fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
    let mut next = || numbers.next().flatten().unwrap_or(0);
    (next(), next())
}

fn check_capabilities() -> Result<(), Unsupported> {
    let has = |capability| caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false);
    let admin = has(Capability::CAP_SYS_ADMIN);
    let missing: Vec<String> =
        [Capability::CAP_BPF, Capability::CAP_NET_ADMIN, Capability::CAP_PERFMON]
            .into_iter()
            .filter(|&needed| !has(needed) && (!admin || needed == Capability::CAP_NET_ADMIN))
            .map(|capability| capability.to_string())
            .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Unsupported::with_hint(
        format!("the kernel engine needs {}, which the process lacks", missing.join(", ")),
        "run as root, or give the capabilities (AmbientCapabilities= in a systemd unit)",
    ))
}

#[cfg(test)]
mod tests {
    use super::check_kernel;

    #[test]
    fn old_kernels_are_refused() {
        for release in ["5.15.0-91-generic", "5.16-rc1", "6.1.0-18-amd64", "10.0"] {
            assert_eq!(check_kernel(release), Ok(()), "{release}");
        }
        for release in ["5.14.21", "4.19.0-25-amd64", "strange"] {
            let refused = check_kernel(release).unwrap_err();
            assert!(refused.to_string().contains(release), "{refused}");
        }
    }
}
