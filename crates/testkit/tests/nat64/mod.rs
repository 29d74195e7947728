//! Two sets of tables side by side: the core's alone, and those that the program in the kernel shares with
//! a second core.

#[allow(dead_code, reason = "not for 1:1 mappings")]
pub(crate) mod draw;

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fordway_bpf::{Loaded, Outcome, PassReason, Program, Run, StateMaps, Stateful, TestOptions};
use fordway_testkit::checksum::checksum;
use fordway_testkit::oracle;
use fordway_xlat::nat64::{Event, Heap, Memory, Nat64, Settings, Sweeper};
use fordway_xlat::{Config, HEADROOM, Offload, Packet, State, Translator, Verdict};

use crate::alike::{self, Made};

/// A tick of the tables' clock.
const TICK: Duration = Duration::from_nanos(1 << 27);

/// A core with its tables.
pub(crate) struct Core {
    pub(crate) nat: Arc<Nat64>,
    translator: Translator,
    state: State,
    sweeper: Sweeper,
}

impl Core {
    fn new(config: &Config, settings: &Settings, memory: Arc<dyn Memory>) -> Core {
        let nat = Nat64::new(settings.clone(), memory).expect("tables that fit");
        assert!(nat.make_fixed_addresses(Duration::ZERO).is_empty());
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
        let mut buffer = vec![0xa5; HEADROOM + input.len() + HEADROOM];
        let range = HEADROOM..HEADROOM + input.len();
        buffer[range.clone()].copy_from_slice(input);
        let mut packet = Packet::new(&mut buffer, range, offload);
        packet.mark = mark;
        let verdict = self.translator.translate(&mut packet, now, &mut self.state, &mut ());
        let packets = match verdict {
            Verdict::Forward => {
                packet.fragments().map(|piece| [piece.head(), piece.body].concat()).collect()
            }
            Verdict::Reply(_) | Verdict::Pass => vec![packet.bytes().to_vec()],
            Verdict::Drop(_) | Verdict::Stored => Vec::new(),
        };
        // A test needs no more of a SYN that is kept.
        while self.state.syns.due(now + Duration::from_secs(1_000_000)).is_some() {}
        oracle::Outcome { verdict, packets, offload: packet.offload }
    }

    /// Lets time have its effect, and gives what the sweeper tells.
    fn sweep(&mut self, now: Duration) -> Vec<String> {
        let mut events = Vec::new();
        self.sweeper.sweep(&self.nat, now, &mut |event: Event| events.push(format!("{event:?}")));
        self.sweeper.release(&self.nat);
        events.sort();
        events
    }

    /// All entries, as text.
    pub(crate) fn tables(&self, now: Duration) -> Vec<String> {
        let mut tables: Vec<String> = self.nat.bib(now).map(|bib| format!("{bib:?}")).collect();
        tables.extend(self.nat.sessions(now).map(|session| format!("{session:?}")));
        tables.extend(self.nat.subscribers(now).map(|subscriber| format!("{subscriber:?}")));
        tables.sort();
        tables
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
        let stateful = Stateful { settings: settings.clone(), maps: Arc::clone(&maps) };
        let options = TestOptions { stateful: Some(stateful), ..options };
        let loaded = Loaded::load(config, &[program], &options)
            .unwrap_or_else(|error| panic!("{error}\n{config:?}"));
        Pair {
            alone: Core::new(config, settings, Arc::new(Heap::new(&settings.sizes, secret))),
            beside: Core::new(config, settings, Arc::clone(&maps) as Arc<dyn Memory>),
            maps,
            program,
            loaded,
            now: TICK * 1_000_000,
        }
    }

    /// Time passes.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    /// Both sweepers look at their tables, and have to tell the same.
    pub(crate) fn sweep(&mut self) -> Result<(), String> {
        let (alone, beside) = (self.alone.sweep(self.now), self.beside.sweep(self.now));
        same("sweepers", &alone, &beside)
    }

    /// Holds the tables against each other.
    pub(crate) fn compare(&self) -> Result<(), String> {
        same("tables", &self.alone.tables(self.now), &self.beside.tables(self.now))
    }

    /// Somebody asks for a host by name (NAT-PT); both have to bind it to the same address, or not at all.
    #[allow(dead_code, reason = "not for 1:1 mappings")]
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
    #[allow(dead_code, reason = "only super-packets need it")]
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
        let made = Made { outcome, packet: Some(run.frame[14..].to_vec()), offload: None };
        // In front of routing there is what is somebody else's, or may be.
        if self.program == Program::Interface || outcome != Outcome::Unmatched {
            alike::agree(packet, &expected, &made)?;
        }
        match outcome {
            Outcome::Translated => Ok(Way::Translated),
            Outcome::Dropped(_) => Ok(Way::Dropped),
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

    /// Sets the programs' clock: the middle of a tick, so that the test is as quick as it must be.
    fn set_clock(&self) {
        let ticks = self.now.as_nanos() / TICK.as_nanos();
        let target = ticks as u64 * TICK.as_nanos() as u64 + TICK.as_nanos() as u64 / 2;
        let meta = self.maps.regions().meta;
        meta.clock_offset_ns.store(target.wrapping_sub(monotonic()), Relaxed);
    }
}

/// Whether both cores made the same of a packet, but for the identifications that each draws.
fn is_same(expected: &oracle::Outcome, got: &oracle::Outcome) -> bool {
    let anonymous = |packets: &[Vec<u8>]| packets.iter().map(|packet| anonymous(packet)).collect();
    let (expected_packets, got_packets): (Vec<_>, Vec<_>) =
        (anonymous(&expected.packets), anonymous(&got.packets));
    expected.verdict == got.verdict && expected_packets == got_packets
}

fn anonymous(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    match packet[0] >> 4 {
        4 => {
            assert_eq!(checksum(&packet[..20]), 0, "the header checksum");
            packet[4..6].fill(0);
            packet[10..12].fill(0);
        }
        // In fragments of what turned round.
        _ if packet[6] == 44 => packet[44..48].fill(0),
        _ => {}
    }
    packet
}

fn same(what: &str, alone: &[String], beside: &[String]) -> Result<(), String> {
    if alone == beside {
        return Ok(());
    }
    let only = |of: &[String], other: &[String]| {
        of.iter().filter(|line| !other.contains(line)).cloned().collect::<Vec<_>>().join("\n  ")
    };
    Err(format!(
        "the {what} differ\nalone only:\n  {}\nbeside only:\n  {}",
        only(alone, beside),
        only(beside, alone)
    ))
}

/// Nanoseconds of CLOCK_MONOTONIC.
fn monotonic() -> u64 {
    fordway_engine::monotonic().as_nanos() as u64
}

/// The packet behind an Ethernet header.
fn frame(packet: &[u8]) -> Vec<u8> {
    let kind: [u8; 2] = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    // To the loopback device, where test runs arrive.
    [&[0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2], &kind[..], packet].concat()
}
