//! Packets drawn at random, and hand-made ones.

use fordway_testkit::fuzz::{Body, Offloading, Plan};
use fordway_testkit::packet::PacketSpec;
use fordway_testkit::segment::segment_count;
use fordway_testkit::vector::ConfigSpec;
use fordway_testkit::view::View;
use fordway_xlat::{ChecksumState, Config, GsoKind, Offload};

use crate::cases::setting;

/// Draws packets. `FORDWAY_SEED` takes another seed.
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new() -> Draw {
        Draw::with_seed(0)
    }

    /// Other packets for each number.
    pub(crate) fn with_seed(number: usize) -> Draw {
        Draw((setting("FORDWAY_SEED", 0x0f0d_3a77) + number) as u64)
    }

    /// SplitMix64: the octets only have to be well spread.
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A plan of this family. Most are short, and most hop limits high enough.
    pub(crate) fn plan(&mut self, v4: bool) -> Plan {
        loop {
            let octets = [(); 25].map(|()| self.number().to_le_bytes());
            if let Some(mut plan) = Plan::draw(octets.as_flattened()) {
                plan.v4 = v4;
                plan.payload %= [64, 600, 1500, 2400][(self.number() % 4) as usize];
                if !self.number().is_multiple_of(4) {
                    plan.hop |= 32;
                }
                return plan;
            }
        }
    }

    /// A packet with an offload state that a packet socket can hand to the kernel.
    pub(crate) fn offloaded(&mut self, v4: bool) -> (Vec<u8>, Offload) {
        loop {
            let (packet, offload) = self.plan(v4).build();
            match offload.checksum {
                ChecksumState::Verified => return (packet, Offload::default()),
                // A super-packet of one segment is none to the kernel.
                _ if offload.gso.kind != GsoKind::None && segment_count(&packet, &offload) < 2 => {}
                _ => return (packet, offload),
            }
        }
    }

    /// A packet of at most `max` octets that goes over a wire: whole or in pieces, one in eight with a
    /// partial checksum, one in sixteen damaged.
    pub(crate) fn plain(&mut self, v4: bool, max: usize) -> (Vec<u8>, Offload) {
        loop {
            let mut plan = self.plan(v4);
            // Most packets are ordinary.
            if !self.number().is_multiple_of(4) {
                plan.extras = 0;
                if !v4 {
                    plan.fragment = None;
                }
                if matches!(plan.body, Body::Error(_)) {
                    continue;
                }
            }
            plan.offload = match self.number() % 8 {
                0 => Offloading::Partial,
                _ => Offloading::None,
            };
            let (mut packet, offload) = plan.build();
            if packet.len() > max {
                continue;
            }
            if offload == Offload::default() && self.number().is_multiple_of(16) {
                let at = self.number() as usize % packet.len().min(90);
                packet[at] = self.number() as u8;
            }
            return (packet, offload);
        }
    }
}

/// A configuration in the words of vectors.
pub(crate) fn config(text: &str) -> Config {
    let spec: ConfigSpec = toml::from_str(text).expect("a configuration");
    spec.config().expect("a configuration")
}

/// A packet in the words of vectors.
pub(crate) fn packet(text: &str) -> Vec<u8> {
    toml::from_str::<PacketSpec>(text).expect("a packet").build().expect("a packet").bytes
}

/// The IPv6 packet on its way back: source and destination change places, those of a quoted packet too.
/// No checksum changes.
pub(crate) fn turned(packet: &[u8]) -> Vec<u8> {
    let mut turned = packet.to_vec();
    turn(&mut turned);
    if let Some(view) = View::of(packet).filter(View::is_icmp_error) {
        let inner = view.transport + 8;
        if packet.len() >= inner + 40 {
            turn(&mut turned[inner..]);
        }
    }
    turned
}

fn turn(packet: &mut [u8]) {
    let (src, dst) = packet[8..40].split_at_mut(16);
    src.swap_with_slice(dst);
}
