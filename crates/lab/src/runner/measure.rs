//! Everything that is measured on one deployment.

use std::collections::BTreeSet;

use fordway_data::plan::Deployment;
use fordway_data::spec::{Family, Kind, Load, MechanismSpec, Metric, Point, Table};
use fordway_data::trial::{Trial, hash};

use super::{Guard, Live, Runner, absorb};
use crate::backend::{Backend, Place};
use crate::error::{LabError, Result};
use crate::mechanism::{Context, Mechanism, Room};
use crate::probe::gate;
use crate::process;
use crate::progress::Progress;
use crate::topology::{Network, Shape, widest_mtu};
use crate::trials::benchmark::fits;
use crate::trials::{self, Lack, Measured, Values};

/// The frames of tests that are about no size: the smallest.
const SMALLEST: u64 = 64;
/// What needs the processor's counters.
const CYCLES: [Metric; 2] = [Metric::CyclesPerPacketUp, Metric::CyclesPerPacketDown];

impl Runner {
    pub(super) fn measured<'a>(
        &'a self,
        live: &'a Live,
        mechanism: Option<&'a dyn Mechanism>,
        arm: Option<&MechanismSpec>,
    ) -> Measured<'a> {
        Measured {
            backend: &self.backend,
            network: &live.network,
            deployed: &live.deployed,
            mechanism,
            profile: self.profile(),
            metrics: &self.experiment.metrics,
            raw: &self.raw,
            name: live.name.trim_end_matches('-'),
            cycles: CYCLES.iter().any(|m| {
                self.experiment.metrics.contains(m) && !self.run.unmeasured.contains_key(m.name())
            }),
            in_kernel: arm.is_some_and(|a| a.engine.as_deref() == Some("kernel")),
            kind: arm.map(|a| a.kind),
            maps_servers: arm.is_some_and(|a| a.entries.is_some_and(|it| it.table == Table::Eam)),
            threads: arm.and_then(|a| a.threads),
            highest: &self.highest,
            rfc: &self.rfc,
            authority: live.authority.as_ref(),
        }
    }

    /// Runs one load and makes a trial of each wanted metric that it yields. The raw data of the load
    /// stand in the first of them.
    pub(super) fn take(
        &self,
        (load, point): (Load, Option<&Point>),
        wanted: &[Metric],
        at: &Measured<'_>,
        seconds: u64,
        blank: Trial,
    ) -> Result<Vec<Trial>> {
        let mut first = Trial { point: point.cloned(), ..blank };
        let mut values = Values::new();
        let outcome = trials::run(load, at, point, seconds, &mut first, &mut values);
        absorb(outcome, &mut first)?;
        Ok(self.of_load((load, point), wanted, &first, &values))
    }

    /// A trial of each wanted metric of a load, from what it yielded.
    fn of_load(
        &self,
        (load, point): (Load, Option<&Point>),
        wanted: &[Metric],
        first: &Trial,
        values: &Values,
    ) -> Vec<Trial> {
        let mut finished: Vec<Trial> = Vec::new();
        for metric in wanted.iter().copied().filter(|m| m.load() == Some(load)) {
            let mut trial = if finished.is_empty() { first.clone() } else { lean(first) };
            trial.metric = metric;
            trial.unit = metric.unit().into();
            trial.direction = metric.direction().into();
            trial.key = self.key(&trial.mechanism, &trial.condition, trial.block, metric, point);
            trial.value = None;
            match values.get(&metric) {
                Some(Ok(value)) => trial.value = Some(*value),
                Some(Err(Lack::Unmeasured(why))) => trial.invalid.push(why.clone()),
                Some(Err(Lack::Failed(why))) => trial.failed.push(why.clone()),
                None => {}
            }
            finished.push(trial);
        }
        finished
    }

    /// The loads that start the mechanism anew.
    pub(super) fn tests_of_tables(
        &mut self,
        guard: &mut Guard,
        d: &Deployment,
        arm: &MechanismSpec,
        metrics: &[Metric],
    ) -> Result<Vec<Trial>> {
        let mut finished = Vec::new();
        let own: Vec<Metric> = metrics
            .iter()
            .copied()
            .filter(|m| m.load().is_some_and(super::loads::renews))
            .collect();
        for (place, (load, point)) in (1..).zip(self.in_order(d, &own)) {
            let point = point.as_ref();
            let missing = |m: &&Metric| m.load() == Some(load) && !self.is_done(d, **m, point);
            let wanted: Vec<Metric> = own.iter().filter(missing).copied().collect();
            let Some(metric) = wanted.first() else { continue };
            let blank = self.blank(d, Some(arm), *metric);
            let mut first = Trial { place, point: point.cloned(), ..blank };
            let mut values = Values::new();
            let outcome = self.renewed(guard, arm, (load, point), &wanted, &mut first, &mut values);
            absorb(outcome, &mut first)?;
            finished.extend(self.of_load((load, point), &wanted, &first, &values));
        }
        // Each of them had limits of its own.
        if !own.is_empty() {
            self.make_room(guard)?;
        }
        Ok(finished)
    }

    /// Finds the highest rate of frames of the sizes that these metrics need, as far as it is not known: sender and receiver
    /// joined by one veth, nothing in between. What does not fit the tester's own links is told where it is measured.
    pub(super) fn find_highest(
        &mut self,
        guard: &Guard,
        metrics: &[Metric],
        bar: &mut Progress,
    ) -> Result<()> {
        let profile = self.profile();
        let of = |load: Load| match load {
            Load::Forwarding | Load::FrameLoss => profile.frame_sizes.clone(),
            Load::Disturbance | Load::Reset => profile.disturbed_sizes.clone(),
            Load::Overload | Load::Incremental | Load::Connections | Load::Capacity => {
                vec![SMALLEST]
            }
            _ => Vec::new(),
        };
        let sizes: BTreeSet<u64> = super::loads::loads(metrics).into_iter().flat_map(of).collect();
        let fits =
            |size: u64| u16::try_from(size).is_ok_and(|size| fits(None, size, widest_mtu(false)));
        let sizes =
            sizes.into_iter().filter(|size| !self.highest.contains_key(size) && fits(*size));
        let sizes: Vec<u64> = sizes.collect();
        if sizes.is_empty() {
            return Ok(());
        }
        bar.begin(&format!("the tester alone: highest rate of frames of {sizes:?} octets"));
        let name = self.next_name(guard);
        let shape = Shape::calibration(Family::V6, self.run.offloads);
        let network = Network::build(&self.backend, &name, shape, None)?;
        let live = Live::new(network, self.raw.join(format!("{name}probe.log")), name);
        if !gate::wait_ready(&self.backend, &live.network, super::deploy::READY, || false)? {
            let why = "two namespaces joined by a veth do not reach each other".into();
            return Err(LabError::NotReady { mechanism: "the tester alone".into(), why });
        }
        let found = {
            let at = self.measured(&live, None, None);
            let of = |size: &u64| Ok((*size, trials::benchmark::highest(&at, *size)?));
            sizes.iter().map(of).collect::<Result<Vec<_>>>()?
        };
        self.highest.extend(found);
        Ok(())
    }

    pub(super) fn measure(
        &self,
        live: &Live,
        d: &Deployment,
        arm: &MechanismSpec,
        metrics: &[Metric],
        finished: &mut Vec<Trial>,
    ) -> Result<()> {
        let backend: &dyn Backend = &self.backend;
        let names_alone = arm.kind == Kind::Dns64;
        let checks = if names_alone {
            gate::names(backend, &live.network, true)?
        } else {
            let _server = gate::serve(backend, &live.network, &live.probe_log)?;
            gate::short(backend, &live.network)?
        };
        let broken = checks.into_iter().find(|c| !c.ok);
        let log = self.raw.join(format!("{}iperf3-server.log", live.name));
        let serve = || crate::load::iperf::serve(backend, &live.network.server, &log);
        let _server = (!names_alone).then(serve).transpose()?;
        let mechanism = self.mechanism(arm)?;
        let at = self.measured(live, Some(mechanism.as_ref()), Some(arm));
        if let Some(check) = broken {
            let why = format!("broken before measuring: {}: {}", check.name, check.detail);
            return Err(LabError::Failed(why));
        }
        let mut blank = self.blank(d, Some(arm), metrics[0]);
        blank.config_hash = hash(live.deployed.config.as_bytes());
        blank.mechanism_argv.clone_from(&live.deployed.argv);
        blank.engine.clone_from(&live.engine);
        for (place, (load, point)) in (1..).zip(self.in_order(d, metrics)) {
            let point = point.as_ref();
            let missing = |m: &Metric| !self.is_done(d, *m, point);
            let wanted: Vec<Metric> = metrics.iter().copied().filter(missing).collect();
            if wanted.iter().any(|m| m.load() == Some(load)) {
                let seconds = d.condition.duration_s;
                let blank = Trial { place, ..blank.clone() };
                let mut taken = self.take((load, point), &wanted, &at, seconds, blank)?;
                if load != Load::Failover && live.deployed.pids().into_iter().any(process::ended) {
                    let why = "its process ended while it was measured";
                    taken.iter_mut().for_each(|trial| trial.failed.push(why.into()));
                }
                if let Some(why) = self.astray(&live.deployed) {
                    taken.iter_mut().for_each(|trial| trial.invalid.push(why.clone()));
                }
                finished.extend(taken);
            }
        }
        Ok(())
    }

    /// Start of the process to first translated packet, on a network of its own.
    pub(super) fn start_time(
        &mut self,
        guard: &Guard,
        arm: &MechanismSpec,
        t: &mut Trial,
    ) -> Result<()> {
        let Live { network, name, probe_log, .. } = &self.bare(guard, arm)?;
        let backend = self.backend.of_mechanism();
        let context = Context {
            backend: &backend,
            network,
            spec: arm,
            name: name.trim_end_matches('-'),
            logs: &self.raw,
            room: Room::of(super::room::FEW_SESSIONS),
        };
        let mechanism = self.mechanism(arm)?;
        let Some(start) = mechanism.start(context) else {
            return Err(LabError::Usage(format!("{} has no single start command", arm.name)));
        };
        let place: &Place = network.translator(arm);
        // Neighbours are resolved beforehand: a link's first packet is not the translator's cost.
        let warm = ["ping", "-n", "-q", "-c", "2", "-i", "0.01", "2001:db8:5::5"];
        crate::backend::must(&self.backend, place, &warm)?;
        let _server = gate::serve(&self.backend, network, probe_log)?;
        let started = trials::start_time(&backend, place, network.target, &start, t)?;
        if start.ask.is_some() {
            let status = started.status.ok_or_else(|| LabError::NotReady {
                mechanism: arm.name.clone(),
                why: "it does not tell its status: which engine runs is unknown".into(),
            })?;
            mechanism.ran(&status, arm)?;
        }
        Ok(())
    }
}

impl Runner {
    /// The first packet of a client that has no address yet, on a network of its own.
    pub(super) fn lease_time(
        &mut self,
        guard: &Guard,
        arm: &MechanismSpec,
        t: &mut Trial,
    ) -> Result<()> {
        let mut live = self.bare(guard, arm)?;
        self.start(&mut live, arm, Room::of(super::room::FEW_SESSIONS))?;
        let mechanism = self.mechanism(arm)?;
        // Its parts say when they are ready: a ping would be the first packet.
        t.engine =
            process::poll(super::deploy::READY, || mechanism.runs(&live.deployed, arm).ok())?
                .ok_or_else(|| LabError::NotReady {
                    mechanism: arm.name.clone(),
                    why: "its parts do not come up".into(),
                })?;
        // Neighbours are resolved beforehand: a link's first packet is not the mechanism's cost.
        let place = live.network.host.as_ref().unwrap_or(&live.network.client);
        let server = live.network.server_address.to_string();
        let warm = ["ping", "-n", "-q", "-c", "2", "-i", "0.01", &server];
        crate::backend::must(&self.backend, place, &warm)?;
        trials::with_a_lease(&self.measured(&live, Some(mechanism.as_ref()), Some(arm)), t)
    }
}

/// A trial without the raw data of its load, which stand beside another of its metrics.
fn lean(trial: &Trial) -> Trial {
    Trial { replies: Vec::new(), histogram: Vec::new(), series: Vec::new(), ..trial.clone() }
}
