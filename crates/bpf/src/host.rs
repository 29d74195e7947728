//! What the host allows.

use crate::Unsupported;

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

/// Looks whether the host allows the kernel engine. Takes well under a millisecond.
pub fn probe() -> Result<Host, Unsupported> {
    todo!()
}
