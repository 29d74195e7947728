//! The model and the core in one world.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use fordway_xlat::nat64::{
    Allocation, Event as Swept, Filtering, Heap, Lifetimes, Nat64, Pool, Protocol, Quotas, Range,
    Settings, Sizes, StaticBib, Sweeper,
};
use fordway_xlat::{
    Config, HEADROOM, IcmpErrorKind, IcmpErrors, Offload, Packet, State, Translator, Verdict,
};

use super::super::filter::{Model, Outcome, Peek};
use super::super::packet::{Datagram, End4, End6, Transport};
use super::super::sweep::Told;
use super::super::table::{Rules, WELL_KNOWN};
use super::draw::{self, Event, Random};
use super::octets::{self, Read};
use crate::packet::PacketSpec;
use crate::view::View;

/// How often each outcome was seen: a run that never reaches a state proves nothing about it.
pub type Tally = BTreeMap<String, u64>;

/// Where the core's clock begins.
const ORIGIN: u64 = 1000;

/// How many events go by between two looks at the tables.
const LOOK: u64 = 8;

/// The model and the core.
#[derive(Debug)]
pub struct World {
    model: Model,
    nat: Arc<Nat64>,
    translator: Translator,
    state: State,
    sweeper: Sweeper,
    random: Random,
    events: u64,
    tally: Tally,
}

/// What the core says of the packet that it has just had.
struct Core<'a> {
    nat: &'a Nat64,
    now: Duration,
    verdict: Verdict,
}

impl Peek for Core<'_> {
    fn chosen(&self, transport: Transport, v6: End6) -> Option<End4> {
        let protocol = Some(protocol(transport));
        self.nat
            .bib(self.now)
            .find(|bib| {
                !bib.in_hold_down && bib.binding.protocol == protocol && bib.binding.v6 == v6
            })
            .map(|bib| bib.binding.v4)
    }

    fn granted(&self, prefix: Ipv6Addr) -> Option<(Ipv4Addr, Vec<(u16, u16)>)> {
        let found = self.nat.subscribers(self.now).find(|known| known.prefix == prefix)?;
        let blocks = found.blocks.iter().map(|block| (block.low, block.high)).collect();
        Some((found.blocks.first()?.v4, blocks))
    }

    fn refused(&self) -> Option<(&str, bool)> {
        match self.verdict {
            Verdict::Drop(reason) => Some((reason.label(), false)),
            Verdict::Reply(error) => Some((error.reason.label(), true)),
            _ => None,
        }
    }
}

fn protocol(transport: Transport) -> Protocol {
    Protocol::ALL[transport as usize]
}

impl World {
    /// A world of this seed.
    pub fn new(seed: u64) -> Result<World, String> {
        let mut random = Random::new(seed);
        let rules = draw::rules(&mut random);
        let settings = settings(&rules);
        let heap = Heap::new(&settings.sizes, [random.number(), random.number()]);
        let nat = Nat64::new(settings, Arc::new(heap)).map_err(|error| error.to_string())?;
        let nat = Arc::new(nat);
        let prefixes = rules.pool6.iter().map(|prefix| format!("{prefix}/96").parse());
        let config = Config {
            pool6: prefixes.collect::<Result<_, _>>().map_err(|_| "a bad prefix")?,
            icmp_source6: "2001:db8:fe::1".parse().ok(),
            icmp_errors: IcmpErrors::Unlimited,
            ..Config::default()
        };
        let translator = Translator::nat64(config, Arc::clone(&nat));
        Ok(World {
            model: Model::new(rules),
            translator: translator.map_err(|error| error.to_string())?,
            nat,
            state: State::new(1),
            sweeper: Sweeper::new(),
            random,
            events: 0,
            tally: Tally::new(),
        })
    }

    /// What was seen so far.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The rules of this world.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.model.rules
    }

    /// One event more. `Err`: model and core differ, and in what.
    pub fn step(&mut self) -> Result<(), String> {
        self.events += 1;
        let event = draw::event(&mut self.random, &self.model);
        let result = match &event {
            Event::FromV6(packet) => {
                let spec = octets::spec6(packet, self.random.below(24));
                self.packet(&spec, |model, peek| model.from_v6(packet, peek))
            }
            Event::FromV4(packet) => {
                let spec = octets::spec4(packet, self.random.below(24));
                self.packet(&spec, |model, peek| Ok(model.from_v4(packet, peek)))
            }
            Event::Crowd(packet, ports) => self.crowd(packet, *ports),
            Event::ErrorFromV6(error) => {
                let cut = self.random.percent(30).then_some(48);
                self.packet(&octets::error6(error, cut), |model, _| Ok(model.error_from_v6(error)))
            }
            Event::ErrorFromV4(error) => {
                let cut = self.random.percent(30).then_some(28);
                self.packet(&octets::error4(error, cut), |model, _| Ok(model.error_from_v4(error)))
            }
            Event::Seconds(seconds) => self.seconds(*seconds),
            // What an operator takes away is swept before anything else; that ports are used up is remembered
            // for a tick.
            Event::AddBib(transport, v6, v4) => self
                .add_bib(*transport, *v6, *v4)
                .and_then(|()| self.seconds(0))
                .and_then(|()| self.seconds(1)),
            Event::RemoveBib(transport, v4) => self
                .remove_bib(*transport, *v4)
                .and_then(|()| self.seconds(0))
                .and_then(|()| self.seconds(1)),
            Event::Drain(drains) => {
                self.nat.drain(*drains);
                self.model.draining = *drains;
                Ok(())
            }
        };
        let result = result.and_then(|()| {
            if self.events.is_multiple_of(LOOK) { self.compare_tables() } else { Ok(()) }
        });
        result.map_err(|difference| {
            format!(
                "event {} at {} s: {event:?}\n{difference}\n{:?}",
                self.events, self.model.now, self.model.rules
            )
        })
    }

    fn now(&self) -> Duration {
        Duration::from_secs(ORIGIN + self.model.now)
    }

    fn packet(
        &mut self,
        spec: &PacketSpec,
        ask: impl FnOnce(&mut Model, &dyn Peek) -> Result<Outcome, String>,
    ) -> Result<(), String> {
        let input = spec.build().map_err(|error| error.to_string())?.bytes;
        let (mut buffer, range) = in_buffer(&input);
        let mut packet = Packet::new(&mut buffer, range, Offload::default());
        let now = self.now();
        let verdict = self.translator.translate(&mut packet, now, &mut self.state, &mut ());
        let expected = ask(&mut self.model, &Core { nat: &self.nat, now, verdict })?;
        let got = outcome(verdict, packet.bytes(), &input)?;
        *self.tally.entry(name(&expected)).or_default() += 1;
        if matches!(expected, Outcome::To6(_)) && self.model.rules.pool6[0] == WELL_KNOWN {
            *self.tally.entry("to6 behind the Well-Known Prefix".into()).or_default() += 1;
        }
        if expected == got {
            return Ok(());
        }
        if is_alike(&expected, &got) {
            return Ok(());
        }
        Err(format!("  model: {expected:?}\n  core:  {got:?} ({verdict:?})"))
    }

    fn crowd(&mut self, first: &Datagram<Ipv4Addr>, ports: u16) -> Result<(), String> {
        for port in 0..ports {
            let src = (first.src.0, first.src.1.wrapping_add(port));
            let packet = Datagram { src, ..*first };
            let spec = octets::spec4(&packet, 0);
            self.packet(&spec, |model, peek| Ok(model.from_v4(&packet, peek)))
                .map_err(|difference| format!("port {}: {difference}", src.1))?;
        }
        let mut pairs = BTreeMap::new();
        for session in &self.model.sessions {
            *pairs.entry((session.v4, session.remote.0)).or_insert(0) += 1;
        }
        if pairs.values().any(|sessions| *sessions >= 1000) {
            *self.tally.entry("a thousand sessions of one pair".into()).or_default() += 1;
        }
        Ok(())
    }

    fn add_bib(&mut self, transport: Transport, v6: End6, v4: End4) -> Result<(), String> {
        let wanted = StaticBib { protocol: protocol(transport), v6, v4 };
        let full = self.model.bibs.len() + self.model.garbage[0] >= self.model.rules.sizes[0];
        if full || self.model.in_use(transport, |bib| bib.v6 == v6 && bib.v4 == v4).is_some() {
            return Ok(());
        }
        let made = self.nat.add_bib(&wanted, self.now());
        let expected = self.model.add_bib(transport, v6, v4);
        *self.tally.entry(format!("add_bib {expected}")).or_default() += 1;
        if made.is_ok() == expected { Ok(()) } else { Err(format!("add_bib: {made:?}")) }
    }

    fn remove_bib(&mut self, transport: Transport, v4: End4) -> Result<(), String> {
        let removed = self.nat.remove_bib(protocol(transport), v4, self.now());
        let expected = self.model.remove_bib(transport, v4);
        *self.tally.entry(format!("remove_bib {expected}")).or_default() += 1;
        if removed.is_ok() == expected { Ok(()) } else { Err(format!("remove_bib: {removed:?}")) }
    }

    /// Time goes by; then everything is swept.
    fn seconds(&mut self, seconds: u64) -> Result<(), String> {
        let expected = self.model.sweep(self.model.now + seconds);
        let now = self.now();
        let mut unanswered = Vec::new();
        while let Some(syn) = self.state.syns.due(now) {
            let (mut buffer, range) = in_buffer(&syn.packet);
            let mut packet = Packet::new(&mut buffer, range, Offload::default());
            let verdict =
                self.translator.unanswered(&syn, &mut packet, now, &mut self.state, &mut ());
            if matches!(verdict, Verdict::Reply(_)) {
                unanswered.push(told_of(packet.bytes()).ok_or("an error that can't be read")?);
            }
        }
        let mut probes = Vec::new();
        let mut tell = |event| {
            if let Swept::Probe { host, remote, pool6 } = event {
                probes.push((host, remote, usize::from(pool6)));
            }
        };
        // In slices, as the engine does.
        while self.sweeper.slice(&self.nat, now, 3, &mut tell).swept.is_none() {}
        self.sweeper.release(&self.nat);
        let mut wanted: Vec<_> =
            expected.probes.iter().map(|known| (known.v6, known.remote, known.pool6)).collect();
        wanted.sort();
        probes.sort();
        *self.tally.entry("probe".into()).or_default() += probes.len() as u64;
        if wanted != probes {
            return Err(format!("  probes: expected {wanted:?}\n  got {probes:?}"));
        }
        let mut wanted = expected.unanswered;
        wanted.sort();
        unanswered.sort();
        *self.tally.entry("unanswered".into()).or_default() += unanswered.len() as u64;
        if wanted != unanswered {
            return Err(format!("  unanswered: expected {wanted:?}\n  got {unanswered:?}"));
        }
        self.compare_tables()
    }

    fn compare_tables(&self) -> Result<(), String> {
        let now = self.now();
        let wanted: Vec<_> = self
            .model
            .bibs
            .iter()
            .map(|bib| {
                let protocol = protocol(bib.transport).number();
                (protocol, bib.v6, bib.v4, bib.is_static, bib.resting.is_some())
            })
            .collect();
        let got: Vec<_> = self
            .nat
            .bib(now)
            .map(|bib| {
                let protocol = bib.binding.protocol.map_or(0, Protocol::number);
                (protocol, bib.binding.v6, bib.binding.v4, bib.is_static, bib.in_hold_down)
            })
            .collect();
        alike("BIB", wanted, got)?;
        self.compare_sessions(now)?;
        self.compare_subscribers(now)
    }

    fn compare_sessions(&self, now: Duration) -> Result<(), String> {
        let wanted: Vec<_> = self
            .model
            .sessions
            .iter()
            .map(|known| {
                let state = known.tcp.map_or("open", |state| state.label());
                let left = (known.since + known.lifetime).saturating_sub(self.model.now);
                (protocol(known.transport).number(), known.v6, known.v4, known.remote, state, left)
            })
            .collect();
        let got: Vec<_> = self
            .nat
            .sessions(now)
            .map(|known| {
                let protocol = known.binding.protocol.map_or(0, Protocol::number);
                let state = known.tcp.map_or("open", |state| state.label());
                // Lifetimes are counted in ticks: it may be a tick less, and two more.
                let left = (known.remaining + Duration::from_millis(200)).as_secs();
                (protocol, known.binding.v6, known.binding.v4, known.remote, state, left)
            })
            .collect();
        alike("sessions", wanted, got)
    }

    fn compare_subscribers(&self, now: Duration) -> Result<(), String> {
        let wanted: Vec<_> = self
            .model
            .subscribers
            .iter()
            .map(|known| {
                let ports = Transport::ALL
                    .map(|transport| self.model.ports_of(known.prefix, transport) as u32);
                (
                    known.prefix,
                    known.v4.unwrap_or(Ipv4Addr::UNSPECIFIED),
                    ports,
                    self.model.sessions_of(known.prefix) as u32,
                )
            })
            .collect();
        let got: Vec<_> = self
            .nat
            .subscribers(now)
            .map(|known| {
                let v4 = known.blocks.first().map_or(Ipv4Addr::UNSPECIFIED, |block| block.v4);
                (known.prefix, v4, known.ports, known.sessions)
            })
            .collect();
        alike("subscribers", wanted, got)
    }
}

fn settings(rules: &Rules) -> Settings {
    let seconds = Duration::from_secs;
    let (low, high) = rules.ports;
    let ranges = rules.pool4.iter().map(|addr| Range { first: *addr, last: *addr, low, high });
    let allocation = match rules.blocks {
        None => Allocation::Shared,
        Some((size, most)) => Allocation::Blocks { size, most: most as u8 },
    };
    Settings {
        pools: vec![Pool { ranges: ranges.collect(), allocation, ..Pool::default() }],
        filtering: match rules.by_address {
            true => Filtering::AddressDependent,
            false => Filtering::EndpointIndependent,
        },
        accept_v4_syn: rules.accept_v4_syn,
        refresh_from_v4: rules.refresh_from_v4,
        lifetimes: Lifetimes {
            udp: seconds(rules.udp),
            icmp: seconds(rules.icmp),
            tcp_est: seconds(rules.tcp_est),
            tcp_trans: seconds(rules.tcp_trans),
            tcp_incoming_syn: seconds(rules.tcp_incoming_syn),
            hold_down: seconds(rules.port_rest),
            subscriber: seconds(rules.subscriber),
            ..Lifetimes::default()
        },
        subscriber_len: rules.subscriber_len,
        quotas: Quotas {
            ports: rules.most_ports,
            sessions: rules.most_sessions,
            new_per_second: rules.most_new,
        },
        sizes: Sizes {
            bibs: rules.sizes[0] as u32,
            sessions: rules.sizes[1] as u32,
            subscribers: rules.sizes[2] as u32,
        },
        ..Settings::default()
    }
}

/// What the core did, in the model's words.
fn outcome(verdict: Verdict, output: &[u8], input: &[u8]) -> Result<Outcome, String> {
    match verdict {
        Verdict::Stored => Ok(Outcome::Stored),
        Verdict::Drop(reason) => Ok(Outcome::Dropped(reason.label())),
        Verdict::Reply(error) => {
            let view = View::of(output).ok_or("a reply that is no packet")?;
            let asked = View::of(input).ok_or("a reply to what is no packet")?;
            let told = view.is_icmp_error() && view.dst == asked.src && view.deviation() == Some(0);
            let kind = match (error.kind, view.v4) {
                (IcmpErrorKind::AddressUnreachable, false) => [1, 3],
                (_, false) => [1, 1],
                (_, true) => [3, 13],
            };
            if !told || view.payload()[..2] != kind {
                return Err(format!("a bad reply: {error:?}"));
            }
            let reason = error.reason.label();
            Ok(if view.v4 { Outcome::RefusedToV4(reason) } else { Outcome::Refused(reason) })
        }
        Verdict::Pass => Err("passed".into()),
        Verdict::Elsewhere(shard) => Err(format!("of shard {shard}, without shards")),
        Verdict::Forward => {
            octets::came_through(input, output)
                .map_err(|text| format!("  came through: {text}"))?;
            Ok(match octets::read(output).ok_or("a packet that can't be read")? {
                Read::V4(packet) => Outcome::To4(packet),
                Read::V6(packet) => Outcome::To6(packet),
                Read::Error4(error) => Outcome::Error4(error),
                Read::Error6(error) => Outcome::Error6(error),
            })
        }
    }
}

/// Whom an ICMP error is about.
fn told_of(bytes: &[u8]) -> Option<Told> {
    match octets::read(bytes)? {
        Read::Error4(error) => Some(Told::V4(error.inner.src, error.inner.dst)),
        Read::Error6(error) => Some(Told::V6(error.inner.src, error.inner.dst)),
        _ => None,
    }
}

/// Whether a table holds what it should.
fn alike<T: Ord + std::fmt::Debug>(
    name: &str,
    mut wanted: Vec<T>,
    mut got: Vec<T>,
) -> Result<(), String> {
    wanted.sort();
    got.sort();
    if wanted == got {
        return Ok(());
    }
    let missing: Vec<&T> = wanted.iter().filter(|row| !got.contains(row)).collect();
    let surplus: Vec<&T> = got.iter().filter(|row| !wanted.contains(row)).collect();
    let numbers = (wanted.len(), got.len());
    Err(format!("  {name} {numbers:?}: missing {missing:?}\n  not expected {surplus:?}"))
}

/// Whether two errors are the same but for the flags inside, which eight octets don't show.
fn is_alike(expected: &Outcome, got: &Outcome) -> bool {
    match (expected.clone(), got) {
        (Outcome::Error4(mut want), Outcome::Error4(have)) => {
            want.inner.flags = have.inner.flags;
            want == *have
        }
        (Outcome::Error6(mut want), Outcome::Error6(have)) => {
            want.inner.flags = have.inner.flags;
            want == *have
        }
        _ => false,
    }
}

fn name(outcome: &Outcome) -> String {
    match outcome {
        Outcome::To4(packet) => format!("to4 {:?}", packet.transport),
        Outcome::To6(packet) => format!("to6 {:?}", packet.transport),
        Outcome::Error4(_) => "error4".into(),
        Outcome::Error6(_) => "error6".into(),
        Outcome::Refused(reason) => format!("refused {reason}"),
        Outcome::RefusedToV4(reason) => format!("refused to IPv4 {reason}"),
        Outcome::Dropped(reason) => format!("dropped {reason}"),
        Outcome::Stored => "stored".into(),
    }
}

fn in_buffer(octets: &[u8]) -> (Vec<u8>, std::ops::Range<usize>) {
    let room = 2 * HEADROOM;
    let mut buffer = vec![0xa5; room + octets.len() + room];
    let range = room..room + octets.len();
    buffer[range.clone()].copy_from_slice(octets);
    (buffer, range)
}
