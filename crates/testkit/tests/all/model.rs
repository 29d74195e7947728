//! The core against the naive model of stateful NAT64, over random packets with time.
//!
//! `FORDWAY_MODEL_STEPS` and `FORDWAY_MODEL_SEED` make it longer, and begin elsewhere; a world that
//! differs is named by its seed.

use std::env;

use fordway_testkit::model::{Tally, World};

/// Events of a world: then another operator has set other rules.
const EVENTS: u64 = 2000;

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn core_and_model_agree() {
    let steps = number("FORDWAY_MODEL_STEPS", 100_000);
    let first = number("FORDWAY_MODEL_SEED", 1);
    let mut tally = Tally::new();
    for seed in first..first + steps.div_ceil(EVENTS) {
        let mut world = World::new(seed).unwrap();
        for _ in 0..EVENTS {
            if let Err(difference) = world.step() {
                panic!("seed {seed}: {difference}");
            }
        }
        for (name, number) in world.tally() {
            *tally.entry(name.clone()).or_default() += number;
        }
    }
    println!("{tally:#?}");
    for name in [
        "to4 Tcp",
        "to4 Udp",
        "to4 Icmp",
        "to6 Tcp",
        "to6 Udp",
        "to6 Icmp",
        "error4",
        "error6",
        "stored",
        "probe",
        "unanswered",
        "refused pool_exhausted",
        "refused port_quota",
        "refused session_quota",
        "refused rate_quota",
        "refused sessions_full",
        "refused bib_full",
        "refused subscribers_full",
        "refused draining",
        "dropped filtered",
        "dropped no_bib",
        "dropped not_syn",
        "dropped loop",
        "dropped externally_initiated",
        "dropped icmp_inner",
        "dropped session_quota",
        "dropped sessions_full",
        "a thousand sessions of one pair",
        "refused non_global",
        "refused to IPv4 non_global",
        "to6 behind the Well-Known Prefix",
    ] {
        assert!(tally.get(name).is_some_and(|number| *number >= 10), "hardly any `{name}`");
    }
}
