//! The threads of a process: what they may do, and what they wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use fordway_testhost::poll;

/// A thread.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    pid: u32,
    tid: u32,
    pub(crate) name: String,
}

/// The threads of a process that run at this moment.
pub(crate) fn threads(pid: u32) -> Vec<Thread> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let tids = tasks.map(|task| task.unwrap().file_name().into_string().unwrap());
    let thread = |tid: String| {
        // One that has just ended is none any more.
        let name = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
        Some(Thread { pid, tid: tid.parse().unwrap(), name: name.trim_end().to_owned() })
    };
    tids.filter_map(thread).collect()
}

impl Thread {
    fn path(&self, file: &str) -> PathBuf {
        format!("/proc/{}/task/{}/{file}", self.pid, self.tid).into()
    }

    /// Whether it is the first thread of its process.
    pub(crate) fn is_main(&self) -> bool {
        self.pid == self.tid
    }

    /// Its nice value.
    pub(crate) fn nice(&self) -> i64 {
        let stat = fs::read_to_string(self.path("stat")).unwrap();
        // What is behind the name, which may have spaces.
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').nth(16).unwrap().parse().unwrap()
    }

    /// Whether it has, or could get, any capability.
    pub(crate) fn is_privileged(&self) -> bool {
        let Ok(status) = fs::read_to_string(self.path("status")) else { return false };
        let fields = ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"];
        let set = |name| {
            let line = status.lines().find_map(|line: &str| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        fields.into_iter().any(|name| set(name) != 0)
    }

    /// Whether system calls are forbidden to it (seccomp).
    pub(crate) fn is_confined(&self) -> bool {
        let status = fs::read_to_string(self.path("status")).unwrap();
        status.lines().any(|line| line == "Seccomp:\t2")
    }

    /// The descriptors that it waits for, as soon as it waits: those of its epoll instance, as `/proc` shows them.
    pub(crate) fn waits_for(&self) -> BTreeSet<String> {
        let epoll = poll("a thread waits", || {
            let call = fs::read_to_string(self.path("syscall")).ok()?;
            let mut words = call.split_whitespace();
            let number: i64 = words.next()?.parse().ok()?;
            let descriptor = words.next()?.trim_start_matches("0x");
            let descriptor = u32::from_str_radix(descriptor, 16).ok()?;
            EPOLL_WAITS.contains(&number).then_some(descriptor)
        });
        let watched = fs::read_to_string(self.path(&format!("fdinfo/{epoll}"))).unwrap();
        let watched = watched.lines().filter_map(|line| line.strip_prefix("tfd:"));
        let watched = watched.filter_map(|line| line.split_whitespace().next());
        let target = |fd: &str| fs::read_link(self.path(&format!("fd/{fd}"))).ok();
        watched.filter_map(target).map(|target| target.display().to_string()).collect()
    }
}

/// `epoll_wait`, `epoll_pwait`, `epoll_pwait2` of x86-64 and of the architectures with the common table.
const EPOLL_WAITS: [i64; 4] = [232, 281, 441, 22];

/// Sockets of a process's namespace on which somebody else can speak to it, by what `/proc` calls their descriptors: the
/// kind of socket.
pub(crate) fn reachable(pid: u32) -> BTreeMap<String, String> {
    let mut sockets = BTreeMap::new();
    // Which word of a line is the inode.
    for (kind, place) in [
        ("raw", 9),
        ("raw6", 9),
        ("udp", 9),
        ("udp6", 9),
        ("tcp", 9),
        ("tcp6", 9),
        ("packet", 8),
        ("unix", 6),
    ] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{kind}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            // A local socket without a name is one end of a pair within the process.
            if kind == "unix" && words.len() <= 7 {
                continue;
            }
            sockets.insert(format!("socket:[{}]", words[place]), kind.to_owned());
        }
    }
    sockets
}

/// Fails unless the first thread alone has capabilities, and waits for nothing that somebody else can send to. Gives
/// what each other thread waits for, by its name: kinds of sockets.
#[track_caller]
pub(crate) fn assert_privileged_hear_nobody(pid: u32) {
    for thread in threads(pid) {
        assert_eq!(thread.is_privileged(), thread.is_main(), "{thread:?}");
        if thread.is_main() {
            let heard = heard(&thread);
            assert!(heard.is_empty(), "the thread with capabilities hears {heard:?}");
        }
    }
}

/// The kinds of sockets on which a thread hears others.
pub(crate) fn heard(thread: &Thread) -> BTreeSet<String> {
    let reachable = reachable(thread.pid);
    let waits = thread.waits_for();
    waits.iter().filter_map(|it| reachable.get(it)).cloned().collect()
}

/// The kinds of sockets on which a thread of this name hears others.
#[track_caller]
pub(crate) fn heard_by(pid: u32, name: &str) -> BTreeSet<String> {
    let thread = poll(&format!("there is a thread {name}"), || {
        threads(pid).into_iter().find(|thread| thread.name == name)
    });
    assert!(thread.is_confined(), "{thread:?}");
    heard(&thread)
}
