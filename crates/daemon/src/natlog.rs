//! Logs of a stateful translator's bindings, sessions and port blocks (RFC 6888 section 4).
//!
//! Each `[[translator.log]]` has its own thread and queue, so a slow or absent collector delays neither packets nor other
//! logs. While there is no connection to a collector of a stream, records wait in the queue. Those that do not fit in it, or
//! can't be written, are counted as lost.
//!
//! A log that ends has some seconds for what waits ([`LAST`]). A collector that does not answer makes nobody wait for longer.

mod ipfix;
mod json;
mod record;
mod sink;
mod stream;
mod syslog;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use fordway_config::{LogEvent, LogTarget, NatLog};

use crate::failure::Failure;
use fordway_control::LogStats;
use ipfix::Ipfix;
use json::Json;
use sink::{Datagrams, Encode, File, Ready, Sink};
use stream::Stream;
use syslog::Syslog;

pub(crate) use record::{Record, What};

/// Records that wait for a log's thread: some seconds of the most that a sweep tells.
const QUEUE: usize = 1 << 17;

/// Time between looks whether a stream is there again.
const LOOK: Duration = Duration::from_millis(100);

/// Time that a log has to write what waits when it ends.
const LAST: Duration = Duration::from_secs(2);

/// Time until a log that ends is left to itself: [`LAST`] and some for the message that is under way.
const ENDING: Duration = Duration::from_secs(3);

/// The logs of a translator. Dropping it writes what waits, and ends them, within [`ENDING`].
#[derive(Debug, Default)]
pub(crate) struct Logs(Vec<Log>);

#[derive(Debug)]
struct Log {
    config: NatLog,
    queue: Option<Sender<Record>>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
    /// Closed when the thread ends.
    ended: Receiver<()>,
}

/// What became of a log's records.
#[derive(Debug, Default)]
struct Counts {
    /// Records in the queue, which so grows with its use and up to [`QUEUE`].
    waiting: AtomicUsize,
    written: AtomicU64,
    lost: AtomicU64,
    /// The log is to end.
    ends: AtomicBool,
}

impl Logs {
    /// Opens every log of a translator, or none. `subscriber_len`: bits of a subscriber's prefix.
    pub(crate) fn start(name: &str, logs: &[NatLog]) -> Result<Logs, Failure> {
        let started = logs.iter().map(|config| Log::start(name, config));
        Ok(Logs(started.collect::<Result<_, _>>()?))
    }

    /// Whether a log wants an event.
    pub(crate) fn wants(&self, event: LogEvent) -> bool {
        self.0.iter().any(|log| log.config.what.contains(&event))
    }

    /// Queues a record for the logs that want it, without waiting.
    pub(crate) fn put(&self, record: &Record) {
        let event = record.what.event();
        for log in self.0.iter().filter(|log| log.config.what.contains(&event)) {
            let (Some(queue), counts) = (&log.queue, &log.counts) else { continue };
            // Only the sweeper puts records in, so none comes between.
            let taken = counts.waiting.load(Ordering::Relaxed) < QUEUE && {
                counts.waiting.fetch_add(1, Ordering::Relaxed);
                queue.send(*record).is_ok()
            };
            if !taken {
                counts.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// What became of the records so far.
    pub(crate) fn stats(&self) -> Vec<LogStats> {
        let stats = |log: &Log| LogStats {
            to: log.config.to.to_string(),
            written: log.counts.written.load(Ordering::Relaxed),
            lost: log.counts.lost.load(Ordering::Relaxed),
        };
        self.0.iter().map(stats).collect()
    }
}

impl Log {
    fn start(name: &str, config: &NatLog) -> Result<Log, Failure> {
        let (sink, encode) = open(name, config).map_err(|error| {
            Failure::failed(format!("{name}: cannot log to {}: {error}", config.to))
                .hint(match &config.to {
                LogTarget::Json(path) => match path.parent() {
                    Some(folder) if !folder.exists() => {
                        format!("make its folder: mkdir -p {}", folder.display())
                    }
                    _ => "let root write there, or name another file".to_owned(),
                },
                LogTarget::SyslogUnix(_) => "start its receiver first, or name another".to_owned(),
                LogTarget::SyslogUdp(_) | LogTarget::Ipfix(_) | LogTarget::IpfixTcp(_) => {
                    "name another place".to_owned()
                }
                LogTarget::IpfixTls(..) => {
                    "let `ca`, `certificate` and `key` be files in PEM that this program may read"
                        .to_owned()
                }
            })
        })?;
        let (queue, records) = channel();
        let counts = Arc::new(Counts::default());
        let whose = format!("{name}: {}", config.to);
        let writer = Writer { name: whose, sink, encode, counts: Arc::clone(&counts) };
        let (runs, ended) = channel();
        let thread = thread::Builder::new()
            .name(format!("{name}-log"))
            .spawn(move || {
                // It may be started beside queues' threads.
                fordway_engine::level();
                let _runs: Sender<()> = runs;
                writer.run(&records);
            })
            .map_err(|error| Failure::failed(format!("cannot make a thread: {error}")))?;
        Ok(Log { config: config.clone(), queue: Some(queue), counts, thread: Some(thread), ended })
    }
}

impl Log {
    /// Has the thread end when it has written what waits, or its time is over.
    fn end(&mut self) {
        self.counts.ends.store(true, Ordering::Relaxed);
        self.queue = None;
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.end();
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(Log::end);
        let deadline = Instant::now() + ENDING;
        for log in &mut self.0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if log.ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                tracing::warn!("{}: no answer; the log ends without what waits", log.config.to);
            } else if let Some(thread) = log.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

type Opened = (Box<dyn Sink>, Box<dyn Encode>);

fn open(name: &str, config: &NatLog) -> std::io::Result<Opened> {
    // That there is no way to a collector yet is no reason not to start.
    let udp = |address| {
        let (socket, trouble) = Datagrams::udp(address);
        if let Some(error) = trouble {
            let to = &config.to;
            tracing::warn!("{name}: {to}: {error}; records are lost until there is a route");
        }
        socket
    };
    Ok(match &config.to {
        LogTarget::Json(path) => {
            (Box::new(File::open(path)?), Box::new(Json::new(name, config.destinations)))
        }
        LogTarget::SyslogUdp(address) => {
            (Box::new(udp(*address)), Box::new(Syslog::new(name, config.destinations)))
        }
        LogTarget::SyslogUnix(path) => {
            (Box::new(Datagrams::unix(path)?), Box::new(Syslog::new(name, config.destinations)))
        }
        LogTarget::Ipfix(address) => (
            Box::new(udp(*address)),
            Box::new(Ipfix::new(config.domain, &config.what, config.destinations)),
        ),
        LogTarget::IpfixTcp(address) => (Box::new(Stream::tcp(*address)), ipfix_stream(config)),
        LogTarget::IpfixTls(address, server) => {
            let stream = Stream::tls(*address, server.as_deref(), config)?;
            (Box::new(stream), ipfix_stream(config))
        }
    })
}

fn ipfix_stream(config: &NatLog) -> Box<dyn Encode> {
    Box::new(Ipfix::stream(config.domain, &config.what, config.destinations))
}

/// The thread of a log.
struct Writer {
    /// Whose log, and where it goes.
    name: String,
    sink: Box<dyn Sink>,
    encode: Box<dyn Encode>,
    counts: Arc<Counts>,
}

impl Writer {
    /// Writes records until the log is dropped.
    fn run(mut self, records: &Receiver<Record>) {
        let mut complained = None;
        let mut ends: Option<Instant> = None;
        // A collector that can't be reached is complained of before there is anything to lose.
        self.reach(&mut complained);
        while let Ok(first) = records.recv() {
            let is_reached = self.reach(&mut complained);
            let is_late = self.counts.ends.load(Ordering::Relaxed)
                && ends.get_or_insert_with(Instant::now).elapsed() > LAST;
            if !is_reached || is_late {
                let left = 1 + records.try_iter().count() as u64;
                self.counts.lost.fetch_add(left, Ordering::Relaxed);
                tracing::warn!("{}: the log ends, and {left} records are lost", self.name);
                return;
            }
            self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
            self.encode.begin(SystemTime::now());
            let mut next = Some(first);
            // What waits goes out together.
            while let Some(record) = next {
                if self.encode.add(&record) {
                    break;
                }
                next = records.try_recv().ok();
                let taken = usize::from(next.is_some());
                self.counts.waiting.fetch_sub(taken, Ordering::Relaxed);
            }
            self.write(&mut complained);
        }
    }

    /// Waits until the receiver can be written to; `false`: the log has ended before.
    fn reach(&mut self, complained: &mut Option<Instant>) -> bool {
        loop {
            match self.sink.ready() {
                Ready::Known => return true,
                Ready::Anew => {
                    self.encode.restart();
                    return true;
                }
                Ready::Not(error) => {
                    let what = "there is no connection, and records wait";
                    if error.kind() != std::io::ErrorKind::NotConnected {
                        self.complain(what, &error, complained);
                    }
                }
            }
            if self.counts.ends.load(Ordering::Relaxed) {
                return false;
            }
            thread::park_timeout(LOOK);
        }
    }

    fn write(&mut self, complained: &mut Option<Instant>) {
        let mut trouble = None;
        for message in self.encode.take() {
            // A receiver that was too slow once is not waited for again and again.
            let slow = trouble.as_ref().is_some_and(sink::is_slow);
            let sent = if slow { None } else { Some(self.sink.write(&message.octets)) };
            let counter = match sent {
                Some(Ok(())) => &self.counts.written,
                _ => &self.counts.lost,
            };
            counter.fetch_add(message.records, Ordering::Relaxed);
            if let Some(Err(error)) = sent {
                trouble = Some(error);
            }
        }
        if let Some(error) = trouble {
            self.complain("records are lost", &error, complained);
        }
    }

    /// Once a minute is enough to know.
    fn complain(&self, what: &str, error: &std::io::Error, complained: &mut Option<Instant>) {
        if complained.is_none_or(|at| at.elapsed().as_secs() >= 60) {
            tracing::warn!("{}: {what}: {error}", self.name);
            *complained = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests;
