//! How long the first packet of a connection takes through the box in the middle.

use fordway_data::spec::Metric;
use fordway_data::trial::Check;
use fordway_data::trial::Trial;
use fordway_stats::describe::median;

use super::{Lack, Measured, Values, now};
use crate::error::{LabError, Result};
use crate::load::initiation::{self as load, First};
use crate::probe::gate;

/// Connections of a hundred whose first packet may be missing on the far side.
const MAX_MISSING: f64 = 0.1;

/// Opens connections and times their first packets.
pub(super) fn measure(at: &Measured<'_>, trial: &mut Trial, values: &mut Values) -> Result<()> {
    timed(at, First::Packet, at.profile.begun, trial, values)
}

/// Opens one connection where nobody has an address yet, and times what that takes.
pub(crate) fn with_a_lease(at: &Measured<'_>, trial: &mut Trial) -> Result<()> {
    let mut values = Values::new();
    timed(at, First::Request, 1, trial, &mut values)?;
    match values.remove(&Metric::Initiation) {
        Some(Ok(value)) => trial.value = Some(value),
        Some(Err(Lack::Unmeasured(why))) => trial.invalid.push(why),
        Some(Err(Lack::Failed(why))) => trial.failed.push(why),
        None => {}
    }
    Ok(())
}

fn timed(
    at: &Measured<'_>,
    first: First,
    count: u32,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let log = at.raw.join(format!("{}-begin-server.log", at.name));
    let _server = gate::serve(at.backend, at.network, &log)?;
    trial.started = now();
    let before = super::Before::read(at)?;
    let argv = gate::begin(at.network, count)?;
    let (finished, begun) =
        load::measure(at.backend, at.network, first, count, &argv, at.raw, at.name)?;
    before.finish(at, trial)?;
    at.keep("begin.json", &finished.stdout)?;
    trial.exit_status = Some(finished.code());
    let said: Check = serde_json::from_str(&finished.stdout)
        .map_err(|e| LabError::Parse { tool: "fordway-lab probe begin", why: e.to_string() })?;
    trial.argv = finished.argv;
    if !said.ok {
        trial.failed.push(said.detail);
    }
    let times = begun.times();
    trial.sent = Some(begun.came.len() as u64);
    trial.arrived = Some(times.len() as u64);
    trial.invalid.extend(missing(begun.came.len(), times.len(), count));
    let value = if times.is_empty() {
        Err(Lack::Unmeasured("no connection was seen".into()))
    } else {
        Ok(median(&times))
    };
    values.insert(Metric::Initiation, value);
    Ok(())
}

/// Why too few connections were seen at both sides.
fn missing(came: usize, seen: usize, count: u32) -> Option<String> {
    let least = (1.0 - MAX_MISSING) * f64::from(count);
    ((seen as f64) < least).then(|| {
        format!("of {count} connections {came} were seen to come in, and {seen} of these to go on")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_that_lost_sight_of_many_connections_does_not_count() {
        assert_eq!(missing(100, 95, 100), None);
        let why = missing(100, 89, 100).unwrap();
        assert!(why.contains("100 were seen to come in, and 89"), "{why}");
    }
}
