//! TCP throughput beside background traffic: one way at a rate that rises, or both ways with more and more flows.

use fordway_data::spec::{Axis, Load, Metric, Point, Way};
use fordway_data::trial::Trial;

use super::{Before, Lack, Measured, Values, now};
use crate::error::Result;
use crate::load::background::{Carried, Wanted, start};
use crate::load::iperf;

/// Seconds for which the background runs longer than the flow, half of them before it.
const AROUND_S: f64 = 1.0;
/// Share of the background that may be lost before the point counts as failed, as a study would see it.
const MOST_LOST: f64 = 0.5;

/// Measures one TCP flow from the client to the server beside the traffic of a point.
pub(super) fn measure(
    at: &Measured<'_>,
    load: Load,
    point: Option<&Point>,
    seconds: u64,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let level = |axis| point.and_then(|p| p.at(axis)).unwrap_or(0);
    let wanted = background(at, load, level(Axis::Background), level(Axis::Flows));
    let metric = match load {
        Load::Simplex => Metric::SimplexThroughput,
        _ => Metric::DuplexThroughput,
    };
    let argv = iperf::argv(at.network.target, at.profile, seconds, false, at.backend.cap());
    trial.argv.clone_from(&argv);
    trial.started = now();
    let before = Before::read(at)?;
    let beside = start(at.backend, at.network, &wanted, seconds as f64 + AROUND_S)?;
    let (finished, flow) = iperf::measure(at.backend, &at.network.app, &argv, at.profile, seconds)?;
    let carried = beside.finish()?;
    before.finish(at, trial)?;
    trial.exit_status = Some(finished.code());
    let levels = format!("{}-{}", level(Axis::Background), level(Axis::Flows));
    at.keep(&format!("{}-{levels}.json", metric.name()), &finished.stdout)?;
    let flow = flow?;
    trial.series = flow.series;
    trial.generator_bytes = Some(flow.bytes);
    trial.retransmits = flow.retransmits;
    trial.generator_cpu = Some((flow.client_cpu, flow.server_cpu));
    let offered: u64 = wanted.iter().map(|w| w.rate).sum();
    trial.offered = Some(offered as f64);
    (trial.sent, trial.arrived) = (Some(carried.sent), Some(carried.arrived));
    match failure(carried) {
        Some(Lack::Failed(why)) => trial.failed.push(why),
        Some(Lack::Unmeasured(why)) => trial.invalid.push(why),
        None => {}
    }
    trial.flags.extend(lost(carried));
    values.insert(metric, Ok(flow.gbit_s));
    Ok(())
}

/// What runs beside the flow.
fn background(at: &Measured<'_>, load: Load, rate: u64, flows: u64) -> Vec<Wanted> {
    let size = at.profile.background_octets;
    match load {
        Load::Simplex if rate > 0 => vec![Wanted { way: Way::Up, rate, flows: 1, size }],
        Load::Duplex if flows > 0 => {
            let rate = flows * u64::from(at.profile.flow_rate);
            [Way::Up, Way::Down].map(|way| Wanted { way, rate, flows, size }).into()
        }
        _ => Vec::new(),
    }
}

/// Why a point has no value: the mechanism lost most of the background, or the counts can't be right.
fn failure(carried: Carried) -> Option<Lack> {
    let Carried { sent, arrived } = carried;
    if arrived > sent {
        let why = format!("{arrived} background datagrams arrived of {sent} sent");
        return Some(Lack::Unmeasured(why));
    }
    let share = (sent - arrived) as f64 / sent.max(1) as f64;
    let why = || format!("{:.0} % of the background's {sent} datagrams were lost", 100.0 * share);
    (share > MOST_LOST).then(|| Lack::Failed(why()))
}

/// What of the background was lost.
fn lost(carried: Carried) -> Option<String> {
    let lost = carried.sent.saturating_sub(carried.arrived);
    (lost > 0).then(|| format!("{lost} of the background's {} datagrams were lost", carried.sent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_fails_when_most_of_the_background_is_lost() {
        assert_eq!(failure(Carried { sent: 100, arrived: 60 }), None);
        let lost_most = failure(Carried { sent: 100, arrived: 40 });
        assert!(matches!(lost_most, Some(Lack::Failed(why)) if why.contains("60 %")));
        let too_many = failure(Carried { sent: 100, arrived: 101 });
        assert!(matches!(too_many, Some(Lack::Unmeasured(_))));
        assert_eq!(failure(Carried::default()), None);
        assert_eq!(lost(Carried { sent: 5, arrived: 5 }), None);
        assert!(lost(Carried { sent: 5, arrived: 4 }).unwrap().contains("1 of"));
    }
}
