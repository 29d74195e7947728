//! A translator under attack.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fordway_testkit::packet::PacketSpec;
use fordway_testkit::view::View;
use fordway_xlat::nat64::{Heap, Nat64, Pool, Range as PoolRange, Settings, Sweeper};
use fordway_xlat::reassembly::{BUFFER_LEN, Limits, Occupancy, Origin, Outcome, Reassembler};
use fordway_xlat::{Config, DropReason, HEADROOM, Offload, Packet, State, Translator, Verdict};

/// The address of the pool.
pub(crate) const T: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

/// What came of a packet, on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "shown when a test fails")]
pub(crate) enum Wire {
    To4 { sport: u16, dport: u16 },
    To6 { dst: Ipv6Addr, dport: u16 },
    Error4,
    Error6,
    Stored,
    Refused(DropReason),
    Dropped(DropReason),
}

pub(crate) struct Bench {
    pub(crate) nat: Arc<Nat64>,
    /// ICMP errors about SYNs that nobody answered.
    pub(crate) unanswered: u32,
    translator: Translator,
    state: State,
    sweeper: Sweeper,
    reassembler: Reassembler,
    now: Duration,
    templates: Templates,
}

/// Packets to be filled in: descriptions are read once.
struct Templates {
    tcp6: PacketSpec,
    udp6: PacketSpec,
    tcp4: PacketSpec,
    udp4: PacketSpec,
    echo4: PacketSpec,
    error4: PacketSpec,
    fragment4: PacketSpec,
}

fn spec(text: &str) -> PacketSpec {
    toml::from_str(text).unwrap()
}

const V6: &str = r#"v6 = { src = "2001:db8::1", dst = "2001:db8:64::" }"#;
const V4: &str = r#"v4 = { src = "192.0.2.1", dst = "203.0.113.1" }"#;

/// One address, all ports above 1023.
pub(crate) fn settings() -> Settings {
    let range = PoolRange { first: T, last: T, low: 1024, high: 65_535 };
    Settings { pools: vec![Pool { ranges: vec![range], ..Pool::default() }], ..Settings::default() }
}

impl Bench {
    pub(crate) fn new(settings: Settings) -> Bench {
        Bench::with_secret(settings, [0x0f0d, 0x3a1])
    }

    pub(crate) fn with_secret(settings: Settings, secret: [u64; 2]) -> Bench {
        let heap = Arc::new(Heap::new(&settings.sizes, secret));
        let fixed = settings.bib.clone();
        let nat = Arc::new(Nat64::new(settings, heap).unwrap());
        let now = Duration::from_secs(1000);
        for bib in &fixed {
            nat.add_bib(bib, now).unwrap();
        }
        let config = Config {
            pool6: vec!["2001:db8:64::/96".parse().unwrap()],
            icmp_source6: "2001:db8:fe::1".parse().ok(),
            // An attack makes errors, too; what is shown here is why a packet was refused.
            icmp_errors: fordway_xlat::IcmpErrors::Limited { per_second: 1000, burst: 100_000 },
            ..Config::default()
        };
        Bench {
            translator: Translator::nat64(config, Arc::clone(&nat)).unwrap(),
            nat,
            unanswered: 0,
            state: State::new(1),
            sweeper: Sweeper::new(),
            reassembler: Reassembler::new(Limits::default()),
            now,
            templates: Templates {
                tcp6: spec(&format!("{V6}\ntcp = {{}}")),
                udp6: spec(&format!("{V6}\nudp = {{}}")),
                tcp4: spec(&format!("{V4}\ntcp = {{}}")),
                udp4: spec(&format!("{V4}\nudp = {{}}")),
                echo4: spec(&format!("{V4}\nicmp = {{ type = 8 }}")),
                error4: spec(
                    r#"v4 = { src = "192.0.2.77", dst = "203.0.113.1" }
                    icmp = { type = 3, code = 3 }
                    inner = { v4 = { src = "203.0.113.1", dst = "192.0.2.1" }, tcp = {} }"#,
                ),
                fragment4: spec(&format!("{V4}\nudp = {{}}\npayload = 1592")),
            },
        }
    }

    /// Time goes by, second by second.
    pub(crate) fn seconds(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += Duration::from_secs(1);
            let _timed_out = self.reassembler.expire(self.now);
            while let Some(syn) = self.state.syns.due(self.now) {
                let (mut buffer, range) = in_buffer(&syn.packet);
                let mut packet = Packet::new(&mut buffer, range, Offload::default());
                let state = &mut self.state;
                let verdict =
                    self.translator.unanswered(&syn, &mut packet, self.now, state, &mut ());
                self.unanswered += u32::from(matches!(verdict, Verdict::Reply(_)));
            }
            self.sweeper.sweep(&self.nat, self.now, &mut |_| {});
            self.sweeper.release(&self.nat);
        }
    }

    pub(crate) fn tcp6(
        &mut self,
        src: Ipv6Addr,
        sport: u16,
        dst: Ipv4Addr,
        dport: u16,
        flags: &str,
    ) -> Wire {
        let mut spec = self.templates.tcp6.clone();
        ends6(&mut spec, src, dst);
        if let Some(tcp) = &mut spec.tcp {
            (tcp.sport, tcp.dport, tcp.flags) = (sport, dport, flags.into());
        }
        self.feed(&spec)
    }

    pub(crate) fn udp6(&mut self, src: Ipv6Addr, sport: u16, dst: Ipv4Addr, dport: u16) -> Wire {
        let mut spec = self.templates.udp6.clone();
        ends6(&mut spec, src, dst);
        if let Some(udp) = &mut spec.udp {
            (udp.sport, udp.dport) = (sport, dport);
        }
        self.feed(&spec)
    }

    pub(crate) fn tcp4(&mut self, src: Ipv4Addr, sport: u16, dport: u16, flags: &str) -> Wire {
        let mut spec = self.templates.tcp4.clone();
        source4(&mut spec, src);
        if let Some(tcp) = &mut spec.tcp {
            (tcp.sport, tcp.dport, tcp.flags) = (sport, dport, flags.into());
        }
        self.feed(&spec)
    }

    pub(crate) fn udp4(&mut self, src: Ipv4Addr, sport: u16, dport: u16) -> Wire {
        let mut spec = self.templates.udp4.clone();
        source4(&mut spec, src);
        if let Some(udp) = &mut spec.udp {
            (udp.sport, udp.dport) = (sport, dport);
        }
        self.feed(&spec)
    }

    pub(crate) fn echo4(&mut self, src: Ipv4Addr, id: u16) -> Wire {
        let mut spec = self.templates.echo4.clone();
        source4(&mut spec, src);
        if let Some(icmp) = &mut spec.icmp {
            icmp.id = id;
        }
        self.feed(&spec)
    }

    /// Port unreachable, about a TCP segment of `near` to `far`.
    pub(crate) fn error4(&mut self, near: (Ipv4Addr, u16), far: (Ipv4Addr, u16)) -> Wire {
        let mut spec = self.templates.error4.clone();
        if let Some(inner) = &mut spec.inner {
            if let Some(v4) = &mut inner.v4 {
                (v4.src, v4.dst) = (near.0, far.0);
            }
            if let Some(tcp) = &mut inner.tcp {
                (tcp.sport, tcp.dport) = (near.1, far.1);
            }
        }
        self.feed(&spec)
    }

    /// Octets of a datagram of 1600 octets to nobody's port.
    pub(crate) fn fragment4(&mut self, src: Ipv4Addr, id: u16, from: usize, to: usize) -> Wire {
        self.fragment4_to(src, 9, id, from, to)
    }

    pub(crate) fn fragment4_to(
        &mut self,
        src: Ipv4Addr,
        port: u16,
        id: u16,
        from: usize,
        to: usize,
    ) -> Wire {
        let mut spec = self.templates.fragment4.clone();
        source4(&mut spec, src);
        if let Some(v4) = &mut spec.v4 {
            v4.id = id;
        }
        if let Some(udp) = &mut spec.udp {
            (udp.sport, udp.dport) = (53, port);
        }
        spec.slice = Some([from, to]);
        self.feed(&spec)
    }

    fn feed(&mut self, spec: &PacketSpec) -> Wire {
        let input = spec.build().unwrap().bytes;
        let (mut buffer, mut range) = in_buffer(&input);
        // Only fragments need the room of a whole packet.
        let is_fragment = View::of(&input).is_some_and(|view| view.is_fragment());
        let mut whole = vec![0; if is_fragment { BUFFER_LEN } else { 0 }];
        match self.reassembler.insert(Origin::Network, &input, self.now, &mut whole) {
            Outcome::Whole => {}
            Outcome::Complete(place) => (buffer, range) = (whole, place),
            Outcome::Incomplete | Outcome::Duplicate => return Wire::Stored,
            Outcome::Dropped { reason, .. } => return Wire::Dropped(reason),
        }
        let mut packet = Packet::new(&mut buffer, range, Offload::default());
        let verdict = self.translator.translate(&mut packet, self.now, &mut self.state, &mut ());
        match verdict {
            Verdict::Drop(reason) => Wire::Dropped(reason),
            Verdict::Reply(error) => Wire::Refused(error.reason),
            Verdict::Stored => Wire::Stored,
            Verdict::Pass => panic!("passed"),
            Verdict::Elsewhere(shard) => panic!("of shard {shard}"),
            Verdict::Forward => {
                let view = View::of(packet.bytes()).unwrap();
                let word = |at: usize| {
                    let bytes = view.payload();
                    u16::from_be_bytes([bytes[at], bytes[at + 1]])
                };
                match (view.is_icmp_error(), view.v4) {
                    (true, true) => Wire::Error4,
                    (true, false) => Wire::Error6,
                    (false, true) => Wire::To4 { sport: word(0), dport: word(2) },
                    (false, false) => {
                        let dst = <[u8; 16]>::try_from(view.dst).unwrap();
                        Wire::To6 { dst: dst.into(), dport: word(2) }
                    }
                }
            }
        }
    }

    pub(crate) fn bibs(&self) -> usize {
        self.nat.bib(self.now).count()
    }

    pub(crate) fn sessions(&self) -> usize {
        self.nat.sessions(self.now).count()
    }

    /// The sessions, and when each will expire.
    pub(crate) fn describe_sessions(&self) -> Vec<String> {
        let end = |left: Duration| (self.now + left).as_secs();
        let describe = |entry: fordway_xlat::nat64::SessionEntry| {
            format!("{:?} {:?} {:?}", entry.binding, entry.tcp, end(entry.remaining))
        };
        self.nat.sessions(self.now).map(describe).collect()
    }

    pub(crate) fn fragments(&self) -> Occupancy {
        self.reassembler.occupancy()
    }

    /// The longest chain of each directory: BIB by IPv6, by IPv4, sessions, subscribers.
    pub(crate) fn longest_chains(&self) -> [usize; 4] {
        let regions = self.nat.memory().regions();
        let longest = |place: usize, next: &dyn Fn(usize) -> u32| {
            let length = |head: &std::sync::atomic::AtomicU64| {
                let mut index = head.load(Relaxed) as u32;
                let mut length = 0;
                while index != 0 {
                    length += 1;
                    index = next(index as usize);
                }
                length
            };
            regions.heads[place].iter().map(length).max().unwrap_or(0)
        };
        [
            longest(0, &|at| regions.bibs[at].next6.load(Relaxed)),
            longest(1, &|at| regions.bibs[at].next4.load(Relaxed)),
            longest(2, &|at| regions.sessions[at].next.load(Relaxed)),
            longest(3, &|at| regions.subscribers[at].next.load(Relaxed)),
        ]
    }
}

fn ends6(spec: &mut PacketSpec, src: Ipv6Addr, dst: Ipv4Addr) {
    let prefix: Ipv6Addr = "2001:db8:64::".parse().unwrap();
    if let Some(v6) = &mut spec.v6 {
        v6.src = src;
        v6.dst = Ipv6Addr::from_bits(prefix.to_bits() | u128::from(dst.to_bits()));
    }
}

fn source4(spec: &mut PacketSpec, src: Ipv4Addr) {
    if let Some(v4) = &mut spec.v4 {
        v4.src = src;
    }
}

fn in_buffer(octets: &[u8]) -> (Vec<u8>, Range<usize>) {
    let room = 2 * HEADROOM;
    let mut buffer = vec![0xa5; room + octets.len() + room];
    let range = room..room + octets.len();
    buffer[range.clone()].copy_from_slice(octets);
    (buffer, range)
}
