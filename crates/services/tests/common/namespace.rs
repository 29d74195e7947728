//! Hosts for tests: network namespaces, what runs in them, and what is waited for.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fs;
use std::net::Ipv6Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Polls until `ready` gives something. The deadline is far above what a busy machine needs.
pub(crate) fn poll<T>(what: &str, ready: impl FnMut() -> Option<T>) -> T {
    poll_or(ready, || what.to_owned())
}

/// The same, with words that are only known when it fails.
pub(crate) fn poll_or<T>(mut ready: impl FnMut() -> Option<T>, what: impl Fn() -> String) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < deadline, "not within a minute: {}", what());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Whether namespaces can be made; says so where not.
pub(crate) fn can_test() -> bool {
    let able = nix::unistd::geteuid().is_root();
    if !able {
        eprintln!("SKIPPED: this test needs root");
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

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace: a thread that is in it. It vanishes with its last user.
pub(crate) struct Namespace {
    jobs: Sender<Job>,
    /// For `ip`, as the name of the namespace.
    pub(crate) path: String,
}

impl Namespace {
    pub(crate) fn new() -> Namespace {
        let (jobs, work) = channel::<Job>();
        let (sender, started) = channel();
        thread::spawn(move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("a new namespace");
            let task = nix::unistd::gettid();
            let path = format!("/proc/{}/task/{task}/ns/net", std::process::id());
            sender.send(path).expect("the creator waits");
            for job in work {
                job();
            }
        });
        let namespace = Namespace { jobs, path: started.recv().expect("the thread has started") };
        // Addresses are there at once, as nothing here could have them twice.
        namespace.sysctl("ipv6/conf/default/accept_dad", "0");
        namespace.ip("link set lo up");
        namespace
    }

    /// Runs `job` in the namespace.
    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, result) = channel();
        let job = move || {
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            // Nobody waits any more if the test has failed meanwhile.
            let _gone = sender.send(caught);
        };
        self.jobs.send(Box::new(job)).expect("the thread runs");
        result.recv().expect("the thread runs").unwrap_or_else(|it| std::panic::resume_unwind(it))
    }

    /// Runs `job` in the namespace beside everything else.
    pub(crate) fn spawn(&self, job: impl FnOnce() + Send + 'static) {
        self.run(move || drop(thread::spawn(job)));
    }

    /// What a program prints; fails if it fails.
    pub(crate) fn output(&self, program: &str, arguments: &str) -> String {
        let (program, arguments) = (program.to_owned(), arguments.to_owned());
        self.run(move || {
            let output = Command::new(&program)
                .args(arguments.split_whitespace())
                .stdin(Stdio::null())
                .output()
                .unwrap_or_else(|error| panic!("{program}: {error}"));
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{program} {arguments}: {said}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        })
    }

    pub(crate) fn ip(&self, line: &str) -> String {
        self.output("ip", line)
    }

    pub(crate) fn sysctl(&self, key: &str, value: &str) {
        let path = Path::new("/proc/sys/net").join(key);
        let value = value.to_owned();
        self.run(move || fs::write(&path, value).expect("a setting of the kernel"));
    }

    pub(crate) fn read_sysctl(&self, key: &str) -> String {
        let path = Path::new("/proc/sys/net").join(key);
        self.run(move || fs::read_to_string(&path).expect("a setting of the kernel"))
            .trim()
            .to_owned()
    }

    /// Waits until a device has a link-local address, and says it.
    pub(crate) fn link_local(&self, device: &str) -> Ipv6Addr {
        poll("a link-local address", || {
            let shown = self.ip(&format!("-6 -o address show dev {device} scope link -tentative"));
            let address = shown.split_whitespace().skip_while(|it| *it != "inet6").nth(1)?;
            address.split('/').next()?.parse().ok()
        })
    }

    /// Index of an interface.
    pub(crate) fn index(&self, device: &str) -> u32 {
        let device = device.to_owned();
        self.run(move || nix::net::if_::if_nametoindex(device.as_str()).expect("an interface"))
    }
}
