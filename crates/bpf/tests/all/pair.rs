//! Two sets of tables side by side: the core's alone, and those that the program in the kernel shares with
//! a second core.

pub(crate) mod draw;

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fordway_bpf::{
    Clock, Loaded, Outcome, PassReason, Program, Run, StateMaps, Stateful, TestOptions,
};
use fordway_testkit::checksum::checksum;
use fordway_testkit::oracle;
use fordway_xlat::nat64::{
    BibEntry, Event, Heap, Memory, Nat64, SessionEntry, Settings, SubscriberEntry, Sweeper,
};
use fordway_xlat::{Config, HEADROOM, Offload, Packet, State, Translator, Verdict};

use crate::alike::{self, Made, frame};

/// A core with its tables.
pub(crate) struct Core {
    pub(crate) nat: Arc<Nat64>,
    translator: Translator,
    state: State,
    sweeper: Sweeper,
    buffer: Vec<u8>,
}

impl Core {
    fn new(config: &Config, settings: &Settings, memory: Arc<dyn Memory>) -> Core {
        let nat = Nat64::new(settings.clone(), memory).expect("tables that fit");
        assert!(nat.make_fixed_addresses(Duration::ZERO).is_empty());
        assert!(nat.make_static_bib(Duration::ZERO).is_empty());
        let nat = Arc::new(nat);
        let translator = match &settings.dynamic4 {
            Some(_) => Translator::dynamic4(config.clone(), Arc::clone(&nat)),
            None => Translator::nat64(config.clone(), Arc::clone(&nat)),
        };
        Core {
            translator: translator.expect("a configuration"),
            nat,
            state: State::new(1),
            sweeper: Sweeper::new(),
            buffer: Vec::new(),
        }
    }

    pub(crate) fn translate(&mut self, input: &[u8], mark: u32, now: Duration) -> oracle::Outcome {
        self.translate_offloaded(input, Offload::default(), mark, now)
    }

    fn translate_offloaded(
        &mut self,
        input: &[u8],
        offload: Offload,
        mark: u32,
        now: Duration,
    ) -> oracle::Outcome {
        self.buffer.resize(HEADROOM + input.len() + HEADROOM, 0xa5);
        let range = HEADROOM..HEADROOM + input.len();
        self.buffer[range.clone()].copy_from_slice(input);
        let mut packet = Packet::new(&mut self.buffer, range, offload);
        packet.mark = mark;
        let verdict = self.translator.translate(&mut packet, now, &mut self.state, &mut ());
        let packets = match verdict {
            Verdict::Forward => {
                packet.fragments().map(|piece| [piece.head(), piece.body].concat()).collect()
            }
            Verdict::Reply(_) | Verdict::Pass | Verdict::Elsewhere(_) => {
                vec![packet.bytes().to_vec()]
            }
            Verdict::Drop(_) | Verdict::Stored => Vec::new(),
        };
        // A test needs no more of a SYN that is kept.
        while self.state.syns.due(now + Duration::from_secs(1_000_000)).is_some() {}
        oracle::Outcome { verdict, packets, offload: packet.offload }
    }

    /// Lets time have its effect, in slices of so many entries, and gives what the sweeper tells.
    fn sweep(&mut self, now: Duration, most: u32) -> Vec<Event> {
        let mut events = Vec::new();
        let mut tell = |event| events.push(event);
        while self.sweeper.slice(&self.nat, now, most, &mut tell).swept.is_none() {}
        self.sweeper.release(&self.nat);
        events.sort_by_key(event_key);
        events
    }

    /// All entries, in an order of their own: where they lie in the tables is each engine's business.
    pub(crate) fn tables(&self, now: Duration) -> Tables {
        let mut tables = Tables {
            bib: self.nat.bib(now).collect(),
            sessions: self.nat.sessions(now).collect(),
            subscribers: self.nat.subscribers(now).collect(),
        };
        tables.bib.sort_by_key(|bib| (bib.binding, bib.in_hold_down, bib.age, bib.idle));
        tables.sessions.sort_by_key(|session| (session.binding, session.remote));
        tables.subscribers.sort_by_key(|subscriber| (subscriber.prefix, subscriber.mark));
        tables
    }
}

/// What tables hold, sorted.
#[derive(Debug, PartialEq)]
pub(crate) struct Tables {
    bib: Vec<BibEntry>,
    sessions: Vec<SessionEntry>,
    subscribers: Vec<SubscriberEntry>,
}

impl Tables {
    /// All entries, as text.
    fn lines(&self) -> Vec<String> {
        [lines(&self.bib), lines(&self.sessions), lines(&self.subscribers)].concat()
    }
}

/// Both sets of tables.
pub(crate) struct Pair {
    pub(crate) alone: Core,
    pub(crate) beside: Core,
    pub(crate) maps: Arc<StateMaps>,
    program: Program,
    loaded: Loaded,
    pub(crate) now: Duration,
}

/// What a packet came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The program has translated it.
    Translated,
    /// The program has dropped it.
    Dropped,
    /// The core has had it.
    Left(PassReason),
    /// The same, without a reason: in front of routing it might be somebody else's.
    LeftUnmatched,
}

impl Pair {
    pub(crate) fn new(config: &Config, settings: &Settings) -> Pair {
        Pair::of(Program::Interface, TestOptions::default(), config, settings)
    }

    /// With another program, and what that needs.
    pub(crate) fn of(
        program: Program,
        options: TestOptions,
        config: &Config,
        settings: &Settings,
    ) -> Pair {
        let secret = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];
        let maps = Arc::new(StateMaps::make(&settings.sizes, secret).expect("maps"));
        let stateful =
            Stateful { settings: settings.clone(), maps: Arc::clone(&maps), gates: None };
        // All three have one time, whatever the machine does meanwhile.
        let options = TestOptions { stateful: Some(stateful), clock: Clock::Stands, ..options };
        let loaded = Loaded::load(config, &[program], &options)
            .unwrap_or_else(|error| panic!("{error}\n{config:?}"));
        Pair {
            alone: Core::new(config, settings, Arc::new(Heap::new(&settings.sizes, secret))),
            beside: Core::new(config, settings, Arc::clone(&maps) as Arc<dyn Memory>),
            maps,
            program,
            loaded,
            now: Duration::from_secs(100_000),
        }
    }

    /// Time passes.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    /// Both sweepers look at their tables, and have to tell the same.
    pub(crate) fn sweep(&mut self) -> Result<(), String> {
        let (alone, beside) =
            (self.alone.sweep(self.now, u32::MAX), self.beside.sweep(self.now, 3));
        if alone == beside {
            Ok(())
        } else {
            Err(differ("sweepers", &lines(&alone), &lines(&beside)))
        }
    }

    /// Holds the tables against each other.
    pub(crate) fn compare(&self) -> Result<(), String> {
        let (alone, beside) = (self.alone.tables(self.now), self.beside.tables(self.now));
        if alone == beside {
            Ok(())
        } else {
            Err(differ("tables", &alone.lines(), &beside.lines()))
        }
    }

    /// Somebody asks for a host by name (NAT-PT); both have to bind it to the same address, or not at all.
    pub(crate) fn bind_by_name(&mut self, host: Ipv6Addr) -> Result<(), String> {
        let alone = self.alone.nat.bind_by_name(host, self.now, 0);
        let beside = self.beside.nat.bind_by_name(host, self.now, 0);
        if alone == beside { Ok(()) } else { Err(format!("alone {alone:?}, beside {beside:?}")) }
    }

    pub(crate) fn drain(&mut self, drains: bool) {
        self.alone.nat.drain(drains);
        self.beside.nat.drain(drains);
    }

    /// What the core beside the program makes of a packet.
    pub(crate) fn by_core(&mut self, packet: &[u8], offload: Offload) -> oracle::Outcome {
        self.beside.translate_offloaded(packet, offload, 0, self.now)
    }

    /// What the program makes of a packet.
    pub(crate) fn by_program(&mut self, packet: &[u8], gso_size: u32) -> Result<Run, String> {
        self.set_clock();
        let run = self.loaded.run(self.program, &frame(packet), gso_size, 1);
        run.map_err(|error| error.to_string())
    }

    /// Gives both a packet; what comes out has to be the same.
    pub(crate) fn pass(&mut self, packet: &[u8], mark: u32) -> Result<Way, String> {
        let expected = self.alone.translate(packet, mark, self.now);
        self.loaded.set_mark(mark);
        let run = self.by_program(packet, 0)?;
        let outcome = run.outcome.ok_or("not counted, or counted twice")?;
        let made = Made { outcome, packet: Some(&run.frame[14..]), offload: None };
        // In front of routing there is what is somebody else's, or may be.
        if self.program == Program::Interface || outcome != Outcome::Unmatched {
            alike::agree(packet, &expected, &made)?;
        }
        match outcome {
            Outcome::Translated => Ok(Way::Translated),
            Outcome::Dropped(_) => Ok(Way::Dropped),
            Outcome::HandedOver => Err("there is no other gateway".into()),
            Outcome::PassedOn(_) | Outcome::Unmatched => {
                let got = self.beside.translate(packet, mark, self.now);
                if !is_same(&expected, &got) {
                    return Err(format!("{outcome:?}\nalone  {expected:?}\nbeside {got:?}"));
                }
                match outcome {
                    Outcome::PassedOn(reason) => Ok(Way::Left(reason)),
                    _ => Ok(Way::LeftUnmatched),
                }
            }
        }
    }

    /// Sets the programs' clock.
    fn set_clock(&self) {
        self.maps.regions().meta.clock_offset_ns.store(self.now.as_nanos() as u64, Relaxed);
    }
}

/// By which the events of a sweep are sorted: kind, BIB entry, hosts, block, time, and packets and octets.
fn event_key(event: &Event) -> impl Ord + use<> {
    let of = |binding| (Some(binding), None, None);
    let session = |binding, remote| (Some(binding), None, Some(remote));
    let subscriber = |prefix| (None, Some((prefix, 0)), None);
    let (kind, whose, block, time, counts) = match *event {
        Event::BibCreated(binding, time) => (0, of(binding), None, Some(time), None),
        Event::BibRemoved(binding) => (1, of(binding), None, None, None),
        Event::SessionCreated(binding, remote) => (2, session(binding, remote), None, None, None),
        Event::SessionRemoved(binding, remote, counts) => {
            (3, session(binding, remote), None, None, Some(counts))
        }
        Event::BlockAssigned(prefix, block) => (4, subscriber(prefix), Some(block), None, None),
        Event::BlockReleased(prefix, block) => (5, subscriber(prefix), Some(block), None, None),
        Event::Probe { host, remote, .. } => {
            (6, (None, Some(host), Some(remote)), None, None, None)
        }
    };
    (kind, whose, block, time, counts)
}

/// Whether both cores made the same of a packet, but for the identifications that each draws.
fn is_same(expected: &oracle::Outcome, got: &oracle::Outcome) -> bool {
    expected.verdict == got.verdict
        && expected.packets.len() == got.packets.len()
        && expected
            .packets
            .iter()
            .zip(&got.packets)
            .all(|(expected, got)| is_same_packet(expected, got))
}

fn is_same_packet(expected: &[u8], got: &[u8]) -> bool {
    if expected.len() != got.len() {
        return false;
    }
    match (expected[0] >> 4, got[0] >> 4) {
        (4, 4) => {
            for header in [&expected[..20], &got[..20]] {
                assert_eq!(checksum(header), 0, "the header checksum");
            }
            expected[..4] == got[..4]
                && expected[6..10] == got[6..10]
                && expected[12..] == got[12..]
        }
        // In fragments of what turned round.
        (6, 6) if expected[6] == 44 && got[6] == 44 => {
            expected[..44] == got[..44] && expected[48..] == got[48..]
        }
        _ => expected == got,
    }
}

fn lines(entries: &[impl std::fmt::Debug]) -> Vec<String> {
    entries.iter().map(|entry| format!("{entry:?}")).collect()
}

fn differ(what: &str, alone: &[String], beside: &[String]) -> String {
    let only = |of: &[String], other: &[String]| {
        of.iter().filter(|line| !other.contains(line)).cloned().collect::<Vec<_>>().join("\n  ")
    };
    format!(
        "the {what} differ\nalone only:\n  {}\nbeside only:\n  {}",
        only(alone, beside),
        only(beside, alone)
    )
}
