//! The tests that take a mechanism down and start it again: those of RFC 9693, whose tables are emptied between steps, and the
//! reset of RFC 8219 section 7.7.

use std::time::{Duration, Instant};

use fordway_data::spec::{Axis, Load, MechanismSpec, Metric, Point, Sender};
use fordway_data::trial::{Trial, hash};
use fordway_procedures::session::{OFFERED, Session};
use fordway_procedures::stateful::{Filling, Phase, StatefulTester};
use fordway_procedures::tester::{Order, Outcome, Tester};
use fordway_procedures::traffic::{
    DESTINATION_PORTS, Limit, Maximum, Point as Setup, SOURCE_PORTS,
};
use fordway_tester::{Counts, Enumeration, Pace, Side};

use super::deploy::Live;
use super::room::FEW_SESSIONS;
use super::stateful::{Limited, MOST, Procedures, SEED};
use super::{Guard, Runner};
use crate::backend::{Backend, Place, must};
use crate::error::{LabError, Result};
use crate::host::now;
use crate::load::tester::Generator;
use crate::mechanism::{Context, Deployed, Forget, Mechanism, Room};
use crate::process::{Output, interrupted};
use crate::topology::{Cables, Network, Shape, widest_mtu};
use crate::trials::Values;
use crate::trials::benchmark::{
    Ceiling, blank, connections, ended, finish, fitting, late, ordered, remark, wait,
};

/// The frames of RFC 9693: the smallest.
const SMALLEST: u64 = 64;
/// Seconds for which sessions of UDP live, less what is between two phases.
const UDP_LIFETIME_S: f64 = 290.0;
/// The order of tuples of test phase 2, which is not that of phase 1 (RFC 9693 section 4.7).
const PHASE_2: u64 = 1;
/// How long a command may take to delete all sessions.
const DELETED: Duration = Duration::from_secs(30);

/// A mechanism that is started anew, with a tester at it.
struct Renewed<'a> {
    runner: &'a mut Runner,
    guard: &'a Guard,
    arm: &'a MechanismSpec,
    mechanism: Box<dyn Mechanism>,
    room: Room,
    sender: Sender,
    /// Octets of a frame at the client's end.
    octets: u16,
    /// The deployment, with the tester at its ends; the tester goes first.
    now: Option<(Generator, Live)>,
    /// Seconds that a connection has to live without traffic.
    timeout_s: f64,
    tuples: fordway_tester::Tuples,
    seed: u64,
    /// Order of the tuples in trials of an order: that of test phase 2, once phase 1 has filled a table.
    order: u64,
    said: String,
    remarks: Vec<String>,
    /// Hash of the configuration, command line and engine of the first deployment.
    runs: Option<(String, Vec<String>, Option<String>)>,
}

impl Renewed<'_> {
    /// Takes the deployment down.
    fn end(&mut self) {
        if let Some((generator, live)) = self.now.take() {
            self.said.push_str(&generator.said);
            drop((generator, live));
        }
    }

    /// A deployment whose table is empty, with the tester at it.
    fn renew(&mut self) -> Result<&mut (Generator, Live)> {
        self.end();
        let live = self.runner.deploy(self.guard, self.arm, self.room)?;
        self.runs.get_or_insert_with(|| {
            let Deployed { config, argv, .. } = &live.deployed;
            (hash(config.as_bytes()), argv.clone(), live.engine.clone())
        });
        if let Some(place) = self.mechanism.tracks_at(self.arm, &live.network) {
            let seconds = self.timeout_s.ceil().max(30.0);
            let timeouts = ["", "_stream"]
                .map(|kind| format!("net.netfilter.nf_conntrack_udp_timeout{kind}={seconds}"));
            let argv = ["sysctl", "-qw", &timeouts[0], &timeouts[1]];
            must(&self.runner.backend, place, &argv)?;
        }
        let (octets, sender) = (self.octets, self.sender);
        let generator = Generator::open(&self.runner.backend, &live.network, octets, sender)?;
        Ok(self.now.insert((generator, live)))
    }

    fn running(&mut self) -> Result<&mut (Generator, Live)> {
        match self.now {
            Some(_) => self.now.as_mut().ok_or(LabError::Interrupted),
            None => self.renew(),
        }
    }

    /// Whether its sessions live as long as they are told to: where connection tracking holds them, in any box.
    fn is_told(&self) -> Result<bool> {
        let shape = Shape::of(self.arm, true);
        let network = Network::described("", shape, Some(self.arm))?;
        Ok(self.mechanism.tracks_at(self.arm, &network).is_some())
    }

    /// Whether the mechanism's process has ended.
    fn is_gone(&mut self) -> bool {
        self.now.as_mut().is_some_and(|(_, live)| live.deployed.gone())
    }

    /// What a phase came to in which one side sent.
    fn phase(&mut self, side: &Side, outcome: &fordway_tester::Outcome) -> Phase {
        remark(outcome, &mut self.remarks);
        if self.is_gone() {
            return Phase::Collapsed;
        }
        let Counts { sent, received, .. } = side.translated;
        // A rate that the tester did not keep was not passed.
        let offered = sent.saturating_sub(late(side)) as f64 >= OFFERED * sent as f64;
        let received = if offered { received } else { received.min(sent.saturating_sub(1)) };
        Phase::Counted { sent, received }
    }
}

impl Tester for Renewed<'_> {
    type Error = LabError;

    fn run(&mut self, order: &Order) -> Result<Outcome> {
        let (tuples, seed, number) = (self.tuples, self.seed, self.order);
        let (runner_room, at_s) = (self.room, order.reset);
        let (generator, live) = self.running()?;
        let size = order.traffic.frame.initiator;
        let blank = blank(&live.network, generator.translated, size, tuples);
        let blank = fordway_tester::Trial { seed, order: number, ..blank };
        let trial = ordered(order, &blank, generator.native)?;
        let outcome = match at_s {
            None => generator.run(&trial)?,
            Some(at_s) => {
                // Taken out for the time in which the mechanism is another's.
                let (mut generator, mut live) = self.now.take().ok_or(LabError::Interrupted)?;
                let lead = trial.settle_s + at_s;
                let (runner, arm) = (&*self.runner, self.arm);
                let outcome = generator.run_beside(&trial, || {
                    wait(lead)?;
                    if live.deployed.daemon.is_none() {
                        live.deployed.end()?;
                    }
                    live.deployed = Default::default();
                    runner.start(&mut live, arm, runner_room)
                });
                self.now = Some((generator, live));
                outcome?
            }
        };
        finish(order, &outcome, &mut self.remarks)
    }

    fn restore(&mut self) -> Result<()> {
        self.renew().map(drop)
    }
}

impl StatefulTester for Renewed<'_> {
    fn empty_table(&mut self) -> Result<()> {
        self.renew().map(drop)
    }

    fn require_timeout(&mut self, seconds: f64) -> Result<()> {
        // Connection tracking is told; other mechanisms keep their own time (RFC 6146 section 4: at least two minutes).
        if seconds > UDP_LIFETIME_S && !self.is_told()? {
            let why =
                format!("a step takes {seconds:.0} s, and sessions of UDP live for five minutes");
            return Err(LabError::Tester(why));
        }
        self.timeout_s = seconds;
        Ok(())
    }

    fn fill(&mut self, order: &Filling) -> Result<Phase> {
        let connections = u32::try_from(order.connections)
            .map_err(|_| LabError::Usage("at most 2^32 connections".into()))?;
        let ports = |first: u16, count: u32| (first, count.min(u32::from(u16::MAX)) as u16);
        let tuples = fordway_tester::Tuples::Enumerated(Enumeration {
            flows: connections,
            source_ports: ports(SOURCE_PORTS.0, order.tuples.source_ports),
            target_ports: ports(DESTINATION_PORTS.0, order.tuples.destination_ports),
        });
        (self.tuples, self.seed, self.order) = (tuples, order.seed, PHASE_2);
        let seconds = order.connections as f64 / order.rate;
        let (timeout_s, octets) = (self.runner.rfc.waits.residual, self.octets);
        let (generator, live) = self.running()?;
        let blank = blank(&live.network, generator.translated, octets, tuples);
        let forward = Pace::steady(order.rate, seconds);
        let seed = order.seed;
        let trial = fordway_tester::Trial { forward, seed, timeout_s, ..blank };
        let outcome = generator.run(&trial)?;
        Ok(self.phase(&outcome.forward, &outcome))
    }

    fn validate(&mut self, rate: f64) -> Result<Phase> {
        let (tuples, seed, timeout_s) = (self.tuples, self.seed, self.runner.rfc.waits.residual);
        let fordway_tester::Tuples::Enumerated(Enumeration { flows, .. }) = tuples else {
            return Err(LabError::Usage("no table was filled".into()));
        };
        let size = self.octets;
        let (generator, live) = self.running()?;
        let blank = blank(&live.network, generator.translated, size, tuples);
        let reverse = Pace::steady(rate, f64::from(flows) / rate);
        let trial = fordway_tester::Trial { reverse, seed, timeout_s, ..blank };
        let outcome = generator.run(&trial)?;
        Ok(self.phase(&outcome.reverse, &outcome))
    }

    fn delete_all(&mut self) -> Result<f64> {
        let (generator, mut live) = self.now.take().ok_or(LabError::Interrupted)?;
        self.said.push_str(&generator.said);
        drop(generator);
        let backend = self.runner.backend.of_mechanism();
        let context = Context {
            backend: &backend,
            network: &live.network,
            spec: self.arm,
            name: live.name.trim_end_matches('-'),
            logs: &self.runner.raw,
            room: self.room,
        };
        let run = |place: &Place, argv: &[String]| {
            let running = self.runner.backend.run(Some(place), argv, Output::Keep)?;
            running.wait_closely(DELETED)?.ok()
        };
        let begun = Instant::now();
        match self.mechanism.forget(context) {
            Forget::By(place, argv) => drop(run(place, &argv)?),
            Forget::AtItsEnd(tracked) => {
                let had_one = live.deployed.end()?;
                if let Some(place) = tracked {
                    run(place, &["conntrack", "-F"].map(str::to_owned))?;
                } else if !had_one {
                    return Err(LabError::Usage("it has no process that could end".into()));
                }
            }
        }
        Ok(begun.elapsed().as_secs_f64().max(Duration::from_nanos(1).as_secs_f64()))
    }
}

impl Runner {
    /// Runs a load that starts the mechanism anew, at a point where it has some.
    pub(super) fn renewed(
        &mut self,
        guard: &mut Guard,
        arm: &MechanismSpec,
        (load, point): (Load, Option<&Point>),
        metrics: &[Metric],
        trial: &mut Trial,
        values: &mut Values,
    ) -> Result<()> {
        let wanted = match load {
            Load::Connections => point.and_then(|point| point.at(Axis::Connections)).unwrap_or(0),
            _ => self.profile().safe_connections,
        };
        let sessions =
            u32::try_from(2 * wanted).map_err(|error| LabError::Usage(error.to_string()))?;
        let room = match load {
            Load::Reset => FEW_SESSIONS,
            // Addresses and ports of earlier steps are gone with their deployments.
            _ => sessions + FEW_SESSIONS,
        };
        let size = match load {
            Load::Reset => point.and_then(|point| point.at(Axis::Octets)).unwrap_or(SMALLEST),
            _ => SMALLEST,
        };
        let octets = u16::try_from(size).map_err(|error| LabError::Usage(error.to_string()))?;
        let widest = widest_mtu(arm.kind.has_hosts_behind() && arm.hops == 2);
        let traffic = fitting(Some(arm.kind), octets, widest)?;
        let line = arm.device.as_ref().and_then(Cables::speed);
        let highest = Ceiling::of(&self.highest, size, line, trial)?;
        trial.started = now();
        trial.exit_status = Some(0);
        let profile = self.rfc.clone();
        let mechanism = self.mechanism(arm)?;
        let tracked = match mechanism.tracks_connections(arm.kind) {
            true => self.limit_conntrack(guard, room)?,
            false => None,
        };
        let limits = Limited {
            sessions: tracked
                .map(|limits| limits.max)
                .or_else(|| mechanism.table_limit(arm.kind, Room::of(room))),
            buckets: tracked.map(|limits| limits.buckets),
        };
        let sender = match load {
            // A mechanism that ends gives its devices back as they were: a veth may take no redirected frames from then on.
            Load::Reset => Sender::Socket,
            _ => self.profile().sender,
        };
        let mut renewed = Renewed {
            runner: self,
            guard,
            arm,
            mechanism,
            room: Room::of(room),
            sender,
            octets: traffic.frame.initiator,
            now: None,
            timeout_s: 0.0,
            tuples: connections(Some(arm.kind))
                .map_or(fordway_tester::Tuples::Random, fordway_tester::Tuples::Enumerated),
            seed: SEED,
            order: 0,
            said: String::new(),
            remarks: Vec::new(),
            runs: None,
        };
        let cancelled = || interrupted();
        let mut session = Session::new(&mut renewed, profile.waits, &cancelled);
        let maximum = Maximum { rate: highest, limit: Limit::Calibrated };
        let setup = Setup { traffic, maximum };
        let by = Procedures { profile: &profile, setup, highest, metrics };
        trial.stateful = match load {
            Load::Reset => None,
            Load::Connections => by.parameters(wanted, None, limits),
            _ => by.parameters(wanted, Some(MOST * wanted), limits),
        };
        let result = match load {
            Load::Reset => by.reset(&mut session, connections(Some(arm.kind)).is_some(), values),
            Load::Connections => by.connections(&mut session, wanted, trial, values),
            _ => by.capacity(&mut session, wanted, trial, values),
        };
        renewed.end();
        let said = std::mem::take(&mut renewed.said);
        trial.flags.append(&mut renewed.remarks);
        if let Some(runs) = renewed.runs.take() {
            (trial.config_hash, trial.mechanism_argv, trial.engine) = runs;
        }
        let load = format!("{load:?}").to_lowercase();
        let point = point.map_or_else(String::new, |point| format!("-{}", point.file_name()));
        let name = format!("block{}-{}-{load}{point}.jsonl", trial.block, arm.name);
        fordway_data::files::write_file(&self.raw.join(name), said.as_bytes())?;
        result.map_err(ended)
    }
}
