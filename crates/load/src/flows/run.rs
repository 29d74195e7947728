//! One tester: puts the programs at both ends, and runs phases.

use std::io::{BufRead, Error, ErrorKind, Result, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

use super::programs::{CLIENT, Path, Programs, SERVER};
use super::template::{Packet, Template};
use super::walk::Walk;
use crate::bpf::{Link, WAKE, interrupt};
use crate::frames::index_of;
use crate::processors::processor_times;

/// Time between two looks at the counters.
const LOOK: Duration = Duration::from_millis(1);
/// The sender turns in circles while its window is full; whoever else wants its processor gets it.
const NICE: i32 = 19;

/// Where the tester stands.
#[derive(Debug, Clone)]
pub struct Ends {
    /// The client's device, in the namespace in which this process runs.
    pub device: String,
    /// Its link address.
    pub own: [u8; 6],
    /// The link address of the next hop.
    pub next: [u8; 6],
    /// The server's namespace: a file that names it.
    pub far: PathBuf,
    /// The server's device.
    pub far_device: String,
    /// Whether packets arrive at the server as IPv4.
    pub far_v4: bool,
}

/// What to do in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// What is sent on each flow.
    pub packet: Packet,
    /// The first flow.
    pub first: u32,
    /// The flow at which the phase ends.
    pub until: u32,
    /// From one flow to the next.
    pub step: u32,
    /// Flows under way at once.
    pub window: u32,
    /// How often to go over those that did not get to their end, the first time included.
    pub rounds: u32,
    /// Seconds after which the phase is given up.
    pub limit_s: f64,
    /// When nothing has moved for so many seconds, what is under way is lost.
    pub patience_s: f64,
}

/// What a phase did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Passed {
    /// Packets sent, repeated ones included.
    pub sent: u64,
    /// Flows that got to their end.
    pub done: u64,
    /// Flows that were sent and did not get to their end.
    pub lost: u64,
    /// From the first packet to the end of the last flow.
    pub seconds: f64,
    /// Packets of flows that had got to their end.
    pub again: u64,
    /// Packets with a wrong checksum.
    pub wrong: u64,
    /// Packets that belong to no flow.
    pub stray: u64,
    /// Packets whose flow had another outer source before.
    pub moved: u64,
    /// Resets that the client got.
    pub reset: u64,
    /// Packets that reached the server.
    pub reached: u64,
    /// Packets that came back to the client.
    pub answers: u64,
    /// Flows that the server has seen so far.
    pub flows_seen: u64,
    /// Outer tuples (source, source port, target port) that it has seen so far: as many, unless the
    /// translator is broken.
    pub outer_tuples: u64,
    /// Outer source transport addresses that it has seen so far.
    pub outer_sources: u64,
    /// Outer source addresses that it has seen so far.
    pub outer_addresses: u64,
    /// Times that the sender found its window full, and turned in a circle.
    pub waited: u64,
    /// Share of the sender's processor that was busy, 0 to 1, whoever it worked for.
    pub processor_busy: f64,
    /// Whether the phase was given up.
    pub out_of_time: bool,
}

/// The order, instead of a JSON object, to take the programs off until the next phase: with them a veth
/// takes no super-packets, and other loads would suffer.
pub const REST: &str = "rest";

/// A tester at two devices; dropping it takes the programs off.
#[derive(Debug)]
pub struct Tester {
    walk: Walk,
    flows: u32,
    protocol: u8,
    programs: Programs,
    ends: Ends,
    device: u32,
    processor: Option<usize>,
    attached: Option<[Link; 2]>,
}

impl Tester {
    /// Makes everything ready.
    pub fn open(ends: Ends, walk: Walk, flows: u32, packet: Packet, echo: bool) -> Result<Self> {
        // Without a handler the signal that ends a phase would end the process.
        signal_hook::flag::register(WAKE, Arc::new(AtomicBool::new(false)))?;
        let protocol = packet.protocol();
        let device = index_of(&ends.device)?;
        let far_device = elsewhere(&ends.far, || index_of(&ends.far_device))?;
        let path = Path { devices: [device, far_device], far_v4: ends.far_v4, protocol, echo };
        let programs = Programs::new(&walk, flows, path)?;
        let processor = crate::last_processor()?;
        Ok(Self { walk, flows, protocol, programs, ends, device, processor, attached: None })
    }

    /// Takes orders, one JSON object a line, and answers each with what was done, until there are no more.
    pub fn serve(&mut self, orders: impl BufRead, mut answers: impl Write) -> Result<()> {
        writeln!(answers, "ready")?;
        answers.flush()?;
        for line in orders.lines() {
            let line = line?;
            if line == REST {
                self.attached = None;
                answers.write_all(b"{}")?;
            } else {
                serde_json::to_writer(&mut answers, &self.run(serde_json::from_str(&line)?)?)?;
            }
            writeln!(answers)?;
            answers.flush()?;
        }
        Ok(())
    }

    /// Puts the programs at their devices, where they are not there yet.
    fn attach(&mut self) -> Result<()> {
        if self.attached.is_none() {
            let near = self.programs.attach(CLIENT, self.device)?;
            let far = elsewhere(&self.ends.far, || {
                self.programs.attach(SERVER, index_of(&self.ends.far_device)?)
            })?;
            self.attached = Some([near, far]);
        }
        Ok(())
    }

    /// Why an order cannot be followed.
    fn refuse(&self, order: &Order) -> Option<String> {
        if order.packet.protocol() != self.protocol {
            return Some(format!(
                "{:?}: this tester's programs are for another protocol",
                order.packet
            ));
        }
        if order.until > self.flows {
            return Some(format!("there are {} flows, not {}", self.flows, order.until));
        }
        (order.step == 0 || order.window == 0)
            .then(|| "a step or a window of 0 leads nowhere".into())
    }

    /// Runs a phase to its end.
    fn run(&mut self, order: Order) -> Result<Passed> {
        if let Some(why) = self.refuse(&order) {
            return Err(Error::new(ErrorKind::InvalidInput, why));
        }
        self.attach()?;
        let programs = &self.programs;
        let template = Template::new(self.ends.own, self.ends.next, &self.walk, order.packet);
        programs.begin(&template, [order.first, order.until], order.step, order.window);
        let flows = (order.until.saturating_sub(order.first)).div_ceil(order.step);
        let busy = self.processor.and_then(processor_times);
        let began = monotonic();
        let stopped = AtomicBool::new(false);
        let (stopped, template) = (&stopped, &template);
        let out_of_time = std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            let sender = scope.spawn(move || {
                let _ = tell.send(rustix::thread::gettid());
                repeat(programs, template, stopped)
            });
            let out_of_time = self.watch(order, flows, || sender.is_finished());
            stopped.store(true, Ordering::Relaxed);
            let thread = told.recv().map_err(|e| Error::other(e.to_string()))?;
            while !sender.is_finished() {
                // Again and again: a signal before the kernel's loop is for nobody.
                interrupt(thread);
                std::thread::sleep(LOOK);
            }
            sender.join().map_err(|_| Error::other("the sender failed"))??;
            Ok::<bool, Error>(out_of_time)
        })?;
        let last = programs.get("last").max(began);
        let now = self.processor.and_then(processor_times);
        let mut passed = self.counters();
        // What was given up may have arrived after all.
        passed.lost = passed.sent.min(flows.into()).saturating_sub(passed.done);
        passed.seconds = (last - began) as f64 / 1e9;
        passed.processor_busy = busy.zip(now).map_or(0.0, |(a, b)| b.busy_since(&a));
        passed.out_of_time = out_of_time;
        Ok(passed)
    }

    /// Looks after a phase until it ends; whether it was given up. `failed`: the sender has ended.
    fn watch(&self, order: Order, flows: u32, failed: impl Fn() -> bool) -> bool {
        let programs = &self.programs;
        let start = Instant::now();
        let (mut before, mut since, mut round) = ((0, 0), start, 1);
        loop {
            std::thread::sleep(LOOK);
            let now @ (sent, done) = (programs.get("sent"), programs.get("done"));
            if now != before {
                (before, since) = (now, Instant::now());
            }
            let under_way = sent.saturating_sub(done + programs.get("forgiven"));
            let at_end = programs.get("next") >= u64::from(order.until);
            if under_way > 0 && since.elapsed().as_secs_f64() >= order.patience_s {
                programs.add("forgiven", under_way);
                since = Instant::now();
            } else if at_end && under_way == 0 {
                if done >= u64::from(flows) || round >= order.rounds {
                    return false;
                }
                round += 1;
                programs.set("next", order.first.into());
            }
            if failed() || start.elapsed().as_secs_f64() > order.limit_s {
                return true;
            }
        }
    }

    fn counters(&self) -> Passed {
        let get = |counter| self.programs.get(counter);
        let mut seen = self.programs.seen();
        seen.sort_unstable();
        let flows_seen = seen.len() as u64;
        let mut distinct = |mask: u64| {
            for source in &mut seen {
                *source &= mask;
            }
            seen.sort_unstable();
            seen.dedup();
            seen.len() as u64
        };
        // Address, target port, source port: how `note_source` puts them together.
        let outer_tuples = distinct(u64::MAX);
        let source_port = u64::from(u32::from_ne_bytes([0xff, 0xff, 0, 0]));
        let outer_sources = distinct(u64::MAX << 32 | source_port);
        let outer_addresses = distinct(u64::MAX << 32);
        Passed {
            sent: get("sent"),
            done: get("done"),
            again: get("again"),
            wrong: get("wrong"),
            stray: get("stray"),
            moved: get("moved"),
            reset: get("reset"),
            reached: get("reached"),
            answers: get("answers"),
            waited: get("waited"),
            flows_seen,
            outer_tuples,
            outer_sources,
            outer_addresses,
            ..Passed::default()
        }
    }
}

/// Runs the sender's program until `stopped`. It stays on one processor, and so does the work that its
/// frames cause: what is measured is what one processor can do.
fn repeat(programs: &Programs, template: &Template, stopped: &AtomicBool) -> Result<()> {
    crate::stay()?;
    rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE)?;
    while !stopped.load(Ordering::Relaxed) {
        programs.send(template)?;
    }
    Ok(())
}

/// The clock of the programs, ns.
fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Does something in another network namespace.
fn elsewhere<T>(place: &std::path::Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    use std::os::fd::AsFd;
    let named = |e: Error| Error::new(e.kind(), format!("{}: {e}", place.display()));
    let there = std::fs::File::open(place).map_err(named)?;
    let here = std::fs::File::open("/proc/thread-self/ns/net")?;
    let enter = |file: &std::fs::File| {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
    };
    enter(&there)?;
    let outcome = work();
    enter(&here)?;
    outcome
}
