//! Sequences on the core itself.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use fordway_xlat::nat64::{Event, Heap, Nat64, StaticBib, Sweeper};
use fordway_xlat::reassembly::{self, Origin, Outcome, Reassembler};
use fordway_xlat::{HEADROOM, Offload, Packet, State, Translator, Verdict};

use super::run::{Gateway, Stateful};
use super::settings::{protocol, static_bib};
use super::spec::{Operator, Sequence};
use super::tables::{BibRow, SessionRow, SubscriberRow, Tables};
use crate::vector::run::{Observation, Sent, SubjectError, collect};

/// When a sequence begins, on the core's clock: the bucket of ICMP errors is full by then.
const ORIGIN: Duration = Duration::from_secs(10);

/// The core with stateful translation.
#[derive(Debug, Default)]
pub struct CoreNat64;

impl Stateful for CoreNat64 {
    fn name(&self) -> &'static str {
        "core"
    }

    fn begin(&mut self, sequence: &Sequence) -> Result<Box<dyn Gateway>, SubjectError> {
        let settings = sequence.nat64.settings().map_err(other)?;
        let fixed = settings.bib.clone();
        // No sequence may depend on how ports are chosen.
        let secret = sequence.name.bytes().fold(0x5eed, |hash: u64, octet| {
            (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3)
        });
        let heap = Heap::new(&settings.sizes, [secret, !secret.rotate_left(21)]);
        let nat = Arc::new(Nat64::new(settings, Arc::new(heap)).map_err(other)?);
        for bib in &fixed {
            nat.add_bib(bib, ORIGIN).map_err(|error| other(format!("{error:?}")))?;
        }
        let translator = Translator::nat64(sequence.config.clone(), Arc::clone(&nat))?;
        let state = State::new(sequence.identification);
        let reassembler = Reassembler::new(sequence.nat64.fragments.limits());
        Ok(Box::new(Core { translator, nat, state, sweeper: Sweeper::new(), reassembler }))
    }
}

struct Core {
    translator: Translator,
    nat: Arc<Nat64>,
    state: State,
    sweeper: Sweeper,
    reassembler: Reassembler,
}

impl Gateway for Core {
    fn sweep(&mut self, at: Duration) -> Result<Vec<Sent>, SubjectError> {
        let now = ORIGIN + at;
        let mut sent = Vec::new();
        let _timed_out = self.reassembler.expire(now);
        while let Some(syn) = self.state.syns.due(now) {
            let (mut buffer, range) = in_buffer(&syn.packet);
            let mut packet = Packet::new(&mut buffer, range, Offload::default());
            let verdict =
                self.translator.unanswered(&syn, &mut packet, now, &mut self.state, &mut ());
            if matches!(verdict, Verdict::Reply(_)) {
                sent.push(Sent { bytes: packet.bytes().to_vec(), offload: Some(packet.offload) });
            }
        }
        let translator = &self.translator;
        self.sweeper.sweep(&self.nat, now, &mut |event| {
            if let Event::Probe { host, remote, pool6 } = event
                && let Some(probe) = translator.probe(host, remote, pool6)
            {
                sent.push(Sent { bytes: probe.to_vec(), offload: Some(Offload::default()) });
            }
        });
        self.sweeper.release(&self.nat);
        Ok(sent)
    }

    fn feed(
        &mut self,
        at: Duration,
        input: &[u8],
        offload: &Offload,
        mark: u32,
    ) -> Result<Option<Observation>, SubjectError> {
        let (mut buffer, mut range) = in_buffer(input);
        let mut whole = vec![0; reassembly::BUFFER_LEN];
        match self.reassembler.insert(Origin::Network, input, ORIGIN + at, &mut whole) {
            Outcome::Whole => {}
            Outcome::Incomplete | Outcome::Duplicate => return Ok(None),
            Outcome::Complete(place) => (buffer, range) = (whole, place),
            Outcome::Dropped { reason, .. } => {
                let verdict = Some(Verdict::Drop(reason));
                return Ok(Some(Observation { verdict, ..Observation::default() }));
            }
        }
        let mut packet = Packet::new(&mut buffer, range, *offload);
        packet.mark = mark;
        let verdict = self.translator.translate(&mut packet, ORIGIN + at, &mut self.state, &mut ());
        let sent = match verdict {
            Verdict::Forward => collect(&packet),
            Verdict::Reply(_) | Verdict::Pass | Verdict::Elsewhere(_) => {
                vec![Sent { bytes: packet.bytes().to_vec(), offload: Some(packet.offload) }]
            }
            Verdict::Drop(_) => Vec::new(),
            Verdict::Stored => return Ok(None),
        };
        Ok(Some(Observation { verdict: Some(verdict), sent, counters: None }))
    }

    fn operate(&mut self, at: Duration, operator: &Operator) -> Result<(), SubjectError> {
        operator.apply(&self.nat, ORIGIN + at)
    }

    fn tables(&mut self, at: Duration) -> Result<Option<Tables>, SubjectError> {
        Ok(Some(tables_of(&self.nat, ORIGIN + at)))
    }
}

impl Operator {
    /// Does it.
    pub fn apply(&self, nat: &Nat64, now: Duration) -> Result<(), SubjectError> {
        match self {
            Operator::Add(value) => {
                let bib: StaticBib = static_bib(value).map_err(other)?;
                nat.add_bib(&bib, now).map_err(|error| other(format!("{error:?}")))
            }
            Operator::Remove(value) => {
                let (name, v4): (String, (Ipv4Addr, u16)) =
                    value.clone().try_into().map_err(other)?;
                let protocol = protocol(&name).ok_or_else(|| other("no such protocol"))?;
                let removed = nat.remove_bib(protocol, v4, now);
                removed.map(|_| ()).map_err(|error| other(format!("{error:?}")))
            }
            Operator::Drain(drains) => {
                nat.drain(*drains);
                Ok(())
            }
        }
    }
}

/// What the tables of the core hold.
pub fn tables_of(nat: &Nat64, now: Duration) -> Tables {
    let label = |protocol: Option<fordway_xlat::nat64::Protocol>| {
        protocol.map_or("any", |protocol| protocol.label()).to_owned()
    };
    Tables {
        bibs: nat
            .bib(now)
            .map(|entry| BibRow {
                protocol: label(entry.binding.protocol),
                v6: entry.binding.v6,
                v4: entry.binding.v4,
                is_resting: entry.in_hold_down,
            })
            .collect(),
        sessions: nat
            .sessions(now)
            .map(|entry| SessionRow {
                protocol: label(entry.binding.protocol),
                v6: entry.binding.v6,
                v4: entry.binding.v4,
                remote: entry.remote,
                state: entry.tcp.map_or("open", |state| state.label()).to_owned(),
                left: entry.remaining,
            })
            .collect(),
        subscribers: nat
            .subscribers(now)
            .map(|entry| SubscriberRow {
                prefix: entry.prefix,
                blocks: entry.blocks.len(),
                ports: entry.ports,
                sessions: entry.sessions,
            })
            .collect(),
    }
}

fn in_buffer(octets: &[u8]) -> (Vec<u8>, std::ops::Range<usize>) {
    let room = 2 * HEADROOM;
    let mut buffer = vec![0xa5; room + octets.len() + room];
    let range = room..room + octets.len();
    buffer[range.clone()].copy_from_slice(octets);
    (buffer, range)
}

fn other(error: impl std::fmt::Display) -> SubjectError {
    SubjectError::Other(error.to_string())
}
