//! What the namespace tests share. They need root.

pub(crate) mod changes;

use std::process::{Command, Stdio};
use std::thread;

use fordway_net::{Change, Manager, Netlink, View};
use fordway_testhost::{has_programs, is_root};

/// Whether namespaces can be made here, and looked at; a skip where not.
pub(crate) fn can_test() -> bool {
    is_root() && has_programs(&["ip", "nft"])
}

/// Runs `test` in a thread with a network namespace of its own. Processes that
/// `test` starts are in it too. It vanishes with the last user.
pub(crate) fn in_namespace(test: impl FnOnce() + Send) {
    if can_test() {
        in_new_namespace(test);
    }
}

/// [`in_namespace`] for whoever has asked [`can_test`], with what `work` gives.
pub(crate) fn in_new_namespace<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
                .expect("a new network namespace");
            ip("link set lo up");
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Whether a change is in force, whoever made it.
pub(crate) fn in_force(manager: &Manager, change: &Change) -> bool {
    let mut netlink = Netlink::open().unwrap();
    let missing = manager.missing(std::slice::from_ref(change), &mut View::new(&mut netlink));
    missing.unwrap().is_empty()
}

/// A pair of interfaces veth0 and veth1, both up, without IPv6 address
/// detection.
pub(crate) fn veth() {
    ip("link add veth0 type veth peer name veth1");
    ip("link set veth0 up");
    ip("link set veth1 up");
}

/// Runs `ip` with the arguments of `line`; fails if it fails.
pub(crate) fn ip(line: &str) {
    assert!(run_ip(line).status.success(), "ip {line}");
}

/// What `ip` prints.
pub(crate) fn ip_output(line: &str) -> String {
    let output = run_ip(line);
    assert!(output.status.success(), "ip {line}");
    String::from_utf8(output.stdout).unwrap()
}

fn run_ip(line: &str) -> std::process::Output {
    Command::new("ip")
        .args(line.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .expect("ip (package iproute2)")
}

/// Runs `nft`; gives what it prints.
pub(crate) fn nft(line: &str) -> String {
    let mut command = Command::new("nft");
    let output = command.args(line.split_whitespace()).stdin(Stdio::null()).output().expect("nft");
    assert!(output.status.success(), "nft {line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
