//! A fresh deployment: network, mechanism, and its name server where anything is found by name.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fordway_data::spec::{Experiment, Kind, MechanismSpec, Metric, RunSpec};

use super::Runner;
use super::room::FEW_SESSIONS;
use crate::backend::Backend;
use crate::error::{LabError, Result};
use crate::load::dns::{self, Authority};
use crate::mechanism::{self, Context, Deployed, Room};
use crate::probe::gate;
use crate::process;
use crate::state::Guard;
use crate::topology::{Network, Shape};

/// How long a mechanism may take to carry its first packet.
pub(super) const READY: Duration = Duration::from_secs(5);
/// What it may take longer for each session that it has room for: memory for tables is cleared.
const READY_OF_EACH: Duration = Duration::from_micros(2);

/// A deployed mechanism on its network. Fields drop in this order: processes first.
pub(super) struct Live {
    pub(super) deployed: Deployed,
    /// The name server that stands beside the mechanism.
    pub(super) resolver: Option<Deployed>,
    /// Who answers for the tester's zone.
    pub(super) authority: Option<Authority>,
    pub(super) network: Network,
    pub(super) probe_log: PathBuf,
    pub(super) name: String,
    pub(super) engine: Option<String>,
}

impl Live {
    /// A network with nothing on it yet.
    pub(super) fn new(network: Network, probe_log: PathBuf, name: String) -> Self {
        let deployed = Deployed::default();
        Self { deployed, resolver: None, authority: None, network, probe_log, name, engine: None }
    }

    /// Whom the application asks for names: the server in the box in the middle; where there is none, who
    /// answers for the zone, through the mechanism.
    pub(super) fn name_server(&self) -> Result<IpAddr> {
        match self.resolver {
            Some(_) => Ok(self.network.resolver()?.ip()),
            None => Ok(self.network.target),
        }
    }
}

impl Runner {
    /// Builds the network, puts the mechanism on it with so much room for sessions, and waits until a
    /// ping passes.
    pub(super) fn deploy(
        &mut self,
        guard: &Guard,
        arm: &MechanismSpec,
        room: Room,
    ) -> Result<Live> {
        let mut live = self.bare(guard, arm)?;
        self.start(&mut live, arm, room)?;
        let Live { network, deployed, resolver, .. } = &mut live;
        let asked = resolver.is_some() || arm.kind == Kind::Dns64;
        let mut gone = || deployed.gone() || resolver.as_mut().is_some_and(Deployed::gone);
        let mut why = None;
        let ready = READY + READY_OF_EACH * room.sessions;
        if !gate::wait_ready(&self.backend, network, ready, &mut gone)? {
            let what =
                if network.door()?.is_some() { "connection is taken" } else { "ping passes" };
            why = Some(format!("no {what} within {} s", process::patience(ready).as_secs()));
        } else if asked
            && !dns::wait_ready(&self.backend, &network.app, network.resolver()?.ip(), READY)?
        {
            why = Some("its name server gives no answer".to_owned());
        }
        let Some(why) = why else {
            live.engine = self.mechanism(arm)?.runs(&live.deployed, arm)?;
            return Ok(live);
        };
        let why = if gone() { "its process has ended".to_owned() } else { why };
        live.deployed.fetch_logs();
        let said = match process::complaint(&self.logged(&live.name)) {
            empty if empty.is_empty() => empty,
            said => format!("; it said: {said}"),
        };
        let hint = match arm.device {
            Some(_) => ": `fordway-lab plan` prints the addresses and routes that it needs",
            None => "",
        };
        Err(LabError::NotReady { mechanism: arm.name.clone(), why: format!("{why}{said}{hint}") })
    }

    /// The network of an arm with nothing on it yet.
    pub(super) fn bare(&mut self, guard: &Guard, arm: &MechanismSpec) -> Result<Live> {
        let name = self.next_name(guard);
        let shape = Shape::of(arm, self.run.offloads);
        let network = Network::build(&self.backend, &name, shape, Some(arm))?;
        Ok(Live::new(network, self.raw.join(format!("{name}probe.log")), name))
    }

    /// Starts everything of an arm: who answers for the tester's zone, where anybody asks; the mechanism; and
    /// its name server.
    pub(super) fn start(&self, live: &mut Live, arm: &MechanismSpec, room: Room) -> Result<()> {
        let name = live.name.trim_end_matches('-');
        // Its name server is a deployment of its own, maybe by the same program.
        let alone = MechanismSpec { resolver: None, ..arm.clone() };
        let backend = self.backend.of_mechanism();
        let context = Context {
            backend: &backend,
            network: &live.network,
            spec: &alone,
            name,
            logs: &self.raw,
            room,
        };
        let named = self.names() || self.experiment.matrix;
        let resolver = mechanism::as_resolver(arm).filter(|_| named);
        if resolver.is_some() || arm.kind == Kind::Dns64 || self.experiment.matrix {
            let on = mechanism::Placement::of(arm.threads, self.backend.pin()).tester;
            // Another host has other processors.
            let on = if self.backend.pair().is_some() { Vec::new() } else { on };
            live.authority = Some(Authority::start(&self.backend, &live.network, &on)?);
        }
        live.deployed = self.mechanism(arm)?.deploy(context)?;
        if let Some(spec) = resolver {
            let server = self.part(arm, &spec)?;
            let name = format!("{name}-dns");
            live.resolver = Some(server.deploy(Context { spec: &spec, name: &name, ..context })?);
        }
        Ok(())
    }

    /// Whether anything of this run is found by name.
    fn names(&self) -> bool {
        let measured = |m: &&Metric| !self.run.unmeasured.contains_key(m.name());
        self.experiment.metrics.iter().filter(measured).any(|m| m.needs_names())
    }

    /// What the programs of a deployment have written into their logs.
    fn logged(&self, name: &str) -> String {
        let own = name.trim_end_matches('-');
        let of = |entry: std::fs::DirEntry| {
            let file = entry.file_name().into_string().ok()?;
            let rest = file.strip_prefix(own)?.strip_prefix('-')?;
            let log = rest.ends_with(".log") && !rest.ends_with("probe.log");
            log.then(|| std::fs::read_to_string(entry.path()).ok()).flatten()
        };
        let entries = std::fs::read_dir(&self.raw).map(Iterator::flatten);
        entries.map(|all| all.filter_map(of).collect()).unwrap_or_default()
    }

    /// Starts each of these arms once and says why those that don't come up as they should don't.
    /// Everything is gone again afterwards.
    pub(super) fn rehearse(
        experiment: &Experiment,
        arms: &[String],
        fordway: Option<&Path>,
    ) -> Result<BTreeMap<String, String>> {
        let mut refused = BTreeMap::new();
        if arms.is_empty() {
            return Ok(refused);
        }
        let guard = Guard::new(Path::new("(rehearsal)"))?;
        let mut experiment = experiment.clone();
        experiment.run = Some(RunSpec::bare());
        let mut runner = Self::new(experiment, &guard.folder(), fordway, None)?;
        for name in arms {
            let arm = runner.arm(name)?;
            match runner.deploy(&guard, &arm, Room::of(FEW_SESSIONS)) {
                Ok(_) => {}
                Err(error) if error.ends_the_run() => return Err(error),
                Err(LabError::NotReady { why, .. }) => drop(refused.insert(name.clone(), why)),
                Err(error) => drop(refused.insert(name.clone(), error.to_string())),
            }
        }
        Ok(refused)
    }
}
