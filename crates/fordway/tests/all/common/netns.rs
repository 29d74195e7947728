//! A network namespace with a name of its own.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::net::Ipv6Addr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use fordway_net::{NetNs, Netlink};
use fordway_testhost::poll;

/// A namespace that is deleted at the end, also of a panic.
pub(crate) struct Netns {
    name: String,
}

impl Netns {
    /// A new namespace, its loopback up. `role` is part of its name.
    pub(crate) fn new(role: &str) -> Netns {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        if number == 0 {
            widen_neighbour_tables();
        }
        let random: u16 = getrandom::u32().unwrap() as u16;
        let name = format!("fwt-{role}-{}-{number}-{random:04x}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let netns = Netns { name };
        netns.inside(|| Netlink::open().unwrap().set_up("lo", true).unwrap());
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
        let mut command = Command::new(words.next().unwrap());
        command.args(words).stdin(Stdio::null()).env("LC_ALL", "C");
        // A process begins in the namespace of the thread that starts it.
        self.inside(|| command.output().unwrap())
    }

    /// Runs a line of words, which must succeed; gives its output.
    pub(crate) fn run(&self, line: &str) -> String {
        self.checked(line, &self.try_run(line))
    }

    /// Has one `ip` with these options carry out several lines, which must succeed; gives its output.
    pub(crate) fn ip_batch(&self, options: &str, lines: &[&str]) -> String {
        let mut command = Command::new("ip");
        command.args(options.split_whitespace()).args(["-batch", "-"]).env("LC_ALL", "C");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = self.inside(|| {
            let mut child = command.spawn().unwrap();
            child.stdin.take().unwrap().write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
            child.wait_with_output().unwrap()
        });
        self.checked(&format!("ip {options} {lines:?}"), &output)
    }

    fn checked(&self, what: &str, output: &Output) -> String {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {what}\n{text}{errors}", self.name);
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

    /// Has one `ip` carry out several lines; addresses that they add are ready when this returns.
    pub(crate) fn configure(&self, lines: &[&str]) {
        self.ip_batch("", lines);
        self.settle();
    }

    /// Waits until the kernel has done what it does with IPv6 addresses some time after it was told: they are no longer
    /// tentative, and their local routes are there.
    pub(crate) fn settle(&self) {
        poll("IPv6 addresses are ready", || self.is_settled().then_some(()));
    }

    fn is_settled(&self) -> bool {
        let unsettled = self.inside(unsettled_devices);
        if unsettled.is_empty() {
            return true;
        }
        // Without a carrier nothing happens.
        let links = self.run("ip -o link show up");
        let mut active = links.lines().filter(|link| link.contains(",LOWER_UP"));
        !active.any(|link| link.split([':', '@', ' ']).any(|it| unsettled.contains(it)))
    }

    pub(crate) fn sysctl(&self, key: &str, value: &str) {
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        self.inside(|| fs::write(&path, value).unwrap_or_else(|error| panic!("{key}: {error}")));
    }

    /// All settings of the network whose names have one of these words in them, as lines.
    pub(crate) fn settings(&self, words: &[&str]) -> String {
        let mut lines = BTreeSet::new();
        self.inside(|| collect_settings(Path::new("/proc/sys/net"), words, &mut lines));
        lines.into_iter().collect()
    }

    /// A counter of `IpExt` (RFC 4293): for instance packets that there was no route for.
    pub(crate) fn statistic(&self, name: &str) -> u64 {
        let text = self.inside(|| fs::read_to_string("/proc/thread-self/net/netstat").unwrap());
        let mut lines = text.lines().filter(|line| line.starts_with("IpExt: "));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let place = names.split(' ').position(|it| it == name).unwrap();
        values.split(' ').nth(place).and_then(|value| value.parse().ok()).unwrap()
    }

    /// Counts the packets that arrive and match an nftables expression, from now on.
    pub(crate) fn counter<'a>(&'a self, matching: &str) -> impl Fn() -> u64 + use<'a> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let table = format!("count{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        self.run(&format!(
            "nft add table inet {table} ; \
             add chain inet {table} in {{ type filter hook prerouting priority -300 ; }} ; \
             add rule inet {table} in {matching} counter"
        ));
        move || {
            let text = self.run(&format!("nft list table inet {table}"));
            let mut words = text.split_whitespace().skip_while(|word| *word != "packets");
            words.nth(1).and_then(|count| count.parse().ok()).unwrap()
        }
    }

    /// Runs `work` on a thread in the namespace.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        NetNs::open(&self.name).unwrap().run(work).unwrap()
    }

    /// Joins two namespaces by a pair of virtual Ethernet devices, both up.
    pub(crate) fn link(&self, device: &str, peer: &Netns, peer_device: &str) {
        let pair = format!("type veth peer name {peer_device} netns {}", peer.name);
        self.ip_batch(
            "",
            &[&format!("link add {device} {pair}"), &format!("link set {device} up")],
        );
        peer.inside(|| Netlink::open().unwrap().set_up(peer_device, true).unwrap());
        // The kernel makes the link-local addresses by itself, some time later.
        for (netns, device) in [(self, device), (peer, peer_device)] {
            let is_there = || {
                let all = addresses();
                all.iter().any(|it| it.device == device && it.address.is_unicast_link_local())
            };
            poll("a link-local address", || netns.inside(is_there).then_some(()));
        }
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

/// Makes room for neighbours. The kernel keeps those of all namespaces together, 1,024 unless it is told otherwise, and
/// every namespace loses packets when one of them has filled the table.
fn widen_neighbour_tables() {
    for family in ["ipv4", "ipv6"] {
        for (name, wanted) in
            [("gc_thresh3", 65_536), ("gc_thresh2", 32_768), ("gc_thresh1", 16_384)]
        {
            let path = format!("/proc/sys/net/{family}/neigh/default/{name}");
            // It is there outside of all namespaces alone.
            let known = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
            if known.is_some_and(|known: u64| known < wanted) {
                let _ = fs::write(&path, wanted.to_string());
            }
        }
    }
}

/// An IPv6 address of the calling thread's namespace.
struct Address {
    device: String,
    address: Ipv6Addr,
    is_tentative: bool,
    is_duplicate: bool,
}

fn addresses() -> Vec<Address> {
    let text = fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap();
    let lines = text.lines().map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let flags = u32::from_str_radix(words[4], 16).unwrap();
        Address {
            device: words[5].to_owned(),
            address: hexadecimal(words[0]),
            // IFA_F_TENTATIVE, IFA_F_DADFAILED
            is_tentative: flags & 0x40 != 0,
            is_duplicate: flags & 0x08 != 0,
        }
    });
    lines.collect()
}

/// Devices of the calling thread's namespace with an address that is not ready yet.
fn unsettled_devices() -> BTreeSet<String> {
    /// The route leads to the host itself.
    const RTF_LOCAL: u32 = 0x8000_0000;
    let text = fs::read_to_string("/proc/thread-self/net/ipv6_route").unwrap();
    let local: BTreeSet<(String, Ipv6Addr)> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| u32::from_str_radix(words[8], 16).unwrap() & RTF_LOCAL != 0)
        .map(|words| (words[9].to_owned(), hexadecimal(words[0])))
        .collect();
    let has_route = |it: &Address| local.contains(&(it.device.clone(), it.address));
    let all = addresses().into_iter();
    all.filter(|it| !it.is_duplicate && (it.is_tentative || !has_route(it)))
        .map(|it| it.device)
        .collect()
}

/// 32 digits as an address.
fn hexadecimal(digits: &str) -> Ipv6Addr {
    Ipv6Addr::from(u128::from_str_radix(digits, 16).unwrap())
}

fn collect_settings(folder: &Path, words: &[&str], lines: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_settings(&path, words, lines);
            continue;
        }
        let name = path.strip_prefix("/proc/sys").unwrap().display().to_string().replace('/', ".");
        if words.iter().any(|word| name.contains(word)) {
            // Some can only be written.
            let value = fs::read_to_string(&path).unwrap_or_default();
            lines.insert(format!("{name} = {}\n", value.trim()));
        }
    }
}
