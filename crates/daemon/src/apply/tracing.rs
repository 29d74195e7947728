//! Tracing: programs that write events are loaded only while there are listeners.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fordway_bpf::{Event, Events};
use fordway_control::TraceLine;
use fordway_xlat::Translator;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tracing::{debug, warn};

use super::privilege;
use super::running::Running;
use crate::failure::Failure;
use crate::trace::{self, Filter};

/// Events per second and processor that the programs write at most.
const RATE: u32 = 2000;

/// Lines that wait for a listener that is slow; further ones are lost for it.
pub(crate) const WAITING: usize = 4096;

/// Listeners of a translator at once: each occupies a client slot for an unlimited time.
const LISTENERS: usize = 16;

/// Batches of events that wait to be read; what does not fit waits in the kernel, which counts what it loses.
const BATCHES: usize = 4;

/// How often events are read: soon enough for people, at no measurable cost.
const LOOK: Duration = Duration::from_millis(20);

/// A client that traces.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) number: u64,
    pub(crate) filter: Filter,
    pub(crate) lines: mpsc::Sender<TraceLine>,
}

/// All who listen to a translator. Clones are the same ones.
#[derive(Clone, Debug, Default)]
struct Listeners(Arc<Mutex<Vec<Listener>>>);

impl Listeners {
    fn lock(&self) -> MutexGuard<'_, Vec<Listener>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reader of a translator's events and those who listen to it. Dropping it ends the reading.
#[derive(Debug)]
pub(crate) struct Tracing {
    listeners: Listeners,
    reader: JoinHandle<()>,
}

impl Drop for Tracing {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Running {
    pub(crate) fn subscribe(&mut self, listener: Listener) -> Result<(), Failure> {
        let Some(kernel) = &mut self.kernel else {
            return Err(Failure::failed(format!(
                "{}: trace needs the kernel engine, and this translator has the user engine",
                self.config.name
            ))
            .hint("capture packets on the interface (tcpdump -w) and ask fordway explain --pcap"));
        };
        let listening = self.tracing.as_ref().map_or(0, |it| it.listeners.lock().len());
        if listening >= LISTENERS {
            let text = format!("{}: {LISTENERS} traces run already", self.config.name);
            return Err(Failure::failed(text).hint("end one of them first"));
        }
        if self.tracing.is_none() {
            kernel.set_trace(Some(RATE))?;
            self.read_events(Listeners::default())?;
        }
        if let Some(tracing) = &self.tracing {
            tracing.listeners.lock().push(listener);
        }
        Ok(())
    }

    pub(crate) fn unsubscribe(&mut self, number: u64) {
        let Some(tracing) = &self.tracing else { return };
        let mut listeners = tracing.listeners.lock();
        listeners.retain(|listener| listener.number != number);
        if !listeners.is_empty() {
            return;
        }
        drop(listeners);
        self.tracing = None;
        let Some(kernel) = &mut self.kernel else { return };
        if let Err(error) = kernel.set_trace(None) {
            warn!("{}: cannot end the tracing: {error}", self.config.name);
        }
    }

    /// After new programs have been loaded: their events are another's.
    pub(crate) fn resume_tracing(&mut self) {
        let Some(tracing) = self.tracing.take() else { return };
        let listeners = tracing.listeners.clone();
        drop(tracing);
        if let Err(failure) = self.read_events(listeners) {
            warn!("{}: cannot go on tracing: {}", self.config.name, failure.line());
        }
    }

    fn read_events(&mut self, listeners: Listeners) -> Result<(), Failure> {
        let events = match &self.kernel {
            Some(kernel) => kernel.events()?,
            None => None,
        };
        let events = events.ok_or_else(|| Failure::failed("the programs write no events"))?;
        let core = self.engine.core();
        let translator =
            core.translator().ok_or_else(|| Failure::failed("softwires are not traced"))?;
        let told = Told {
            name: self.config.name.to_string(),
            translator: Arc::clone(translator),
            devices: self.device_names(),
            boot: boot(),
        };
        // Packets are looked into where nothing else could be done.
        let (batches, read_there) = mpsc::channel(BATCHES);
        let (name, to) = (told.name.clone(), listeners.clone());
        privilege::apart(&format!("{name}-trace"), move || tell_all(read_there, told, to))?;
        let reader = tokio::task::spawn_local(read(events, name, batches));
        self.tracing = Some(Tracing { listeners, reader });
        Ok(())
    }

    /// The names of the devices at which its programs are.
    fn device_names(&self) -> HashMap<u32, String> {
        let own = (self.engine.device().ifindex(), self.config.name.to_string());
        let uplink = self.place.way.iter().map(|way| (way.ifindex, way.device.clone()));
        std::iter::once(own).chain(uplink).chain(self.place.devices.names()).collect()
    }
}

/// What is needed to tell events.
struct Told {
    name: String,
    translator: Arc<Translator>,
    devices: HashMap<u32, String>,
    boot: SystemTime,
}

/// Hands events on, as they are, until it is aborted.
async fn read(mut events: Events, name: String, batches: mpsc::Sender<Vec<Event>>) {
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        loop {
            let batch = match events.read() {
                Ok(batch) => batch,
                Err(error) => return warn!("{name}: cannot read events: {error}"),
            };
            let is_last = batch.len() < Events::BATCH;
            if !batch.is_empty() && batches.send(batch).await.is_err() {
                return warn!("{name}: the trace thread has ended");
            }
            if is_last {
                break;
            }
        }
    }
}

/// Tells of packets until there are no more.
async fn tell_all(mut batches: mpsc::Receiver<Vec<Event>>, told: Told, listeners: Listeners) {
    while let Some(batch) = batches.recv().await {
        for event in &batch {
            tell(event, &told, &listeners.lock());
        }
    }
}

fn tell(event: &Event, told: &Told, listeners: &[Listener]) {
    let number = event.ifindex.to_string();
    let device = told.devices.get(&event.ifindex).unwrap_or(&number);
    for listener in listeners {
        let names = (told.name.as_str(), device.as_str());
        let line = trace::line(event, &listener.filter, &told.translator, names, told.boot);
        if let Some(line) = line
            && listener.lines.try_send(line).is_err()
        {
            debug!("{}: a listener is too slow for the trace", told.name);
        }
    }
}

/// When the kernel's clock was zero.
fn boot() -> SystemTime {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or(0);
    SystemTime::now()
        .checked_sub(Duration::new(seconds, nanoseconds))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}
