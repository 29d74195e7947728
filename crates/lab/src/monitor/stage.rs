//! The lab's own network with a mechanism on it and pages fetched through it, so that there is something to record.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Reading, Source, rate};
use crate::backend::Served;
use crate::error::Result;
use crate::load::{ab, fetch};
use crate::process::{Output, interrupted, start};
use crate::runner::Staged;

/// Simultaneous connections of the traffic.
const CONNECTIONS: u64 = 10;
/// The experiment whose arms can be put on the stage.
pub(crate) const EXPERIMENT: &str = "nat64-vs-nat44";

/// A mechanism at work. Fields drop in this order: what fetches, what serves, the network.
pub(crate) struct Stage {
    traffic: Traffic,
    _origin: Served,
    staged: Staged,
}

impl Stage {
    /// Puts an arm on a network of its own, and fetches so many pages per second through it, as `ab` does.
    pub(crate) fn set(arm: &str, pages: u64, raw: &Path, fordway: Option<&Path>) -> Result<Self> {
        let staged = Staged::new(EXPERIMENT, arm, fordway)?;
        let log = raw.join("origin.log");
        let origin = fetch::serve(staged.backend(), staged.network(), fetch::KEPT_BY_APACHE, &log)?;
        let argv = ab::argv(staged.network(), pages, CONNECTIONS.min(pages));
        let inside = staged.backend().inside(&staged.network().app, &argv);
        Ok(Self { traffic: Traffic::start(inside, pages), _origin: origin, staged })
    }

    /// The network and what is on it.
    pub(crate) fn staged(&self) -> &Staged {
        &self.staged
    }

    /// Pages that came, as a series.
    pub(crate) fn pages(&self) -> Pages {
        Pages { done: self.traffic.done.clone(), before: None }
    }
}

/// Fetches pages until dropped: so many at the beginning of each second, or as soon as those before have come.
struct Traffic {
    done: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Traffic {
    fn start(argv: Vec<String>, pages: u64) -> Self {
        let (done, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, told) = (done.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let ended = || told.load(Ordering::Relaxed) || interrupted();
            while !ended() {
                let began = Instant::now();
                let fetched = start(&argv, Output::Keep)
                    .and_then(|ab| ab.wait(Duration::from_secs(60)))
                    .and_then(|ab| ab::parse(&ab.stdout));
                // What fails is missing in the count, which is a series of the recording.
                let came = fetched.map_or(0, |f| f.requests.saturating_sub(f.failed).min(pages));
                counted.fetch_add(came, Ordering::Relaxed);
                while began.elapsed() < Duration::from_secs(1) && !ended() {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        });
        Self { done, stop, thread: Some(thread) }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Pages per second, over the time between two samples.
pub(crate) struct Pages {
    done: Arc<AtomicU64>,
    before: Option<(Instant, u64)>,
}

impl Source for Pages {
    fn read(&mut self) -> Result<Reading> {
        let (at, done) = (Instant::now(), self.done.load(Ordering::Relaxed));
        let mut reading = Reading::default();
        if let Some((then, before)) = self.before {
            reading.put(super::PAGES, rate(before, done, (at - then).as_secs_f64()));
        }
        self.before = Some((at, done));
        Ok(reading)
    }
}

/// The folder for what the programs of a stage say.
pub(crate) fn raw(out: &Path) -> PathBuf {
    out.join("raw")
}
