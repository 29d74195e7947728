//! One end of softwires, and packets for it.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use fordway_softwire::{Binding, Bindings, PortSet, Role, Settings, Softwire};
use fordway_testkit::checksum::{Endpoints, add, sum};
use fordway_testkit::packet::{Context, Fill, PacketSpec};
use fordway_xlat::{
    ChecksumState, DropReason, HEADROOM, IcmpError, IcmpErrorKind, Offload, Packet, State, Verdict,
};

pub(crate) const CLIENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
pub(crate) const OTHER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2);
pub(crate) const TEP: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);
pub(crate) const SERVER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 1);
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

pub(crate) struct Bench {
    pub(crate) softwire: Softwire,
    state: State,
    pub(crate) now: Duration,
}

pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    pub(crate) packets: Vec<Vec<u8>>,
    pub(crate) offload: Offload,
}

impl Outcome {
    /// The one packet that has come of it.
    pub(crate) fn one(&self) -> &[u8] {
        match &self.packets[..] {
            [one] => one,
            packets => panic!("{} packets, {:?}", packets.len(), self.verdict),
        }
    }
}

pub(crate) fn settings() -> Settings {
    Settings { mtu6: 1500, flow_secret: [1, 2], ..Settings::default() }
}

pub(crate) fn binding(v4: Ipv4Addr, ports: Option<PortSet>, remote: Ipv6Addr) -> Binding {
    Binding { v4, ports, remote, local: TEP }
}

/// Two clients with an address each.
pub(crate) fn whole() -> [Binding; 2] {
    [binding(HOST, None, CLIENT), binding(Ipv4Addr::new(192, 0, 2, 2), None, OTHER)]
}

impl Bench {
    pub(crate) fn new(settings: Settings, list: &[Binding]) -> Bench {
        let mut bindings = Bindings::default();
        for binding in list {
            bindings.insert(*binding).unwrap();
        }
        let softwire = Softwire::new(settings, bindings).unwrap();
        Bench { softwire, state: State::new(1).with_fragments_from(77), now: Duration::ZERO }
    }

    pub(crate) fn tep() -> Bench {
        Bench::new(settings(), &whole())
    }

    pub(crate) fn client() -> Bench {
        Bench::new(Settings { role: Role::Client, ..settings() }, &whole()[..1])
    }

    pub(crate) fn run(&mut self, octets: &[u8]) -> Outcome {
        self.run_with(octets, Offload::default())
    }

    pub(crate) fn run_with(&mut self, octets: &[u8], offload: Offload) -> Outcome {
        let mut buffer = vec![0xee; HEADROOM + octets.len() + 32];
        let range = HEADROOM..HEADROOM + octets.len();
        buffer[range.clone()].copy_from_slice(octets);
        let mut packet = Packet::new(&mut buffer, range, offload);
        let state = &mut self.state;
        let verdict = self.softwire.translate(&mut packet, self.now, state, &mut ());
        let pieces = packet.fragments();
        let packets = pieces.map(|piece| [piece.head(), piece.body].concat()).collect();
        let packets = match verdict {
            Verdict::Forward | Verdict::Reply(_) => packets,
            _ => Vec::new(),
        };
        Outcome { verdict, packets, offload: packet.offload }
    }
}

/// A packet by its description in TOML.
pub(crate) fn packet(text: &str) -> Vec<u8> {
    spec(text).build().unwrap().bytes
}

fn spec(text: &str) -> PacketSpec {
    toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The same with a partial checksum, and the offload state that says so.
pub(crate) fn partial(text: &str) -> (Vec<u8>, Offload) {
    let built = spec(text).build_with(Fill::Partial, Context::default()).unwrap();
    let start = built.transport as u16;
    let offset = built.checksum.unwrap() as u16;
    let checksum = ChecksumState::Partial { start, offset };
    (built.bytes, Offload { checksum, ..Offload::default() })
}

/// A tunnel packet.
pub(crate) fn wrapped(src: Ipv6Addr, dst: Ipv6Addr, inner: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((inner.len() as u16).to_be_bytes());
    packet.extend([4, 64]);
    packet.extend(src.octets());
    packet.extend(dst.octets());
    packet.extend(inner);
    packet
}

pub(crate) fn v6(octets: &[u8]) -> Ipv6Addr {
    <[u8; 16]>::try_from(octets).unwrap().into()
}

pub(crate) fn dropped(reason: DropReason) -> Verdict {
    Verdict::Drop(reason)
}

pub(crate) fn reply(kind: IcmpErrorKind, reason: DropReason) -> Verdict {
    Verdict::Reply(IcmpError { kind, reason })
}

/// Whether the checksum of an ICMPv6 packet without extension headers is right.
pub(crate) fn icmpv6_is_right(packet: &[u8]) -> bool {
    let ends = Endpoints::V6(v6(&packet[8..24]), v6(&packet[24..40]));
    let message = &packet[40..];
    add(ends.pseudo_header(58, message.len()), sum(message)) == 0xffff
}
