//! The daemon's state, and what requests do with it.
//!
//! All requests are carried out on one thread, one after the other, so none sees another half done. Only reading whole
//! tables has a thread of its own.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use fordway_config::{Config, Feature, Settings, Translator};
use fordway_net::{Netlink, View};
use tokio::sync::{Notify, broadcast};
use tracing::info;

use super::cluster::Seat;
use super::desired::Desired;
use super::dstm_client::{self, ClientTask};
use super::services::Services;
use crate::apply::running::Running;
use crate::apply::translators::Translators;
use crate::apply::upkeep::earlier;
use crate::failure::Failure;
use crate::metrics::Access;
use crate::reconcile::auto::{Auto, Seen};
use fordway_control::{Change, Event, ReloadPlan, Stats, Status};
use fordway_counters::dstm::LeaseView;

/// Changes that wait for a client that watches; one that is slower loses some, and is told how many.
const CHANGES: usize = 1024;

/// What the daemon is to run.
pub struct Job {
    /// The configuration.
    pub config: Config,
    /// Where it came from, for people.
    pub origin: String,
    /// The file that it can be read from again.
    pub file: Option<PathBuf>,
    /// The text of a configuration that has no file.
    pub base: Option<String>,
    /// Values that replace those of the file.
    pub settings: Settings,
    /// What a controller has set before this start.
    pub desired: Desired,
    /// What comes before the file.
    pub adjust: Adjust,
    /// Folder for locks and the ledger.
    pub run_dir: PathBuf,
}

/// Options of the command line that come before what the file says.
pub struct Adjust(Box<dyn Fn(&mut Config)>);

impl Adjust {
    /// `adjust` is called with each configuration that is read.
    pub fn new(adjust: impl Fn(&mut Config) + 'static) -> Adjust {
        Adjust(Box::new(adjust))
    }

    /// Changes a configuration that has been read.
    pub fn apply(&self, config: &mut Config) {
        (self.0)(config);
    }
}

impl Daemon {
    /// Removes from a configuration what was taken down.
    pub(super) fn leave_down(&self, config: &mut Config) {
        for name in &self.down {
            let _of_kernel = remove(config, name);
        }
    }
}

/// Removes what has this name from a configuration, and returns whether it was of the kernel's own translation.
fn remove(config: &mut Config, name: &str) -> bool {
    let Config { translators, nat44, dual_stack, dstm_clients, .. } = config;
    dstm_clients.retain(|client| client.name.as_str() != name);
    translators.retain(|translator| translator.name.as_str() != name);
    let before = nat44.len() + dual_stack.len();
    nat44.retain(|entry| entry.name.as_str() != name);
    dual_stack.retain(|entry| entry.name.as_str() != name);
    nat44.len() + dual_stack.len() < before
}

/// A running daemon. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Handle(Rc<Shared>);

struct Shared {
    daemon: RefCell<Daemon>,
    ready: Instant,
    leave: Notify,
    numbers: Cell<u64>,
    /// Changes, for clients that watch, and the number of the last one.
    changes: broadcast::Sender<Event>,
    generation: Cell<u64>,
    /// Nothing is begun any more.
    ends: Cell<bool>,
}

/// What there is at this moment.
pub(crate) struct Daemon {
    pub(crate) job: Job,
    /// Keys that a controller has set.
    pub(super) desired: Desired,
    /// Names that were taken down since the file was read.
    pub(super) down: BTreeSet<String>,
    /// What runs, as configured.
    pub(crate) config: Config,
    pub(crate) translators: Translators,
    /// What sets translators up, and takes them down, as the network has it.
    pub(crate) automatic: Vec<Auto>,
    pub(crate) services: Services,
    /// Who may read the metrics.
    pub(super) metrics: Access,
    /// DSTM clients that run.
    pub(super) dstm_clients: Vec<ClientTask>,
    /// DSTM clients that a reload has added, to be started.
    pub(super) new_dstm_clients: Vec<dstm_client::Opened>,
    /// The gateway's seat in its cluster, if it is in one.
    pub(super) cluster: Option<Seat>,
}

impl Handle {
    pub(crate) fn new(
        job: Job,
        translators: Translators,
        automatic: Vec<Auto>,
        services: Services,
        metrics: Access,
    ) -> Handle {
        let config = job.config.clone();
        Handle(Rc::new(Shared {
            daemon: RefCell::new(Daemon {
                desired: job.desired.clone(),
                down: BTreeSet::new(),
                job,
                config,
                translators,
                automatic,
                services,
                metrics,
                dstm_clients: Vec::new(),
                new_dstm_clients: Vec::new(),
                cluster: None,
            }),
            ready: Instant::now(),
            leave: Notify::new(),
            numbers: Cell::new(0),
            changes: broadcast::channel(CHANGES).0,
            generation: Cell::new(0),
            ends: Cell::new(false),
        }))
    }

    /// The state at this moment. Not to be held over an await.
    pub(crate) fn state(&self) -> RefMut<'_, Daemon> {
        self.0.daemon.borrow_mut()
    }

    /// What runs now.
    pub(crate) fn status(&self) -> Status {
        let daemon = self.0.daemon.borrow();
        let mut netlink = Netlink::open().ok();
        let mut name = |index: u32| {
            let link = netlink.as_mut().and_then(|it| it.find_link_by_index(index).ok().flatten());
            link.map_or_else(|| index.to_string(), |link| link.name)
        };
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            features: Feature::built_in().map(str::to_owned).collect(),
            pid: std::process::id(),
            config: daemon.job.origin.clone(),
            uptime_seconds: self.0.ready.elapsed().as_secs(),
            automatic: daemon.automatic.iter().map(Auto::status).collect(),
            translators: daemon
                .translators
                .running
                .iter()
                .map(|one| one.status(&mut name))
                .collect(),
            dstm_clients: daemon.dstm_clients.iter().map(ClientTask::told).collect(),
            ..daemon.services.status(&daemon.config)
        }
    }

    /// What has been carried until now.
    pub(crate) fn stats(&self) -> Stats {
        let daemon = self.0.daemon.borrow();
        Stats {
            automatic: daemon.automatic.iter().map(Auto::status).collect(),
            translators: daemon.translators.running.iter().map(Running::stats).collect(),
            dstm_clients: daemon.dstm_clients.iter().map(ClientTask::told).collect(),
            ..daemon.services.stats()
        }
    }

    /// What the daemon waits for before it does all of its work, in words; nothing: it is ready.
    pub(crate) fn waits_for(&self) -> Vec<String> {
        let daemon = self.0.daemon.borrow();
        let ends = self.0.ends.get().then(|| "the daemon is about to end".to_owned());
        let failed = daemon.translators.running.iter().filter(|one| one.failed());
        let failed = failed.map(|one| format!("{}: its engine has failed", one.name()));
        let automatic = daemon.automatic.iter().map(Auto::status);
        let waiting = automatic.filter(|it| it.state == "waiting" || it.error.is_some());
        let waiting = waiting.map(|it| {
            let why = it.error.or(it.reason).unwrap_or(it.state);
            format!("{}: {why}", it.name)
        });
        ends.into_iter().chain(failed).chain(waiting).collect()
    }

    /// Takes one translator down; `None`: there is none of this name.
    pub(crate) fn down(&self, name: &str) -> Option<Result<(), Failure>> {
        if let Err(failure) = self.goes_on() {
            return Some(Err(failure));
        }
        if self.is_shared(name) {
            let text = format!("{name} is shared by a cluster");
            let hint =
                "fordway cluster leave gives its shards to the other gateways, then end the daemon";
            return Some(Err(Failure::failed(text).hint(hint)));
        }
        let (automatic, one, of_kernel) = {
            let mut daemon = self.state();
            let automatic = daemon.automatic.iter().position(|one| one.name() == name);
            let at = daemon.translators.running.iter().position(|one| one.name() == name);
            let automatic = automatic.map(|at| daemon.automatic.remove(at));
            let one = at.map(|at| daemon.translators.running.remove(at));
            daemon.end_dstm_clients(|it| it == name);
            let of_kernel = remove(&mut daemon.config, name);
            if automatic.is_some() || one.is_some() || of_kernel {
                daemon.down.insert(name.to_owned());
            }
            // A prefix that is no longer translated must not be announced.
            let Daemon { services, config, .. } = &mut *daemon;
            services.apply(config);
            (automatic, one, of_kernel)
        };
        if automatic.is_none() && one.is_none() && !of_kernel {
            return None;
        }
        info!("{name}: taking it down, as asked");
        self.tell(Change::Down { name: name.to_owned() });
        automatic.into_iter().for_each(Auto::abandon);
        Some(one.map_or(Ok(()), Running::take_down))
    }

    /// Has a translator's kernel engine measure the time that packets take, or measure it no more. Gives what was done, in
    /// words; `None`: there is no translator of this name.
    pub(crate) fn measure(&self, name: &str, on: bool) -> Option<Result<String, Failure>> {
        if let Err(failure) = self.goes_on() {
            return Some(Err(failure));
        }
        self.with(name, |one| {
            if one.kernel.is_none() {
                return Err(Failure::failed(format!("{name} has no kernel engine to measure")));
            }
            one.reconfigure(&Translator { measure: on, ..one.config.clone() })?;
            let what = if on { "measures" } else { "does not measure" };
            Ok(format!(
                "{name} {what} the time of packets, until a reload or a start says otherwise"
            ))
        })
    }

    /// Reads the configuration again and makes it so. Gives what was done, in words.
    pub(crate) fn reload(&self) -> Result<String, Failure> {
        self.goes_on()?;
        let text = self.reload_with(true)?;
        self.tell(Change::Reloaded { text: text.clone() });
        Ok(text)
    }

    /// The same, without telling; `of_file`: there has to be a file.
    pub(super) fn reload_with(&self, of_file: bool) -> Result<String, Failure> {
        let reloaded = self.state().reload(of_file);
        self.start_automatic();
        let fresh = std::mem::take(&mut self.state().new_dstm_clients);
        self.start_dstm_clients(fresh);
        reloaded
    }

    /// What [`Handle::reload`] would do.
    pub(crate) fn reload_plan(&self) -> Result<ReloadPlan, Failure> {
        self.goes_on()?;
        self.0.daemon.borrow().plan_reload()
    }

    /// The changes from now on, and the number of the last one before.
    pub(super) fn watch(&self) -> (broadcast::Receiver<Event>, u64) {
        (self.0.changes.subscribe(), self.generation())
    }

    /// The number of the last change.
    pub(super) fn generation(&self) -> u64 {
        self.0.generation.get()
    }

    /// Tells those who watch of a change, and returns its number.
    pub(super) fn tell(&self, change: Change) -> u64 {
        let generation = self.generation() + 1;
        self.0.generation.set(generation);
        // Nobody need watch.
        let _ = self.0.changes.send(Event { generation, change });
        generation
    }

    pub(super) fn goes_on(&self) -> Result<(), Failure> {
        match self.0.ends.get() {
            true => Err(Failure::failed("the daemon is about to end")),
            false => Ok(()),
        }
    }

    /// Begins the end: hosts are told, and nothing is begun any more.
    pub(crate) fn begin_end(&self, leave: bool) {
        self.0.ends.set(true);
        self.state().services.begin_end(leave);
    }

    /// Whether all clients that were served when the end began are done.
    pub(crate) fn is_drained(&self) -> bool {
        self.state().services.are_drained()
    }

    /// Asks the daemon to end and to leave its kernel engines running.
    pub(crate) fn leave(&self) {
        self.0.leave.notify_one();
    }

    /// Waits for a request to leave.
    pub(crate) async fn asked_to_leave(&self) {
        self.0.leave.notified().await;
    }

    /// Whether an engine, or the part in a cluster, has ended by itself. That of an automatic CLAT is set up again.
    pub(crate) fn failed(&self) -> bool {
        let daemon = self.0.daemon.borrow();
        if daemon.cluster.as_ref().is_some_and(Seat::failed) {
            return true;
        }
        let mut failed = daemon.translators.running.iter().filter(|one| one.failed());
        failed.any(|one| match daemon.automatic.iter().find(|auto| auto.name() == one.name()) {
            Some(auto) => {
                auto.kick();
                false
            }
            None => true,
        })
    }

    /// Lets one automatic CLAT look at the host and act. The outer `None`: there is no automatic CLAT of this name; the
    /// inner one: nothing is due at a known time.
    pub(super) fn step_automatic(&self, name: &str, seen: Seen<'_>) -> Option<Option<Instant>> {
        let Daemon { automatic, translators, config, .. } = &mut *self.state();
        let auto = automatic.iter_mut().find(|auto| auto.name() == name)?;
        Some(auto.step(translators, &config.translators, seen))
    }

    /// Does something with each automatic CLAT.
    pub(super) fn with_automatic(&self, work: impl FnMut(&mut Auto)) {
        self.state().automatic.iter_mut().for_each(work);
    }

    /// Ends what sets translators up; `all`: with what earlier daemons have left.
    pub(crate) fn end_automatic(&self, all: bool) {
        let automatic = std::mem::take(&mut self.state().automatic);
        if all {
            automatic.into_iter().for_each(Auto::abandon);
        }
    }

    /// Begins servers anew that have failed.
    pub(crate) fn mend_services(&self) {
        let Daemon { services, config, .. } = &mut *self.state();
        services.mend(config, Instant::now());
    }

    /// Reads the host once; translators and services follow its changes and put back what is missing. Returns when to
    /// read it again, if something waits, and how long reading took.
    pub(crate) fn follow_host(
        &self,
        netlink: &mut Netlink,
        now: Instant,
    ) -> (Option<Instant>, Duration) {
        let mut view = View::new(netlink);
        let Daemon { translators, services, config, .. } = &mut *self.state();
        let again =
            translators.running.iter_mut().filter_map(|one| one.follow(&mut view, now)).min();
        let again = earlier(again, services.follow(config, &mut view, now));
        (again, view.spent())
    }

    /// The DSTM server's leases, by address.
    pub(crate) fn leases(&self) -> Result<Vec<LeaseView>, Failure> {
        self.0.daemon.borrow().services.leases()
    }

    /// Ends a client's lease.
    pub(crate) fn revoke(&self, client: &str) -> Result<String, Failure> {
        self.0.daemon.borrow().services.revoke(client)
    }

    /// The names, for people.
    pub(crate) fn names(&self) -> String {
        let mut daemon = self.state();
        let mut names: Vec<String> =
            daemon.translators.running.iter().map(|one| one.name().to_owned()).collect();
        let waiting =
            daemon.automatic.iter().filter(|auto| !names.iter().any(|it| it == auto.name()));
        let waiting: Vec<String> =
            waiting.map(|auto| format!("{} ({})", auto.name(), auto.state())).collect();
        names.extend(waiting);
        names.extend(daemon.services.names());
        if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
    }

    /// Does something with one translator; `None`: there is none of this name.
    pub(crate) fn with<T>(&self, name: &str, work: impl FnOnce(&mut Running) -> T) -> Option<T> {
        let mut daemon = self.state();
        daemon.translators.running.iter_mut().find(|one| one.name() == name).map(work)
    }

    /// What `find` gives for each translator, where it gives something.
    pub(super) fn with_all<T>(&self, find: impl FnMut(&mut Running) -> Option<T>) -> Vec<T> {
        self.state().translators.running.iter_mut().filter_map(find).collect()
    }

    /// That there is no translator of this name.
    pub(crate) fn unknown(&self, name: &str) -> Failure {
        Failure::failed(format!("no translator is called {name}"))
            .hint(format!("there is {}", self.names()))
    }

    /// A number that no other caller gets.
    pub(super) fn next_number(&self) -> u64 {
        let number = self.0.numbers.get();
        self.0.numbers.set(number + 1);
        number
    }
}
