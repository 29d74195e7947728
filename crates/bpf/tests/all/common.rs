//! What the tests of the loader share: a namespace, devices in it, a folder of pins.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use fordway_bpf::{Attachment, Kind, Place, Totals};
use fordway_testhost::{can_use_tun, poll};
use fordway_testkit::sys;
use fordway_xlat::Config;
use fordway_xlat::addr::Pool6;
use libbpf_rs::query::{LinkInfoIter, ProgInfoIter};

/// Runs `test` in a thread with a network namespace of its own; a skip where the host does not allow it.
/// Processes that `test` starts are in the namespace too. It vanishes with the last user.
pub(crate) fn in_namespace(test: impl FnOnce() + Send) {
    if !can_use_tun() {
        return;
    }
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            sys::enter_new_namespace().expect("a network namespace");
            ip("link set lo up");
            test();
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// A pair of interfaces veth0 and veth1, both up.
pub(crate) fn veth() -> (u32, u32) {
    ip("link add veth0 type veth peer name veth1");
    ip("link set veth0 up");
    ip("link set veth1 up");
    (index("veth0"), index("veth1"))
}

/// A TUN device fw0 that stays without a process, up, with a route to the IPv4 documentation prefixes.
pub(crate) fn tun() -> u32 {
    ip("tuntap add dev fw0 mode tun");
    ip("link set fw0 up");
    ip("addr add 192.0.2.1/32 dev fw0");
    ip("route add 198.51.100.0/24 dev fw0 src 192.0.2.1");
    index("fw0")
}

pub(crate) fn index(name: &str) -> u32 {
    nix::net::if_::if_nametoindex(name).expect("the device")
}

/// Sends one IPv4 datagram that is routed into fw0.
pub(crate) fn send() {
    send_by(&socket());
}

/// A socket of this thread's namespace.
pub(crate) fn socket() -> UdpSocket {
    UdpSocket::bind("192.0.2.1:0").expect("a socket")
}

/// As [`send`], by a socket of [`socket`].
pub(crate) fn send_by(socket: &UdpSocket) {
    socket.send_to(b"datagram", "198.51.100.7:9").expect("sending");
}

/// Lets [`send`] leave by veth0 instead.
pub(crate) fn route_by_veth0() {
    ip("addr add 192.0.2.1/32 dev veth0");
    ip("neigh replace 198.51.100.7 lladdr 02:00:00:00:00:02 dev veth0");
    ip("route replace 198.51.100.0/24 dev veth0 src 192.0.2.1");
}

/// Packets that the programs have seen in any way.
pub(crate) fn seen(totals: &Totals) -> u64 {
    let translated: u64 = totals.directions.iter().map(|direction| direction.packets).sum();
    translated
        + totals.unmatched
        + totals.drops.iter().sum::<u64>()
        + totals.passed_on.iter().sum::<u64>()
}

/// A configuration that translates everything by one prefix.
pub(crate) fn config() -> Config {
    config_of(&["2001:db8:64::/96"])
}

pub(crate) fn config_of(prefixes: &[&str]) -> Config {
    let pool6 = prefixes.iter().map(|prefix| Pool6::new(prefix.parse().unwrap()).unwrap());
    Config { pool6: pool6.collect(), ..Config::default() }
}

/// A folder of pins with a name of its own. What is left there goes with it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        fordway_bpf::mount_bpffs().expect("a BPF file system");
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("fordway-test-{}-{number}", std::process::id());
        Folder(Path::new("/sys/fs/bpf").join(name))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Names of the pins, sorted; empty if the folder is missing.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).into_iter().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The kernel's number of a pinned link.
    pub(crate) fn link_id(&self, name: &str) -> u32 {
        libbpf_rs::Link::open(self.0.join(name)).expect(name).info().expect("its information").id
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fordway_bpf::take_down(&self.0);
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Waits until programs are gone, which the kernel does a little later.
pub(crate) fn wait_gone(attachments: &[Attachment]) {
    let is_there = |id: u32| ProgInfoIter::default().any(|info| info.id == id);
    let programs = || attachments.iter().map(|found| found.program_id);
    poll("the programs to go", || (!programs().any(is_there)).then_some(()));
}

pub(crate) fn is_loaded(attachment: &Attachment) -> bool {
    ProgInfoIter::default().any(|info| info.id == attachment.program_id)
}

/// Links of anybody that run this program.
pub(crate) fn links_of(attachment: &Attachment) -> usize {
    LinkInfoIter::default().filter(|info| info.prog_id == attachment.program_id).count()
}

/// Place and kind of each attachment.
pub(crate) fn kinds(attachments: &[Attachment]) -> Vec<(u32, Place, Kind)> {
    attachments.iter().map(|found| (found.ifindex, found.place, found.kind)).collect()
}

/// Runs `ip` with the arguments of `line`; fails if it fails.
pub(crate) fn ip(line: &str) {
    assert!(run("ip", line).status.success(), "ip {line}");
}

/// What `tc` prints.
pub(crate) fn tc(line: &str) -> String {
    let output = run("tc", line);
    String::from_utf8(output.stdout).unwrap()
}

fn run(program: &str, line: &str) -> Output {
    Command::new(program)
        .args(line.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .expect("ip and tc (package iproute2)")
}
