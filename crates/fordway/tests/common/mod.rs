//! What tests in namespaces share: namespaces that vanish, links, and a daemon that ends.
#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod advertiser;
pub(crate) mod connection;
pub(crate) mod daemon;
pub(crate) mod dns;
pub(crate) mod host;
pub(crate) mod laptop;
pub(crate) mod netns;
pub(crate) mod ping;
pub(crate) mod resolver;
pub(crate) mod topology;
pub(crate) mod traffic;

use std::time::{Duration, Instant};

/// Polls until `ready` gives something. The deadline is far above what a busy machine needs.
pub(crate) fn poll<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}: not within 30 seconds");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether namespaces can be made; says so where not.
pub(crate) fn can_test() -> bool {
    let able =
        rustix::process::geteuid().is_root() && std::path::Path::new("/dev/net/tun").exists();
    if !able {
        eprintln!("SKIPPED: this test needs root and /dev/net/tun");
    }
    able
}

/// Whether a program is installed; says so where not.
pub(crate) fn has_program(name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).any(|folder| folder.join(name).exists());
    if !found {
        eprintln!("SKIPPED: {name} is not installed");
    }
    found
}
