//! The tester: two ends, and trials between them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fordway_procedures::stateful::Permutation;

use crate::frame::Tuple;
use crate::live::{Live, senders};
use crate::outcome::{Mode, Outcome, Side};
use crate::plan::{Noted, Plan, Tables};
use crate::program::Program;
use crate::setup::{End, Sending, Setup, allowed, bind, elsewhere, open};
use crate::sys::Socket;
use crate::tally::{Clock, Tally, histogram, recorder};
use crate::worker::{Inbound, Lane, Outbound, Shared, run};
use crate::{Class, Direction, Enumeration, Error, Fault, Result, Tuples, Wrong, machine, now};

/// Time from the threads' start to the first frame, ns.
const LEAD: u64 = 20_000_000;
/// What a trial may take beyond its own length and its residual time, ns.
const GRACE: u64 = 10_000_000_000;
/// Time between learning frames.
const LEARNING_GAP: Duration = Duration::from_micros(100);

/// A tester at two devices. Dropping it, or the end of the process, takes its programs off them.
#[derive(Debug)]
pub struct Tester {
    setup: Setup,
    // Programs go before the sockets to which they redirect.
    programs: Vec<Program>,
    /// By end and queue.
    sockets: [Vec<Socket>; 2],
    /// By end, where programs send.
    live: Option<[Live; 2]>,
    /// Why sockets send, where programs were to.
    refusal: Option<String>,
    notes: Mutex<Vec<Option<Tuple>>>,
    /// The tuples that the notes are of.
    noted: Option<Enumeration>,
    trials: u16,
}

impl Tester {
    /// Opens sockets at all queues of both ends and puts the program at both devices. Needs CAP_NET_RAW, CAP_NET_ADMIN and
    /// CAP_BPF, and CAP_SYS_ADMIN for another namespace and for sending by a program.
    pub fn open(setup: Setup) -> Result<Self> {
        let shape = setup.shape()?;
        let mut programs = Vec::new();
        let mut sockets = [Vec::new(), Vec::new()];
        for (number, end) in [&setup.client, &setup.server].into_iter().enumerate() {
            let what = format!("{}: AF_XDP", end.device);
            let (program, opened) =
                elsewhere(end.namespace.as_ref(), || open(end, shape)).map_err(machine(what))?;
            programs.push(program);
            sockets[number] = opened;
        }
        let (live, refusal) = match setup.sending {
            Sending::Sockets => (None, None),
            Sending::Program => match senders(&setup) {
                Ok(live) => (Some(live), None),
                Err(error) if setup.falls_back => (None, Some(error.to_string())),
                Err(error) => return Err(machine("sending by a program")(error)),
            },
        };
        Ok(Self {
            setup,
            programs,
            sockets,
            live,
            refusal,
            notes: Mutex::default(),
            noted: None,
            trials: 0,
        })
    }

    /// How frames pass at the client end and at the server end.
    pub fn modes(&self) -> [Mode; 2] {
        let zero_copy = |sockets: &Vec<Socket>| sockets.iter().all(Socket::zero_copy);
        [0, 1].map(|end| if zero_copy(&self.sockets[end]) { Mode::ZeroCopy } else { Mode::Copy })
    }

    /// Number of tuples that the server end has noted, and how many of them differ: fewer if the translator gave two
    /// connections one tuple.
    pub fn noted(&self) -> (u64, u64) {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let all = notes.iter().flatten();
        let distinct: HashSet<&Tuple> = all.clone().collect();
        (all.count() as u64, distinct.len() as u64)
    }

    /// Forgets all noted tuples: the device under test's table was emptied.
    pub fn forget(&mut self) {
        *self.notes.get_mut().unwrap_or_else(PoisonError::into_inner) = Vec::new();
        self.noted = None;
    }

    /// Runs a trial. It ends when all frames have arrived, when the time-out of the last one is over, when `stop` is set, or
    /// 10 s after it should have ended; the last two make it invalid.
    pub fn run(&mut self, trial: &crate::Trial, stop: &AtomicBool) -> Result<Outcome> {
        trial.check()?;
        if trial.frame_size > self.setup.largest_frame {
            return Err(Error::Unfit(format!(
                "a frame of {} octets: the tester was opened for {}",
                trial.frame_size, self.setup.largest_frame
            )));
        }
        // 0 are learning frames.
        self.trials = self.trials % u16::MAX + 1;
        let noted = self.prepare_notes(trial);
        let plans = self.plans(trial, self.trials, &noted)?;
        self.check_memory(trial, &plans)?;
        self.learn(trial, &noted, stop)?;
        let before = self.lost_here()?;
        let mut done = self.exchange(trial, &plans, stop)?;
        let after = self.lost_here()?;
        if before != after {
            done.invalid.push(Fault::Lost(after - before));
        }
        Ok(done)
    }

    /// Room for the notes of a trial with enumerated tuples, and the tuples known before.
    fn prepare_notes(&mut self, trial: &crate::Trial) -> Noted {
        let notes = self.notes.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Tuples::Enumerated(enumeration) = trial.tuples {
            // Other tuples are another table.
            if self.noted.replace(enumeration) != Some(enumeration) {
                *notes = vec![None; enumeration.flows as usize];
            }
        }
        Arc::new(if trial.reverse == crate::Pace::Silent { Vec::new() } else { read(notes, trial) })
    }

    fn plans(&self, trial: &crate::Trial, number: u16, noted: &Noted) -> Result<[Option<Plan>; 2]> {
        let plan =
            |direction, end: &End| Plan::new(trial, number, direction, [end.own, end.next], noted);
        Ok([
            plan(Direction::Forward, &self.setup.client)?,
            plan(Direction::Reverse, &self.setup.server)?,
        ])
    }

    fn check_memory(&self, trial: &crate::Trial, plans: &[Option<Plan>; 2]) -> Result<()> {
        let queues = [&self.setup.server, &self.setup.client].map(|end| u64::from(end.queues));
        let frames = plans.iter().zip(queues);
        let frames = frames.map(|(plan, queues)| queues * plan.as_ref().map_or(0, Plan::total));
        let octets = frames.sum::<u64>() * Tally::bits_per_frame(trial.keep_delays) / 8;
        if octets > trial.memory_limit {
            return Err(Error::Unfit(format!(
                "the trial takes {octets} octets of memory, and may take {}",
                trial.memory_limit
            )));
        }
        Ok(())
    }

    /// Sends learning frames: the first ones of each class and pair of networks.
    fn learn(&mut self, trial: &crate::Trial, noted: &Noted, stop: &AtomicBool) -> Result<()> {
        if trial.learning == 0 {
            return Ok(());
        }
        let count = u64::from(trial.learning) * u64::from(trial.networks);
        // Learning frames of all pairs of networks precede the trial, also of pairs that start later.
        let plans = self.plans(&crate::Trial { start_s: 0.0, ..trial.clone() }, 0, noted)?;
        for (plan, sockets) in plans.iter().zip(&mut self.sockets) {
            let (Some(plan), Some(socket)) = (plan, sockets.first_mut()) else { continue };
            for class in Class::ALL {
                for sequence in 0..count.min(plan.of_class(class)) {
                    if stop.load(Relaxed) {
                        return Ok(());
                    }
                    let frame = plan.frame(plan.frame_number(class, sequence as u32), now());
                    socket.room();
                    socket.stage(frame.length(), |octets| frame.write(octets));
                    socket.flush().map_err(machine("sending learning frames"))?;
                    std::thread::sleep(LEARNING_GAP);
                }
            }
        }
        let settled = Instant::now() + Duration::from_secs_f64(trial.settle_s);
        while Instant::now() < settled && !stop.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Frames that the kernel could not hand to this process.
    fn lost_here(&self) -> Result<u64> {
        let mut lost = 0;
        for program in &self.programs {
            lost += program.missed().map_err(machine("a program's counter"))?;
        }
        for socket in self.sockets.iter().flatten() {
            let found = socket.statistics().map_err(machine("statistics of a socket"))?;
            let full =
                found.rx_ring_full.unwrap_or(0) + found.rx_fill_ring_empty_descs.unwrap_or(0);
            lost += found.rx_dropped + found.tx_invalid_descs + found.rx_invalid_descs + full;
        }
        Ok(lost)
    }

    /// Hands the programs what they look up for each frame, by end; none where sockets send.
    fn fill(&mut self, plans: &[Option<Plan>; 2]) -> Result<[Option<Tables>; 2]> {
        let mut tables = [None, None];
        let Some(live) = &mut self.live else { return Ok(tables) };
        for ((tables, live), plan) in tables.iter_mut().zip(live).zip(plans) {
            let plan = plan.as_ref().filter(|plan| plan.fits_program());
            *tables = plan.map(|plan| live.fill(plan)).transpose()?;
        }
        Ok(tables)
    }

    /// Sends and receives.
    fn exchange(
        &mut self,
        trial: &crate::Trial,
        plans: &[Option<Plan>; 2],
        stop: &AtomicBool,
    ) -> Result<Outcome> {
        let modes = self.modes();
        let tables = self.fill(plans)?;
        let by_sockets = [0, 1].map(|end| plans[end].is_some() && tables[end].is_none());
        let by_program = by_sockets.map(|sockets| self.live.is_some() && !sockets);
        let sending =
            by_program.map(|program| if program { Sending::Program } else { Sending::Sockets });
        let seconds = |ns: f64| (ns * 1e9) as u64;
        let start = now() + LEAD;
        let clock = Clock {
            start,
            timeout: seconds(trial.timeout_s),
            delays_from: seconds(trial.delays_from_s),
        };
        let length = plans.iter().flatten().map(Plan::length).max().unwrap_or(0);
        let notes = matches!(trial.tuples, Tuples::Enumerated(_)).then_some(&self.notes);
        let mut lanes = Vec::new();
        let mut senders = 0;
        let live = [0, 1].map(|end| {
            let (tables, live) = (tables[end].as_ref()?, &self.live.as_ref()?[end]);
            let plan = plans[end].as_ref()?;
            live.prepare(plan, tables, start, trial.batch);
            Some((plan, tables, live))
        });
        senders += live.iter().flatten().count() as u64;
        for (end, sockets) in self.sockets.iter_mut().enumerate() {
            let (queues, incoming) = (sockets.len() as u64, 1 - end);
            for (queue, socket) in sockets.iter_mut().enumerate() {
                let outbound = match plans[end].as_ref().filter(|_| live[end].is_none()) {
                    Some(plan) => Some(Outbound {
                        plan,
                        next: queue as u64,
                        step: queues,
                        batch: trial.batch,
                        sent: [0; 2],
                        last: start,
                        lateness: recorder()?,
                        ended: false,
                    }),
                    None => None,
                };
                senders += u64::from(outbound.is_some());
                let tally = |class, plan: &Plan| {
                    let planned = plan.of_class(class) as u32;
                    Tally::new(planned, trial.networks, clock, trial.keep_delays)
                };
                let tallies = match &plans[incoming] {
                    Some(plan) => {
                        Some([tally(Class::Translated, plan)?, tally(Class::Native, plan)?])
                    }
                    None => None,
                };
                let inbound = Inbound {
                    direction: Direction::ALL[incoming],
                    trial: self.trials,
                    payload: trial.payload()?,
                    tallies,
                    wrong: Wrong::default(),
                    unstamped: 0,
                    notes: notes.filter(|_| incoming == 0 && trial.order == 0),
                };
                lanes.push((end, Lane { socket, outbound, inbound }));
            }
        }
        let shared = Shared {
            start,
            deadline: start + length + clock.timeout + GRACE + burst_time(plans),
            residual: clock.timeout,
            stop,
            failed: AtomicBool::new(false),
            senders: AtomicU64::new(senders),
            sent: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
        };
        let (ends, mut lanes): (Vec<usize>, Vec<Lane<'_>>) = lanes.into_iter().unzip();
        let each = if self.setup.one_thread { lanes.len() } else { 1 };
        let processors = &self.setup.processors;
        // Each sender occupies one processor, so the two directions use different ones.
        let allowed = allowed().map_err(machine("processors"))?;
        let senders_at = if processors.is_empty() { &allowed } else { processors };
        let used = std::thread::scope(|scope| {
            let mut threads: Vec<_> = live
                .iter()
                .flatten()
                .enumerate()
                .map(|(number, (plan, tables, live))| {
                    let (shared, batch) = (&shared, trial.batch);
                    let processor = senders_at[number % senders_at.len().max(1)];
                    scope.spawn(move || {
                        let is_over = || shared.is_ended(now());
                        let used = live.send((plan, tables), batch, processor, is_over);
                        shared.end_sender(live.sent().sent.iter().sum());
                        shared.failed.fetch_or(used.is_err(), Relaxed);
                        used
                    })
                })
                .collect();
            let receivers = lanes.chunks_mut(each).enumerate().map(|(number, lanes)| {
                let bound = processors.get(number % processors.len().max(1));
                let shared = &shared;
                scope.spawn(move || {
                    if let Some(processor) = bound {
                        bind(*processor)?;
                    }
                    run(lanes, shared)
                })
            });
            threads.extend(receivers);
            let ended = threads.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|_| Err(std::io::Error::other("a thread panicked")))
            });
            // All are waited for before the first error is passed on.
            ended.collect::<Vec<_>>().into_iter().collect::<std::io::Result<Vec<f64>>>()
        })
        .map_err(machine("sending"))?;
        let mut invalid = Vec::new();
        if stop.load(Relaxed) {
            invalid.push(Fault::Stopped);
        } else if now() >= shared.deadline {
            invalid.push(Fault::Deadline);
        }
        let lanes: Vec<(usize, Lane<'_>)> = ends.into_iter().zip(lanes).collect();
        let limit = seconds(trial.lateness_limit_s);
        let [forward, reverse] = [0, 1].map(|direction| {
            let plan = plans[direction].as_ref();
            let live = live[direction].map(|(.., live)| live);
            plan.map(|plan| side(direction, plan, live, &lanes, clock.start)).transpose()
        });
        let sides = [forward?.unwrap_or_default(), reverse?.unwrap_or_default()];
        drop(lanes);
        for (side, direction) in sides.iter().zip(Direction::ALL) {
            let sender = &side.sender;
            let (sent, planned) = (sender.sent, sender.planned);
            let (worst_ns, limit_ns) = (sender.worst_lateness_ns, limit);
            invalid.extend((sent != planned).then_some(Fault::Unsent { direction, sent, planned }));
            let late = Fault::Late { direction, worst_ns, limit_ns };
            invalid.extend((worst_ns > limit_ns).then_some(late));
        }
        let [forward, reverse] = sides;
        let noted = self.noted().0;
        let (trial, seed) = (self.trials, trial.seed);
        let processor_s = used.iter().sum();
        let refusal = self.refusal.clone();
        Ok(Outcome {
            trial,
            seed,
            modes,
            sending,
            refusal,
            forward,
            reverse,
            noted,
            processor_s,
            invalid,
        })
    }
}

/// The notes in the order of a trial: as they were written, or in another pseudorandom order.
fn read(notes: &[Option<Tuple>], trial: &crate::Trial) -> Vec<Tuple> {
    if trial.order == 0 {
        return notes.iter().flatten().copied().collect();
    }
    let order = Permutation::new(notes.len() as u64, trial.order_seed());
    order.iter().filter_map(|number| notes[number as usize]).collect()
}

/// Time that bursts may take, ns: at the slowest 10,000 frames leave in a second.
fn burst_time(plans: &[Option<Plan>; 2]) -> u64 {
    plans.iter().flatten().filter(|plan| plan.is_burst()).map(|plan| plan.total() * 100_000).sum()
}

/// Puts together what the threads know of one direction: 0 forward, 1 reverse.
fn side(
    direction: usize,
    plan: &Plan,
    live: Option<&Live>,
    lanes: &[(usize, Lane<'_>)],
    start: u64,
) -> Result<Side> {
    let mut side = Side::default();
    let (mut lateness, mut sent, mut last) = (recorder()?, [0; 2], start);
    for outbound in
        lanes.iter().filter(|(end, _)| *end == direction).filter_map(|it| it.1.outbound.as_ref())
    {
        // The bounds of both are the same.
        let _ = lateness.add(&outbound.lateness);
        sent = [0, 1].map(|class| sent[class] + outbound.sent[class]);
        last = last.max(outbound.last);
    }
    let mut worst = if lateness.is_empty() { 0 } else { lateness.max() };
    if let Some(live) = live {
        let done = live.sent();
        (sent, worst, last) = (done.sent, done.worst, done.last.max(start));
        live.lateness(&mut lateness);
    }
    let mut all: Option<[Tally; 2]> = None;
    for (_, lane) in lanes.iter().filter(|(end, _)| *end != direction) {
        let (inbound, sum) = (&lane.inbound, &mut side.wrong);
        sum.checksum += inbound.wrong.checksum;
        sum.length += inbound.wrong.length;
        sum.tag += inbound.wrong.tag;
        sum.foreign += inbound.wrong.foreign;
        side.unstamped += inbound.unstamped;
        match (&mut all, &inbound.tallies) {
            (Some(all), Some(more)) => {
                all.iter_mut().zip(more).for_each(|(all, more)| all.add(more));
            }
            (all, more) => *all = more.clone(),
        }
    }
    if let Some([translated, native]) = &all {
        side.translated = translated.counts(sent[0], Class::Translated, plan);
        side.native = native.counts(sent[1], Class::Native, plan);
    }
    side.sender.planned = plan.total();
    side.sender.sent = sent.iter().sum();
    side.sender.seconds = (last - start) as f64 / 1e9;
    side.sender.worst_lateness_ns = worst;
    side.sender.lateness = histogram(&lateness);
    Ok(side)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Addresses, Flow, Pace, Pairs};

    #[test]
    fn notes_are_read_as_they_were_written_or_in_another_pseudorandom_order() {
        let side = |first: &str| Addresses { first: first.parse().unwrap(), shift: 8 };
        let flow = Flow { source: side("198.18.0.2"), target: side("198.19.0.2") };
        let pairs = Pairs { forward: flow, reverse: flow };
        let trial = crate::Trial::new(pairs, 64, Pace::Silent);
        let tuple = |port| {
            let [source, target] = [flow.source.first, flow.target.first];
            Tuple { source, source_port: port, target, target_port: 80 }
        };
        // A connection that did not arrive has no note.
        let notes: Vec<Option<Tuple>> =
            (1..=500).map(|port| (port != 7).then(|| tuple(port))).collect();
        let ports = |order| -> Vec<u16> {
            let read = read(&notes, &crate::Trial { order, ..trial.clone() });
            read.iter().map(|it| it.source_port).collect()
        };
        let (first, mut second) = (ports(0), ports(1));
        assert!(first.is_sorted() && first.len() == 499 && !first.contains(&7));
        assert_ne!(second, ports(2));
        let ascents = second.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((190..310).contains(&ascents), "{ascents} of 498 pairs ascend");
        second.sort_unstable();
        assert_eq!(second, first);
    }
}
