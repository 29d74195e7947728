//! What the tests share: a namespace, packets out of queues.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fordway_testhost::PATIENCE;
use fordway_tun::{OpenOptions, Queue, Ready, RecvOutcome, VnetHeader, Waker};

/// Buffer that no packet fills.
pub(crate) const BUFFER: usize = 128 + fordway_tun::MAX_PACKET + 1;
pub(crate) const HEADROOM: usize = 128;

/// Runs `test` [in a namespace](inside_namespace); a skip where the host does not allow it.
pub(crate) fn in_namespace(test: impl FnOnce() + Send) {
    if fordway_testhost::can_use_tun() {
        inside_namespace(test);
    }
}

/// Runs `test` in a thread with a network namespace of its own. Processes that
/// `test` starts are in it too. It vanishes with the last user.
pub(crate) fn inside_namespace<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("a network namespace");
            ip("link set lo up");
            test()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs `ip` with the arguments of `line`.
pub(crate) fn ip(line: &str) {
    assert!(try_ip(line), "ip {line}");
}

pub(crate) fn try_ip(line: &str) -> bool {
    Command::new("ip")
        .args(line.split_whitespace())
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .expect("ip (package iproute2)")
        .success()
}

pub(crate) fn options(run_dir: &Path, queues: usize) -> OpenOptions {
    OpenOptions { queues, run_dir: run_dir.to_owned(), ..OpenOptions::default() }
}

/// Receives packets from all queues until `wanted` takes one; others are
/// skipped. Fails when that takes too long.
pub(crate) fn receive(
    queues: &mut [Queue],
    buf: &mut [u8],
    mut wanted: impl FnMut(&VnetHeader, &[u8]) -> bool,
) -> (usize, VnetHeader, usize) {
    let waker = Waker::new().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        for (index, queue) in queues.iter_mut().enumerate() {
            match queue.recv(buf, HEADROOM).unwrap() {
                RecvOutcome::Packet { header, len } => {
                    if wanted(&header, &buf[HEADROOM..HEADROOM + len]) {
                        return (index, header, len);
                    }
                }
                RecvOutcome::Empty => {
                    let ready: Ready = queue.wait(&waker, Some(Duration::from_millis(10))).unwrap();
                    assert!(!ready.gone);
                }
                other => panic!("{other:?}"),
            }
        }
    }
    panic!("no such packet within the time");
}

/// Whether `packet` is IPv4 with protocol `protocol`.
pub(crate) fn is_v4(packet: &[u8], protocol: u8) -> bool {
    packet[0] >> 4 == 4 && packet[9] == protocol
}

/// Turns an IPv4 packet with ports around: addresses and ports change places,
/// which leaves every checksum, partial or not, as it was.
pub(crate) fn turn_around(packet: &mut [u8]) {
    let header = usize::from(packet[0] & 15) * 4;
    let (source, destination) = packet[12..20].split_at_mut(4);
    source.swap_with_slice(destination);
    let (source, destination) = packet[header..header + 4].split_at_mut(2);
    source.swap_with_slice(destination);
}
