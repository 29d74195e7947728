//! A host and its router, each in a network namespace of its own, with a pair of devices between them.

use std::net::Ipv6Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::advertiser::{Advertiser, Listener};

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

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace: a thread that is in it. It vanishes with its last user.
pub(crate) struct Namespace {
    jobs: Sender<Job>,
    path: String,
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

    pub(crate) fn ip(&self, line: &str) -> String {
        let line = line.to_owned();
        self.run(move || {
            let output = Command::new("ip")
                .args(line.split_whitespace())
                .stdin(Stdio::null())
                .output()
                .expect("ip (package iproute2)");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "ip {line}: {said}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        })
    }

    fn sysctl(&self, key: &str, value: &str) {
        let path = Path::new("/proc/sys/net").join(key);
        let value = value.to_owned();
        self.run(move || std::fs::write(&path, value).expect("a setting of the kernel"));
    }

    /// Waits until a device has a link-local address, and says it.
    pub(crate) fn link_local(&self, device: &str) -> Ipv6Addr {
        poll("a link-local address", || {
            let shown = self.ip(&format!("-6 -o address show dev {device} scope link -tentative"));
            let address = shown.split_whitespace().skip_while(|it| *it != "inet6").nth(1)?;
            address.split('/').next()?.parse().ok()
        })
    }

    /// Who speaks on a device from an address of it, the link-local one if none is given.
    pub(crate) fn advertiser(&self, device: &str, source: Option<&str>) -> Advertiser {
        let source = match source {
            Some(source) => source.parse().expect("an address"),
            None => self.link_local(device),
        };
        let index = self.index(device);
        self.run(move || Advertiser::open(index, source))
    }

    /// Who hears the solicitations on a device, from now on.
    pub(crate) fn listener(&self, device: &str) -> Listener {
        let index = self.index(device);
        self.run(move || Listener::open(index))
    }

    fn index(&self, device: &str) -> u32 {
        let device = device.to_owned();
        self.run(move || nix::net::if_::if_nametoindex(device.as_str()).expect("an interface"))
    }

    /// A pair of devices, `near` here and `far` there, both up; their networks are 2001:db8:`net`::/64,
    /// where this one is ::1.
    pub(crate) fn connect(&self, near: &str, other: &Namespace, far: &str, net: u16) {
        self.ip(&format!("link add {near} type veth peer name {far} netns {}", other.path));
        self.ip(&format!("link set {near} up"));
        other.ip(&format!("link set {far} up"));
        self.ip(&format!("address add 2001:db8:{net:x}::1/64 dev {near}"));
        other.ip(&format!("address add 2001:db8:{net:x}::2/64 dev {far}"));
        self.link_local(near);
        other.link_local(far);
    }
}

/// The router's side of the pair.
pub(crate) const LAN: &str = "lan0";
/// The host's.
pub(crate) const UP: &str = "up0";

pub(crate) struct World {
    pub(crate) router: Namespace,
    pub(crate) host: Namespace,
}

impl World {
    /// A host that takes default routes from advertisements, but whose kernel does not solicit.
    pub(crate) fn new() -> World {
        let world = World { router: Namespace::new(), host: Namespace::new() };
        world.host.sysctl("ipv6/conf/default/router_solicitations", "0");
        world.router.connect(LAN, &world.host, UP, 1);
        world
    }
}
