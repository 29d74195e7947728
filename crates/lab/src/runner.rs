//! The run: gate, calibration, randomised blocks; every trial goes to the ledger at once.

mod costs;
mod deploy;
mod loads;
mod measure;
mod pin;
mod record;
mod room;
mod staged;
mod stateful;
mod survey;
mod tables;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fordway_data::plan::{self, Deployment, Plan};
use fordway_data::spec::{Experiment, Family, Kind, MechanismSpec, Metric, Profile, RunSpec};
use fordway_data::trial::Check;
use fordway_data::trial::{Condition, Ledger, Trial, calibrates, hash};

use crate::backend::Netns;
use crate::error::{LabError, Result};
use crate::host::{clocksource, conntrack};
use crate::hosts::{Ends, Pair};
use crate::mechanism::{self, Mechanism, Room};
use crate::probe::{gate, matrix};
use crate::progress::Progress;
use crate::state::Guard;
use crate::topology::{Network, Shape};
use crate::trials::benchmark::Ceiling;
use deploy::Live;
use loads::{is_first_packet, loads, networks};

pub(crate) use staged::Staged;
pub(crate) use survey::{survey, surveyed, unmeasured};

/// Everything a run needs.
pub(crate) struct Runner {
    experiment: Experiment,
    run: RunSpec,
    out: PathBuf,
    raw: PathBuf,
    fordway: Option<PathBuf>,
    backend: Ends,
    ledger: Ledger,
    spec_hash: String,
    done: BTreeSet<String>,
    networks: u32,
    own_clocksource: String,
    /// Lengths and repetitions of the tests of RFC 8219 and RFC 9693.
    rfc: fordway_procedures::profile::Profile,
    /// The tester's own highest rates, by size of frame, as far as they were needed.
    highest: BTreeMap<u64, Ceiling>,
}

impl Runner {
    /// Prepares a run in a folder that already holds its `spec.toml`.
    pub(crate) fn new(
        experiment: Experiment,
        out: &Path,
        fordway: Option<&Path>,
        pair: Option<Arc<Pair>>,
    ) -> Result<Self> {
        let run = experiment.run()?.clone();
        // Programs look for their files from folders of their own.
        let out = std::path::absolute(out).map_err(LabError::file(out))?;
        let raw = out.join("raw");
        std::fs::create_dir_all(&raw).map_err(LabError::file(&raw))?;
        let ledger = Ledger::of(&out);
        ledger.mend()?;
        let done =
            ledger.read(&experiment)?.into_iter().filter(|t| t.valid).map(|t| t.key).collect();
        Ok(Self {
            spec_hash: spec_hash(&experiment),
            out,
            fordway: fordway.map(Path::to_path_buf),
            own_clocksource: match &pair {
                Some(pair) => pair.clocksource()?,
                None => clocksource::current().unwrap_or_else(|_| "unknown".into()),
            },
            backend: match pair {
                Some(pair) => {
                    pair.keep_in(&raw);
                    Ends::two(pair, run.pin.clone())
                }
                None => Ends::one(Netns { dir: raw.clone() }, run.pin.clone()),
            },
            networks: 0,
            rfc: experiment.profile[&run.profile].rfc(),
            highest: BTreeMap::new(),
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
        self.all().map_err(|error| self.cause(error))
    }

    /// The error that stands behind another: that a host is gone.
    fn cause(&self, error: LabError) -> LabError {
        match self.backend.pair() {
            Some(pair) => pair.cause(error),
            None => error,
        }
    }

    fn all(&mut self) -> Result<()> {
        let plan = self.plan();
        let mut guard = match self.backend.pair() {
            // The same on every host of the run.
            Some(pair) => Guard::of_id(pair.id(), &self.out)?,
            None => Guard::new(&self.out)?,
        };
        let mut progress = Progress::new(self.remaining(&plan));
        let first = plan.conditions[0].clone();
        self.bind(&mut guard)?;
        self.examine_wire(&guard)?;
        self.make_room(&mut guard)?;
        self.gates(&guard, &first, &mut progress)?;
        let mut clocksource = None;
        for deployment in &plan.deployments {
            let own = &deployment.condition.clocksource;
            if !self.run.clocksources.is_empty() && clocksource != Some(own) {
                match self.backend.pair() {
                    Some(pair) => pair.switch_clocksource(&mut guard, own)?,
                    None => guard.switch_clocksource(own)?,
                }
                clocksource = Some(own);
            }
            match calibrates(&deployment.mechanism).flatten() {
                Some(family) => self.calibrate(&guard, deployment, family, &mut progress)?,
                None => self.deployment(&mut guard, deployment, &mut progress)?,
            }
        }
        self.examine_pins()?;
        if self.experiment.program_costs {
            progress.begin("the gateway's programs: cost per packet");
            costs::ask(self.fordway.as_deref(), &self.out)?;
        }
        Ok(())
    }

    /// Expected seconds of what is not yet in the ledger.
    fn remaining(&self, plan: &Plan) -> f64 {
        let mut seconds = 0.0;
        let first = &plan.conditions[0];
        for name in &self.run.mechanisms {
            if !self.done.contains(&self.key(name, first, 0, Metric::Gate, None)) {
                let arm = self.experiment.mechanism(name);
                seconds += arm.map_or(0.0, |arm| plan::gate_seconds(&self.experiment, arm));
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
        let seconds = deployment.condition.duration_s;
        match calibrates(&deployment.mechanism) {
            Some(_) => plan::calibration_seconds(self.profile(), &wanted, seconds),
            None => plan::deployment_seconds(self.profile(), &wanted, seconds),
        }
    }

    fn profile(&self) -> &Profile {
        &self.experiment.profile[&self.run.profile]
    }

    fn arm(&self, name: &str) -> Result<MechanismSpec> {
        Ok(self.experiment.mechanism(name)?.clone())
    }

    fn version(&self, mechanism: &str) -> &str {
        self.run.versions.get(mechanism).map_or("", String::as_str)
    }

    /// A prefix that no other network of this run has.
    fn next_name(&mut self, guard: &Guard) -> String {
        self.networks += 1;
        format!("{}{}-", guard.prefix(), self.networks)
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
            let gate = self
                .deploy(guard, &arm, Room::of(room::FEW_SESSIONS))
                .and_then(|live| self.gate(&live, &arm));
            match gate.map_err(|error| self.cause(error)) {
                Ok((checks, ways)) => {
                    for check in checks.iter().filter(|c| !c.ok) {
                        bar.note(&format!(
                            "  {}: {} fails: {}",
                            arm.label, check.name, check.detail
                        ));
                    }
                    trial.checks = checks;
                    trial.ways = ways;
                }
                Err(error) if error.ends_the_run() => return Err(error),
                Err(error) => {
                    bar.note(&format!("  {}: {error}", arm.label));
                    record::blame(&error, &mut trial);
                }
            }
            trial.elapsed_s = clock.elapsed().as_secs_f64();
            self.record(trial)?;
            bar.advance(plan::gate_seconds(&self.experiment, &arm));
        }
        Ok(())
    }

    /// All probes that a mechanism must pass, and which ways it opens.
    fn gate(&self, live: &Live, arm: &MechanismSpec) -> Result<(Vec<Check>, Vec<Check>)> {
        let (mut checks, mut ways) = (Vec::new(), Vec::new());
        if arm.kind != Kind::Dns64 {
            let _server = gate::serve(&self.backend, &live.network, &live.probe_log)?;
            // The name server is asked first: the other probes change the network.
            if arm.kind == Kind::Xlat464 && live.resolver.is_some() {
                checks = gate::names(&self.backend, &live.network, false)?;
            }
            let own = match self.experiment.matrix {
                true => {
                    let resolver = live.name_server()?;
                    Some(matrix::own(
                        &self.backend,
                        &live.network,
                        resolver,
                        &self.raw,
                        &live.name,
                    )?)
                }
                false => None,
            };
            checks.extend(gate::full(&self.backend, &live.network)?);
            if let Some(own) = own {
                ways = matrix::cells(&own, &checks);
            }
            checks.retain(|check| gate::demanded(arm.kind, &check.name));
            return Ok((checks, ways));
        }
        Ok((gate::names(&self.backend, &live.network, false)?, ways))
    }

    /// The generator's ceiling, and its processor time: sender and receiver joined by one veth, nothing in between.
    fn calibrate(
        &mut self,
        guard: &Guard,
        d: &Deployment,
        family: Family,
        bar: &mut Progress,
    ) -> Result<()> {
        let metrics = self.wanted(d);
        if metrics.is_empty() {
            return Ok(());
        }
        let expected = self.seconds(d);
        let (link, apart) = match self.backend.pair() {
            Some(_) => ("the wire", "the two hosts do not reach each other over the wire"),
            None => ("one veth", "two namespaces joined by a veth do not reach each other"),
        };
        bar.begin(&format!(
            "block {}/{}: the generator alone over IP{}: {link}, no hop, no mechanism",
            d.block,
            self.run.blocks,
            family.name()
        ));
        let clock = std::time::Instant::now();
        let name = self.next_name(guard);
        let shape = Shape::calibration(family, self.run.offloads);
        let network = Network::build(&self.backend, &name, shape, None)?;
        if !gate::wait_ready(&self.backend, &network, deploy::READY, || false)? {
            return Err(LabError::NotReady { mechanism: d.mechanism.clone(), why: apart.into() });
        }
        let log = self.raw.join(format!("{name}iperf3-server.log"));
        let _server = crate::load::iperf::serve(&self.backend, &network.server, &log)?;
        let live = Live::new(network, log, name);
        let seconds = plan::calibration_flow(d.condition.duration_s);
        for (place, (load, point)) in (1..).zip(self.in_order(d, &metrics)) {
            let point = point.as_ref();
            let missing = |m: &Metric| !self.is_done(d, *m, point);
            let wanted: Vec<Metric> = metrics.iter().copied().filter(missing).collect();
            let blank = Trial { place, ..self.blank(d, None, metrics[0]) };
            let at = self.measured(&live, None, None);
            for mut trial in self.take((load, point), &wanted, &at, seconds, blank)? {
                trial.elapsed_s = clock.elapsed().as_secs_f64();
                self.record(trial)?;
            }
        }
        bar.advance(expected);
        Ok(())
    }

    /// One fresh deployment of one mechanism, with everything that is measured on it.
    fn deployment(&mut self, guard: &mut Guard, d: &Deployment, bar: &mut Progress) -> Result<()> {
        let wanted = self.wanted(d);
        if wanted.is_empty() {
            return Ok(());
        }
        let expected = self.seconds(d);
        let arm = self.arm(&d.mechanism)?;
        self.find_highest(guard, &wanted, bar)?;
        bar.begin(&format!("block {}/{}: {}", d.block, self.run.blocks, arm.label));
        let clock = std::time::Instant::now();
        let tracked = self.mechanism(&arm)?.tracks_connections(arm.kind);
        let (mut finished, mut lost) = (Vec::new(), None);
        for together in networks(arm.kind, &wanted) {
            let here = self.backend.pair().is_none_or(|pair| pair.client_is_here());
            let entries = conntrack::entries().filter(|_| tracked && here);
            let outcome = self
                .deploy(guard, &arm, self.room(&together))
                .and_then(|live| self.measure(&live, d, &arm, &together, &mut finished));
            conntrack::settle(entries)?;
            if let Err(error) = outcome.map_err(|error| self.cause(error)) {
                if error.ends_the_run() && !error.is_lost_host() {
                    return Err(error);
                }
                bar.note(&format!("  {}: {error}", arm.label));
                for metric in &together {
                    let missing = self.without(d, &arm, *metric, &error).into_iter().filter(|t| {
                        !self.done.contains(&t.key)
                            && !finished.iter().any(|f: &Trial| f.key == t.key)
                    });
                    let missing: Vec<Trial> = missing.collect();
                    finished.extend(missing);
                }
                // What was under way is lost with its reason; nothing more can be measured.
                lost = Some(error).filter(LabError::is_lost_host);
            }
            if lost.is_some() {
                break;
            }
        }
        if lost.is_none() {
            finished.extend(self.tests_of_tables(guard, d, &arm, &wanted)?);
        }
        let alone = wanted.into_iter().filter(|_| lost.is_none());
        for metric in alone.filter(|metric| is_first_packet(arm.kind, *metric)) {
            let mut trial = self.blank(d, Some(&arm), metric);
            let outcome = match metric {
                Metric::StartTime => self.start_time(guard, &arm, &mut trial),
                _ => self.lease_time(guard, &arm, &mut trial),
            };
            absorb(outcome, &mut trial)?;
            finished.push(trial);
        }
        let elapsed_s = clock.elapsed().as_secs_f64();
        for mut trial in finished {
            trial.elapsed_s = elapsed_s;
            for why in trial.failed.iter().chain(&trial.invalid) {
                bar.note(&format!("  {}, {}: {why}", arm.label, trial.metric.name()));
            }
            self.record(trial)?;
        }
        bar.advance(expected);
        lost.map_or(Ok(()), Err)
    }

    fn mechanism(&self, arm: &MechanismSpec) -> Result<Box<dyn Mechanism>> {
        self.part(arm, arm)
    }

    /// The implementation of an arm, or of the name server beside it, where it runs.
    fn part(&self, arm: &MechanismSpec, spec: &MechanismSpec) -> Result<Box<dyn Mechanism>> {
        let fordway = self.fordway.as_deref();
        match self.backend.pair() {
            Some(pair) => pair.mechanism(arm, spec, fordway, self.run.offloads),
            None => mechanism::of_part(arm, spec, fordway),
        }
    }
}

/// An error makes its trial a failure of the mechanism or one that does not count; an interruption and a full disk end
/// the run.
fn absorb(outcome: Result<()>, trial: &mut Trial) -> Result<()> {
    match outcome {
        Err(error) if error.ends_the_run() => Err(error),
        Err(error) => {
            record::blame(&error, trial);
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
        if let Some(hosts) = &run.hosts {
            text.push_str(&toml::to_string(hosts).unwrap_or_default());
        }
        if let Some(pin) = &run.pin {
            text.push_str(&pin.words());
        }
    }
    hash(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Backend;

    #[test]
    fn files_of_a_run_are_named_from_the_root_wherever_it_was_started() {
        let dir = tempfile::tempdir().unwrap();
        let here = std::env::current_dir().unwrap();
        let up = "../".repeat(here.components().count() - 1);
        let below = dir.path().strip_prefix("/").unwrap();
        let relative = Path::new(&up).join(below);
        let mut experiment = Experiment::find("nat64").unwrap();
        experiment.run = Some(RunSpec::bare());
        let runner = Runner::new(experiment, &relative, None, None).unwrap();
        // Apache, for one, reads a relative name from its own folder.
        let deployed = runner.backend.deploy("file", b"").unwrap();
        assert!(relative.is_relative() && deployed.is_absolute());
        assert!(dir.path().join("raw").is_dir());
    }
}
