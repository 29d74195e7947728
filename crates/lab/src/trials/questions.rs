//! Questions to a DNS64 server: the rate of which none is lost, and as many as it answers.

use fordway_data::spec::{Metric, Mixed};
use fordway_data::trial::{Shares, Trial};
use fordway_load::dns::authority::Asked;
use fordway_load::dns::client::{Answered, Order};
use fordway_procedures::search::{Found, Length, Search};

use super::{Before, Lack, Measured, Values, now};
use crate::error::{LabError, Result};
use crate::load::dns::{Authority, Client, target, time_limit, window};
use crate::load::dnsperf;
use crate::mechanism::Placement;

/// Questions that others may ask meanwhile: readiness, the gate.
const OTHERS: u64 = 100;
/// Of a hundred questions in a closed loop, those that may stay without the right answer.
const MAX_FAILED: f64 = 0.01;
/// Share of the questions for known names that may be passed on all the same.
const MAX_UNKNOWN: f64 = 0.02;
/// Share of the questions that must be passed on for new names: some answers come after the last count.
const LEAST_PASSED_ON: f64 = 0.97;
/// Below this share of the guess no rate is looked for.
const LEAST: f64 = 1.0 / 64.0;
/// A sender that was later than this is remarked, in µs.
const FLAG_LAG_US: f64 = 20_000.0;
/// Where the series of names of each load begin: none is another's.
const SEARCH: u16 = 1;
const FLOOD: u16 = 0x4000;
const DNSPERF: u16 = 0x5000;

/// The two halves of the tester around a server.
struct Bench<'a> {
    at: &'a Measured<'a>,
    placement: Placement,
    client: Client,
    /// While calibrating, the other half is nobody else's.
    own: Option<Authority>,
}

impl<'a> Bench<'a> {
    fn open(at: &'a Measured<'a>, mixed: Mixed) -> Result<Self> {
        let placement = Placement::of(at.threads, at.backend.pin());
        let own = match at.authority {
            Some(_) => None,
            None => {
                // In front of a known answer stands only the server itself: the other half takes its place.
                let on = match mixed {
                    Mixed::Fresh => &placement.tester,
                    Mixed::Known => &placement.server,
                };
                Some(Authority::start(at.backend, at.network, on)?)
            }
        };
        let place = &at.network.app;
        let client = Client::start(at.backend, place, target(at.network)?, &placement.tester)?;
        Ok(Self { at, placement, client, own })
    }

    fn authority(&self) -> Result<&Authority> {
        let own = self.own.as_ref().or(self.at.authority);
        own.ok_or_else(|| LabError::Usage("nobody answers for the tester's zone".into()))
    }

    /// An order for the names that a condition says; without a server in between, all names have an AAAA
    /// record, and an answer has a quarter of the time (RFC 8219 section 9.2.1).
    fn order(&self, shares: Shares, series: u16, seconds: f64) -> Order {
        let alone = self.own.is_some();
        let limit = self.at.profile.dns_limit_s.unwrap_or_else(|| time_limit(seconds));
        Order {
            series,
            count: u32::MAX,
            rate: 0.0,
            window: window(&self.placement),
            limit_s: seconds,
            patience_s: if alone { 0.25 * limit } else { limit },
            cached: if alone { 0 } else { shares.cached },
            native: if alone { 100 } else { shares.native },
            known: if alone { 0 } else { self.at.profile.dns_known },
        }
    }

    /// Seconds that an answer may take where it is not the point how late it is.
    fn patience_s(&self) -> f64 {
        self.at.profile.dns_limit_s.unwrap_or(0.0).max(1.0)
    }

    /// Makes names known. Each is asked for more than once, as a cache may take only names that come again, and
    /// often enough for each thread of a server to see it: one in a thousand is missed.
    fn warm_up(&mut self, order: &Order) -> Result<()> {
        if order.cached > 0 && order.known > 0 {
            let threads = self.placement.threads as u32;
            let rounds = if threads > 1 { 7 * threads } else { 2 };
            let answered = self.client.run(&order.warming(rounds))?;
            if answered.right < answered.sent {
                return Err(LabError::NotReady {
                    mechanism: "names that are to be known".into(),
                    why: format!("{} of {} are answered", answered.right, answered.sent),
                });
            }
        }
        Ok(())
    }
}

/// Searches for the highest rate at which every question is answered in time (RFC 8219 section 9.2).
pub(super) fn search(at: &Measured<'_>, trial: &mut Trial, values: &mut Values) -> Result<()> {
    let profile = at.profile;
    let shares = trial.condition.shares.unwrap_or_default();
    let mut bench = Bench::open(at, Mixed::Fresh)?;
    trial.started = now();
    let mut series = SEARCH;
    let short = bench.order(shares, series, profile.dns_search_s);
    bench.warm_up(&short)?;
    let before = Before::read(at)?;
    let asked = bench.authority()?.asked()?;
    let patience_s = bench.patience_s();
    let flood = bench.client.run(&Order { patience_s, ..short })?;
    let guess = 0.9 * flood.meanwhile as f64 / flood.seconds.max(1e-3);
    let mut all = flood.clone();
    let mut best: Option<(f64, Answered)> = None;
    let mut cpu = None;
    let most = profile.dns_rate_max.map_or(f64::INFINITY, f64::from);
    let guess = guess.max(100.0).min(most);
    let search = Search { guess, least: LEAST * guess, most, precision: profile.dns_precision };
    let found = search.run(|rate, length| -> Result<bool> {
        series += 1;
        let seconds = match length {
            Length::Short => profile.dns_search_s,
            Length::Full => profile.dns_trial_s,
        };
        let order = bench.order(shares, series, seconds);
        // Questions are due until the last moment; how many that are is decided beforehand.
        let count = (rate * seconds).ceil() as u32;
        let meter = at.count()?;
        let told = bench.client.run(&Order { rate, count, limit_s: 2.0 * seconds, ..order })?;
        let used = at.used(meter)?;
        add(&mut all, &told);
        let passed = told.right == u64::from(count);
        if passed && length == Length::Full {
            best = Some((rate, told));
            cpu = Some(used);
        }
        Ok(passed)
    })?;
    let asked = bench.authority()?.asked()?.since(asked);
    before.finish(at, trial)?;
    at.keep("dns-search.jsonl", &bench.client.said)?;
    trial.argv = bench.client.argv().to_vec();
    trial.exit_status = Some(0);
    if bench.own.is_none() {
        trial.invalid.extend(disagreement(trial, at, &all, asked, shares));
    }
    // What the processors did while the rate was held, not while it was looked for.
    trial.cpu = cpu.or(trial.cpu);
    let found = match (found, best) {
        (Some(Found { rate, .. }), Some((_, told))) => {
            note(trial, &told);
            trial.offered = Some(rate);
            trial.histogram = told.histogram;
            Ok(rate / 1e3)
        }
        _ => Err(Lack::Failed("no rate without loss was found".into())),
    };
    values.insert(Metric::DnsRate, found);
    Ok(())
}

/// Asks as much as a number of questions under way allows.
pub(super) fn flood(
    at: &Measured<'_>,
    mixed: Mixed,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let shares = of(mixed);
    let mut bench = Bench::open(at, mixed)?;
    trial.started = now();
    let series = FLOOD + u16::from(mixed == Mixed::Known);
    let order = bench.order(shares, series, at.profile.dns_s);
    let order = Order { patience_s: bench.patience_s(), ..order };
    bench.warm_up(&order)?;
    let before = Before::read(at)?;
    let asked = bench.authority()?.asked()?;
    let told = bench.client.run(&order)?;
    let asked = bench.authority()?.asked()?.since(asked);
    before.finish(at, trial)?;
    let (name, rate, cpu) = match mixed {
        Mixed::Fresh => ("fresh", Metric::DnsFresh, Metric::CpuPerAnswerFresh),
        Mixed::Known => ("known", Metric::DnsKnown, Metric::CpuPerAnswerKnown),
    };
    at.keep(&format!("dns-{name}.jsonl"), &bench.client.said)?;
    trial.argv = bench.client.argv().to_vec();
    trial.exit_status = Some(0);
    note(trial, &told);
    let failed = told.wrong + told.late;
    if failed as f64 > MAX_FAILED * told.sent as f64 {
        let (wrong, late) = (told.wrong, told.late);
        trial.failed.push(format!(
            "{wrong} of {} answers were wrong, and {late} questions without one in time",
            told.sent
        ));
    }
    if bench.own.is_none() {
        trial.invalid.extend(disagreement(trial, at, &told, asked, shares));
    }
    values.insert(rate, Ok(told.meanwhile as f64 / told.seconds.max(1e-3) / 1e3));
    if let Some(used) = trial.cpu.filter(|_| told.right > 0) {
        values.insert(cpu, Ok(used.busy_s * 1e6 / told.right as f64));
    }
    trial.histogram = told.histogram;
    Ok(())
}

/// The same by `dnsperf`.
pub(super) fn by_dnsperf(
    at: &Measured<'_>,
    mixed: Mixed,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let shares = of(mixed);
    let mut bench = Bench::open(at, mixed)?;
    let seconds = at.profile.dns_s;
    // The client half only makes names known; without a server in between, all names are alike.
    let order = bench.order(shares, DNSPERF, seconds);
    bench.warm_up(&order)?;
    let file = match mixed {
        Mixed::Fresh => dnsperf::names(at.raw, DNSPERF, dnsperf::new_names(seconds))?,
        Mixed::Known => dnsperf::names(at.raw, 0, at.profile.dns_known)?,
    };
    trial.started = now();
    let before = Before::read(at)?;
    let asked = bench.authority()?.asked()?;
    let (place, target) = (&at.network.app, target(at.network)?);
    let questions =
        dnsperf::Questions { file: &file, mixed, seconds, patience_s: bench.patience_s() };
    let (finished, said) =
        dnsperf::measure(at.backend, place, target, &questions, &bench.placement)?;
    let asked = bench.authority()?.asked()?.since(asked);
    before.finish(at, trial)?;
    let (name, metric) = match mixed {
        Mixed::Fresh => ("fresh", Metric::DnsperfFresh),
        Mixed::Known => ("known", Metric::DnsperfKnown),
    };
    at.keep(&format!("dnsperf-{name}.txt"), &finished.stdout)?;
    trial.exit_status = Some(finished.code());
    trial.argv = finished.argv;
    trial.sent = Some(said.sent);
    trial.arrived = Some(said.good);
    if (said.sent - said.good.min(said.sent)) as f64 > MAX_FAILED * said.sent as f64 {
        let (sent, answered, good) = (said.sent, said.answered, said.good);
        trial.failed.push(format!(
            "of {sent} questions {answered} were answered, {good} of them without an error"
        ));
    }
    if bench.own.is_none() {
        let all = Answered { sent: said.sent, right: said.good, ..Answered::default() };
        trial.invalid.extend(disagreement(trial, at, &all, asked, shares));
    }
    values.insert(metric, Ok(said.rate / 1e3));
    Ok(())
}

/// The shares of a load that is about one sort of names.
fn of(mixed: Mixed) -> Shares {
    Shares { cached: if mixed == Mixed::Known { 100 } else { 0 }, native: 0 }
}

/// What a load says goes into the trial.
fn note(trial: &mut Trial, told: &Answered) {
    trial.sent = Some(told.sent);
    trial.arrived = Some(told.right);
    trial.generator_cpu = Some((100.0 * told.cpu_s / told.elapsed_s.max(1e-3), 0.0));
    if told.wrong + told.late > 0 {
        let (wrong, late) = (told.wrong, told.late);
        trial.flags.push(format!("{wrong} wrong answers, {late} questions without one in time"));
    }
    if told.worst_lag_us > FLAG_LAG_US {
        let late = told.worst_lag_us / 1e3;
        trial.flags.push(format!("the tester itself was up to {late:.0} ms late"));
    }
}

fn add(all: &mut Answered, told: &Answered) {
    all.sent += told.sent;
    all.right += told.right;
    all.wrong += told.wrong;
    all.late += told.late;
}

/// Why the counts of the server, of whom it asks and of the tester can't all be right.
fn disagreement(
    trial: &Trial,
    at: &Measured<'_>,
    told: &Answered,
    passed_on: Asked,
    shares: Shares,
) -> Vec<String> {
    let mut all = Vec::new();
    let counted = at.mechanism.zip(trial.counters.as_ref());
    let own = counted.and_then(|(mechanism, (before, after))| mechanism.asked(before, after));
    if let Some(own) = own {
        all.extend(own_disagreement(own, told));
    }
    all.extend(cache_disagreement(told, passed_on, shares));
    all
}

fn own_disagreement(own: u64, told: &Answered) -> Option<String> {
    if own < told.right {
        let right = told.right;
        return Some(format!("counters disagree: {right} answers came, the server counts {own}"));
    }
    (own > told.sent + OTHERS).then(|| {
        format!("counters disagree: {} questions were sent, the server counts {own}", told.sent)
    })
}

/// New names must have been asked for, known ones not.
fn cache_disagreement(told: &Answered, passed_on: Asked, shares: Shares) -> Option<String> {
    let fresh = 1.0 - f64::from(shares.cached) / 100.0;
    // A name with an AAAA record takes one question, another one two.
    let each = fresh * (2.0 - f64::from(shares.native) / 100.0);
    let (sent, right, all) = (told.sent as f64, told.right as f64, passed_on.all());
    if (all as f64) < LEAST_PASSED_ON * each * right {
        return Some(format!(
            "{right} answers came, but only {all} questions were passed on: some were known already"
        ));
    }
    let unknown = all as f64 > MAX_UNKNOWN * sent + OTHERS as f64;
    (shares.cached == 100 && unknown).then(|| {
        format!("{all} of {sent} questions were passed on: names were not known, as they should be")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(sent: u64, right: u64) -> Answered {
        Answered { sent, right, ..Answered::default() }
    }

    #[test]
    fn a_server_counts_what_it_was_asked() {
        assert_eq!(own_disagreement(1000, &told(1000, 990)), None);
        assert!(own_disagreement(980, &told(1000, 990)).is_some());
        assert!(own_disagreement(1200, &told(1000, 990)).is_some());
    }

    #[test]
    fn new_names_are_passed_on_and_known_ones_are_not() {
        let asked = |aaaa, a| Asked { aaaa, a, other: 0 };
        let check = |passed_on, cached, native| {
            cache_disagreement(&told(1000, 1000), passed_on, Shares { cached, native })
        };
        assert_eq!(check(asked(1000, 1000), 0, 0), None);
        assert!(check(asked(900, 900), 0, 0).is_some_and(|why| why.contains("known already")));
        assert_eq!(check(asked(1000, 0), 0, 100), None);
        assert_eq!(check(asked(500, 250), 50, 50), None);
        assert_eq!(check(asked(10, 10), 100, 0), None);
        assert!(check(asked(200, 100), 100, 0).is_some_and(|why| why.contains("not known")));
    }
}
