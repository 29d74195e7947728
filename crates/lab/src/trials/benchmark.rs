//! The tester of RFC 8219 and RFC 9693 at a deployment: what the procedures order, as trials of `fordway_tester`.

use std::collections::BTreeMap;
use std::time::Duration;

use fordway_data::spec::{Kind, Sender};
use fordway_data::trial::Trial as Taken;
use fordway_procedures::error::Ended;
use fordway_procedures::frame::{ETHERNET, Frame, LEAST_V6, Technology};
use fordway_procedures::search::Search;
use fordway_procedures::session::Session;
use fordway_procedures::tester::{Load, Losses, Order, Outcome, Record, Stream, Tester};
use fordway_procedures::traffic::{Direction, Start, Traffic};
use fordway_tester::{Counts, Enumeration, Pace, Pairs, Side, Step, Trial, Tuples};

use super::{Lack, Measured};
use crate::error::{LabError, Result};
use crate::load::tester::{Generator, ONE};
use crate::process::{interrupted, poll};
use crate::topology::{Network, widest_mtu};

/// A frame that leaves so many seconds after its time was not offered at the rate.
const LATENESS_S: f64 = 0.005;
/// Frames that the tester puts on a device together.
const BATCH: u32 = 32;
/// Octets that a trial may take for what it knows of frames.
const MEMORY: u64 = 4 << 30;
/// Ports of the connections of a stateful mechanism in trials that are not about its table (RFC 9693 section 4.1).
const SOURCE_PORTS: (u16, u16) = (10_000, 40_000);
const TARGET_PORTS: (u16, u16) = (80, 1000);
/// So many connections.
const CONNECTIONS: u32 = 10_000;
/// Connections per second at which they are opened: fewer than any gateway here bears; slower ones follow where some were lost.
const OPENED_PER_S: [f64; 3] = [20_000.0, 5000.0, 2000.0];
/// Frames of the burst by which the highest rate is estimated.
const BURST: u64 = 50_000;
/// The tester's own highest rate is looked for from this share of a burst's on, to this precision.
const LEAST: f64 = 0.05;
const PRECISION: f64 = 0.05;

/// The tester at a deployment.
pub(super) struct Bench<'a> {
    at: &'a Measured<'a>,
    pub(super) generator: Generator,
    /// The connections of a stateful mechanism, once they are open; `None`: it keeps none.
    tuples: Option<Enumeration>,
    /// For how many networks they are open.
    filled: Option<u16>,
    seed: u64,
    /// What is worth knowing of the trials so far.
    pub(super) remarks: Vec<String>,
    /// Frames to be translated in all trials so far, up and down: sent, learning frames included, and arrived in any time.
    pub(super) passed: [[u64; 2]; 2],
}

impl<'a> Bench<'a> {
    /// Puts it there, for frames of up to so many octets.
    pub(super) fn open(at: &'a Measured<'a>, largest: u16, sender: Sender) -> Result<Self> {
        let generator = Generator::open(at.backend, at.network, largest, sender)?;
        let (tuples, remarks) = (connections(at.kind), Vec::new());
        let passed = [[0; 2]; 2];
        Ok(Self { at, generator, tuples, filled: None, seed: 1, remarks, passed })
    }

    /// Counts what a trial sent, and what arrived.
    fn note(&mut self, trial: &Trial, outcome: &fordway_tester::Outcome) {
        let learning = u64::from(trial.learning) * u64::from(trial.networks);
        let sides = [&outcome.forward.translated, &outcome.reverse.translated];
        for (passed, counts) in self.passed.iter_mut().zip(sides).filter(|(_, c)| c.sent > 0) {
            passed[0] += counts.sent + learning;
            passed[1] += counts.received + counts.late;
        }
    }

    /// A trial without any frame yet.
    fn blank(&self, frame: &Frame, networks: u16) -> Trial {
        let tuples = self.tuples.map(|tuples| spread(tuples, networks));
        let tuples = tuples.map_or(Tuples::Random, Tuples::Enumerated);
        let (network, translated) = (self.at.network, self.generator.translated);
        let blank = blank(network, translated, frame.initiator, tuples);
        Trial { seed: self.seed, networks, ..blank }
    }

    /// Opens the connections of a stateful mechanism between so many networks (RFC 9693 section 4.2), unless they are open. If
    /// some frames were lost, all are sent again at a lower rate; what was noted before counts.
    fn fill(&mut self, frame: &Frame, networks: u16) -> Result<()> {
        let Some(tuples) = self.tuples.filter(|_| self.filled != Some(networks)) else {
            return Ok(());
        };
        let wanted = spread(tuples, networks).flows;
        let mut noted = 0;
        for rate in OPENED_PER_S {
            let forward = Pace::steady(rate, f64::from(wanted) / rate);
            let trial = Trial { forward, ..self.blank(frame, networks) };
            let outcome = self.generator.run(&trial)?;
            self.note(&trial, &outcome);
            noted = outcome.noted;
            if noted >= u64::from(wanted) {
                self.filled = Some(networks);
                return Ok(());
            }
        }
        Err(LabError::Failed(format!("{noted} of {wanted} connections were opened")))
    }
}

/// Pairs of networks that the frames of an order take turns over.
fn pairs_of_networks(order: &Order) -> u16 {
    let networks = u32::from(order.traffic.networks).max(order.traffic.flows.count);
    u16::try_from(networks).unwrap_or(u16::MAX)
}

/// The frames of an order in place of those of `blank`; `native`: addresses of those that are not translated.
pub(crate) fn ordered(order: &Order, blank: &Trial, native: Option<Pairs>) -> Result<Trial> {
    let Order { traffic, load, record, waits, .. } = order;
    let pace = || match *load {
        Load::Constant { rate, seconds } => Pace::steady(rate, seconds),
        Load::Step { first, seconds, then, rest } => {
            Pace::Steps(vec![Step { rate: first, seconds }, Step { rate: then, seconds: rest }])
        }
        Load::Burst { frames, rate } => Pace::steady(rate, frames as f64 / rate),
    };
    let of =
        |one: Direction| if traffic.directions().contains(&one) { pace() } else { Pace::Silent };
    let start_s = match traffic.flows.start {
        Start::Incremental(seconds) if traffic.flows.count > 1 => seconds,
        _ => 0.0,
    };
    let networks = pairs_of_networks(order);
    let native = native.filter(|_| traffic.translated < 100);
    if traffic.translated < 100 && native.is_none() {
        return Err(LabError::Tester("no native IPv6 passes beside this mechanism".into()));
    }
    if networks > 1 && blank.translated.forward.source.shift >= ONE {
        return Err(LabError::Tester(
            "it translates one address: there is one pair of them".into(),
        ));
    }
    // The size is that of IPv6 frames, where there are any.
    let least = if native.is_some() { LEAST_V6 } else { 0 };
    Ok(Trial {
        forward: of(Direction::Forward),
        reverse: of(Direction::Reverse),
        native,
        translated_share: traffic.translated,
        networks,
        frame_size: blank.frame_size.max(least),
        start_s,
        timeout_s: waits.residual,
        learning: 1,
        settle_s: waits.learning,
        delays_from_s: match record {
            Record::Tags { after, .. } => *after,
            _ => 0.0,
        },
        keep_delays: *record == Record::Every,
        ..blank.clone()
    })
}

/// A trial of frames of this size without any frame yet; over IPv6 a frame has at least 84 octets.
pub(crate) fn blank(network: &Network, translated: Pairs, size: u16, tuples: Tuples) -> Trial {
    let v6 = network.target.is_ipv6() || network.server_address.is_ipv6();
    Trial {
        tuples,
        batch: BATCH,
        lateness_limit_s: LATENESS_S,
        memory_limit: MEMORY,
        ..Trial::new(translated, if v6 { size.max(LEAST_V6) } else { size }, Pace::Silent)
    }
}

/// What came of an order, as procedures count it.
fn counted(order: &Order, outcome: &fordway_tester::Outcome) -> Outcome {
    let sides = [(Direction::Forward, &outcome.forward), (Direction::Reverse, &outcome.reverse)];
    let used = order.traffic.directions();
    let streams = sides.into_iter().filter(|(direction, _)| used.contains(direction));
    let streams = streams.map(|(direction, side)| stream(direction, side, order.record));
    Outcome { streams: streams.collect() }
}

/// What came of an order, after the device has had its time to settle. Faults of the tester are remarked, but for rates that are
/// too high: those are what a search looks for.
pub(crate) fn finish(
    order: &Order,
    outcome: &fordway_tester::Outcome,
    remarks: &mut Vec<String>,
) -> Result<Outcome> {
    if interrupted() {
        return Err(LabError::Interrupted);
    }
    remark(outcome, remarks);
    wait(order.waits.settle)?;
    Ok(counted(order, outcome))
}

/// Remarks each fault, and a sender that is not the best, once.
pub(crate) fn remark(outcome: &fordway_tester::Outcome, remarks: &mut Vec<String>) {
    let refusal = outcome.refusal.iter().map(|why| format!("sockets send the frames: {why}"));
    let faults = outcome.invalid.iter().filter(|fault| !fault.is_of_rate());
    for why in refusal.chain(faults.map(ToString::to_string)) {
        if !remarks.contains(&why) {
            remarks.push(why);
        }
    }
}

/// The tester's own highest rate each way, without a mechanism in the way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ceiling {
    /// Frames per second.
    rate: f64,
    /// Whether it passes every frame, in time, at that rate.
    is_clean: bool,
}

impl Ceiling {
    /// Of frames of a size, or what a line of so many Mbit/s carries (RFC 8219 appendix A), if that is less. Where the tester
    /// loses frames by itself, the trial does not count.
    pub(crate) fn of(
        known: &BTreeMap<u64, Self>,
        size: u64,
        line: Option<u32>,
        trial: &mut Taken,
    ) -> Result<f64> {
        let missing = || LabError::Usage(format!("no highest rate of frames of {size} octets"));
        let Self { rate, is_clean } = known.get(&size).copied().ok_or_else(missing)?;
        if !is_clean {
            trial.invalid.push(format!(
                "the tester alone, without a mechanism, loses frames of {size} octets or sends them late at the lowest rate \
                 that was tried, {rate:.0} frames/s each way: is the machine busy?"
            ));
        }
        // Preamble and gap take 20 octets.
        let carried = |mbit_s| f64::from(mbit_s) * 1e6 / (8.0 * (size as f64 + 20.0));
        Ok(line.map_or(rate, |line| rate.min(carried(line))))
    }
}

/// Finds the ceiling for frames of a size: what a burst of both ends leaves at, or less where frames are lost at that rate.
pub(crate) fn highest(at: &Measured<'_>, size: u64) -> Result<Ceiling> {
    let octets = u16::try_from(size).map_err(|error| LabError::Usage(error.to_string()))?;
    let mut bench = Bench::open(at, octets, at.profile.sender)?;
    let traffic = fitting(at.kind, octets, at.network.widest_mtu())?;
    let blank = bench.blank(&traffic.frame, 1);
    let burst = Pace::Burst(BURST);
    let outcome =
        bench.generator.run(&Trial { forward: burst.clone(), reverse: burst, ..blank })?;
    let rates = [&outcome.forward, &outcome.reverse]
        .map(|side| side.sender.sent as f64 / side.sender.seconds.max(1e-9));
    let most = rates[0].min(rates[1]);
    let search = Search { guess: most, least: LEAST * most, most, precision: PRECISION };
    let waits = at.rfc.waits;
    let seconds = at.rfc.throughput.short_s;
    let found = with(&mut bench, waits, |session| {
        search.run(|rate, _| session.passes(&traffic, rate, seconds))
    })?;
    let rate = found.map_or(search.least, |found| found.rate);
    Ok(Ceiling { rate, is_clean: found.is_some() })
}

/// The connections of a mechanism that passes no frame of others; `None`: it keeps none. Hosts behind a softwire share its address.
pub(crate) fn connections(kind: Option<Kind>) -> Option<Enumeration> {
    let is_stateful = kind.is_some_and(|kind| kind.is_stateful() || kind == Kind::Softwire);
    let (source_ports, target_ports) = (SOURCE_PORTS, TARGET_PORTS);
    is_stateful.then_some(Enumeration { flows: CONNECTIONS, source_ports, target_ports })
}

/// A few more connections, as many between each of these pairs of networks.
fn spread(tuples: Enumeration, networks: u16) -> Enumeration {
    if networks <= 1 {
        return tuples;
    }
    let each = tuples.flows / u32::from(networks) + 1;
    let count = each.min(tuples.source_ports.1.into()) as u16;
    Enumeration {
        flows: u32::from(count) * u32::from(networks),
        source_ports: (tuples.source_ports.0, count),
        target_ports: (tuples.target_ports.0, 1),
    }
}

/// How a mechanism turns frames into others.
pub(crate) fn technology(kind: Option<Kind>) -> Technology {
    match kind {
        Some(Kind::Clat | Kind::Siit | Kind::Nat64 | Kind::NatPt) => Technology::SingleTranslation,
        Some(Kind::Xlat464) => Technology::DoubleTranslation,
        Some(Kind::Softwire | Kind::Dstm) => Technology::Encapsulation,
        _ => Technology::SameVersion,
    }
}

impl Tester for Bench<'_> {
    type Error = LabError;

    fn run(&mut self, order: &Order) -> Result<Outcome> {
        let networks = pairs_of_networks(order);
        self.fill(&order.traffic.frame, networks)?;
        let blank = self.blank(&order.traffic.frame, networks);
        let trial = ordered(order, &blank, self.generator.native)?;
        // Other ports each time. The connections of a stateful mechanism stay what they are.
        self.seed += u64::from(self.tuples.is_none());
        let outcome = self.generator.run(&trial)?;
        self.note(&trial, &outcome);
        finish(order, &outcome, &mut self.remarks)
    }

    fn restore(&mut self) -> Result<()> {
        Err(LabError::Failed("the mechanism does not forward any more".into()))
    }
}

/// Waits, unless the run is interrupted.
pub(crate) fn wait(seconds: f64) -> Result<()> {
    let length = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    poll(length, || None::<()>).map(drop)
}

/// Frames of a direction that left too late.
pub(crate) fn late(side: &Side) -> u64 {
    let limit = (LATENESS_S * 1e9) as u64;
    let late = side.sender.lateness.0.iter().filter(|(ns, _)| *ns > limit);
    late.map(|(_, count)| count).sum()
}

/// One direction of a trial. What left too late counts as not sent, and so as not received: what was lost stays lost.
fn stream(direction: Direction, side: &Side, record: Record) -> Stream {
    let Side { translated, native, .. } = side;
    let both = |of: fn(&Counts) -> u64| of(translated) + of(native);
    let late = late(side);
    let kept = |wanted: bool| wanted.then_some(());
    let delays = |counts: &Counts| -> Vec<(i64, u64)> {
        let of = |(ns, count): &(u64, u64)| (i64::try_from(*ns).unwrap_or(i64::MAX), *count);
        counts.delays.0.iter().map(of).collect()
    };
    let timed = matches!(record, Record::Tags { .. } | Record::Every);
    let lost = |of: fn(&Counts) -> Option<f64>| [of(translated), of(native)].into_iter().flatten();
    let first = lost(|counts| counts.first_loss_s).reduce(f64::min);
    let last = lost(|counts| counts.last_loss_s).reduce(f64::max);
    Stream {
        direction,
        sent: both(|counts| counts.sent).saturating_sub(late),
        received: both(|counts| counts.received).saturating_sub(late),
        duplicates: both(|counts| counts.duplicates),
        reordered: both(|counts| counts.reordered),
        delays: kept(timed).map(|()| [delays(translated), delays(native)].concat().into()),
        variations: kept(record == Record::Every)
            .map(|()| [&translated.ipdv.0[..], &native.ipdv.0].concat().into()),
        losses: first.zip(last).map(|(first, last)| Losses { first, last }),
    }
}

/// The error of the lab that ended a procedure.
pub(crate) fn ended(why: Ended<LabError>) -> LabError {
    match why {
        Ended::Tester(error) => error,
        Ended::Cancelled => LabError::Interrupted,
        // What a mechanism does to frames ends no procedure.
        other => LabError::Tester(other.to_string()),
    }
}

/// Why a benchmark has no value, so that others can follow; an error that ends the run is passed on.
pub(crate) fn lack(why: Ended<LabError>) -> std::result::Result<Lack, Ended<LabError>> {
    match ended(why) {
        error if error.ends_the_run() => Err(Ended::Tester(error)),
        error if error.is_the_mechanisms() => Ok(Lack::Failed(error.to_string())),
        error => Ok(Lack::Unmeasured(error.to_string())),
    }
}

/// Whether frames of a size fit the tester's own links, and the one where they are largest.
pub(crate) fn fits(kind: Option<Kind>, size: u16, widest: u16) -> bool {
    let frame = Frame::of(technology(kind), size);
    frame.fits(widest) && frame.initiator <= widest_mtu(false) + ETHERNET
}

/// Bidirectional traffic of a frame size, which no link on the way may be too narrow for.
pub(crate) fn fitting(kind: Option<Kind>, size: u16, widest: u16) -> Result<Traffic> {
    let frame = Frame::of(technology(kind), size);
    if !fits(kind, size, widest) {
        let Frame { widest: octets, .. } = frame;
        return Err(LabError::Tester(format!(
            "frames of {size} octets, {octets} where they are largest, do not fit the links' MTU"
        )));
    }
    Ok(Traffic::of(frame))
}

/// A session of procedures over this bench.
pub(super) fn with<'b, 'a, R>(
    bench: &'b mut Bench<'a>,
    waits: fordway_procedures::tester::Waits,
    work: impl FnOnce(&mut Session<'_, Bench<'a>>) -> std::result::Result<R, Ended<LabError>>,
) -> Result<R> {
    let cancelled = || interrupted();
    work(&mut Session::new(bench, waits, &cancelled)).map_err(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_left_out_where_it_does_not_fit_and_the_reason_is_told() {
        let fits = |kind, size, behind| fitting(Some(kind), size, widest_mtu(behind)).is_ok();
        assert!(fits(Kind::Siit, 1518, false) && !fits(Kind::Siit, 1522, false));
        // Between two devices there is room for what they add.
        assert!(fits(Kind::Softwire, 1518, true) && fits(Kind::Xlat464, 1518, true));
        assert!(!fits(Kind::Softwire, 1518, false) && fits(Kind::Softwire, 1280, false));
        // Wide enough between the devices, not in front of them.
        assert!(!fits(Kind::Xlat464, 1522, true));
        let why = fitting(Some(Kind::Softwire), 1522, widest_mtu(true)).unwrap_err().to_string();
        assert!(why.contains("1522 octets, 1562 where"), "{why}");
    }

    #[test]
    fn connections_are_spread_over_all_networks() {
        let own = connections(Some(Kind::Nat64)).unwrap();
        assert_eq!(spread(own, 1), own);
        let many = spread(own, 256);
        assert_eq!(
            (many.flows, many.source_ports, many.target_ports),
            (10_240, (10_000, 40), (80, 1))
        );
        assert!((2..=256).all(|networks| spread(own, networks).flows > own.flows));
    }

    #[test]
    fn kinds_that_share_addresses_have_connections() {
        for kind in [Kind::Nat44, Kind::Nat64, Kind::NatPt, Kind::Xlat464, Kind::Softwire] {
            assert!(connections(Some(kind)).is_some(), "{kind:?}");
        }
        for kind in [Kind::Native, Kind::Siit, Kind::Clat, Kind::DualStack] {
            assert_eq!(connections(Some(kind)), None, "{kind:?}");
        }
        assert_eq!(connections(None), None);
        assert_eq!(technology(Some(Kind::Softwire)), Technology::Encapsulation);
        assert_eq!(technology(Some(Kind::Xlat464)), Technology::DoubleTranslation);
        assert_eq!(technology(Some(Kind::Nat44)), Technology::SameVersion);
    }
}
