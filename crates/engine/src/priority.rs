//! How a queue's thread shares its processor with others.
//!
//! What waits for a queue's thread is not one program but all packets that go through it, and their senders go on meanwhile. As one
//! among equals the thread waits for a few milliseconds whenever it has emptied its queue and others want the processor:
//! round-trip times grow, TCP sends less at a time, and more packets are to be translated for the same octets. The kernel's own
//! work for packets precedes all programs.

use rustix::process::{getpid, getpriority_process, setpriority_process};
use rustix::thread::gettid;

/// The nice value of a queue's thread: it gets nine times the share of a program with the usual one.
const NICE: i32 = -10;

/// Gives the calling thread, and those that it starts from here on, the priority of a queue's. Where the system forbids it, they
/// go on as they are: slower, not wrong.
pub fn prefer() {
    if getpriority_process(None).is_ok_and(|own| own > NICE) {
        let _ = setpriority_process(Some(gettid()), NICE);
    }
}

/// Gives the calling thread the priority of the process's first thread, whatever that of its parent is.
pub fn level() {
    // By the process's number the kernel knows its first thread.
    if let Ok(first) = getpriority_process(Some(getpid())) {
        let _ = setpriority_process(Some(gettid()), first);
    }
}
