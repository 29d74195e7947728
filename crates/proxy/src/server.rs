//! The proxy: sockets, threads, and its handle.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::check::Checks;
use super::error::Error;
use super::session;
use super::settings::Settings;
use super::shared::{Active, Shared};
use super::worker::Worker;
use fordway_counters::proxy::Stats;
use fordway_serve::listen::{self, listener};
use fordway_serve::thread::Threads;
use fordway_serve::{Service, differing, spawn_here};

/// Connections that wait to be taken; the system may allow fewer.
const BACKLOG: i32 = 4096;
/// How often idle connections to servers are checked.
const SWEEP: Duration = Duration::from_secs(1);

/// `inherit` gives the listeners that are there for an address.
fn open(
    settings: &Settings,
    active: Active,
    inherit: impl Fn(SocketAddr) -> io::Result<Vec<TcpListener>>,
) -> Result<Bound, Error> {
    let threads = settings.threads.get();
    let mut listeners = Vec::new();
    for listen in &settings.listen {
        let fails = |source| Error::Listen { address: *listen, source };
        let mut all = inherit(*listen).map_err(fails)?;
        let mut address = match all.first() {
            Some(first) => first.local_addr().map_err(fails)?,
            None => *listen,
        };
        while all.len() < threads {
            // Another proxy of this daemon can take over without a gap.
            let one = listener(address, BACKLOG, |_| Ok(())).map_err(fails)?;
            address = one.local_addr().map_err(fails)?;
            all.push(one);
        }
        listeners.push(Listeners { listen: *listen, address, all });
    }
    Ok(Bound { active, listeners, threads })
}

/// The listeners of one address: one for each thread at least.
#[derive(Debug)]
struct Listeners {
    /// As the settings have it.
    listen: SocketAddr,
    /// With the port that the system has chosen, where the settings say port 0.
    address: SocketAddr,
    all: Vec<TcpListener>,
}

impl Listeners {
    /// Duplicates of the sockets. Connections that are not accepted yet are lost with the last duplicate.
    fn again(&self) -> io::Result<Vec<TcpListener>> {
        self.all.iter().map(TcpListener::try_clone).collect()
    }
}

/// A proxy with its sockets but without threads.
#[derive(Debug)]
pub struct Bound {
    active: Active,
    listeners: Vec<Listeners>,
    threads: usize,
}

/// A running proxy. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    /// For a server that takes over. A listener that is not accepted from must not stay open: they are closed before
    /// the threads are waited for.
    listeners: Vec<Listeners>,
    threads: Threads<Shared>,
}

impl Server {
    /// Where it listens.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(|it| it.address).collect()
    }

    /// Its counters, of all threads together.
    pub fn stats(&self) -> Stats {
        self.threads.shared.stats()
    }
}

impl Service for Server {
    const NAME: &'static str = "proxy";
    type Settings = Settings;
    type Bound = Bound;
    type Error = Error;

    /// # Errors
    ///
    /// An address that can't be had, or a file that is of no use.
    fn bind(settings: &Settings) -> Result<Bound, Error> {
        open(settings, Active::new(settings.clone(), None)?, |_| Ok(Vec::new()))
    }

    /// Makes another server with settings that [`Server::replace`] can't take, which takes over the sockets of this
    /// one: no connection is refused meanwhile. Start it, then stop this one.
    ///
    /// # Errors
    ///
    /// As [`Service::bind`]; then everything stays as it was.
    fn succeed(&self, settings: &Settings) -> Result<Bound, Error> {
        let before = self.threads.shared.active.load();
        let active = Active::taking_over(settings.clone(), &before)?;
        open(settings, active, |listen| {
            let own = self.listeners.iter().find(|it| it.listen == listen);
            own.map_or_else(|| Ok(Vec::new()), Listeners::again)
        })
    }

    fn start(Bound { active, listeners, threads }: Bound) -> Result<Server, Error> {
        let mut of_thread: Vec<Vec<TcpListener>> = (0..threads).map(|_| Vec::new()).collect();
        for listeners in &listeners {
            let again = listeners.again().map_err(Error::Thread)?;
            // There may be more than threads, of a server before this one.
            let places = (0..threads).cycle();
            places.zip(again).for_each(|(index, listener)| of_thread[index].push(listener));
        }
        let shared = Shared::new(active, threads);
        let enter = |listeners: Vec<TcpListener>| {
            listeners.into_iter().map(tokio::net::TcpListener::from_std).collect()
        };
        let threads = Threads::start_local("proxy", "proxy", shared, of_thread, enter, serve);
        Ok(Server { listeners, threads: threads.map_err(Error::Thread)? })
    }

    fn fixed(from: &Settings, to: &Settings) -> Option<&'static str> {
        let same = [("listen", from.listen == to.listen), ("threads", from.threads == to.threads)];
        differing(same)
    }

    /// Applies other settings: requests that begin from now on are served by them. The access log is opened again,
    /// certificates are read again.
    ///
    /// # Errors
    ///
    /// What a running proxy can't change, or a file that is of no use; then everything stays as it was.
    fn replace(&self, settings: Settings) -> Result<(), Error> {
        if let Some(key) = Server::fixed(&self.threads.shared.active.load().settings, &settings) {
            return Err(Error::Fixed(key));
        }
        self.threads.shared.replace(settings)
    }

    fn is_whole(&self) -> bool {
        self.threads.are_running()
    }

    /// Begins to end: accepts no more connections; requests and tunnels under way may finish within the time of the
    /// settings. [`Server::has_ended`] tells when that is over.
    fn begin_end(&mut self) {
        self.listeners.clear();
        self.threads.shared.signals.stop();
    }

    fn has_ended(&self) -> bool {
        self.threads.have_ended()
    }

    /// Its connections end beside the server that takes over, within the time of the settings. Dropping it waits for them.
    fn stop(mut self) {
        self.threads.detach();
    }
}

/// Body of a thread.
async fn serve(shared: Arc<Shared>, index: usize, listeners: Vec<tokio::net::TcpListener>) {
    let worker = Rc::new(Worker::new(Arc::clone(&shared), index));
    let accepting: Vec<_> = listeners
        .into_iter()
        .map(|listener| {
            let worker = Rc::clone(&worker);
            spawn_here(async move {
                let take = |stream, peer| session::admit(stream, peer, &worker);
                listen::accept(&listener, "proxy", take).await;
            })
        })
        .collect();
    let mut sweep = interval(SWEEP);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // One thread for all does what is to be done once.
    let begin_checks = || (index == 0).then(|| Checks::begin(&worker));
    let mut checks = begin_checks();
    while !shared.signals.is_stopping() {
        tokio::select! {
            // New settings: those before go.
            () = shared.signals.woken(index) => {
                drop(worker.active());
                checks = begin_checks();
            }
            _ = sweep.tick() => {
                worker.sweep();
                if let Some(tls) = worker.active().tls.as_ref().filter(|_| index == 0) {
                    let certificates = Arc::clone(&tls.certificates);
                    spawn_blocking(move || certificates.look());
                }
            }
        }
    }
    drop(checks);
    for task in accepting {
        task.abort();
        let _ = task.await;
    }
    worker.drain();
    let deadline = Instant::now() + shared.active.load().settings.limits.drain;
    tokio::select! {
        () = worker.ended() => {}
        () = sleep_until(deadline) => {}
    }
}
