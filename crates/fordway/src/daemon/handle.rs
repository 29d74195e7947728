//! The daemon as its sockets see it.
//!
//! Everything but the queues' threads happens on one thread: requests are served between each other, so none
//! sees another half done. Only whoever looks through whole tables has a thread for that.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use fordway_config::Config;
use fordway_net::Netlink;
use tokio::sync::Notify;
use tracing::info;

use super::running::Running;
use super::{Context, Job};
use crate::failure::Failure;
use crate::report::{Stats, Status};

/// A running daemon. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Handle(Rc<Shared>);

struct Shared {
    daemon: RefCell<Daemon>,
    ready: Instant,
    leave: Notify,
    numbers: Cell<u64>,
}

/// What there is at this moment.
pub(super) struct Daemon {
    pub(super) job: Job,
    /// What runs, as configured.
    pub(super) config: Config,
    pub(super) context: Context,
    /// In the order of the configuration.
    pub(super) running: Vec<Running>,
}

impl Handle {
    pub(super) fn new(job: Job, context: Context, running: Vec<Running>) -> Handle {
        let config = job.config.clone();
        Handle(Rc::new(Shared {
            daemon: RefCell::new(Daemon { job, config, context, running }),
            ready: Instant::now(),
            leave: Notify::new(),
            numbers: Cell::new(0),
        }))
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
            pid: std::process::id(),
            config: daemon.job.origin.clone(),
            uptime_seconds: self.0.ready.elapsed().as_secs(),
            translators: daemon.running.iter().map(|one| one.status(&mut name)).collect(),
        }
    }

    /// What has been carried until now.
    pub(crate) fn stats(&self) -> Stats {
        let daemon = self.0.daemon.borrow();
        Stats { translators: daemon.running.iter().map(Running::stats).collect() }
    }

    /// Takes one translator down; `None`: there is none of this name.
    pub(crate) fn down(&self, name: &str) -> Option<Result<(), Failure>> {
        let one = {
            let mut daemon = self.0.daemon.borrow_mut();
            let at = daemon.running.iter().position(|one| one.name() == name)?;
            daemon.config.translators.retain(|translator| translator.name.as_str() != name);
            daemon.running.remove(at)
        };
        info!("{name}: taking it down, as asked");
        Some(one.take_down())
    }

    /// Reads the configuration again and makes it so. Gives what was done, in words.
    pub(crate) fn reload(&self) -> Result<String, Failure> {
        self.0.daemon.borrow_mut().reload()
    }

    /// Asks the daemon to end and to leave its kernel engines running.
    pub(crate) fn leave(&self) {
        self.0.leave.notify_one();
    }

    /// Waits until somebody has asked the daemon to leave.
    pub(super) async fn asked_to_leave(&self) {
        self.0.leave.notified().await;
    }

    /// Whether an engine has ended by itself.
    pub(super) fn failed(&self) -> bool {
        self.0.daemon.borrow().running.iter().any(Running::failed)
    }

    /// Lets translators follow the host: routes at an uplink, addresses of devices in pool4.
    pub(super) fn follow_host(&self, netlink: &mut Netlink) {
        for one in &mut self.0.daemon.borrow_mut().running {
            one.follow_uplink(netlink);
            one.follow_pool4(netlink);
        }
    }

    /// All translators, to be ended.
    pub(super) fn take_running(&self) -> Vec<Running> {
        std::mem::take(&mut self.0.daemon.borrow_mut().running)
    }

    /// The names, for people.
    pub(super) fn names(&self) -> String {
        let daemon = self.0.daemon.borrow();
        let names: Vec<&str> = daemon.running.iter().map(Running::name).collect();
        if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
    }

    /// Does something with one translator; `None`: there is none of this name.
    pub(super) fn with<T>(&self, name: &str, work: impl FnOnce(&mut Running) -> T) -> Option<T> {
        let mut daemon = self.0.daemon.borrow_mut();
        daemon.running.iter_mut().find(|one| one.name() == name).map(work)
    }

    /// What `find` gives for each translator, where it gives something.
    pub(super) fn with_all<T>(&self, find: impl FnMut(&mut Running) -> Option<T>) -> Vec<T> {
        self.0.daemon.borrow_mut().running.iter_mut().filter_map(find).collect()
    }

    /// That there is no translator of this name.
    pub(super) fn unknown(&self, name: &str) -> Failure {
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
