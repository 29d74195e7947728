//! Waiting for descriptors that tokio has no type for.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use tokio::io::unix::AsyncFd;

/// Has the runtime of the calling thread watch `inner`, which it owns from now on.
#[expect(deprecated, reason = "the successor asks for unsafe code, which this crate has none of")]
pub fn watched<T: AsFd + AsRawFd>(inner: T) -> io::Result<AsyncFd<T>> {
    // The successor's requirement holds for `AsFd` types: an owned descriptor stays open, and the same, as long as its
    // owner exists.
    AsyncFd::new(inner)
}
