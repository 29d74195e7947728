//! Random schedules: which of all possible events happens, by a seed.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stateright::Chooser;

use super::{Event, Setup, World};

/// Chooses by a seed, which also says how frequent faults are.
#[derive(Clone)]
pub(super) struct Schedule;

pub(super) struct Choice {
    random: ChaCha8Rng,
    /// In 10,000.
    faults: u32,
    of_messages: u32,
    traffic: u32,
    advance: u32,
}

/// One of those that are wanted, each as likely as the others.
fn pick(random: &mut ChaCha8Rng, events: &[Event], wanted: fn(Event) -> bool) -> Option<usize> {
    let number = events.iter().filter(|event| wanted(**event)).count();
    if number == 0 {
        return None;
    }
    let nth = random.random_range(0..number);
    let places = events.iter().enumerate().filter(|(_, event)| wanted(**event));
    places.map(|(place, _)| place).nth(nth)
}

/// One of the kinds of faults, then one of that kind: there are many links and few machines.
fn pick_fault(random: &mut ChaCha8Rng, events: &[Event]) -> Option<usize> {
    let kind = std::mem::discriminant::<Event>;
    let faults = || events.iter().filter(|event| event.is_fault());
    let mut kinds: Vec<_> = Vec::new();
    for event in faults() {
        if !kinds.contains(&kind(event)) {
            kinds.push(kind(event));
        }
    }
    let chosen = *kinds.get(random.random_range(0..kinds.len().max(1)))?;
    let number = faults().filter(|event| kind(event) == chosen).count();
    let nth = random.random_range(0..number);
    let places = events.iter().enumerate().filter(|(_, e)| e.is_fault() && kind(e) == chosen);
    places.map(|(place, _)| place).nth(nth)
}

impl Chooser<Setup> for Schedule {
    type State = Choice;

    fn new_state(&self, seed: u64) -> Choice {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut one_of = |all: [u32; 4]| all[random.random_range(0..4)];
        Choice {
            faults: one_of([20, 50, 100, 200]),
            of_messages: one_of([0, 50, 200, 800]),
            traffic: one_of([50, 200, 200, 500]),
            advance: one_of([300, 800, 1500, 2500]),
            random,
        }
    }

    fn choose_initial_state(&self, _: &mut Choice, _: &[World]) -> usize {
        0
    }

    fn choose_action(&self, choice: &mut Choice, _: &World, events: &[Event]) -> usize {
        let random = &mut choice.random;
        let mut draw = random.random_range(0..10_000);
        let mut falls = |share: u32| {
            let is_in = draw < share;
            draw = draw.saturating_sub(share);
            is_in
        };
        let found = if falls(choice.faults) {
            pick_fault(random, events)
        } else if falls(choice.of_messages) {
            pick(random, events, Event::is_of_message)
        } else if falls(choice.traffic) {
            pick(random, events, |event| matches!(event, Event::Traffic(..)))
        } else if falls(choice.advance) {
            pick(random, events, |event| event == Event::Advance)
        } else {
            None
        };
        let goes_on = |event| matches!(event, Event::Deliver(_) | Event::Wake(_));
        found
            .or_else(|| pick(random, events, goes_on))
            .or_else(|| pick(random, events, |event| event == Event::Advance))
            .unwrap_or(0)
    }
}
