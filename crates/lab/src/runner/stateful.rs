//! What the procedures find with a mechanism that is started anew, as the values of a trial.

use fordway_data::spec::Metric;
use fordway_data::trial::{Lack, Stateful, Trial};
use fordway_procedures::Ended;
use fordway_procedures::latency::{Definition, Latency, latency};
use fordway_procedures::profile::Profile;
use fordway_procedures::reset::reset;
use fordway_procedures::session::Session;
use fordway_procedures::stateful::{
    Filling, StatefulTester, Tuples, capacity, establishment, over_filled_table, tear_down,
};
use fordway_procedures::throughput::throughput;
use fordway_procedures::traffic::{DESTINATION_PORTS, Direction, Point, SOURCE_PORTS};

use crate::error::LabError;
use crate::trials::Values;
use crate::trials::benchmark::lack;

/// Seed of the order of connections.
pub(super) const SEED: u64 = 9693;
/// The capacity of a table is looked for up to so many times what it surely holds.
pub(super) const MOST: u64 = 16;
const LATENCIES: [Metric; 2] = [Metric::StatefulTypicalLatency, Metric::StatefulWorstLatency];
/// µs in a ms.
const US: f64 = 1e3;

/// What limits the table of a device, where it is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limited {
    pub(super) sessions: Option<u64>,
    /// Of the kernel's connection tracking.
    pub(super) buckets: Option<u64>,
}

type Done = Result<(), Ended<LabError>>;

/// What is measured, and how.
pub(super) struct Procedures<'a> {
    pub(super) profile: &'a Profile,
    pub(super) setup: Point,
    /// Frames per second that the tester reaches.
    pub(super) highest: f64,
    pub(super) metrics: &'a [Metric],
}

impl Procedures<'_> {
    /// What is reported with the result for so many connections (RFC 9693 section 6), or with that of a search for the capacity
    /// from there up to `most`; `None`: ports do not suffice.
    pub(super) fn parameters(
        &self,
        connections: u64,
        most: Option<u64>,
        limits: Limited,
    ) -> Option<Stateful> {
        let tuples = Tuples::at_least(most.unwrap_or(connections))?;
        let (p, frame) = (&self.profile.stateful, self.setup.traffic.frame);
        let ports = |(first, _): (u16, u16), count| [first.into(), u32::from(first) + count - 1];
        Some(Stateful {
            connections: if most.is_some() { connections } else { tuples.count() },
            most_connections: most,
            source_addresses: tuples.source_addresses,
            source_ports: ports(SOURCE_PORTS, tuples.source_ports),
            destination_addresses: tuples.destination_addresses,
            destination_ports: ports(DESTINATION_PORTS, tuples.destination_ports),
            frame_octets: [frame.initiator, frame.responder],
            maximum_rate: self.highest as u64,
            rate_error: p.rate_error,
            alpha: p.alpha,
            fill: p.fill,
            beta: p.beta,
            gamma: p.gamma,
            capacity_error: p.capacity_error,
            table_limit: limits.sessions,
            table_buckets: limits.buckets,
        })
    }

    /// RFC 8219 section 7.7. What the server sent to a stateful mechanism's connections from before the reset would never
    /// get through: there one direction is measured.
    pub(super) fn reset<T: StatefulTester<Error = LabError>>(
        &self,
        session: &mut Session<'_, T>,
        is_stateful: bool,
        values: &mut Values,
    ) -> Done {
        let mut setup = self.setup;
        if is_stateful {
            setup.traffic.direction = Direction::Forward;
        }
        let rate = throughput(session, &setup, &self.profile.throughput)?.rate.median;
        if rate > 0.0 {
            let found = reset(session, &setup.traffic, rate, &self.profile.reset)?;
            let worst = found.directions.iter().map(|one| one.reset_ms.average);
            let back = found.directions.iter().all(|one| one.not_recovered == 0);
            let why = "it did not forward again in time";
            let value = worst.reduce(f64::max).filter(|_| back);
            values.insert(Metric::Reset, value.ok_or_else(|| Lack::Failed(why.into())));
        }
        Ok(())
    }

    /// RFC 9693 sections 4.5 to 4.8: a number of connections established, a table filled with them, and emptied.
    pub(super) fn connections<T: StatefulTester<Error = LabError>>(
        &self,
        session: &mut Session<'_, T>,
        wanted: u64,
        trial: &mut Trial,
        values: &mut Values,
    ) -> Done {
        let p = &self.profile.stateful;
        let none = Ended::Precondition("ports do not suffice");
        let tuples = Tuples::at_least(wanted).ok_or(none)?;
        let connections = tuples.count();
        trial.cap = Some(self.highest / 1e3);
        if connections != wanted {
            trial.flags.push(format!("{connections} connections"));
        }
        let rate = establishment(session, tuples, self.highest as u64, p, SEED)?.rate.median;
        values.insert(Metric::EstablishmentRate, Ok(rate / 1e3));
        if rate <= 0.0 {
            return Ok(());
        }
        let filling = Filling { tuples, connections, seed: SEED, rate: p.fill * rate };
        let wants = |metric| self.metrics.contains(&metric);
        if wants(Metric::StatefulThroughput) || wants(Metric::StatefulTypicalLatency) {
            self.over_filled_table(session, &filling, values)?;
        }
        if wants(Metric::TearDownRate) {
            let value = match tear_down(session, &filling, p.gap_s, 1) {
                Ok(found) => Ok(found.rate.median / 1e3),
                Err(why) => Err(lack(why)?),
            };
            values.insert(Metric::TearDownRate, value);
        }
        match session.refilled() {
            0 => {}
            1 => trial.flags.push("a table was filled anew after a loss".into()),
            n => trial.flags.push(format!("{n} tables were filled anew after a loss")),
        }
        Ok(())
    }

    fn over_filled_table<T: StatefulTester<Error = LabError>>(
        &self,
        session: &mut Session<'_, T>,
        filling: &Filling,
        values: &mut Values,
    ) -> Done {
        let profile = self.profile;
        let found = over_filled_table(session, filling, profile.stateful.gap_s, |session| {
            let rate = throughput(session, &self.setup, &profile.throughput)?.rate.median;
            let times = (rate > 0.0).then(|| {
                let definition = Definition::StoreAndForward;
                latency(session, &self.setup.traffic, rate, definition, &profile.latency)
            });
            Ok((rate, times))
        });
        match found {
            Ok((rate, times)) => {
                let times = match times {
                    Some(Ok(times)) => Some(Ok(times)),
                    Some(Err(why)) => Some(Err(lack(why.flatten())?)),
                    None => None,
                };
                values.extend(over_filled_table_values(rate, times));
            }
            Err(why) => {
                let why = lack(why)?;
                let metrics = [Metric::StatefulThroughput].into_iter().chain(LATENCIES);
                values.extend(metrics.map(|metric| (metric, Err(why.clone()))));
            }
        }
        Ok(())
    }

    /// RFC 9693 section 4.9: the table surely holds `safe` connections.
    pub(super) fn capacity<T: StatefulTester<Error = LabError>>(
        &self,
        session: &mut Session<'_, T>,
        safe: u64,
        trial: &mut Trial,
        values: &mut Values,
    ) -> Done {
        let (most, highest) = (MOST * safe, self.highest as u64);
        let found = capacity(session, safe, most, highest, &self.profile.stateful, SEED)?;
        if found.beyond.is_none() {
            trial.flags.push(format!("not looked for beyond {most} connections"));
        }
        values.insert(Metric::TableCapacity, Ok(found.capacity as f64 / 1e3));
        Ok(())
    }
}

/// A throughput that was found stays if the latency at it can't be measured.
fn over_filled_table_values(rate: f64, times: Option<Result<Latency, Lack>>) -> Values {
    let mut values = Values::from([(Metric::StatefulThroughput, Ok(rate / 1e3))]);
    match times {
        Some(Ok(times)) => {
            // Of two directions the worse one.
            let typical = times.directions.iter().map(|one| US * one.typical_ms.median);
            let worst = times.directions.iter().map(|one| US * one.worst_case_ms.median);
            let all = LATENCIES.into_iter().zip([typical.reduce(f64::max), worst.reduce(f64::max)]);
            values.extend(all.filter_map(|(metric, value)| Some((metric, Ok(value?)))));
        }
        Some(Err(why)) => values.extend(LATENCIES.map(|metric| (metric, Err(why.clone())))),
        None => {}
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throughput_stays_whose_latency_does_not_count() {
        let why = Lack::Failed("the generator was short".into());
        let values = over_filled_table_values(5000.0, Some(Err(why.clone())));
        assert_eq!(values[&Metric::StatefulThroughput], Ok(5.0));
        assert_eq!(LATENCIES.map(|metric| values[&metric].clone()), [Err(why.clone()), Err(why)]);
        let values = over_filled_table_values(0.0, None);
        assert_eq!(values.into_iter().collect::<Vec<_>>(), [(Metric::StatefulThroughput, Ok(0.0))]);
    }
}
