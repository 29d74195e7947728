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
    /// Kinds of faults that this schedule has: some of all, so that rare combinations are not hidden by frequent ones.
    kinds: u32,
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

/// What mends is always possible.
const MENDING: u32 = 1 << 2 | 1 << 4 | 1 << 7 | 1 << 9 | 1 << 11;

/// One of the kinds of faults, then one of that kind: there are many links and few machines.
fn pick_fault(random: &mut ChaCha8Rng, kinds: u32, events: &[Event]) -> Option<usize> {
    let mut possible = 0;
    for kind in events.iter().filter_map(|event| event.fault()) {
        possible |= 1 << kind;
    }
    possible &= kinds | MENDING;
    if possible == 0 {
        return None;
    }
    let nth = random.random_range(0..possible.count_ones());
    let kind = (0..u32::BITS).filter(|kind| possible >> kind & 1 == 1).nth(nth as usize);
    let of_kind = || events.iter().enumerate().filter(|(_, event)| event.fault() == kind);
    let nth = random.random_range(0..of_kind().count());
    of_kind().map(|(place, _)| place).nth(nth)
}

impl Chooser<Setup> for Schedule {
    type State = Choice;

    fn new_state(&self, seed: u64) -> Choice {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let bits = random.random::<u32>();
        let mut one_of = |all: [u32; 4]| all[random.random_range(0..4)];
        Choice {
            kinds: one_of([u32::MAX, 0, 0, 0]) | bits,
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
            pick_fault(random, choice.kinds, events)
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
