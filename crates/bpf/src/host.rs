//! Whether the host supports the kernel engine.

use std::fs;

use fordway_net::privilege::{self, Capability};

use crate::Unsupported;
use crate::capture::captured;
use crate::pins;
use crate::sys::{self, Feature};

/// A host that supports the kernel engine.
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

/// Tests whether the host supports the kernel engine. Takes about a millisecond at most.
pub fn probe() -> Result<Host, Unsupported> {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    check_capabilities()?;
    let (loaded, _) = captured(sys::load_trivial);
    loaded.map_err(|error| {
        Unsupported::with_hint(
            format!("the kernel does not load BPF programs: {error}"),
            "a container may have to be privileged; see also kernel lockdown and CONFIG_BPF_SYSCALL",
        )
    })?;
    check_features(&kernel, |feature| captured(|| sys::has(feature)).0)?;
    let jit = fs::read_to_string("/proc/sys/net/core/bpf_jit_enable");
    Ok(Host {
        kernel,
        tcx: sys::has_tcx(),
        jit: jit.is_ok_and(|value| value.trim() != "0"),
        bpffs: pins::has_bpffs(),
    })
}

impl Feature {
    const ALL: [Feature; 4] =
        [Feature::RingBuffer, Feature::CoarseTime, Feature::CheckMtu, Feature::CompareAndSwap];

    /// Its name, and the first kernel with it.
    const fn told(self) -> (&'static str, &'static str) {
        match self {
            Feature::RingBuffer => ("BPF ring buffers", "5.8"),
            Feature::CoarseTime => ("the BPF helper ktime_get_coarse_ns", "5.11"),
            Feature::CheckMtu => ("the BPF helper check_mtu", "5.12"),
            Feature::CompareAndSwap => ("compare-and-swap in BPF programs", "5.12"),
        }
    }
}

fn check_features(release: &str, has: impl Fn(Feature) -> bool) -> Result<(), Unsupported> {
    let missing: Vec<String> = Feature::ALL
        .into_iter()
        .filter(|&feature| !has(feature))
        .map(|feature| {
            let (name, since) = feature.told();
            format!("{name} (Linux {since})")
        })
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Unsupported::new(format!(
        "the kernel engine needs {}, and the kernel {release} has not",
        missing.join(", ")
    )))
}

fn check_capabilities() -> Result<(), Unsupported> {
    let has = |capability| privilege::has(capability).unwrap_or(false);
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
    use super::*;

    #[test]
    fn features_count_and_numbers_do_not() {
        for release in ["5.14.0-503.el9.x86_64", "6.1.0-18-amd64", "strange"] {
            assert_eq!(check_features(release, |_| true), Ok(()), "{release}");
        }
        let refused = check_features("5.10.0-46-amd64", |it| it == Feature::RingBuffer);
        let refused = refused.unwrap_err().to_string();
        for part in ["5.10.0-46-amd64", "ktime_get_coarse_ns (Linux 5.11)", "check_mtu", "swap"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        assert!(!refused.contains("ring"), "{refused}");
    }

    /// Every supported kernel has them; one without would answer with a reason.
    #[test]
    fn this_kernel_is_asked() {
        if !fordway_testhost::is_root() {
            return;
        }
        assert!(Feature::ALL.into_iter().all(|feature| captured(|| sys::has(feature)).0));
    }
}
