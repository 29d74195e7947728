//! Wall time of transactions by HTTP.

use super::FETCH_S;
use crate::spec::{Profile, Transact};

/// Seconds that a generator runs beyond the sustain phase, and that its connections take to end.
const BEYOND_S: f64 = 1.5;

/// Many connections last so much longer than both phases: a ramp-up phase may be late.
const HELD_S: f64 = 7.0;

/// Wall time of this load on one deployment, at all its points.
pub(super) fn seconds(what: Transact, profile: &Profile) -> f64 {
    let phases = profile.ramp_s + profile.sustain_s + BEYOND_S;
    // The highest rate is found first, then times are taken at half of it.
    let both = FETCH_S + phases + profile.sustain_s;
    match what {
        Transact::Single => profile.single_objects.len() as f64 * both,
        Transact::Kept => profile.kept_objects.len() as f64 * both,
        Transact::Mixed => FETCH_S + phases,
        Transact::Held => FETCH_S + phases + HELD_S,
    }
}
