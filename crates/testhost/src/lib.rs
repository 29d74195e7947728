//! What tests on a real host share: waiting with a deadline, and skips that are counted; with the feature `hosts`,
//! network namespaces and time that stands still.
//!
//! It imports no crate of the gateway, so that the lab's tests may use it as well.

#![forbid(unsafe_code)]

pub mod bird;
#[cfg(feature = "certificates")]
pub mod certificates;
#[cfg(feature = "hosts")]
pub mod namespace;
pub mod nats;
#[cfg(feature = "hosts")]
pub mod still;

use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// How long a test waits for anything. It is far above what a busy machine needs: no test is about time.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Calls `ready` until it gives something. Panics after [`PATIENCE`], naming `what` was waited for.
pub fn poll<T>(what: &str, ready: impl FnMut() -> Option<T>) -> T {
    poll_or(ready, || what.to_owned())
}

/// Calls `ready` until it gives something. Panics after [`PATIENCE`] with what `what` then says.
pub fn poll_or<T>(mut ready: impl FnMut() -> Option<T>, what: impl FnOnce() -> String) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = ready() {
            return value;
        }
        if Instant::now() >= deadline {
            panic!("not within {} s: {}", PATIENCE.as_secs(), what());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for the end of a process. Panics after [`PATIENCE`], naming the process by `what`; the process is then killed.
pub fn wait(child: &mut Child, what: &str) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("a child that nobody else waits for") {
            return status;
        }
        if Instant::now() >= deadline {
            let _ = child.kill();
            let _ = child.wait();
            panic!("not within {} s: the end of {what}", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Says that a test can't run here, and why; the test returns after it. `scripts/test` counts it as skipped.
///
/// Under `CI=true` everything that a test needs has been installed: a skip is a failure there.
pub fn skip(reason: &str) {
    assert!(
        std::env::var_os("CI").is_none_or(|it| it != "true"),
        "SKIPPED under CI=true: {reason}"
    );
    eprintln!("SKIPPED: {reason}");
}

/// Whether the tests run as root; a skip where they don't.
#[must_use]
pub fn is_root() -> bool {
    require(rustix::process::geteuid().is_root(), "this test needs root")
}

/// Whether namespaces and TUN devices can be made; a skip where they can't.
#[must_use]
pub fn can_use_tun() -> bool {
    is_root() && require(Path::new("/dev/net/tun").exists(), "this test needs /dev/net/tun")
}

/// Whether all these programs are on PATH; a skip where one is not.
#[must_use]
pub fn has_programs(names: &[&str]) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |name: &str| std::env::split_paths(&folders).any(|folder| folder.join(name).exists());
    names.iter().all(|name| require(is_there(name), &format!("{name} is not installed")))
}

/// Passes `condition` on; a skip for `reason` where it does not hold.
#[must_use]
pub fn require(condition: bool, reason: &str) -> bool {
    if !condition {
        skip(reason);
    }
    condition
}
