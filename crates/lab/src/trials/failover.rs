//! What remains of connections when a gateway dies that has a standby.

use std::time::Duration;

use fordway_data::spec::Metric;
use fordway_data::trial::Trial;
use fordway_load::pulses::{Fate, Pulsed};

use super::{Lack, Measured, Values, now};
use crate::error::{LabError, Result};
use crate::load::pulses as load;
use crate::process::patience;

/// Connections older than this when the gateway dies have to go on.
const OLD: Duration = Duration::from_secs(1);
/// For so long an octet may be under way when it is all over.
const GONE: Duration = Duration::from_secs(2);

/// Lets the gateway die, and looks at its connections.
pub(super) fn measure(at: &Measured<'_>, trial: &mut Trial, values: &mut Values) -> Result<()> {
    let none = || LabError::Usage("there is no gateway that could die".into());
    let gateway = at.network.host.as_ref().ok_or_else(none)?;
    trial.started = now();
    let log = at.raw.join(format!("{}-pulse-server.log", at.name));
    let told = load::measure(at.backend, at.network, gateway, at.profile.pulses, &log)?;
    at.keep("pulses.json", &told.finished.stdout)?;
    trial.exit_status = Some(told.finished.code());
    trial.argv = told.finished.argv;
    let found = Found::of(&told.pulsed, told.died_ms);
    trial.sent = Some(found.old);
    trial.arrived = Some(found.old - found.broken);
    if found.old == 0 {
        trial.failed.push("no connection was open when the gateway died".into());
        let lack = || Err(Lack::Failed("no connection was open".into()));
        at.metrics.iter().for_each(|metric| drop(values.insert(*metric, lack())));
        return Ok(());
    }
    values.insert(Metric::FailoverSilence, Ok(found.silence_ms));
    values.insert(Metric::FailoverStall, Ok(found.stall_ms));
    values.insert(Metric::FailoverBroken, Ok(100.0 * found.broken as f64 / found.old as f64));
    values.insert(Metric::FailoverLost, Ok(found.lost_age_ms));
    Ok(())
}

/// What became of connections that were open when the gateway died.
#[derive(Debug, PartialEq)]
struct Found {
    /// Those that were older than a second.
    old: u64,
    /// Of these, those that did not go on.
    broken: u64,
    /// Age of the oldest of all that did not.
    lost_age_ms: f64,
    /// The longest time that an octet took in those that did.
    stall_ms: f64,
    /// The longest time without a datagram.
    silence_ms: f64,
}

impl Found {
    fn of(pulsed: &Pulsed, died_ms: f64) -> Self {
        let [old_ms, gone_ms] = [OLD, GONE].map(|it| patience(it).as_secs_f64() * 1e3);
        let open = || pulsed.connections.iter().filter(|fate| fate.opened_ms < died_ms);
        let age = |fate: &Fate| died_ms - fate.opened_ms;
        let goes_on = |fate: &&Fate| {
            let is_answered = fate.last_ms.is_some_and(|last| last > died_ms);
            is_answered && fate.ended.is_none() && fate.missing_ms < gone_ms
        };
        let lost = || open().filter(|fate| !goes_on(fate));
        let is_old = |fate: &&Fate| age(fate) > old_ms;
        Self {
            old: open().filter(is_old).count() as u64,
            broken: lost().filter(is_old).count() as u64,
            lost_age_ms: lost().map(age).fold(0.0, f64::max),
            stall_ms: open().filter(goes_on).map(|fate| fate.longest.ms).fold(0.0, f64::max),
            silence_ms: pulsed.silence.ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fordway_load::pulses::Span;

    /// Until 13,000 ms.
    fn fate(opened_ms: f64, longest: (f64, f64), last_ms: Option<f64>) -> Fate {
        let longest = Span { from_ms: longest.0, ms: longest.1 };
        let missing_ms = if last_ms.is_some_and(|last| last > 11_000.0) { 5.0 } else { longest.ms };
        Fate { opened_ms, longest, last_ms, missing_ms, ended: None }
    }

    #[test]
    fn connections_go_on_or_are_lost_with_their_age() {
        let mut reset = fate(2990.0, (3000.0, 5.0), Some(3005.0));
        reset.ended = Some("reset".into());
        let connections = vec![
            // It stood still for 700 ms.
            fate(10.0, (3000.0, 700.0), Some(12_000.0)),
            // Nothing has come back since.
            fate(10.0, (3000.0, 10_000.0), Some(2990.0)),
            // One octet came back after the death, and then no more.
            fate(500.0, (3100.0, 9_900.0), Some(3050.0)),
            // Young, and reset.
            reset,
            // Of the time after it.
            fate(4000.0, (5000.0, 8_000.0), None),
        ];
        let silence = Span { from_ms: 3000.0, ms: 450.0 };
        let pulsed = Pulsed { began_ms: 0.0, connections, unopened: 0, silence };
        let found = Found::of(&pulsed, 3000.0);
        let expected =
            Found { old: 3, broken: 2, lost_age_ms: 2990.0, stall_ms: 700.0, silence_ms: 450.0 };
        assert_eq!(found, expected);
    }

    #[test]
    fn nothing_is_lost_if_all_go_on() {
        let connections = vec![fate(0.0, (3000.0, 30.0), Some(13_000.0))];
        let pulsed = Pulsed { began_ms: 0.0, connections, unopened: 0, silence: Span::default() };
        let found = Found::of(&pulsed, 3000.0);
        assert_eq!((found.broken, found.lost_age_ms), (0, 0.0));
    }
}
