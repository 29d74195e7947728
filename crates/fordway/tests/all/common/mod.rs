//! What tests in namespaces share: namespaces that vanish, links, and a daemon that ends.

pub(crate) mod advertiser;
pub(crate) mod connection;
pub(crate) mod daemon;
pub(crate) mod dns;
pub(crate) mod host;
pub(crate) mod laptop;
pub(crate) mod netns;
pub(crate) mod ping;
pub(crate) mod process;
pub(crate) mod resolver;

pub(crate) mod threads;
pub(crate) mod topology;
pub(crate) mod traffic;

use fordway_testhost::{can_use_tun, require};

/// Whether the kernel engine can be tested here; a skip where it can't.
pub(crate) fn can_test_kernel() -> bool {
    can_use_tun()
        && require(fordway_bpf::probe().is_ok(), "this kernel does not allow the kernel engine")
}
