//! Both hosts of a run, as its back end: the server's box on one, all other boxes on the other, and every
//! mechanism there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fordway_data::environment::{Affinity, Environment, HostRecord, HostsRecord, Nic};
use fordway_data::files::write_file;
use fordway_data::spec::{Cores, Experiment, HostSpec, Hosts, MechanismSpec, Pin, Role};

use super::orders::{Order, Surveyed};
use super::record::nic;
use super::there::There;
use super::{Far, MARK};
use crate::backend::{Backend, Cap, Counting, Keeper, Netns, Place};
use crate::environment;
use crate::error::{LabError, Result};
use crate::host::conntrack::Limits;
use crate::host::{affinity, clocksource};
use crate::mechanism::{self, Mechanism};
use crate::process::{self, Dialogue, Output, Running};
use crate::state::{self, Guard};

/// What the names of the server's places end with.
const SERVER: &str = "-iperf";

/// How long a connection's process may take to go.
const GOING: Duration = Duration::from_secs(2);

/// One end of the wire.
#[derive(Debug, Clone)]
pub(crate) enum End {
    /// This machine.
    Here,
    /// Another host.
    There(Arc<Far>),
}

/// Both hosts, ready.
#[derive(Debug)]
pub(crate) struct Pair {
    /// The hosts file.
    pub(crate) hosts: Hosts,
    client: End,
    server: End,
    /// Of this machine's own end.
    here: Netns,
    /// Folder of the run's artefacts, once it is known.
    raw: OnceLock<PathBuf>,
    id: String,
    // Holds the sockets of the connections, which are gone by then.
    _guard: Guard,
}

impl Pair {
    /// Opens both ends. Nothing is done to a host that is not marked, in the file and on itself.
    pub(crate) fn open(hosts: &Hosts, fordway: Option<&Path>) -> Result<Arc<Self>> {
        hosts.allowed()?;
        let guard = Guard::new(Path::new("(connections to hosts)"))?;
        let folder = guard.folder();
        std::fs::create_dir_all(&folder).map_err(LabError::file(&folder))?;
        let id = state::free_id();
        let end = |number: usize, host: &HostSpec| -> Result<End> {
            if host.address.is_none() {
                here_allowed(host)?;
                return Ok(End::Here);
            }
            let far = Far::open(host, folder.join(format!("ssh-{number}")), fordway, &id)?;
            if !far.cleaned.is_empty() {
                let count = far.cleaned.len();
                crate::note!(
                    "  cleaned   a run that ended without tidying up on host {}: {count} namespaces",
                    host.name
                );
            }
            if far.folder != state::folder_of(&id) {
                // Both have the same programs, by their hash.
                return Err(LabError::Usage(format!("host {}: its folder is another", host.name)));
            }
            Ok(End::There(far))
        };
        let (client, server) = (end(0, hosts.client())?, end(1, hosts.server())?);
        let here = Netns { dir: state::folder_of(&id) };
        let hosts = hosts.clone();
        Ok(Arc::new(Self { hosts, client, server, here, raw: OnceLock::new(), id, _guard: guard }))
    }

    /// The id of the run on both hosts.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Says where the run's artefacts go.
    pub(crate) fn keep_in(&self, raw: &Path) {
        // A second run of the same hosts in one process does not exist.
        let _ = self.raw.set(raw.to_path_buf());
    }

    fn end(&self, place: &Place) -> &End {
        if place.0.ends_with(SERVER) { &self.server } else { &self.client }
    }

    /// Both ends with their roles and hosts.
    fn ends(&self) -> [(&'static str, &HostSpec, &End); 2] {
        let [(client, left), (server, right)] = self.hosts.both();
        [(client, left, &self.client), (server, right, &self.server)]
    }

    fn others(&self) -> impl Iterator<Item = &Arc<Far>> {
        [&self.client, &self.server].into_iter().filter_map(|end| match end {
            End::Here => None,
            End::There(far) => Some(far),
        })
    }

    /// An error unless every other host answers.
    pub(crate) fn answers(&self) -> Result<()> {
        self.others().try_for_each(|far| far.ask::<bool>(Order::Answer).map(drop))
    }

    /// An error when one of the hosts can't be reached any more.
    pub(crate) fn there(&self) -> Result<()> {
        self.others().try_for_each(|far| far.there())
    }

    /// The implementation of a part of an arm, on the host where it runs.
    pub(crate) fn mechanism(
        &self,
        arm: &MechanismSpec,
        spec: &MechanismSpec,
        fordway: Option<&Path>,
        offloads: bool,
    ) -> Result<Box<dyn Mechanism>> {
        let own = mechanism::of_part(arm, spec, fordway)?;
        Ok(match &self.client {
            End::Here => own,
            End::There(host) => {
                Box::new(There { host: host.clone(), own, arm: arm.clone(), offloads })
            }
        })
    }

    /// What can run and be measured: mechanisms on the client's host, and what both hosts have. `here` looks on this
    /// machine for what is wanted, and rehearses it or not.
    pub(crate) fn survey(
        &self,
        experiment: &Experiment,
        wanted: &[String],
        rehearse: bool,
        here: impl Fn(&[String], bool) -> Result<Surveyed>,
    ) -> Result<Surveyed> {
        let ask = |end: &End, wanted: &[String], rehearse: bool| -> Result<Surveyed> {
            match end {
                End::Here => here(wanted, rehearse),
                End::There(far) => far.ask(Order::Survey {
                    experiment: Box::new(experiment.clone()),
                    wanted: wanted.to_vec(),
                    rehearse,
                }),
            }
        };
        let mut found = ask(&self.client, wanted, rehearse)?;
        let server = ask(&self.server, &[], false)?;
        let missing = |(metric, why): (String, String)| {
            (metric, format!("host {}: {why}", self.hosts.server))
        };
        let server = server.unmeasured.into_iter().map(missing);
        found.unmeasured = server.chain(found.unmeasured).collect();
        Ok(found)
    }

    /// Clock sources that both hosts offer.
    pub(crate) fn clocksources(&self) -> Result<Vec<String>> {
        let mut all = self.ends().into_iter().map(|(_, _, end)| clocksources(end));
        let (_, client) = all.next().transpose()?.unwrap_or_default();
        let (_, server) = all.next().transpose()?.unwrap_or_default();
        Ok(client.into_iter().filter(|name| server.contains(name)).collect())
    }

    /// The present clock source of the client's host.
    pub(crate) fn clocksource(&self) -> Result<String> {
        Ok(clocksources(&self.client)?.0)
    }

    /// Switches the clock source of both hosts; `guard` puts this machine's back, each other host its own.
    pub(crate) fn switch_clocksource(&self, guard: &mut Guard, name: &str) -> Result<()> {
        for (_, _, end) in self.ends() {
            match end {
                End::Here => guard.switch_clocksource(name)?,
                End::There(far) => far.ask(Order::Clocksource { name: name.to_owned() })?,
            }
        }
        Ok(())
    }

    /// The processors of both hosts that this pin chooses.
    pub(crate) fn choose(&self, pin: &Pin) -> Result<Pin> {
        let cores = |end: &End| -> Result<Cores> {
            match end {
                End::Here => Ok(affinity::cores()),
                End::There(far) => far.ask(Order::Cores),
            }
        };
        Ok(pin.on_two(&cores(&self.client)?, &cores(&self.server)?)?)
    }

    /// Binds interrupts of both devices on the wire, and keeps the frequency of all processors of the pin; `guard` puts
    /// back what is this machine's, each other host its own.
    pub(crate) fn bind(&self, guard: &mut Guard, pin: &Pin) -> Result<()> {
        for ((_, host, end), irq) in self.ends().into_iter().zip([Role::ClientIrq, Role::ServerIrq])
        {
            let (busy, irq) = (pin.on_host(irq.on_server()), pin.of(irq));
            let device = host.uplink.clone();
            match end {
                End::Here => guard.set(&affinity::wanted(&device, irq, &busy)?)?,
                End::There(far) => far.ask(Order::Bind { device, irq: irq.cloned(), busy })?,
            }
        }
        Ok(())
    }

    /// On which processors the work of both hosts is done now, with that of their devices on the wire: client, server.
    pub(crate) fn affinity(&self) -> Result<[Affinity; 2]> {
        let [client, server] = self.ends().map(|(_, host, end)| match end {
            End::Here => Ok(affinity::found(Some(&host.uplink))),
            End::There(far) => far.ask(Order::Affinity { device: host.uplink.clone() }),
        });
        Ok([client?, server?])
    }

    /// Makes room for tracked connections where mechanisms run.
    pub(crate) fn limit_conntrack(
        &self,
        guard: &mut Guard,
        connections: u64,
    ) -> Result<Option<Limits>> {
        match &self.client {
            End::Here => guard.limit_conntrack(connections),
            End::There(far) => far.ask(Order::Conntrack { connections }),
        }
    }

    /// Whether mechanisms run on this machine.
    pub(crate) fn client_is_here(&self) -> bool {
        matches!(self.client, End::Here)
    }

    /// The environment record: the client's host, where mechanisms run, and in it what is to be known of both.
    pub(crate) fn environment(
        &self,
        experiment: &Experiment,
        fordway: Option<&Path>,
    ) -> Result<Environment> {
        let record = |end: &End, experiment: &Experiment| match end {
            End::Here => environment::record(experiment, fordway),
            End::There(far) => {
                far.ask(Order::Environment { experiment: Box::new(experiment.clone()) })
            }
        };
        let mut whole = record(&self.client, experiment)?;
        let mut hosts = BTreeMap::new();
        for (role, host, end) in self.ends() {
            let environment = match role {
                "client" => None,
                // No mechanism runs there.
                _ => {
                    let bare = Experiment { mechanisms: Vec::new(), ..experiment.clone() };
                    Some(record(end, &bare)?)
                }
            };
            let uplink = uplink(end, &host.uplink)?;
            hosts.insert(host.name.clone(), HostRecord { role: role.into(), uplink, environment });
        }
        whole.hosts = Some(Box::new(HostsRecord { rtt_ms: None, hosts }));
        let found = self.affinity()?;
        whole.each_machine(|machine, server| {
            machine.affinity = Some(found[usize::from(server)].clone());
        });
        Ok(whole)
    }

    /// The error that stands behind another: a command that ssh could not run says nothing of the host that is gone.
    pub(crate) fn cause(&self, error: LabError) -> LabError {
        if error.ends_the_run() {
            return error;
        }
        let by_ssh = matches!(&error, LabError::Command { status, .. } if status.ends_with(" 255"));
        // The connection's process may take a moment to go after its last command did.
        let deadline = Instant::now() + if by_ssh { GOING } else { Duration::ZERO };
        loop {
            match self.there() {
                Err(lost) => return lost,
                Ok(()) if Instant::now() >= deadline => return error,
                Ok(()) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

/// This machine needs its mark like any other.
fn here_allowed(host: &HostSpec) -> Result<()> {
    state::need_root()?;
    if Path::new(MARK).is_file() {
        return Ok(());
    }
    Err(LabError::Usage(format!(
        "host {}, this machine: there is no {MARK}, which says that it may be loaded to its limits; make it with \
         `touch {MARK}`",
        host.name
    )))
}

fn clocksources(end: &End) -> Result<(String, Vec<String>)> {
    match end {
        End::Here => Ok((clocksource::current()?, clocksource::available()?)),
        End::There(far) => far.ask(Order::Clocksources),
    }
}

fn uplink(end: &End, name: &str) -> Result<Nic> {
    match end {
        End::Here => nic(name),
        End::There(far) => far.ask(Order::Device { name: name.to_owned() }),
    }
}

impl Backend for Pair {
    fn run(&self, place: Option<&Place>, argv: &[String], output: Output<'_>) -> Result<Running> {
        let Some(place) = place else { return process::start(argv, output) };
        match self.end(place) {
            End::Here => self.here.run(Some(place), argv, output),
            End::There(far) => {
                far.there()?;
                process::start_held(&far.argv(Some(&place.0), argv), output)
            }
        }
    }

    fn talk(&self, place: &Place, argv: &[String], patience: Duration) -> Result<Dialogue> {
        match self.end(place) {
            End::Here => self.here.talk(place, argv, patience),
            End::There(far) => process::talk(&far.argv_of_dialogue(&place.0, argv), patience)
                .map_err(|error| self.cause(error)),
        }
    }

    fn inside(&self, place: &Place, argv: &[String]) -> Vec<String> {
        match self.end(place) {
            End::Here => self.here.inside(place, argv),
            End::There(far) => far.argv(Some(&place.0), argv),
        }
    }

    fn namespace(&self, place: &Place) -> PathBuf {
        self.here.namespace(place)
    }

    fn deploy(&self, name: &str, content: &[u8]) -> Result<PathBuf> {
        if let Some(raw) = self.raw.get() {
            write_file(&raw.join(name), content)?;
        }
        let path = self.here.deploy(name, content)?;
        let text = String::from_utf8_lossy(content).into_owned();
        for far in self.others() {
            // The folder has the run's id in its name: it is the same on every host.
            let (name, content) = (name.to_owned(), text.clone());
            let _: PathBuf = far.ask(Order::Put { name, content })?;
        }
        Ok(path)
    }

    fn outside(&self, place: &Place, argv: &[String], output: Output<'_>) -> Result<Running> {
        match self.end(place) {
            End::Here => process::start(argv, output),
            End::There(far) => {
                far.there()?;
                process::start_held(&far.argv(None, argv), output)
            }
        }
    }

    fn wire(&self, place: &Place) -> Option<&str> {
        let server = place.0.ends_with(SERVER);
        Some(if server { &self.hosts.server().uplink } else { &self.hosts.client().uplink })
    }

    fn keeper(&self) -> Keeper {
        let (client, server) = (self.client.clone(), self.server.clone());
        Keeper::new(move |place| {
            // What cannot be removed now goes when that host's end does.
            let _ = match if place.0.ends_with(SERVER) { &server } else { &client } {
                End::Here => state::remove_namespace(&place.0),
                End::There(far) => far.ask_anyway(Order::Remove { namespace: place.0.clone() }),
            };
        })
    }

    fn count(&self, pids: &[u32], handles: &[u64]) -> Result<Counting> {
        match &self.client {
            End::Here => Ok(Counting::here(pids)),
            End::There(far) => {
                let handle = far.ask(Order::Count { handles: handles.to_vec() })?;
                let far = far.clone();
                Ok(Counting::new(move || far.ask(Order::Counted { handle })))
            }
        }
    }

    fn cap(&self) -> Option<Cap> {
        self.hosts
            .cap_gbit_s()
            .zip(self.hosts.cap_packets_s())
            .map(|(gbit_s, packets_s)| Cap { gbit_s, packets_s })
    }
}
