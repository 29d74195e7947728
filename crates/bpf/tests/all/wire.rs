//! Network namespaces, veth pairs whose far ends lie outside, and frames over them.

pub(crate) mod draw;

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use fordway_bpf::{Outcome, PassReason, TestOptions, Totals};
use fordway_testhost::poll;
use fordway_testkit::sys;
use fordway_testkit::tap::Tap;
use fordway_tun::{Device, GsoType, OpenOptions, Queue, RecvOutcome, SendOutcome, VnetHeader};
use fordway_xlat::{ChecksumState, Direction, DropReason, Gso, GsoKind, HEADROOM, Offload};

use crate::alike::comparable;

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;

/// Octets of an Ethernet header.
const ETHERNET: usize = 14;

/// Runs `test` in a thread with a network namespace of its own, on one processor: packets of one thread
/// then stay in their order. Nothing is left of the namespace afterwards.
pub(crate) fn apart<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            sys::enter_new_namespace().expect("a network namespace");
            stay_on_one_processor();
            test()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Keeps the thread on one processor. Processes, and so tests that run beside each other, spread over all.
pub(crate) fn stay_on_one_processor() {
    let processors = fordway_tun::allowed_processors().expect("processors");
    let place = process::id() as usize % processors.len();
    fordway_tun::set_processors(&processors[place..=place]).expect("to stay on one processor");
}

/// A folder of pins with a name of its own, and one for locks. What is left there goes with it.
pub(crate) struct Folders {
    pub(crate) pins: PathBuf,
    locks: PathBuf,
}

impl Folders {
    pub(crate) fn new() -> Folders {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        fordway_bpf::mount_bpffs().expect("a BPF file system");
        let name =
            format!("fordway-wire-{}-{}", process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        Folders {
            pins: Path::new("/sys/fs/bpf").join(&name),
            locks: std::env::temp_dir().join(&name),
        }
    }

    /// Opens a TUN device with one queue, up and quiet.
    pub(crate) fn tun(&self, name: &str, mtu: u32) -> (Device, Queue) {
        let options =
            OpenOptions { run_dir: self.locks.clone(), adopt: false, ..OpenOptions::default() };
        // One of the name may linger: a process that another thread is starting has its descriptor.
        let opened = poll("the name to be free", || match Device::open(name, &options) {
            Err(fordway_tun::Error::Exists(_)) => None,
            opened => Some(opened),
        });
        let (device, mut queues) = opened.expect("a TUN device");
        run(&format!("ip link set {name} addrgenmode none"));
        sys::bring_up(name, mtu).expect("a device that is up");
        (device, queues.remove(0))
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        let _ = fordway_bpf::take_down(&self.pins);
        let _ = fs::remove_dir_all(&self.pins);
        let _ = fs::remove_dir_all(&self.locks);
    }
}

/// Runs a command in the thread's namespace; fails if it fails.
pub(crate) fn run(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().expect("a command"))
        .args(words)
        .output()
        .expect("ip, tc, ethtool, nft and nsenter");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{line}: {text}");
    text
}

/// The interface index of a device.
pub(crate) fn index(name: &str) -> u32 {
    sys::interface_index(name).expect("the device").try_into().expect("a positive number")
}

/// Makes the namespace forward what arrives at its loopback device: what is routed `into` a translator's interface to
/// that, all else to a neighbour.
pub(crate) fn gateway(into: &[&str]) -> TestOptions {
    for command in [
        "ip link set lo up",
        "ip tuntap add dev fw0 mode tun",
        "ip link set fw0 up",
        "ip link add out type veth peer name far",
        "ip link set out mtu 65535 up",
        "ip link set far mtu 65535 up",
        "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
        "ip -6 addr add 2001:db8:ffff::1/64 dev out nodad",
        "ip addr add 198.19.255.1/24 dev out",
        "ip neigh add 198.19.255.2 lladdr 02:00:00:00:00:09 dev out nud permanent",
        "ip -6 neigh add 2001:db8:ffff::2 lladdr 02:00:00:00:00:09 dev out nud permanent",
        "ip route add default via 198.19.255.2",
        "ip -6 route add default via 2001:db8:ffff::2",
    ] {
        run(command);
    }
    for net in into {
        run(&format!("ip route add {net} dev fw0"));
    }
    TestOptions { tun: index("fw0"), devices: vec![index("out")], ..TestOptions::default() }
}

/// A packet with what is around it. On devices without link-layer header addresses are zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) dst: [u8; 6],
    pub(crate) src: [u8; 6],
    pub(crate) kind: u16,
    pub(crate) packet: Vec<u8>,
    pub(crate) offload: Offload,
}

impl Frame {
    /// Without offloads, of the type that the packet's first octet says.
    pub(crate) fn new(dst: [u8; 6], src: [u8; 6], packet: &[u8]) -> Frame {
        let kind = if packet.first().is_some_and(|first| first >> 4 == 4) { IPV4 } else { IPV6 };
        Frame { dst, src, kind, packet: packet.to_vec(), offload: Offload::default() }
    }

    /// Group address and a sender without an address for talking to others: the hosts' own chatter,
    /// unless it asks for a neighbour.
    fn is_chatter(&self) -> bool {
        let source = self.packet.get(8..24).unwrap_or_default();
        let asks = self.packet.get(40) == Some(&135) && source.starts_with(&[0xfe, 0x80]);
        self.kind == IPV6
            && !asks
            && (self.dst[0] & 1 == 1 || self.dst == [0; 6])
            && (source.starts_with(&[0xfe, 0x80]) || source.iter().all(|octet| *octet == 0))
    }
}

/// Whether two frames are the same, as far as the kernel keeps them.
pub(crate) fn same(one: &Frame, other: &Frame) -> bool {
    (one.dst, one.src, one.kind) == (other.dst, other.src, other.kind)
        && one.packet == other.packet
        && comparable(one.offload) == comparable(other.offload)
}

/// A packet socket at a device.
#[derive(Debug)]
pub(crate) struct Port {
    tap: Tap,
    ethernet: bool,
}

impl Port {
    pub(crate) fn open(device: &str, ethernet: bool) -> Port {
        Port { tap: Tap::open(device).expect("a packet socket"), ethernet }
    }

    /// Receives only, behind the programs at the device's ingress.
    pub(crate) fn behind_ingress(device: &str, kind: u16, ethernet: bool) -> Port {
        Port { tap: Tap::behind_ingress(device, kind).expect("a packet socket"), ethernet }
    }

    /// Sends a frame. `false`: the kernel refuses to make it.
    #[must_use]
    pub(crate) fn send(&self, frame: &Frame) -> bool {
        if !self.ethernet {
            return self.tap.send(&frame.packet, &frame.offload).is_ok();
        }
        let kind = frame.kind.to_be_bytes();
        let octets = [&frame.dst[..], &frame.src, &kind, &frame.packet].concat();
        self.tap.send(&octets, &moved(frame.offload, ETHERNET as i32)).is_ok()
    }

    /// Takes the frames that have come in, without the hosts' own chatter.
    pub(crate) fn take(&self) -> Vec<Frame> {
        let received = match self.tap.receive_all() {
            // Told once after the device was down.
            Err(error) if error.kind() == std::io::ErrorKind::NetworkDown => Vec::new(),
            received => received.expect("frames"),
        };
        let frames = received.into_iter().map(|(octets, offload)| {
            if !self.ethernet {
                return Frame { offload, ..Frame::new([0; 6], [0; 6], &octets) };
            }
            let (header, packet) = octets.split_at(ETHERNET);
            Frame {
                dst: header[..6].try_into().expect("six octets"),
                src: header[6..12].try_into().expect("six octets"),
                kind: u16::from_be_bytes([header[12], header[13]]),
                packet: packet.to_vec(),
                offload: moved(offload, -(ETHERNET as i32)),
            }
        });
        frames.filter(|frame| !frame.is_chatter()).collect()
    }

    /// Waits for the one frame that has to come.
    pub(crate) fn expect(&self, what: &str) -> Frame {
        let mut frames = poll(what, || Some(self.take()).filter(|frames| !frames.is_empty()));
        assert_eq!(frames.len(), 1, "{what}: one was due: {frames:x?}");
        frames.remove(0)
    }
}

/// Places in a virtio-net header count from the first octet of the frame.
fn moved(offload: Offload, by: i32) -> Offload {
    let checksum = match offload.checksum {
        ChecksumState::Partial { start, offset } => {
            let start = i32::from(start) + by;
            ChecksumState::Partial { start: start.try_into().expect("inside the frame"), offset }
        }
        state => state,
    };
    let header_len = match offload.gso.header_len {
        0 => 0,
        len => (i32::from(len) + by).try_into().expect("inside the frame"),
    };
    Offload { checksum, gso: Gso { header_len, ..offload.gso } }
}

/// Where a veth's peer lives: a network namespace of its own.
#[derive(Debug)]
pub(crate) struct Outside(File);

impl Outside {
    /// Where other processes find the namespace.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", process::id(), self.0.as_raw_fd())
    }

    /// Runs a command there; fails if it fails.
    pub(crate) fn run(&self, line: &str) -> String {
        run(&format!("nsenter --net={} {line}", self.path()))
    }
}

/// A pair of Ethernet devices, `near` in the thread's namespace and its peer outside, both up.
pub(crate) struct Veth<'a> {
    pub(crate) near: &'a str,
    pub(crate) far: &'a str,
    pub(crate) mtu: u32,
    /// Commands outside before the ports are opened.
    pub(crate) setup: &'a [&'a str],
    /// More devices outside to open ports on.
    pub(crate) more: &'a [&'a str],
    /// Transmission queues of the peer. With more than one, the near end's driver refuses XDP.
    pub(crate) far_queues: u32,
}

impl Default for Veth<'_> {
    fn default() -> Self {
        Veth { near: "near", far: "far", mtu: 65_535, setup: &[], more: &[], far_queues: 1 }
    }
}

impl Veth<'_> {
    /// Makes it. The ports are those of `far` and `more`.
    pub(crate) fn make(&self) -> (Outside, Vec<Port>) {
        let thread = fs::read_link("/proc/thread-self").expect("/proc");
        let here = Path::new("/proc").join(thread).join("ns/net");
        let Veth { near, far, mtu, far_queues, .. } = self;
        let made = thread::scope(|scope| {
            let outside = scope.spawn(|| {
                sys::enter_new_namespace().expect("a network namespace");
                run(&format!(
                    "ip link add {far} numtxqueues {far_queues} numrxqueues 1 \
                     type veth peer name {near} numtxqueues 1 numrxqueues 1"
                ));
                run(&format!("ip link set {near} netns {}", here.display()));
                run(&format!("ip link set {far} mtu {mtu} addrgenmode none"));
                run(&format!("ip link set {far} up"));
                for line in self.setup {
                    run(line);
                }
                let ports = [*far].into_iter().chain(self.more.iter().copied());
                let ports = ports.map(|device| Port::open(device, true)).collect();
                (Outside(File::open("/proc/thread-self/ns/net").expect("/proc")), ports)
            });
            outside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        run(&format!("ip link set {near} mtu {mtu} addrgenmode none"));
        run(&format!("ip link set {near} up"));
        // What is sent before the kernel has heard of the carriers goes nowhere, and nobody is told.
        let is_up = |link: String| link.contains("state UP").then_some(());
        poll("the near end is active", || is_up(run(&format!("ip link show {near}"))));
        poll("the far end is active", || is_up(made.0.run(&format!("ip link show {far}"))));
        made
    }
}

/// The Ethernet address of a device of the thread's namespace, or of those of `outside`.
pub(crate) fn address(device: &str, outside: Option<&Outside>) -> [u8; 6] {
    let line = format!("ip -o link show {device}");
    let text = outside.map_or_else(|| run(&line), |outside| outside.run(&line));
    let text = text.split("link/ether ").nth(1).expect("an Ethernet device");
    let octets = text.split(' ').next().expect("an address").split(':');
    let octets: Vec<u8> =
        octets.map(|octet| u8::from_str_radix(octet, 16).expect("hexadecimal")).collect();
    octets.try_into().expect("six octets")
}

/// Sends a packet into a device by its queue.
pub(crate) fn send_by(queue: &mut Queue, packet: &[u8], offload: Offload) -> bool {
    let (flags, csum_start, csum_offset) = match offload.checksum {
        ChecksumState::Complete => (0, 0, 0),
        ChecksumState::Verified => (VnetHeader::DATA_VALID, 0, 0),
        ChecksumState::Partial { start, offset } => (VnetHeader::NEEDS_CSUM, start, offset),
    };
    let gso_type = match offload.gso.kind {
        GsoKind::None => GsoType::None,
        GsoKind::TcpV4 => GsoType::TcpV4,
        GsoKind::TcpV6 => GsoType::TcpV6,
        GsoKind::Udp => GsoType::UdpL4,
    };
    let header = VnetHeader {
        flags,
        gso_type,
        ecn: offload.gso.ecn && gso_type != GsoType::None,
        hdr_len: offload.gso.header_len,
        gso_size: offload.gso.size,
        csum_start,
        csum_offset,
    };
    matches!(queue.send(&header, packet), Ok(SendOutcome::Sent))
}

/// Takes the packets that wait in a device's queue.
pub(crate) fn take_from(queue: &mut Queue) -> Vec<Frame> {
    let mut buffer = vec![0u8; HEADROOM + fordway_tun::MAX_PACKET + 1];
    let mut frames = Vec::new();
    while let RecvOutcome::Packet { header, len } =
        queue.recv(&mut buffer, HEADROOM).expect("the queue")
    {
        let packet = &buffer[HEADROOM..][..len];
        let checksum = if header.needs_csum() {
            ChecksumState::Partial { start: header.csum_start, offset: header.csum_offset }
        } else {
            ChecksumState::Complete
        };
        let kind = match header.gso_type {
            GsoType::TcpV4 => GsoKind::TcpV4,
            GsoType::TcpV6 => GsoKind::TcpV6,
            GsoType::UdpL4 => GsoKind::Udp,
            _ => GsoKind::None,
        };
        let size = if kind == GsoKind::None { 0 } else { header.gso_size };
        let gso = Gso { kind, ecn: header.ecn, size, header_len: 0 };
        let frame = Frame::new([0; 6], [0; 6], packet);
        frames.push(Frame { offload: Offload { checksum, gso }, ..frame });
    }
    frames.retain(|frame| !frame.is_chatter());
    frames
}

/// What the counters say became of one packet in the programs of tc; `None`: they saw none.
pub(crate) fn outcome(before: &Totals, after: &Totals) -> Option<Outcome> {
    let translated =
        Direction::ALL.iter().any(|d| after.direction(*d).packets > before.direction(*d).packets);
    let translated = translated.then_some(Outcome::Translated);
    let unmatched = (after.unmatched > before.unmatched).then_some(Outcome::Unmatched);
    let passed = PassReason::ALL.iter().copied();
    let passed = passed.filter(|reason| after.passed_on(*reason) > before.passed_on(*reason));
    let dropped = DropReason::ALL.iter().copied();
    let dropped = dropped.filter(|reason| after.drops(*reason) > before.drops(*reason));
    let mut all = translated
        .into_iter()
        .chain(unmatched)
        .chain(passed.map(Outcome::PassedOn))
        .chain(dropped.map(Outcome::Dropped));
    let first = all.next();
    assert_eq!(all.next(), None, "one packet, counted twice: {first:?}");
    first
}

/// Why XDP left one packet to the stack.
pub(crate) fn left(before: &Totals, after: &Totals) -> Option<PassReason> {
    let count =
        |totals: &Totals, reason: PassReason| totals.left_to_stack[usize::from(reason.number())];
    PassReason::ALL.iter().copied().find(|reason| count(after, *reason) > count(before, *reason))
}
