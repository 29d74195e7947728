//! A network namespace with a name of its own.

use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fordway_net::NetNs;

/// A namespace that is deleted at the end, also of a panic.
pub(crate) struct Netns {
    name: String,
}

impl Netns {
    /// A new namespace, its loopback up. `role` is part of its name.
    pub(crate) fn new(role: &str) -> Netns {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let random: u16 = getrandom::u32().unwrap() as u16;
        let name = format!("fwt-{role}-{}-{number}-{random:04x}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let netns = Netns { name };
        netns.ip("link set lo up");
        // Addresses are ready at once, here and on interfaces to come.
        netns.sysctl("net.ipv6.conf.default.accept_dad", "0");
        netns
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A command that runs in the namespace (and sees /sys as outside).
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name)).arg("--").arg(program);
        command.stdin(Stdio::null()).env("LC_ALL", "C");
        command
    }

    /// Runs a line of words; its end is not looked at.
    pub(crate) fn try_run(&self, line: &str) -> Output {
        let mut words = line.split_whitespace();
        self.command(words.next().unwrap()).args(words).output().unwrap()
    }

    /// Runs a line of words, which must succeed; gives its output.
    pub(crate) fn run(&self, line: &str) -> String {
        let output = self.try_run(line);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {line}\n{text}{errors}", self.name);
        text
    }

    /// Runs `ip`; an address that it adds is ready when this returns.
    pub(crate) fn ip(&self, line: &str) -> String {
        let said = self.run(&format!("ip {line}"));
        if line.contains("addr") && line.contains(" add ") {
            self.settle();
        }
        said
    }

    /// Waits until the kernel has done what it does with IPv6 addresses some time after it was told: they are no longer
    /// tentative, and their local routes are there. Addresses that stay tentative are waited for in vain.
    pub(crate) fn settle(&self) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.is_settled() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn is_settled(&self) -> bool {
        let links = self.run("ip -o link show up");
        let routes = self.run("ip -6 route show table all type local");
        self.run("ip -6 -o addr show up").lines().all(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let (device, address) = (words[1], words[3].split('/').next().unwrap());
            let link = links.lines().find(|link| {
                link.split([':', '@', ' ']).any(|it| it == device) && link.contains(",LOWER_UP")
            });
            // Without a carrier nothing happens.
            link.is_none()
                || !line.contains("tentative")
                    && routes.contains(&format!("local {address} dev {device} "))
        })
    }

    pub(crate) fn sysctl(&self, key: &str, value: &str) {
        self.run(&format!("sysctl -qw {key}={value}"));
    }

    /// Counts the packets that arrive and match an nftables expression, from now on.
    pub(crate) fn counter<'a>(&'a self, matching: &str) -> impl Fn() -> u64 + use<'a> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let table = format!("count{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        self.run(&format!("nft add table inet {table}"));
        self.run(&format!(
            "nft add chain inet {table} in {{ type filter hook prerouting priority -300 ; }}"
        ));
        self.run(&format!("nft add rule inet {table} in {matching} counter"));
        move || {
            let text = self.run(&format!("nft list table inet {table}"));
            let mut words = text.split_whitespace().skip_while(|word| *word != "packets");
            words.nth(1).and_then(|count| count.parse().ok()).unwrap()
        }
    }

    /// Runs `work` on a thread in the namespace.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let netns = NetNs::open(&self.name).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                netns.enter().unwrap();
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Joins two namespaces by a pair of virtual Ethernet devices, both up.
    pub(crate) fn link(&self, device: &str, peer: &Netns, peer_device: &str) {
        self.ip(&format!(
            "link add {device} type veth peer name {peer_device} netns {}",
            peer.name
        ));
        self.ip(&format!("link set {device} up"));
        peer.ip(&format!("link set {peer_device} up"));
        // The kernel makes the link-local addresses by itself, some time later.
        for (netns, device) in [(self, device), (peer, peer_device)] {
            let show = format!("-6 addr show dev {device} scope link");
            super::poll("a link-local address", || netns.ip(&show).contains("fe80:").then_some(()));
        }
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}
