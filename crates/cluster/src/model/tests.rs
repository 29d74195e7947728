//! Random schedules, mutants, and an exhaustive search in small worlds.

use std::sync::atomic::{AtomicU64, Ordering};

use stateright::{Checker, Model};

use super::choose::Schedule;
use super::{
    EPOCHS_RISE, INVARIANTS, MOVES_ARE_SHORT, Mutant, ONE_TRANSLATOR, OWNED_IN_THE_END,
    READY_IS_EQUAL, Setup,
};
use crate::settings::Fencing;

/// What one schedule has shown.
struct Outcome {
    states: usize,
    /// The invariant that does not hold, and what has happened.
    broken: Option<(&'static str, String)>,
}

/// Lets one schedule happen.
fn run(setup: &Setup, seed: u64) -> Outcome {
    let checker = setup.clone().checker().target_state_count(1).spawn_simulation(seed, Schedule);
    let checker = checker.join();
    let found = INVARIANTS.into_iter().find_map(|name| Some((name, checker.discovery(name)?)));
    let broken = found.map(|(name, path)| (name, format!("{:?}", path.into_actions())));
    Outcome { states: checker.state_count(), broken }
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
        let outcome = run(setup, seed);
        states += outcome.states;
        if let Some((name, events)) = outcome.broken {
            panic!("seed {seed} breaks '{name}' in {setup:?}: {events}");
        }
    }
    states
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn invariants_hold_among_faults() {
    let (first, number) =
        (from_environment("FORDWAY_SEED", 1), from_environment("FORDWAY_CASES", 60));
    println!("seeds {first} to {}: {} states", first + number - 1, explore(first, number));
}

/// `FORDWAY_CASES` schedules from `FORDWAY_SEED` on, by all processors, with progress.
#[test]
#[ignore = "takes hours: make soak"]
fn invariants_hold_in_millions_of_schedules() {
    let first = from_environment("FORDWAY_SEED", 1);
    let number = from_environment("FORDWAY_CASES", 1_000_000);
    let (next, states) = (AtomicU64::new(0), AtomicU64::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    println!("seeds {first} to {}", first + number - 1);
    std::thread::scope(|scope| {
        for _ in 0..threads {
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

#[test]
fn planned_moves_leave_no_shard_without_owner_for_long() {
    let calm = Setup { chaos: 0, calm: 400, ..Setup::three() };
    for seed in 1..40 {
        let outcome = run(&calm, seed);
        assert_eq!(outcome.broken, None, "seed {seed}");
    }
}

/// How many schedules it takes to find a fault, and what it breaks.
fn caught(setup: &Setup, most: u64) -> Option<(u64, &'static str)> {
    (1..=most).find_map(|seed| run(setup, seed).broken.map(|(name, _)| (seed, name)))
}

#[test]
#[ignore = "diagnosis"]
fn each_seed() {
    let setups = setups();
    let first = from_environment("FORDWAY_SEED", 1);
    for seed in first..first + from_environment("FORDWAY_CASES", 8) {
        let start = std::time::Instant::now();
        let outcome = run(&setups[seed as usize % 4], seed);
        println!("{seed}: {} states, {:?} {:?}", outcome.states, start.elapsed(), outcome.broken.map(|b| b.0));
    }
}

#[test]
#[ignore = "diagnosis"]
fn walk() {
    use stateright::Chooser;
    let seed = from_environment("FORDWAY_SEED", 1);
    let setup = &setups()[seed as usize % 4];
    let mut choice = Schedule.new_state(seed);
    let mut world = setup.init_states().remove(0);
    let most = from_environment("FORDWAY_CASES", 3000);
    for step in 0..most {
        let mut events = Vec::new();
        setup.actions(&world, &mut events);
        let event = events[Schedule.choose_action(&mut choice, &world, &events)];
        let what = match event {
            super::Event::Deliver(n) => format!("{:?}", world.net[n].packet),
            _ => String::new(),
        };
        world = setup.next_state(&world, event).unwrap();
        if step + 400 > most || world.broken.is_some() {
            println!("{step} t={} {event:?} {what}", world.time);
        }
        if world.broken.is_some() || !setup.within_boundary(&world) {
            println!("broken: {:?} idle {:?}", world.broken, world.idle_since);
            break;
        }
    }
    for (n, node) in world.nodes.iter().enumerate() {
        println!("\n{n} now {} {node:#?}", node.clock(world.time));
    }
}

#[test]
#[ignore = "diagnosis"]
fn hunt() {
    use Mutant::*;
    let all = if from_environment("FORDWAY_FEW", 0) == 1 { vec![PromiseAfterVote, AnyIncarnation] } else { vec![FromAcknowledgement, NoWait, NoStop, AnyEpoch, PromiseAfterVote, VoteAfterPromise, FewVotes, AnyIncarnation, NoDrift, NoGaps, SameEpoch] };
    for mutant in all {
        for (n, setup) in setups().into_iter().enumerate() {
            let setup = Setup { mutant: Some(mutant), ..setup };
            println!("{mutant:?} {n}: {:?}", caught(&setup, from_environment("FORDWAY_CASES", 1000)));
        }
    }
}

#[test]
#[ignore = "diagnosis"]
fn exhaust() {
    let chaos = from_environment("FORDWAY_TIME", 10);
    let setup = Setup { gateways: from_environment("FORDWAY_N", 2) as usize, shards: 1, chaos, faults: Some(from_environment("FORDWAY_FAULTS", 1) as u32), ..Setup::three() };
    let start = std::time::Instant::now();
    let checker = setup.checker().threads(2).timeout(std::time::Duration::from_secs(60)).spawn_dfs().join();
    println!("{} states, {} unique, depth {}, done {} {:?}", checker.state_count(), checker.unique_state_count(), checker.max_depth(), checker.is_done(), start.elapsed());
    for name in INVARIANTS { if let Some(path) = checker.discovery(name) { println!("{name} {:?}", path.into_actions()); } }
}
