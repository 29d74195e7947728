//! Softwires: any packets at either end, and what goes into a tunnel comes out of it as it was.
//!
//! ```text
//! setup      which of the ends below
//! packet *   kind, control (8: offload state), length (2), octets
//! ```
//!
//! The kind is an IPv4 packet (0), one behind an address of a binding (1), a tunnel packet around it (2), the
//! octets as they are (3), an ICMPv6 error about the last tunnel packet that was sent (4), its next fragment (5), or
//! time that passes (6).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;
use std::time::Duration;

use fordway_softwire::{Binding, Bindings, PortSet, Role, Settings, Softwire};
use fordway_xlat::reassembly::{Limits, Reassembler};
use fordway_xlat::{
    ChecksumState, Gso, GsoKind, HEADROOM, HopCount, IcmpErrors, Offload, Packet, State,
    TrafficClass, Verdict,
};

use super::{CONTROL, offload};
use crate::checksum::{Endpoints, add, checksum, sum};
use crate::oracle::check_reply;
use crate::segment::segments;
use crate::vector::{Assembled, assemble};
use crate::view::View;

const TEP: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);
const OTHER_TEP: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 2);

/// Octets of the header that a tunnel adds.
const OVERHEAD: usize = 40;

/// Packets of one input at most.
const PACKETS: usize = 48;

/// One end, and the other end of each of its tunnels.
struct Setup {
    softwire: Softwire,
    bindings: Vec<Binding>,
    others: Vec<Softwire>,
}

static SETUPS: LazyLock<Vec<Setup>> = LazyLock::new(|| {
    let base = Settings {
        mtu6: 1500,
        flow_secret: [1, 2],
        icmp_errors: IcmpErrors::Unlimited,
        ..Settings::default()
    };
    let strict = Settings {
        mtu6: 1280,
        hop_count: HopCount::BOTH,
        mss_clamp: true,
        hairpin: false,
        traffic_class: TrafficClass::Set(0),
        ..base
    };
    let client = |settings| Settings { role: Role::Client, ..settings };
    let [whole, shared, _] = some_bindings();
    vec![
        setup(base, &some_bindings()),
        setup(strict, &some_bindings()),
        setup(client(base), &[whole]),
        setup(client(strict), &[shared]),
        setup(client(base), &[shared]),
        setup(client(base), &[]),
        setup(Settings { pass_unmatched: true, icmp_source4: None, ..base }, &some_bindings()),
        setup(Settings { mtu6: 65_535, ..base }, &some_bindings()),
    ]
});

fn some_bindings() -> [Binding; 3] {
    let ports = |a, k, psid| PortSet::new(a, k, psid).ok();
    let binding = |last: u8, ports, host: u16, local| {
        let remote = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, host);
        Binding { v4: Ipv4Addr::new(192, 0, 2, last), ports, remote, local }
    };
    [
        binding(1, None, 1, TEP),
        binding(3, ports(0, 4, 1), 3, TEP),
        binding(5, ports(6, 8, 52), 5, OTHER_TEP),
    ]
}

fn setup(settings: Settings, list: &[Binding]) -> Setup {
    let one_end = |settings: Settings, list: &[Binding]| {
        let mut bindings = Bindings::default();
        bindings.extend(list.iter().copied());
        Softwire::new(settings, bindings).expect("settings of this file")
    };
    let role = match settings.role {
        Role::Tep => Role::Client,
        Role::Client => Role::Tep,
    };
    let plain = Settings { role, mtu6: 65_535, ..Settings::default() };
    let others = list.iter().map(|binding| one_end(plain, &[*binding])).collect();
    Setup { softwire: one_end(settings, list), bindings: list.to_vec(), others }
}

/// Octets as a setup and packets: see the module.
pub fn softwire(data: &[u8]) {
    let Some((number, mut rest)) = data.split_first() else { return };
    let setup = &SETUPS[usize::from(*number) % SETUPS.len()];
    // What is known of paths is in the bindings, which other inputs must not see.
    let mut bindings = Bindings::default();
    bindings.extend(setup.bindings.iter().copied());
    let softwire = setup.softwire.with_bindings(bindings).expect("as many as before");
    let mut bench = Bench {
        setup,
        softwire,
        state: State::new(7).with_fragments_from(77),
        waiting: Reassembler::new(Limits::default()),
        now: Duration::from_secs(10),
        sent: Vec::new(),
    };
    for _ in 0..PACKETS {
        let Some((front, behind)) = rest.split_at_checked(1 + CONTROL + 2) else { return };
        let (kind, control, len) = (front[0], &front[1..=CONTROL], &front[1 + CONTROL..]);
        let len = u16::from_be_bytes([len[0], len[1]]);
        let octets = &behind[..usize::from(len).min(behind.len())];
        rest = &behind[octets.len()..];
        bench.step(kind, control, octets);
    }
}

struct Bench<'a> {
    setup: &'a Setup,
    softwire: Softwire,
    state: State,
    waiting: Reassembler,
    now: Duration,
    /// The tunnel packets that were sent last.
    sent: Vec<Vec<u8>>,
}

impl Bench<'_> {
    fn step(&mut self, kind: u8, control: &[u8], octets: &[u8]) {
        let mut state = offload(control);
        let packet = match kind % 7 {
            0 => with_checksum(octets.to_vec(), control),
            1 => self.bound(kind, octets, control),
            2 => {
                // Nobody sends a super-packet through a tunnel to a TUN device.
                state = Offload::default();
                let inner = self.bound(kind, octets, control);
                let inner = if kind & 64 == 0 { inner } else { octets.to_vec() };
                self.wrapped(kind, &inner, control)
            }
            3 => octets.to_vec(),
            4 => match self.error(octets) {
                Some(error) => error,
                None => return,
            },
            5 => {
                let Some(sent) = self.sent.pop() else { return };
                state = Offload::default();
                sent
            }
            _ => {
                self.now += Duration::from_secs(u64::from(control[0]) * 4);
                let _ = self.waiting.expire(self.now);
                return;
            }
        };
        self.packet(&packet, state);
    }

    /// An IPv4 packet, one end of which is a binding's.
    fn bound(&self, kind: u8, octets: &[u8], control: &[u8]) -> Vec<u8> {
        let mut packet = octets.to_vec();
        if kind & 0x80 != 0 {
            packet.resize(packet.len() + usize::from(control[0]) * 32, control[0]);
        }
        let Some(binding) = self.setup.bindings.get(usize::from(kind >> 3 & 3)) else {
            return with_checksum(packet, control);
        };
        let is_client = self.softwire.settings().role == Role::Client;
        let at_source = is_client == (kind % 7 == 1);
        let (place, other) = if at_source { (12, 16) } else { (16, 12) };
        let header = usize::from(packet.first().map_or(0, |first| first & 15)) * 4;
        if packet.len() >= 20 {
            packet[place..place + 4].copy_from_slice(&binding.v4.octets());
            packet[other..other + 4].copy_from_slice(&[198, 51, 100, control[0]]);
            // Half of the ports are the binding's.
            if let (Some(ports), true) = (binding.ports, kind & 0x20 == 0) {
                let port = ports.ranges().next().map_or(0, |range| *range.start());
                let at = match packet[9] {
                    1 => header + 4,
                    _ if at_source => header,
                    _ => header + 2,
                };
                if let Some(field) = packet.get_mut(at..at + 2) {
                    field.copy_from_slice(&port.to_be_bytes());
                }
            }
        }
        with_checksum(packet, control)
    }

    /// A tunnel packet, mostly of a binding, with extension headers at times.
    fn wrapped(&self, kind: u8, inner: &[u8], control: &[u8]) -> Vec<u8> {
        let known = self.setup.bindings.get(usize::from(kind >> 3 & 3));
        let (remote, local) = known.map_or((TEP, TEP), |binding| (binding.remote, binding.local));
        let (mut src, dst) = match self.softwire.settings().role {
            Role::Tep => (remote, local),
            Role::Client => (local, remote),
        };
        if control[7] == 1 {
            src = OTHER_TEP;
        }
        let (next, between): (u8, &[u8]) = match control[6] & 7 {
            1 => (60, &[4, 0, 4, 1, 4, 1, 1, 0]),
            2 => (44, &[4, 0, 0, 0, 0, 0, 0, 9]),
            3 => (44, &[4, 0, 0, 1, 0, 0, 0, 9]),
            4 => (43, &[4, 0, 0, 1, 0, 0, 0, 0]),
            5 => (41, &[]),
            _ => (4, &[]),
        };
        let len = (between.len() + inner.len()) as u16;
        let mut packet = vec![0x60 | control[5] >> 4, control[5] << 4, 0, 0];
        packet.extend(len.to_be_bytes());
        packet.extend([next, 64]);
        packet.extend(src.octets());
        packet.extend(dst.octets());
        packet.extend(between);
        packet.extend(inner);
        packet
    }

    /// An ICMPv6 error about the last tunnel packet: type, code, four octets, how many more are cut off.
    fn error(&self, octets: &[u8]) -> Option<Vec<u8>> {
        let sent = self.sent.first()?;
        let [kind, code, a, b, c, d, cut, change @ ..] = octets else { return None };
        let mut quoted = sent[..sent.len().min(1232).saturating_sub(usize::from(*cut))].to_vec();
        for pair in change.chunks_exact(2) {
            if let Some(octet) = quoted.get_mut(usize::from(pair[0])) {
                *octet ^= pair[1];
            }
        }
        let mut message = vec![*kind, *code, 0, 0, *a, *b, *c, *d];
        message.extend(&quoted);
        let (src, dst) =
            (Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 1), address(sent.get(8..24)?));
        let pseudo = Endpoints::V6(src, dst).pseudo_header(58, message.len());
        let value = !add(pseudo, sum(&message));
        message[2..4].copy_from_slice(&value.to_be_bytes());
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend((message.len() as u16).to_be_bytes());
        packet.extend([58, 64]);
        packet.extend(src.octets());
        packet.extend(dst.octets());
        packet.extend(message);
        Some(packet)
    }

    fn packet(&mut self, input: &[u8], offload: Offload) {
        let contradicts = offload.gso.kind != GsoKind::None
            || matches!(offload.checksum, ChecksumState::Partial { .. });
        let input = match assemble(&self.softwire, &mut self.waiting, input, self.now) {
            _ if contradicts => input.to_vec(),
            Assembled::Whole(input) => input,
            Assembled::Waits | Assembled::Dropped(..) => return,
        };
        let mut buffer = vec![0xa5; HEADROOM + input.len() + HEADROOM];
        let range = HEADROOM..HEADROOM + input.len();
        buffer[range.clone()].copy_from_slice(&input);
        let mut packet = Packet::new(&mut buffer, range, offload);
        let verdict = self.softwire.translate(&mut packet, self.now, &mut self.state, &mut ());
        match verdict {
            Verdict::Forward => {
                let pieces: Vec<Vec<u8>> =
                    packet.fragments().map(|piece| [piece.head(), piece.body].concat()).collect();
                if input[0] >> 4 == 4 {
                    self.check_tunnelled(&input, offload, packet.offload, &pieces);
                    self.sent = pieces;
                } else {
                    self.check_out(&input, &pieces, packet.offload);
                }
            }
            Verdict::Reply(_) => {
                let packets = vec![packet.bytes().to_vec()];
                let outcome = crate::oracle::Outcome { verdict, packets, offload: packet.offload };
                if let Err(wrong) = check_reply(&input, &outcome) {
                    panic!("{wrong}: {input:02x?} became {outcome:02x?}");
                }
            }
            Verdict::Pass => assert!(self.softwire.settings().pass_unmatched),
            Verdict::Drop(_) | Verdict::Stored => {}
            Verdict::Elsewhere(_) => panic!("softwires have no shards"),
        }
    }

    /// Each piece is a sound tunnel packet that fits, and the other end makes the packet of them again.
    fn check_tunnelled(&self, input: &[u8], offload: Offload, now: Offload, pieces: &[Vec<u8>]) {
        let settings = self.softwire.settings();
        let view = View::of(input).expect("an IPv4 packet");
        let client = match settings.role {
            Role::Tep => address4(view.dst),
            Role::Client => address4(view.src),
        };
        let number = self.setup.bindings.iter().position(|binding| binding.v4 == client);
        let number = number.expect("only packets of a binding go into a tunnel");
        let binding = self.setup.bindings[number];
        let ends = match settings.role {
            Role::Tep => (binding.local, binding.remote),
            Role::Client => (binding.remote, binding.local),
        };
        for piece in pieces {
            let outer = View::of(piece).expect("an IPv6 packet");
            assert_eq!((address(outer.src), address(outer.dst)), ends);
            assert_eq!((outer.length, outer.protocol), (piece.len(), 4));
            assert!(piece.len() <= settings.mtu6 as usize, "{} octets", piece.len());
        }
        // A packet with DF is never cut into fragments, nor are its segments made shorter.
        assert!(!view.dont_fragment || pieces.iter().all(|piece| piece[6] == 4));
        assert!(
            now.gso == Gso::default() && !matches!(now.checksum, ChecksumState::Partial { .. })
        );
        let wanted = &input[..view.length];
        let mut sized = offload;
        if offload.gso.kind == GsoKind::TcpV4 && !view.dont_fragment && pieces[0][6] == 4 {
            let inner = View::of(&pieces[0][OVERHEAD..]).expect("IPv4");
            let header = inner.payload().get(12).map_or(0, |octet| usize::from(octet >> 4) * 4);
            sized.gso.size = inner.payload().len().saturating_sub(header) as u16;
            assert!(sized.gso.size <= offload.gso.size);
        }
        let Some(mut wanted) = segments(wanted, &sized) else { return };
        let mut waiting = Reassembler::new(Limits::default());
        let mut got = Vec::new();
        for piece in pieces {
            let whole = assemble(&self.setup.others[number], &mut waiting, piece, self.now);
            let Assembled::Whole(whole) = whole else { continue };
            let mut buffer = vec![0; HEADROOM + whole.len() + HEADROOM];
            let range = HEADROOM..HEADROOM + whole.len();
            buffer[range.clone()].copy_from_slice(&whole);
            let mut packet = Packet::new(&mut buffer, range, Offload::default());
            let other = &self.setup.others[number];
            let verdict = other.translate(&mut packet, self.now, &mut State::new(1), &mut ());
            assert_eq!(verdict, Verdict::Forward, "at the other end: {whole:02x?}");
            got.push(packet.bytes().to_vec());
        }
        assert_eq!(got.len(), wanted.len(), "{pieces:02x?}");
        for (got, wanted) in got.iter_mut().zip(&mut wanted) {
            for packet in [&mut *got, &mut *wanted] {
                level(packet, settings.hop_count.v4_to_v6, settings.mss_clamp);
                if let ChecksumState::Partial { start, offset } = offload.checksum {
                    // Both say the same, but in UDP (RFC 1624 section 3).
                    let at = usize::from(start) + usize::from(offset);
                    let field = packet.get_mut(at..at + 2).filter(|field| **field == [0xff; 2]);
                    field.into_iter().for_each(|field| field.fill(0));
                }
            }
        }
        assert_eq!(got, wanted);
    }

    /// What comes out has come by its own tunnel, or is an error of this end.
    fn check_out(&self, input: &[u8], pieces: &[Vec<u8>], offload: Offload) {
        let settings = self.softwire.settings();
        let [packet] = pieces else { panic!("{} packets out of one", pieces.len()) };
        let (outer, view) = (View::of(input).expect("IPv6"), View::of(packet).expect("IPv4"));
        assert!(view.v4 && view.length == packet.len() && view.header_checksum_is_right());
        assert_ne!(offload.gso.kind, GsoKind::TcpV6);
        if outer.protocol == 58 {
            assert_eq!(Some(address4(view.src)), settings.icmp_source4);
            assert!(view.is_icmp_error() && view.deviation() == Some(0));
            assert!(packet.len() <= 576);
            return;
        }
        let client = match settings.role {
            Role::Tep => address4(view.src),
            Role::Client => address4(view.dst),
        };
        let ends = match settings.role {
            Role::Tep => (address(outer.src), address(outer.dst)),
            Role::Client => (address(outer.dst), address(outer.src)),
        };
        let known = |it: &Binding| it.v4 == client && (it.remote, it.local) == ends;
        assert!(self.setup.bindings.iter().any(known), "{input:02x?}");
    }
}

/// Takes out of a packet what this end may change: the hop, the MSS, and the sums of both.
fn level(packet: &mut [u8], hops: bool, mss: bool) {
    let header = usize::from(packet[0] & 15) * 4;
    if hops {
        packet[8] = 0;
        packet[10..12].fill(0);
    }
    if mss && packet[9] == 6 {
        let end = packet.len().min(header + 60);
        packet[header..end].fill(0);
    }
}

fn with_checksum(mut packet: Vec<u8>, control: &[u8]) -> Vec<u8> {
    if packet.len() >= 20 {
        packet[0] = 0x40 | packet[0] & 15;
        if control[1] & 0x40 == 0 {
            let len = (packet.len() as u16).to_be_bytes();
            packet[2..4].copy_from_slice(&len);
        }
        let header = usize::from(packet[0] & 15) * 4;
        if control[1] & 0x80 == 0 && header >= 20 && packet.len() >= header {
            packet[10..12].fill(0);
            let value = checksum(&packet[..header]);
            packet[10..12].copy_from_slice(&value.to_be_bytes());
        }
    }
    packet
}

fn address(octets: &[u8]) -> Ipv6Addr {
    <[u8; 16]>::try_from(octets).expect("16 octets").into()
}

fn address4(octets: &[u8]) -> Ipv4Addr {
    <[u8; 4]>::try_from(octets).expect("4 octets").into()
}
