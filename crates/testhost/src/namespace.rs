//! Hosts for tests: network namespaces, and what runs in them.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use crate::{has_programs, is_root, poll};

/// Whether namespaces can be made and set up here; a skip where not.
pub fn can_test() -> bool {
    is_root() && has_programs(&["ip"])
}

/// Runs a test in a network namespace of its own, where nobody else takes a port; a skip where that can't be. The
/// namespace vanishes with the last of its threads and sockets.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !can_test() {
        return;
    }
    let thread = thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("a new namespace");
        ip("link set lo up");
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `ip` in the namespace of the calling thread; what it prints.
pub fn ip(arguments: &str) -> String {
    let output =
        Command::new("ip").args(arguments.split_whitespace()).stdin(Stdio::null()).output();
    let output = output.expect("ip is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Gives a device an address, such as `2001:db8::1/64`, and waits until the kernel delivers to it what is sent there.
pub fn add_address(address: &str, device: &str) {
    let (host, _) = address.split_once('/').expect("a length");
    match host.parse().expect("an address") {
        IpAddr::V4(_) => drop(ip(&format!("address add {address} dev {device}"))),
        IpAddr::V6(v6) => {
            ip(&format!("address add {address} dev {device} nodad"));
            delivers(v6, device);
        }
    }
}

/// Waits until the kernel has made the route of an address of its own, which it does later than it shows the address.
fn delivers(address: Ipv6Addr, device: &str) {
    poll(&format!("{address} is used"), || {
        let shown = ip(&format!("-6 route show table local {address} dev {device}"));
        shown.starts_with("local").then_some(())
    });
}

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace: a thread that is in it. It vanishes with its last user.
pub struct Namespace {
    jobs: Sender<Job>,
    /// For `ip`, as the name of the namespace.
    pub path: String,
}

impl Namespace {
    /// A namespace with nothing but its loopback device, which is up. Duplicate address detection is off.
    pub fn create() -> Namespace {
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
        // Nothing here could have an address twice.
        namespace.sysctl("ipv6/conf/default/accept_dad", "0");
        namespace.ip("link set lo up");
        namespace
    }

    /// Runs `job` in the namespace.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
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
    pub fn spawn(&self, job: impl FnOnce() + Send + 'static) {
        self.run(move || drop(thread::spawn(job)));
    }

    /// What a program prints; fails if it fails.
    pub fn output(&self, program: &str, arguments: &str) -> String {
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

    /// As [`ip`], in the namespace.
    pub fn ip(&self, line: &str) -> String {
        let line = line.to_owned();
        self.run(move || ip(&line))
    }

    /// As [`add_address`].
    pub fn add_address(&self, address: &str, device: &str) {
        let (address, device) = (address.to_owned(), device.to_owned());
        self.run(move || add_address(&address, &device));
    }

    /// Writes a setting of the kernel; `key` is a path below `/proc/sys/net`.
    pub fn sysctl(&self, key: &str, value: &str) {
        let path = Path::new("/proc/sys/net").join(key);
        let value = value.to_owned();
        self.run(move || fs::write(&path, value).expect("a setting of the kernel"));
    }

    /// Reads a setting of the kernel; `key` is a path below `/proc/sys/net`.
    pub fn read_sysctl(&self, key: &str) -> String {
        let path = Path::new("/proc/sys/net").join(key);
        self.run(move || fs::read_to_string(&path).expect("a setting of the kernel"))
            .trim()
            .to_owned()
    }

    /// Waits until a device has a link-local address that can be used, and says it.
    pub fn link_local(&self, device: &str) -> Ipv6Addr {
        let device = device.to_owned();
        self.run(move || {
            let address = poll("a link-local address", || {
                let shown = ip(&format!("-6 -o address show dev {device} scope link -tentative"));
                let address = shown.split_whitespace().skip_while(|it| *it != "inet6").nth(1)?;
                address.split('/').next()?.parse().ok()
            });
            delivers(address, &device);
            address
        })
    }

    /// Index of an interface.
    pub fn index(&self, device: &str) -> u32 {
        let device = device.to_owned();
        self.run(move || nix::net::if_::if_nametoindex(device.as_str()).expect("an interface"))
    }
}
