//! Sequences of packets and time through stateful translation, on tables so small that they fill.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use fordway_xlat::nat64::{
    Allocation, Filtering, Heap, Nat64, Pool, Quotas, Range, Settings, Sizes, Sweeper,
};
use fordway_xlat::{Config, HEADROOM, Offload, Packet, State, Translator, Verdict};

use super::structured::Plan;
use crate::checksum::checksum;
use crate::oracle::{Outcome, check};

/// Steps of a sequence at most.
const STEPS: usize = 64;

/// One step.
#[derive(Clone, Debug, Arbitrary)]
enum Step {
    /// A drawn packet.
    Packet(Plan),
    /// Any octets.
    Octets(Vec<u8>),
    /// The answer to the last packet that went out to IPv4: its addresses and ports exchanged.
    Back {
        /// TCP flags, or the octet in their place.
        flags: u8,
    },
    /// An ICMP error about it, of this type and code, quoting so many octets.
    Error {
        /// Type and code.
        kind: (u8, u8),
        /// Octets of the packet inside.
        quoted: u8,
    },
    /// Time passes, in seconds.
    Later(u16),
    /// The sweeper passes.
    Sweep,
}

/// How the translator is set.
#[derive(Clone, Debug, Arbitrary)]
struct Set {
    address_dependent: bool,
    accept_v4_syn: bool,
    hairpin: bool,
    quota: u8,
    blocks: Option<u8>,
    ports: u8,
}

/// A translator and what it was asked last.
struct Case {
    config: Config,
    nat64: Arc<Nat64>,
    translator: Translator,
    state: State,
    sweeper: Sweeper,
    now: Duration,
    /// The last packet that went out to IPv4.
    out: Vec<u8>,
}

impl Case {
    fn new(set: &Set) -> Case {
        let config = Config {
            pool6: vec!["2001:db8:64::/96".parse().expect("a prefix")],
            icmp_source4: Some(Ipv4Addr::new(203, 0, 113, 254)),
            icmp_source6: Some("2001:db8:fe::1".parse().expect("an address")),
            hairpin: set.hairpin,
            ..Config::default()
        };
        let range = Range {
            first: Ipv4Addr::new(198, 51, 100, 0),
            last: Ipv4Addr::new(198, 51, 100, 3),
            low: 1000,
            high: 1000 + u16::from(set.ports),
        };
        let allocation = match set.blocks {
            Some(size) => Allocation::Blocks { size: u16::from(size % 32) + 1, most: 3 },
            None => Allocation::Shared,
        };
        let quota = u32::from(set.quota);
        let filtering = match set.address_dependent {
            true => Filtering::AddressDependent,
            false => Filtering::EndpointIndependent,
        };
        let settings = Settings {
            pools: vec![Pool { ranges: vec![range], allocation, ..Pool::default() }],
            filtering,
            accept_v4_syn: set.accept_v4_syn,
            quotas: Quotas { ports: [quota; 3], sessions: quota, new_per_second: quota },
            sizes: Sizes { bibs: 24, sessions: 24, subscribers: 8 },
            ..Settings::default()
        };
        let memory = Heap::new(&settings.sizes, [1, 2]);
        let nat64 = Arc::new(Nat64::new(settings, Arc::new(memory)).expect("settings fit"));
        let translator = Translator::nat64(config.clone(), Arc::clone(&nat64)).expect("a prefix");
        Case {
            config,
            nat64,
            translator,
            state: State::new(7),
            sweeper: Sweeper::new(),
            now: Duration::from_secs(100_000),
            out: Vec::new(),
        }
    }

    fn packet(&mut self, input: &[u8], offload: Offload) {
        let mut buffer = vec![0xa5; 2 * HEADROOM + input.len() + HEADROOM];
        let range = 2 * HEADROOM..2 * HEADROOM + input.len();
        buffer[range.clone()].copy_from_slice(input);
        let mut packet = Packet::new(&mut buffer, range, offload);
        let verdict = self.translator.translate(&mut packet, self.now, &mut self.state, &mut ());
        let packets: Vec<Vec<u8>> = match verdict {
            Verdict::Forward => {
                packet.fragments().map(|piece| [piece.head(), piece.body].concat()).collect()
            }
            Verdict::Reply(_) | Verdict::Pass | Verdict::Elsewhere(_) => {
                vec![packet.bytes().to_vec()]
            }
            Verdict::Drop(_) | Verdict::Stored => Vec::new(),
        };
        let outcome = Outcome { verdict, packets, offload: packet.offload };
        if let Err(wrong) = check(&self.config, input, offload, &outcome) {
            panic!("{wrong}: {input:02x?} became {outcome:02x?}");
        }
        let first = outcome.packets.first();
        if let Some(out) = first.filter(|out| out[0] >> 4 == 4 && verdict == Verdict::Forward) {
            self.out.clone_from(out);
        }
    }

    /// The answer to the last packet that went out.
    fn back(&mut self, flags: u8) {
        let mut packet = self.out.clone();
        if packet.len() < 40 {
            return;
        }
        for (a, b, len) in [(12, 16, 4), (20, 22, 2)] {
            for octet in 0..len {
                packet.swap(a + octet, b + octet);
            }
        }
        if packet[9] == 6 {
            packet[33] = flags;
        }
        self.packet(&packet, Offload::default());
    }

    fn error(&mut self, (kind, code): (u8, u8), quoted: u8) {
        let inner = &self.out[..self.out.len().min(20 + usize::from(quoted))];
        if inner.is_empty() {
            return;
        }
        let mut message = vec![kind, code, 0, 0, 0, 0, 5, 0];
        message.extend_from_slice(inner);
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut packet = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, 1, 0, 0, 192, 0, 2, 9];
        packet.extend_from_slice(&self.out[12..16]);
        let len = (packet.len() + message.len()) as u16;
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        let sum = checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend_from_slice(&message);
        self.packet(&packet, Offload::default());
    }

    fn sweep(&mut self) {
        self.sweeper.sweep(&self.nat64, self.now, &mut |_| {});
        self.sweeper.release(&self.nat64);
        while let Some(syn) = self.state.syns.due(self.now) {
            let mut buffer = vec![0; 2 * HEADROOM + syn.packet.len()];
            let range = 2 * HEADROOM..buffer.len();
            buffer[range.clone()].copy_from_slice(&syn.packet);
            let mut packet = Packet::new(&mut buffer, range, Offload::default());
            let state = &mut self.state;
            let _ = self.translator.unanswered(&syn, &mut packet, self.now, state, &mut ());
        }
        self.check_tables();
    }

    /// No transport address is bound twice, and every session has a BIB entry.
    fn check_tables(&self) {
        let (mut v4, mut v6) = (HashSet::new(), HashSet::new());
        for entry in self.nat64.bib(self.now) {
            assert!(v4.insert((entry.binding.protocol, entry.binding.v4)), "{entry:?} twice");
            assert!(v6.insert((entry.binding.protocol, entry.binding.v6)), "{entry:?} twice");
        }
        for session in self.nat64.sessions(self.now) {
            assert!(v4.contains(&(session.binding.protocol, session.binding.v4)), "{session:?}");
        }
    }
}

/// A drawn sequence: no step may panic or give a packet that is wrong, and the tables stay sound; in the end
/// everything expires, and nothing is left over.
pub fn stateful(data: &[u8]) {
    let mut data = Unstructured::new(data);
    let Ok(set) = Set::arbitrary(&mut data) else { return };
    let mut case = Case::new(&set);
    for _ in 0..STEPS {
        match Step::arbitrary(&mut data) {
            Ok(Step::Packet(plan)) => {
                let (packet, offload) = plan.build();
                case.packet(&packet, offload);
            }
            Ok(Step::Octets(octets)) => case.packet(&octets, Offload::default()),
            Ok(Step::Back { flags }) => case.back(flags),
            Ok(Step::Error { kind, quoted }) => case.error(kind, quoted),
            Ok(Step::Later(seconds)) => case.now += Duration::from_secs(u64::from(seconds)),
            Ok(Step::Sweep) => case.sweep(),
            Err(_) => break,
        }
        if data.is_empty() {
            break;
        }
    }
    for _ in 0..4 {
        case.now += Duration::from_secs(8000);
        case.sweep();
    }
    assert_eq!(case.nat64.occupancy().map(|kind| kind.used), [0, 0, 0], "entries leaked");
}
