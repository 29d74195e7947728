//! The lab's end on another host. It does what it is asked with the same code as a run on one machine, and
//! undoes everything when its orders end: with the run, with the connection, or when this run falls silent.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use crate::backend::{Backend, Netns, Place};
use crate::environment;
use crate::error::{EXIT_DONE, EXIT_FAILED, LabError, Result};
use crate::host::cpu::Meter;
use crate::host::{affinity, clocksource};
use crate::hosts::orders::{Answer, BEAT, Deploy, Hello, Numbered, Order, Placed, Refusal};
use crate::hosts::{Ends, MARK, record};
use crate::mechanism::{self, Context, Deployed, Mechanism, Room};
use crate::process::{self, INTERRUPTED, Output};
use crate::runner::surveyed;
use crate::state::{self, Guard};
use crate::topology::{Network, Shape};

/// A mechanism of the run.
struct Slot {
    // Dropped first.
    deployed: Deployed,
    mechanism: Box<dyn Mechanism>,
}

/// What this end holds. Fields drop in this order: processes before what they run in.
struct Agent {
    slots: BTreeMap<u64, Slot>,
    meters: BTreeMap<u64, Meter>,
    backend: Netns,
    fordway: Option<PathBuf>,
    handles: u64,
    guard: Guard,
}

/// Takes orders on standard input until it ends, or until nothing has come for as long as `silence`: then the connection
/// is lost without a word.
pub(crate) fn serve(id: &str, fordway: Option<&Path>, silence: Duration) -> Result<u8> {
    state::need_root()?;
    if !Path::new(MARK).is_file() {
        return Err(LabError::Usage(format!("there is no {MARK}: this machine is no lab host")));
    }
    process::catch_signals();
    let mut cleaned = Vec::new();
    for orphan in state::orphans() {
        cleaned.extend(state::undo(&orphan));
    }
    let guard = Guard::of_id(id, Path::new("(a run from another host)"))?;
    let folder = guard.folder();
    std::fs::create_dir_all(&folder).map_err(LabError::file(&folder))?;
    let mut agent = Agent {
        slots: BTreeMap::new(),
        meters: BTreeMap::new(),
        backend: Netns { dir: folder.clone() },
        fordway: fordway.map(Path::to_path_buf),
        handles: 0,
        guard,
    };
    let orders = listen(silence);
    say(&Hello { folder, cleaned })?;
    while let Ok(Some(Numbered { number, order })) = orders.recv() {
        let outcome = agent.done(order).map_err(Refusal::from);
        if say(&Answer { number, outcome }).is_err() {
            break;
        }
        if process::interrupted() {
            break;
        }
    }
    Ok(EXIT_DONE)
}

fn say(what: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string(what).map_err(|e| LabError::Usage(e.to_string()))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(LabError::file("standard output"))
}

/// Reads orders; `None` ends them. What is under way then is interrupted, as by Ctrl-C.
fn listen(silence: Duration) -> Receiver<Option<Numbered>> {
    static HEARD_MS: LazyLock<Arc<AtomicU64>> = LazyLock::new(Arc::default);
    let (tell, orders) = channel();
    let start = Instant::now();
    let now = move || u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    let reader = tell.clone();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            HEARD_MS.store(now(), Ordering::Relaxed);
            if line.is_empty() {
                continue;
            }
            let Ok(order) = serde_json::from_str(&line) else { break };
            if reader.send(Some(order)).is_err() {
                break;
            }
        }
        end(&reader);
    });
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(BEAT.min(silence));
            let silent =
                Duration::from_millis(now().saturating_sub(HEARD_MS.load(Ordering::Relaxed)));
            if silent > silence {
                return end(&tell);
            }
        }
    });
    orders
}

fn end(orders: &Sender<Option<Numbered>>) {
    INTERRUPTED.store(true, Ordering::Relaxed);
    // Nobody receives any more when this end has gone by itself.
    let _ = orders.send(None);
}

fn value(of: impl Serialize) -> Result<Value> {
    serde_json::to_value(of).map_err(|e| LabError::Usage(e.to_string()))
}

impl Agent {
    fn done(&mut self, order: Order) -> Result<Value> {
        match order {
            Order::Survey { experiment, wanted, rehearse } => {
                value(surveyed(&experiment, &wanted, self.fordway.as_deref(), rehearse)?)
            }
            Order::Environment { experiment } => {
                value(environment::record(&experiment, self.fordway.as_deref())?)
            }
            Order::Answer => value(true),
            Order::Device { name } => value(record::nic(&name)?),
            Order::Cores => value(affinity::cores()),
            Order::Affinity { device } => value(affinity::found(Some(&device))),
            Order::Bind { device, irq, busy } => {
                value(self.guard.set(&affinity::wanted(&device, irq.as_ref(), &busy)?)?)
            }
            Order::Astray { handle, on } => value(self.slot(handle)?.deployed.astray(&on)),
            Order::Clocksources => value((clocksource::current()?, clocksource::available()?)),
            Order::Clocksource { name } => value(self.guard.switch_clocksource(&name)?),
            Order::Conntrack { connections } => value(self.guard.limit_conntrack(connections)?),
            Order::Put { name, content } => value(self.backend.deploy(&name, content.as_bytes())?),
            Order::Deploy(wanted) => value(self.deploy(&wanted)?),
            Order::Runs { handle, spec } => {
                let slot = self.slot(handle)?;
                value(slot.mechanism.runs(&slot.deployed, &spec)?)
            }
            Order::Gone { handle } => value(self.slot(handle)?.deployed.gone()),
            Order::Counters { handle } => {
                let slot = self.slot(handle)?;
                value(slot.mechanism.counters(&slot.deployed)?)
            }
            Order::Memory { handle } => {
                let slot = self.slot(handle)?;
                value(slot.mechanism.memory(&slot.deployed))
            }
            Order::Logs { name } => value(self.logs(&name)),
            Order::Stop { handle } => {
                self.slots.remove(&handle);
                Ok(json!(null))
            }
            Order::Count { handles } => {
                let slots = handles.iter().filter_map(|handle| self.slots.get(handle));
                let pids: Vec<u32> = slots.flat_map(|slot| slot.deployed.pids()).collect();
                let handle = self.next();
                self.meters.insert(handle, Meter::start(&pids));
                value(handle)
            }
            Order::Counted { handle } => {
                let meter = self.meters.remove(&handle);
                value(meter.ok_or_else(|| unknown(handle))?.stop())
            }
            Order::Remove { namespace } => {
                if !namespace.starts_with(&self.guard.prefix()) {
                    return Err(LabError::Usage(format!(
                        "{namespace} is no namespace of this run"
                    )));
                }
                value(state::remove_namespace(&namespace)?)
            }
        }
    }

    fn next(&mut self) -> u64 {
        self.handles += 1;
        self.handles
    }

    fn slot(&mut self, handle: u64) -> Result<&mut Slot> {
        self.slots.get_mut(&handle).ok_or_else(|| unknown(handle))
    }

    fn deploy(&mut self, wanted: &Deploy) -> Result<Placed> {
        let Deploy { prefix, offloads, arm, spec, name, sessions, pin } = wanted;
        let network = Network::described(prefix, Shape::of(arm, *offloads), Some(arm))?;
        let mechanism = mechanism::of_part(arm, spec, self.fordway.as_deref())?;
        let logs = self.backend.dir.clone();
        let backend = Ends::one(self.backend.clone(), pin.clone()).of_mechanism();
        let deployed = mechanism.deploy(Context {
            backend: &backend,
            network: &network,
            spec,
            name,
            logs: &logs,
            room: Room::of(*sessions),
        })?;
        let (config, argv) = (deployed.config.clone(), deployed.argv.clone());
        let handle = self.next();
        self.slots.insert(handle, Slot { deployed, mechanism });
        Ok(Placed { handle, config, argv })
    }

    /// Logs of a deployment.
    fn logs(&self, name: &str) -> Vec<(String, String)> {
        let entries = std::fs::read_dir(&self.backend.dir).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| {
                let file = entry.file_name().into_string().ok()?;
                let own = file.strip_prefix(name)?.starts_with('-') && file.ends_with(".log");
                let text = own.then(|| std::fs::read(entry.path()).ok()).flatten()?;
                Some((file, String::from_utf8_lossy(&text).into_owned()))
            })
            .collect()
    }
}

fn unknown(handle: u64) -> LabError {
    LabError::Usage(format!("nothing is called {handle} here"))
}

/// The longest that a command may take which another host runs here.
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// Runs a command in a namespace, or outside of all, until it ends, or standard input does.
pub(crate) fn run(namespace: Option<&str>, argv: &[String]) -> Result<u8> {
    process::catch_signals();
    let backend = Netns { dir: PathBuf::new() };
    let place = namespace.map(|name| Place(name.to_owned()));
    let child = backend.run(place.as_ref(), argv, Output::Pass)?;
    std::thread::spawn(|| {
        // Whatever comes, only the end counts.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        INTERRUPTED.store(true, Ordering::Relaxed);
    });
    match child.wait(WEEK) {
        Ok(done) => Ok(u8::try_from(done.code()).unwrap_or(EXIT_FAILED)),
        Err(LabError::Interrupted) => Ok(EXIT_FAILED),
        Err(error) => Err(error),
    }
}
