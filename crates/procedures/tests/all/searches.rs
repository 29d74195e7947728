//! The two binary searches.

use fordway_procedures::bisect::{Bisected, Bisection};
use fordway_procedures::search::{Bound, Found, Length, Search};
use proptest::prelude::*;

/// A device that passes up to `short` for a short time, and up to `full` for long.
fn run(search: &Search, short: f64, full: f64) -> (Option<Found>, Vec<(f64, Length)>) {
    let mut trials = Vec::new();
    let found = search.run(|rate, length| {
        trials.push((rate, length));
        Ok::<bool, ()>(rate <= if length == Length::Short { short } else { full })
    });
    (found.unwrap(), trials)
}

fn count(trials: &[(f64, Length)]) -> Bound {
    let of = |length| trials.iter().filter(|trial| trial.1 == length).count() as u32;
    Bound { short: of(Length::Short), full: of(Length::Full) }
}

proptest! {
    #[test]
    fn the_rate_is_found_from_any_guess_within_the_bound_of_trials(
        guess in 1e2..2e6f64, most in 1e5..1e6f64, share in 0.002..1.5f64,
        stamina in 0.1..1.0f64, precision in 0.002..0.1f64,
    ) {
        let search = Search { guess, least: most * 1e-3, most, precision };
        let (short, full) = (most * share, most * share * stamina);
        let (found, trials) = run(&search, short, full);
        let (bound, ran) = (search.bound().unwrap(), count(&trials));
        prop_assert!(ran.short <= bound.short && ran.full <= bound.full, "{ran:?} of {bound:?}");
        prop_assert!(trials.iter().all(|(rate, _)| (search.least..=most).contains(rate)));
        match found {
            None => prop_assert!(full < search.least),
            Some(Found { rate, above }) => {
                let truth = full.min(most);
                prop_assert!(rate <= truth && rate >= truth / (1.0 + precision) - 1e-6);
                prop_assert!(trials.contains(&(rate, Length::Full)));
                prop_assert_eq!(above.is_none(), rate >= most);
                let near = |above: f64| above > rate && above <= rate * (1.0 + precision) * (1.0 + 1e-9);
                prop_assert!(above.is_none_or(near));
            }
        }
    }

    #[test]
    fn whole_numbers_are_found_within_the_error_and_the_bound(
        most in 1..3_000_000u64, truth in 0..4_000_000u64, error in 1..5000u64,
        share in 1..20u64,
    ) {
        let finest = error / share;
        let (mut tries, search) = (0, Bisection { most, error, finest, floor: 0 });
        let found = search.run(|value| { tries += 1; Ok::<bool, ()>(value <= truth) }).unwrap();
        prop_assert!(tries <= search.bound(), "{tries} of {}", search.bound());
        prop_assert!(found.value <= truth);
        match found.above {
            None => prop_assert_eq!(found.value, most),
            Some(above) => {
                let error = error.min(finest.max(above / 8)).max(1);
                prop_assert!(above > truth && above - found.value <= error);
            }
        }
    }
}

#[test]
fn a_good_guess_takes_few_trials_and_one_of_them_counts() {
    let search = Search { guess: 1000.0, least: 15.0, most: f64::INFINITY, precision: 0.02 };
    let (found, trials) = run(&search, 950.0, 950.0);
    assert!(found.is_some() && trials.len() <= 9, "{trials:?}");
    assert_eq!((count(&trials).full, search.bound()), (1, None));
}

#[test]
fn errors_end_a_search() {
    let search = Search { guess: 1000.0, least: 15.0, most: 2000.0, precision: 0.02 };
    assert_eq!(search.run(|_, _| Err::<bool, _>("gone")), Err("gone"));
    let search = Bisection { most: 1000, error: 1, finest: 1, floor: 0 };
    assert_eq!(search.run(|_| Err::<bool, _>("gone")), Err("gone"));
}

#[test]
fn small_values_are_found_as_exactly_as_great_ones() {
    let search = Bisection { most: 150_000, error: 10_000, finest: 1_250, floor: 0 };
    for (truth, expected) in [(100_000, 93_750), (9_000, 8_203), (1_000, 0)] {
        let found = search.run(|value| Ok::<bool, ()>(value <= truth)).unwrap();
        assert_eq!(found.value, expected, "{truth}");
    }
}

#[test]
fn a_search_ends_when_what_fails_is_not_worth_more_trials() {
    let mut tried = Vec::new();
    let found = Bisection { most: 1000, error: 1, finest: 1, floor: 300 }.run(|value| {
        tried.push(value);
        Ok::<bool, ()>(false)
    });
    assert_eq!(found, Ok(Bisected { value: 0, above: Some(250) }));
    assert_eq!(tried, [1000, 500, 250]);
}
