//! Random schedules, searches for places of faults, and mutants that must be found.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use stateright::{Checker, Chooser, Model};

use super::choose::Schedule;
use super::{
    EPOCHS_RISE, Event, INVARIANTS, ONE_TRANSLATOR, OWNED_IN_THE_END, Packet, READY_IS_EQUAL,
    STORE, Setup, World,
};
use crate::mutant::Mutant;
use crate::record::{Key, Member, Status, Value};
use crate::settings::Fencing;

/// Lets one schedule happen. Gives the number of states, and which invariant does not hold.
fn run(setup: &Setup, seed: u64) -> (usize, Option<&'static str>) {
    let checker = setup.clone().checker().target_state_count(1).spawn_simulation(seed, Schedule);
    let checker = checker.join();
    (checker.state_count(), INVARIANTS.into_iter().find(|name| checker.discovery(name).is_some()))
}

/// What happens in a schedule: its last events.
fn tell(setup: &Setup, seed: u64) -> String {
    let mut choice = Schedule.new_state(seed);
    let (mut world, mut lines) = (World::new(setup), Vec::new());
    while world.broken.is_none() && setup.within_boundary(&world) {
        let mut events = Vec::new();
        setup.actions(&world, &mut events);
        let event = events[Schedule.choose_action(&mut choice, &world, &events)];
        let mut line = format!("{} {event:?}", world.time);
        if let Event::Deliver(n) | Event::Drop(n) | Event::Hold(n) = event {
            let _ = write!(line, " {:?}", world.net[n].packet);
        }
        lines.push(line);
        world.happen(setup, event);
    }
    for node in &world.nodes {
        let Some(cluster) = &node.cluster else { continue };
        let now = node.clock(world.time);
        let shards: Vec<_> = cluster.shards(now).collect();
        lines.push(format!("{now} {:?} {shards:?}", cluster.phase()));
    }
    lines[lines.len().saturating_sub(150)..].join("\n")
}

fn setups() -> [Setup; 4] {
    let three = Setup::three();
    [
        three.clone(),
        Setup { fencing: Fencing::Any, ..three.clone() },
        Setup { gateways: 2, ..three.clone() },
        Setup { gateways: 4, shards: 1, ..three },
    ]
}

/// Schedules of all worlds from a seed on. Gives how many states there were.
fn explore(first: u64, number: u64) -> usize {
    let setups = setups();
    let mut states = 0;
    for seed in first..first + number {
        let setup = &setups[seed as usize % setups.len()];
        let (more, broken) = run(setup, seed);
        states += more;
        if let Some(name) = broken {
            panic!("seed {seed} breaks '{name}' in {setup:?}:\n{}", tell(setup, seed));
        }
    }
    states
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn invariants_hold_among_faults() {
    let (first, number) = (from_environment("FORDWAY_SEED", 1), 400);
    println!("seeds {first} to {}: {} states", first + number - 1, explore(first, number));
}

/// `FORDWAY_CASES` schedules from `FORDWAY_SEED` on, by all processors, with progress.
#[test]
#[ignore = "takes hours: make soak"]
fn invariants_hold_in_millions_of_schedules() {
    let first = from_environment("FORDWAY_SEED", 1);
    let number = from_environment("FORDWAY_CASES", 1_000_000);
    let (next, states) = (AtomicU64::new(0), AtomicU64::new(0));
    println!("seeds {first} to {}", first + number - 1);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                const PART: u64 = 100;
                loop {
                    let from = next.fetch_add(PART, Ordering::Relaxed);
                    if from >= number {
                        return;
                    }
                    let part = explore(first + from, PART.min(number - from)) as u64;
                    let all = states.fetch_add(part, Ordering::Relaxed) + part;
                    if from % (PART * 100) == 0 {
                        println!("{from} of {number} schedules, {all} states");
                    }
                }
            });
        }
    });
    println!("{number} schedules, {} states", states.load(Ordering::Relaxed));
}

/// Every place of so many faults in the first `chaos` units of time.
fn exhaust(gateways: usize, chaos: u64, faults: u32) {
    let three = Setup::three();
    let setup = Setup { gateways, shards: 1, chaos, faults: Some(faults), ..three };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let checker = setup.checker().threads(threads).spawn_dfs().join();
    println!("{faults} faults in {chaos} units: {} states", checker.unique_state_count());
    assert!(checker.is_done());
    for name in INVARIANTS {
        let broken = checker.discovery(name).map(stateright::Path::into_actions);
        assert_eq!(broken, None, "{name}");
    }
}

#[test]
fn invariants_hold_wherever_one_fault_is() {
    exhaust(3, 60, 1);
}

#[test]
fn invariants_hold_wherever_two_faults_are_at_the_start() {
    exhaust(2, 12, 2);
}

#[test]
#[ignore = "takes minutes: make soak"]
fn invariants_hold_wherever_two_faults_are() {
    exhaust(2, 60, 2);
}

#[test]
fn planned_moves_leave_no_shard_without_owner_for_long() {
    let calm = Setup { chaos: 0, calm: 400, ..Setup::three() };
    for seed in 1..40 {
        assert_eq!(run(&calm, seed).1, None, "seed {seed}:\n{}", tell(&calm, seed));
    }
}

/// What a mutant breaks, from a seed at which it was found; if the protocol has changed since, from some other.
fn breaks(mutant: Mutant, setup: usize, found: u64) -> Option<&'static str> {
    let setup = Setup { mutant: Some(mutant), ..setups()[setup].clone() };
    std::iter::once(found).chain(1..10_000).find_map(|seed| {
        let broken = run(&setup, seed).1;
        if broken.is_some() {
            println!("{mutant:?}: seed {seed}");
        }
        broken
    })
}

#[test]
fn mutants_of_leases_and_promises_are_found() {
    for (mutant, setup, seed) in [
        (Mutant::FromAcknowledgement, 1, 140),
        (Mutant::NoWait, 1, 1),
        (Mutant::NoDrift, 1, 54),
        (Mutant::NoBound, 0, 106),
        (Mutant::VoteAfterPromise, 0, 14),
    ] {
        assert_eq!(breaks(mutant, setup, seed), Some(ONE_TRANSLATOR), "{mutant:?}");
    }
}

#[test]
fn mutants_of_moves_and_streams_are_found() {
    for (mutant, setup, seed, name) in [
        (Mutant::NoStop, 0, 1, ONE_TRANSLATOR),
        (Mutant::SameEpoch, 0, 1, EPOCHS_RISE),
        (Mutant::NoGaps, 0, 1, READY_IS_EQUAL),
        (Mutant::AnyEpoch, 1, 215, READY_IS_EQUAL),
    ] {
        assert_eq!(breaks(mutant, setup, seed), Some(name), "{mutant:?}");
    }
}

/// Which message is late, and until when.
type Late = (fn(&Packet) -> bool, u64);

/// A planned sequence: at some times faults, and between them one thing after another.
struct Play {
    setup: Setup,
    world: World,
}

impl Play {
    fn new(gateways: usize, mutant: Option<Mutant>) -> Play {
        let three = Setup::three();
        let setup =
            Setup { gateways, shards: 1, fencing: Fencing::Any, mutant, chaos: 1000, ..three };
        Play { world: World::new(&setup), setup }
    }

    fn happen(&mut self, events: &[Event]) {
        events.iter().for_each(|event| self.world.happen(&self.setup, *event));
    }

    /// Cuts or restores links, in both directions.
    fn link(&mut self, works: bool, links: &[(usize, usize)]) {
        let event = if works { Event::Restore } else { Event::Cut };
        for (a, b) in links {
            self.happen(&[event(*a, *b), event(*b, *a)]);
        }
    }

    /// Goes on until a time, or until a message is on its way, which is then late until another time.
    fn until(&mut self, time: u64, late: Option<Late>) {
        while self.world.time < time && self.world.broken.is_none() {
            if let Some((is_it, held_until)) = late
                && let Some(it) = self.world.net.iter_mut().find(|it| is_it(&it.packet))
            {
                it.held_until = held_until;
                return;
            }
            let mut events = Vec::new();
            self.setup.actions(&self.world, &mut events);
            let goes_on = |event: &&Event| matches!(event, Event::Deliver(_) | Event::Wake(_));
            let next = events.iter().find(goes_on).copied().unwrap_or(Event::Advance);
            self.world.happen(&self.setup, next);
        }
    }
}

/// A fence that is late. Its writer, perhaps restarted meanwhile, is asked by the owner, which is cut off from the store.
fn late_fence(mutant: Option<Mutant>, restarts: bool) -> Option<&'static str> {
    let mut play = Play::new(2, mutant);
    play.until(30, None);
    play.link(false, &[(0, 1), (0, STORE)]);
    let is_fence: fn(&Packet) -> bool = |packet| {
        let Packet::Write(1, Key::Lease(Member(0)), _, Value::Lease(record)) = packet else {
            return false;
        };
        record.status == Status::Ended
    };
    play.until(90, Some((is_fence, 56)));
    assert!(play.world.time < 54, "a fence is on its way at {}", play.world.time);
    if restarts {
        play.happen(&[Event::Kill(1), Event::Start(1)]);
    }
    play.link(true, &[(0, 1)]);
    play.until(120, None);
    play.world.broken
}

#[test]
fn a_peer_that_has_voted_can_promise_nothing() {
    assert_eq!(late_fence(None, false), None);
    assert_eq!(late_fence(Some(Mutant::PromiseAfterVote), false), Some(ONE_TRANSLATOR));
}

#[test]
fn a_restarted_peer_can_promise_nothing_to_a_lease_that_does_not_name_it() {
    assert_eq!(late_fence(None, true), None);
    assert_eq!(late_fence(Some(Mutant::AnyIncarnation), true), Some(ONE_TRANSLATOR));
}

/// The owner is cut off from the store and from one peer; the other peer promises.
#[test]
fn one_peer_can_not_fence_whom_another_has_promised() {
    for (mutant, broken) in [(None, None), (Some(Mutant::FewVotes), Some(ONE_TRANSLATOR))] {
        let mut play = Play::new(3, mutant);
        play.setup.fencing = Fencing::Majority;
        play.world = World::new(&play.setup);
        play.until(30, None);
        let owner = (0..3).find(|n| play.world.nodes[*n].translates(30, 0)).expect("an owner");
        play.link(false, &[(owner, (owner + 1) % 3), (owner, STORE)]);
        play.until(60, None);
        assert_eq!(play.world.broken, broken);
        let translates = play.world.nodes[owner].translates(play.world.time, 0);
        assert!(broken.is_some() || translates, "it goes on");
    }
}

/// A renewal that names a new peer succeeds, the answer is lost, and the owner is cut off from the store and that peer.
#[test]
fn peers_of_a_write_without_an_answer_have_to_promise() {
    for (mutant, broken) in [(None, None), (Some(Mutant::OneSet), Some(ONE_TRANSLATOR))] {
        let mut play = Play::new(3, mutant);
        play.happen(&[Event::SwitchOff(2)]);
        play.until(60, None);
        play.happen(&[Event::Start(2)]);
        let names: fn(&Packet) -> bool = |packet| {
            let Packet::Entry(0, _, Key::Lease(Member(0)), _, Some(Value::Lease(record))) = packet
            else {
                return false;
            };
            record.peers.contains_key(&Member(2))
        };
        play.until(90, Some((names, 300)));
        assert!(play.world.time < 80, "an answer is on its way at {}", play.world.time);
        play.link(false, &[(0, STORE), (0, 2)]);
        play.until(130, None);
        assert_eq!(play.world.broken, broken);
    }
}

/// A standby that is restarted knows nothing of its stream: it has to become ready again.
#[test]
fn a_restarted_standby_becomes_ready_again() {
    for (mutant, is_ready) in [(None, true), (Some(Mutant::SameStream), false)] {
        let mut play = Play::new(2, mutant);
        play.until(30, None);
        let ready = |play: &Play, n: usize| {
            play.world.nodes[n].cluster.as_ref().is_some_and(|it| it.verified(0).is_some())
        };
        let standby = usize::from(play.world.nodes[0].translates(play.world.time, 0));
        assert!(ready(&play, standby));
        play.happen(&[Event::Kill(standby), Event::Start(standby)]);
        play.until(60, None);
        assert_eq!(ready(&play, standby), is_ready);
    }
}

/// Without the store, gateways that hear each other go on, for as long as is promised.
#[test]
fn translation_goes_on_without_the_store_for_the_longest_outage() {
    let mut play = Play::new(3, None);
    play.until(40, None);
    play.happen(&[Event::StoreDown]);
    play.until(40 + super::OUTAGE * 3 / 5, None);
    let is_translated = |play: &Play| {
        play.world.nodes.iter().filter(|node| node.translates(play.world.time, 0)).count()
    };
    const { assert!(super::OUTAGE * 3 / 5 > super::TTL) };
    assert_eq!(is_translated(&play), 1);
    play.until(40 + super::OUTAGE * 3 / 2, None);
    assert_eq!(is_translated(&play), 0);
    play.happen(&[Event::StoreUp]);
    play.until(40 + super::OUTAGE * 3 / 2 + 20, None);
    assert_eq!((is_translated(&play), play.world.broken), (1, None));
}

#[test]
fn the_model_finds_a_shard_that_nobody_owns() {
    // No vote is ever enough if nobody is a peer, and nobody restarts what is off: only an outage's end helps.
    let setup = Setup { gateways: 2, calm: super::BOUND + 10, ..Setup::three() };
    let mut world = World::new(&setup);
    (world.time, world.idle_since) = (setup.chaos + super::BOUND, vec![Some(1), Some(1)]);
    world.happen(&setup, Event::Advance);
    assert_eq!(world.broken, Some(OWNED_IN_THE_END));
}
