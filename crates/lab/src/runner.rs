//! The run: gate, calibration, randomised blocks; every trial goes to the ledger at once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::backend::{Backend, Netns, Place};
use crate::error::{LabError, Result};
use crate::host::clocksource;
use crate::mechanism::{self, Context, Deployed, Mechanism};
use crate::plan::{self, Deployment, Plan};
use crate::probe::gate;
use crate::process;
use crate::progress::Progress;
use crate::spec::{Experiment, MechanismSpec, Metric, Profile, RunSpec};
use crate::state::Guard;
use crate::topology::{Network, Shape};
use crate::trial::{CALIBRATION, Condition, KeyParts, Ledger, Trial, hash, key};
use crate::trials::{self, Measured};

/// How long a mechanism may take to carry its first packet.
const READY: Duration = Duration::from_secs(5);

/// Everything a run needs.
pub(crate) struct Runner {
    experiment: Experiment,
    run: RunSpec,
    out: PathBuf,
    raw: PathBuf,
    fordway: Option<PathBuf>,
    backend: Netns,
    ledger: Ledger,
    spec_hash: String,
    done: BTreeSet<String>,
    networks: u32,
    own_clocksource: String,
}

impl Runner {
    /// Prepares a run in a folder that already holds its `spec.toml`.
    pub(crate) fn new(experiment: Experiment, out: &Path, fordway: Option<&Path>) -> Result<Self> {
        let run = experiment.run()?.clone();
        let raw = out.join("raw");
        std::fs::create_dir_all(&raw).map_err(LabError::file(&raw))?;
        let ledger = Ledger::of(out);
        ledger.mend()?;
        let done = ledger.read()?.into_iter().filter(|t| t.valid).map(|t| t.key).collect();
        Ok(Self {
            spec_hash: spec_hash(&experiment),
            backend: Netns { dir: raw.clone() },
            out: out.to_path_buf(),
            fordway: fordway.map(Path::to_path_buf),
            own_clocksource: clocksource::current().unwrap_or_else(|_| "unknown".into()),
            networks: 0,
            experiment,
            run,
            raw,
            ledger,
            done,
        })
    }

    /// What this run will do.
    pub(crate) fn plan(&self) -> Plan {
        plan::lay_out(&self.experiment, &self.run, &self.own_clocksource)
    }

    /// Does it. The guard's drop cleans up, also after an error or an interruption.
    pub(crate) fn execute(&mut self) -> Result<()> {
        let plan = self.plan();
        let mut guard = Guard::new(&self.out)?;
        let mut progress = Progress::new(self.remaining(&plan));
        let first = plan.conditions[0].clone();
        self.gates(&guard, &first, &mut progress)?;
        for condition in &plan.conditions {
            if !self.run.clocksources.is_empty() {
                guard.switch_clocksource(&condition.clocksource)?;
            }
            self.calibrate(&guard, condition, &mut progress)?;
            let wanted: Vec<Deployment> =
                plan.deployments.iter().filter(|d| d.condition == *condition).cloned().collect();
            for deployment in wanted {
                self.deployment(&guard, &deployment, &mut progress)?;
            }
        }
        Ok(())
    }

    /// Expected seconds of what is not yet in the ledger.
    fn remaining(&self, plan: &Plan) -> f64 {
        let mut seconds = 0.0;
        let first = &plan.conditions[0];
        for name in &self.run.mechanisms {
            if !self.done.contains(&self.key(name, first, 0, Metric::Gate)) {
                seconds += plan::gate_seconds();
            }
        }
        for condition in &plan.conditions {
            if !self.done.contains(&self.key(CALIBRATION, condition, 0, Metric::TcpThroughputUp)) {
                seconds += plan::calibration_seconds(condition.duration_s);
            }
        }
        for deployment in &plan.deployments {
            seconds += self.seconds(deployment);
        }
        seconds
    }

    fn seconds(&self, deployment: &Deployment) -> f64 {
        let wanted = self.wanted(deployment);
        if wanted.is_empty() {
            return 0.0;
        }
        plan::deployment_seconds(self.profile(), &wanted, deployment.condition.duration_s)
    }

    fn profile(&self) -> &Profile {
        &self.experiment.profile[&self.run.profile]
    }

    fn arm(&self, name: &str) -> Result<MechanismSpec> {
        self.experiment.mechanism(name).cloned()
    }

    fn version(&self, mechanism: &str) -> &str {
        self.run.versions.get(mechanism).map_or("", String::as_str)
    }

    fn key(&self, mechanism: &str, condition: &Condition, block: u32, metric: Metric) -> String {
        key(KeyParts {
            spec_hash: &self.spec_hash,
            mechanism,
            version: self.version(mechanism),
            condition,
            block,
            seed: self.run.seed,
            metric,
        })
    }

    /// Metrics of a deployment that no valid trial has yet.
    fn wanted(&self, d: &Deployment) -> Vec<Metric> {
        let Ok(arm) = self.experiment.mechanism(&d.mechanism) else { return Vec::new() };
        plan::metrics_of(&self.experiment, arm)
            .into_iter()
            .filter(|m| !self.done.contains(&self.key(&d.mechanism, &d.condition, d.block, *m)))
            .collect()
    }

    /// A prefix that no other network of this run has.
    fn next_name(&mut self, guard: &Guard) -> String {
        self.networks += 1;
        format!("{}{}-", guard.prefix(), self.networks)
    }

    fn blank(&self, d: &Deployment, arm: Option<&MechanismSpec>, metric: Metric) -> Trial {
        let implementation = arm.map_or("none", |a| &a.implementation);
        Trial {
            key: self.key(&d.mechanism, &d.condition, d.block, metric),
            experiment: self.experiment.name.clone(),
            seed: self.run.seed,
            block: d.block,
            order: d.order,
            condition: d.condition.clone(),
            mechanism: d.mechanism.clone(),
            implementation: implementation.to_owned(),
            version: self.version(&d.mechanism).to_owned(),
            ..trials::blank(metric)
        }
    }

    fn record(&mut self, mut trial: Trial) -> Result<()> {
        trials::judge(&mut trial);
        self.ledger.append(&trial)?;
        if trial.valid {
            self.done.insert(trial.key);
        }
        Ok(())
    }

    /// The full gate, once per mechanism on a network of its own.
    fn gates(&mut self, guard: &Guard, condition: &Condition, bar: &mut Progress) -> Result<()> {
        for name in self.run.mechanisms.clone() {
            let arm = self.arm(&name)?;
            let deployment =
                Deployment { condition: condition.clone(), block: 0, order: 0, mechanism: name };
            let mut trial = self.blank(&deployment, Some(&arm), Metric::Gate);
            if self.done.contains(&trial.key) {
                continue;
            }
            bar.begin(&format!("correctness gate: {}", arm.label));
            let clock = std::time::Instant::now();
            let gate = self.deploy(guard, &arm).and_then(|live| {
                let _server = gate::serve(&self.backend, &live.network, &live.probe_log)?;
                gate::full(&self.backend, &live.network)
            });
            match gate {
                Ok(checks) => {
                    for check in checks.iter().filter(|c| !c.ok) {
                        bar.note(&format!(
                            "  {}: {} fails: {}",
                            arm.label, check.name, check.detail
                        ));
                    }
                    trial.checks = checks;
                }
                Err(LabError::Interrupted) => return Err(LabError::Interrupted),
                Err(error) => {
                    bar.note(&format!("  {}: {error}", arm.label));
                    trial.invalid.push(error.to_string());
                }
            }
            trial.elapsed_s = clock.elapsed().as_secs_f64();
            self.record(trial)?;
            bar.advance(plan::gate_seconds());
        }
        Ok(())
    }

    /// The generator's ceiling: sender and receiver joined by one veth, nothing in between.
    fn calibrate(&mut self, guard: &Guard, c: &Condition, bar: &mut Progress) -> Result<()> {
        let deployment =
            Deployment { condition: c.clone(), block: 0, order: 0, mechanism: CALIBRATION.into() };
        let metrics = [Metric::TcpThroughputUp, Metric::TcpThroughputDown];
        let missing = |m: &Metric| !self.done.contains(&self.key(CALIBRATION, c, 0, *m));
        let metrics: Vec<Metric> = metrics.into_iter().filter(missing).collect();
        if metrics.is_empty() {
            return Ok(());
        }
        bar.begin("calibrating the generator: one veth, no hop, no mechanism");
        let name = self.next_name(guard);
        let shape = Shape::calibration(self.run.offloads);
        let network = Network::build(&self.backend, &name, shape, None)?;
        if !gate::wait_ready(&self.backend, &network, READY)? {
            return Err(LabError::NotReady {
                mechanism: CALIBRATION.into(),
                why: "two namespaces joined by a veth do not reach each other".into(),
            });
        }
        let log = self.raw.join(format!("{name}iperf3-server.log"));
        let _server = crate::load::iperf::serve(&self.backend, &network.server, &log)?;
        let live = Live { network, deployed: Deployed::default(), probe_log: log, name };
        for metric in metrics {
            let mut trial = self.blank(&deployment, None, metric);
            let seconds = plan::calibration_flow(c.duration_s);
            let what = trials::throughput(&self.measured(&live, None), metric, seconds, &mut trial);
            absorb(what, &mut trial)?;
            self.record(trial)?;
        }
        bar.advance(plan::calibration_seconds(c.duration_s));
        Ok(())
    }

    /// One fresh deployment of one mechanism, with everything that is measured on it.
    fn deployment(&mut self, guard: &Guard, d: &Deployment, bar: &mut Progress) -> Result<()> {
        let wanted = self.wanted(d);
        if wanted.is_empty() {
            return Ok(());
        }
        let expected = self.seconds(d);
        let arm = self.arm(&d.mechanism)?;
        bar.begin(&format!("block {}/{}: {}", d.block, self.run.blocks, arm.label));
        let clock = std::time::Instant::now();
        let on_one_network: Vec<Metric> =
            wanted.iter().copied().filter(|m| *m != Metric::StartTime).collect();
        let mut finished = Vec::new();
        if !on_one_network.is_empty() {
            let outcome = self
                .deploy(guard, &arm)
                .and_then(|live| self.measure(&live, d, &arm, &on_one_network, &mut finished));
            if let Err(error) = outcome {
                if matches!(error, LabError::Interrupted) {
                    return Err(error);
                }
                bar.note(&format!("  {}: {error}", arm.label));
                for metric in &on_one_network {
                    if !finished.iter().any(|t: &Trial| t.metric == *metric) {
                        let mut trial = self.blank(d, Some(&arm), *metric);
                        trial.invalid.push(error.to_string());
                        finished.push(trial);
                    }
                }
            }
        }
        if wanted.contains(&Metric::StartTime) {
            let mut trial = self.blank(d, Some(&arm), Metric::StartTime);
            absorb(self.start_time(guard, &arm, &mut trial), &mut trial)?;
            finished.push(trial);
        }
        let elapsed_s = clock.elapsed().as_secs_f64();
        for mut trial in finished {
            trial.elapsed_s = elapsed_s;
            for why in &trial.invalid {
                bar.note(&format!("  {}, {}: {why}", arm.label, trial.metric.name()));
            }
            self.record(trial)?;
        }
        bar.advance(expected);
        Ok(())
    }

    fn mechanism(&self, arm: &MechanismSpec) -> Result<Box<dyn Mechanism>> {
        mechanism::of(&arm.implementation, self.fordway.as_deref())
    }

    /// Builds the network, puts the mechanism on it, and waits until a ping passes.
    fn deploy(&mut self, guard: &Guard, arm: &MechanismSpec) -> Result<Live> {
        let name = self.next_name(guard);
        let shape = Shape::of(arm, self.run.offloads);
        let network = Network::build(&self.backend, &name, shape, Some(arm))?;
        let deployed = self.mechanism(arm)?.deploy(Context {
            backend: &self.backend,
            network: &network,
            spec: arm,
            name: name.trim_end_matches('-'),
            logs: &self.raw,
        })?;
        let probe_log = self.raw.join(format!("{name}probe.log"));
        let mut live = Live { network, deployed, probe_log, name };
        if gate::wait_ready(&self.backend, &live.network, READY)? {
            return Ok(live);
        }
        let log = self.raw.join(format!(
            "{}-{}.log",
            live.name.trim_end_matches('-'),
            arm.implementation
        ));
        let said = std::fs::read_to_string(log).unwrap_or_default();
        let gone = live.deployed.daemon.as_mut().is_some_and(|d| !d.alive());
        Err(LabError::NotReady {
            mechanism: arm.name.clone(),
            why: format!(
                "no ping passes within {} s{}{}",
                READY.as_secs(),
                if gone { "; its process has ended" } else { "" },
                if said.is_empty() {
                    String::new()
                } else {
                    format!("; it said: {}", process::last_lines(&said, 2))
                }
            ),
        })
    }

    fn measured<'a>(
        &'a self,
        live: &'a Live,
        mechanism: Option<&'a dyn Mechanism>,
    ) -> Measured<'a> {
        Measured {
            backend: &self.backend,
            network: &live.network,
            deployed: &live.deployed,
            mechanism,
            profile: self.profile(),
            raw: &self.raw,
            name: live.name.trim_end_matches('-'),
        }
    }

    fn measure(
        &self,
        live: &Live,
        d: &Deployment,
        arm: &MechanismSpec,
        metrics: &[Metric],
        finished: &mut Vec<Trial>,
    ) -> Result<()> {
        let backend: &dyn Backend = &self.backend;
        let broken = {
            let _server = gate::serve(backend, &live.network, &live.probe_log)?;
            let checks = gate::short(backend, &live.network)?;
            checks.into_iter().find(|c| !c.ok)
        };
        let log = self.raw.join(format!("{}iperf3-server.log", live.name));
        let _server = crate::load::iperf::serve(backend, &live.network.server, &log)?;
        let mechanism = self.mechanism(arm)?;
        let at = self.measured(live, Some(mechanism.as_ref()));
        for metric in metrics {
            let mut trial = self.blank(d, Some(arm), *metric);
            trial.config_hash = hash(live.deployed.config.as_bytes());
            trial.mechanism_argv.clone_from(&live.deployed.argv);
            if let Some(check) = &broken {
                let why = format!("broken before measuring: {}: {}", check.name, check.detail);
                trial.invalid.push(why);
                finished.push(trial);
                continue;
            }
            let outcome = match metric {
                Metric::Rtt => trials::rtt(&at, &mut trial),
                _ => trials::throughput(&at, *metric, d.condition.duration_s, &mut trial),
            };
            absorb(outcome, &mut trial)?;
            finished.push(trial);
        }
        Ok(())
    }

    /// Start of the process to first translated packet, on a network of its own.
    fn start_time(&mut self, guard: &Guard, arm: &MechanismSpec, t: &mut Trial) -> Result<()> {
        let name = self.next_name(guard);
        let shape = Shape::of(arm, self.run.offloads);
        let network = Network::build(&self.backend, &name, shape, Some(arm))?;
        let context = Context {
            backend: &self.backend,
            network: &network,
            spec: arm,
            name: name.trim_end_matches('-'),
            logs: &self.raw,
        };
        let Some(start) = self.mechanism(arm)?.start_argv(context) else {
            return Err(LabError::Usage(format!("{} has no single start command", arm.name)));
        };
        let place: &Place = &network.client;
        // Neighbours are resolved beforehand: a link's first packet is not the translator's cost.
        let warm = ["ping", "-n", "-q", "-c", "2", "-i", "0.01", "2001:db8:5::5"];
        crate::backend::must(&self.backend, place, &warm)?;
        let log = self.raw.join(format!("{name}probe.log"));
        let _server = gate::serve(&self.backend, &network, &log)?;
        trials::start_time(&self.backend, place, network.target, &start, t)
    }
}

/// A deployed mechanism on its network. Fields drop in this order: process first.
struct Live {
    deployed: Deployed,
    network: Network,
    probe_log: PathBuf,
    name: String,
}

/// A measurement that fails makes its trial invalid; an interruption ends the run.
fn absorb(outcome: Result<()>, trial: &mut Trial) -> Result<()> {
    match outcome {
        Err(LabError::Interrupted) => Err(LabError::Interrupted),
        Err(error) => {
            trial.invalid.push(error.to_string());
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Hash of the experiment and of the run's choices that change results; not of how it is called.
pub(crate) fn spec_hash(experiment: &Experiment) -> String {
    let mut bare = experiment.clone();
    let run = bare.run.take();
    let mut text = toml::to_string(&bare).unwrap_or_default();
    if let Some(run) = run {
        text.push_str(&format!("{} {:?} {}", run.profile, run.durations_s, run.offloads));
    }
    hash(text.as_bytes())
}

/// Versions of the available mechanisms and reasons for the missing ones.
pub(crate) fn survey(
    experiment: &Experiment,
    wanted: &[String],
    fordway: Option<&Path>,
) -> Result<(BTreeMap<String, String>, BTreeMap<String, String>)> {
    let (mut versions, mut skipped) = (BTreeMap::new(), BTreeMap::new());
    for arm in experiment.mechanisms.iter().filter(|m| wanted.contains(&m.name)) {
        match mechanism::of(&arm.implementation, fordway)?.availability() {
            mechanism::Availability::Ready { version, .. } => {
                versions.insert(arm.name.clone(), version);
            }
            mechanism::Availability::Missing { hint } => {
                skipped.insert(arm.name.clone(), hint);
            }
        }
    }
    Ok((versions, skipped))
}
