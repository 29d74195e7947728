//! The access log: lines, and the thread that writes them.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use super::fields::{Kind, Line};
use super::reason::Reason;
use super::settings::{Log, LogFormat, LogTarget};

/// Octets that wait for the writer at most; further lines are dropped, and counted.
const MOST_PENDING: usize = 4 << 20;
/// Octets at which the writer does not wait for more.
const ENOUGH: usize = 64 << 10;
/// How long lines wait for others to be written with.
const GATHER: Duration = Duration::from_millis(200);

/// What is known of a request before its outcome.
#[derive(Debug)]
pub(super) struct About {
    client: IpAddr,
    method: String,
    target: String,
    version: &'static str,
    referer: Option<String>,
    user_agent: Option<String>,
    time: SystemTime,
    began: Instant,
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outcome {
    /// 0: the client has disconnected.
    pub(super) status: u16,
    /// Octets to the client.
    pub(super) octets: u64,
    pub(super) server: Option<SocketAddr>,
    pub(super) reason: Option<Reason>,
}

/// A request and what became of it, which is logged when this is dropped.
pub(super) struct Record {
    log: Option<Arc<AccessLog>>,
    /// `None`: nothing is known, and nothing is logged.
    pub(super) about: Option<About>,
    pub(super) outcome: Outcome,
}

impl Record {
    pub(super) fn new(log: Option<&Arc<AccessLog>>) -> Record {
        Record { log: log.cloned(), about: None, outcome: Outcome::default() }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let (Some(log), Some(about)) = (&self.log, &self.about) {
            log.write(about, &self.outcome);
        }
    }
}

impl About {
    pub(super) fn new(client: IpAddr, method: &str, target: &str, version: &'static str) -> About {
        About {
            client,
            method: method.to_owned(),
            target: target.to_owned(),
            version,
            referer: None,
            user_agent: None,
            time: SystemTime::now(),
            began: Instant::now(),
        }
    }

    /// Takes the fields that are logged from the header section.
    pub(super) fn fields<'a>(&mut self, lines: impl Iterator<Item = Line<'a>>) {
        for (name, value) in lines {
            let place = match Kind::of(name) {
                Kind::Referer => &mut self.referer,
                Kind::UserAgent => &mut self.user_agent,
                _ => continue,
            };
            *place = Some(String::from_utf8_lossy(value).into_owned());
        }
    }

    /// The line, with its end.
    fn line(&self, outcome: &Outcome, format: LogFormat) -> String {
        match format {
            LogFormat::Common => format!("{}\n", self.common(outcome)),
            LogFormat::Combined => {
                let [referer, agent] = [&self.referer, &self.user_agent]
                    .map(|it| it.as_deref().map_or_else(|| "-".to_owned(), escaped));
                format!("{} \"{referer}\" \"{agent}\"\n", self.common(outcome))
            }
            LogFormat::Json => {
                let line = JsonLine {
                    time: humantime::format_rfc3339_millis(self.time).to_string(),
                    client: self.client,
                    method: &self.method,
                    target: &self.target,
                    version: self.version,
                    status: outcome.status,
                    octets: outcome.octets,
                    duration_us: self.began.elapsed().as_micros() as u64,
                    server: outcome.server,
                    reason: outcome.reason.map(Reason::label),
                    referer: self.referer.as_deref(),
                    user_agent: self.user_agent.as_deref(),
                };
                let mut text = serde_json::to_string(&line).unwrap_or_default();
                text.push('\n');
                text
            }
        }
    }

    fn common(&self, outcome: &Outcome) -> String {
        format!(
            "{} - - [{}] \"{} {} {}\" {} {}",
            self.client,
            common_time(self.time),
            escaped(&self.method),
            escaped(&self.target),
            self.version,
            outcome.status,
            outcome.octets
        )
    }
}

#[derive(serde::Serialize)]
struct JsonLine<'a> {
    time: String,
    client: IpAddr,
    method: &'a str,
    target: &'a str,
    version: &'a str,
    status: u16,
    octets: u64,
    duration_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    referer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<&'a str>,
}

/// As the Common Log Format has times: `22/Nov/2026:17:24:03 +0000`.
fn common_time(time: SystemTime) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // 2026-11-22T17:24:03Z
    let text = humantime::format_rfc3339_seconds(time).to_string();
    let part = |range| text.get(range).unwrap_or_default();
    let month = part(5..7).parse().ok().and_then(|month: usize| MONTHS.get(month.wrapping_sub(1)));
    format!("{}/{}/{}:{} +0000", part(8..10), month.unwrap_or(&"-"), part(0..4), part(11..19))
}

/// A text that ends neither its quotation marks nor its line.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => safe.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(safe, "\\x{:02x}", c as u32);
            }
            c => safe.push(c),
        }
    }
    safe
}

/// A log that is open.
///
/// Its thread is started by the first line: the thread that opens the log may have privileges, which the new thread
/// would inherit; threads that write lines have none.
#[derive(Debug)]
pub(super) struct AccessLog {
    log: Log,
    shared: Arc<Shared>,
    /// Until the thread has it.
    sink: Mutex<Option<Sink>>,
    /// `None` in it: there was no room for a thread.
    writer: OnceLock<Option<JoinHandle<()>>>,
}

/// State that the threads with lines share with the writer.
#[derive(Debug, Default)]
struct Shared {
    pending: Mutex<Pending>,
    wake: Condvar,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct Pending {
    lines: Vec<u8>,
    reopen: bool,
    end: bool,
}

impl AccessLog {
    /// Opens a log.
    pub(super) fn open(log: &Log) -> io::Result<Arc<AccessLog>> {
        let sink = Mutex::new(Some(Sink::open(&log.target)?));
        let (shared, writer) = (Arc::default(), OnceLock::new());
        Ok(Arc::new(AccessLog { log: log.clone(), shared, sink, writer }))
    }

    fn start(&self) -> Option<JoinHandle<()>> {
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let (shared, target) = (Arc::clone(&self.shared), self.log.target.clone());
        let thread = thread::Builder::new().name("access-log".to_owned());
        let started = thread.spawn(move || write_all(&shared, &mut sink, &target));
        started.inspect_err(|error| tracing::error!("no thread for the access log: {error}")).ok()
    }

    pub(super) fn settings(&self) -> &Log {
        &self.log
    }

    pub(super) fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Writes a line soon.
    pub(super) fn write(&self, about: &About, outcome: &Outcome) {
        let has_writer = self.writer.get_or_init(|| self.start()).is_some();
        let line = about.line(outcome, self.log.format);
        let mut pending = self.shared.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if !has_writer || pending.lines.len() + line.len() > MOST_PENDING {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let before = pending.lines.len();
        pending.lines.extend_from_slice(line.as_bytes());
        let after = pending.lines.len();
        drop(pending);
        if before == 0 || (before < ENOUGH && after >= ENOUGH) {
            self.shared.wake.notify_one();
        }
    }

    /// Opens the file again after it was moved away by a log rotation.
    pub(super) fn reopen(&self) {
        if let Some(sink) = &mut *self.sink.lock().unwrap_or_else(PoisonError::into_inner) {
            return sink.reopen(&self.log.target);
        }
        self.shared.pending.lock().unwrap_or_else(PoisonError::into_inner).reopen = true;
        self.shared.wake.notify_one();
    }
}

impl Drop for AccessLog {
    /// All lines are written then.
    fn drop(&mut self) {
        self.shared.pending.lock().unwrap_or_else(PoisonError::into_inner).end = true;
        self.shared.wake.notify_one();
        if let Some(writer) = self.writer.take().flatten() {
            let _ = writer.join();
        }
    }
}

/// The writer's thread.
fn write_all(shared: &Shared, sink: &mut Sink, target: &LogTarget) {
    loop {
        let pending = shared.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let asleep =
            |pending: &mut Pending| pending.lines.is_empty() && !pending.reopen && !pending.end;
        let pending =
            shared.wake.wait_while(pending, asleep).unwrap_or_else(PoisonError::into_inner);
        let few =
            |pending: &mut Pending| pending.lines.len() < ENOUGH && !pending.reopen && !pending.end;
        let waited = shared.wake.wait_timeout_while(pending, GATHER, few);
        let (mut pending, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let lines = mem::take(&mut pending.lines);
        let (reopen, end) = (mem::take(&mut pending.reopen), pending.end);
        drop(pending);
        // Lines of before go where they were meant for.
        if let Err(error) = sink.write(&lines) {
            let lost = memchr::memchr_iter(b'\n', &lines).count() as u64;
            shared.lost.fetch_add(lost, Ordering::Relaxed);
            tracing::debug!("access log: {error}");
        }
        if reopen {
            sink.reopen(target);
        }
        if end {
            return;
        }
    }
}

/// What lines are written to.
#[derive(Debug)]
enum Sink {
    Stdout,
    File(File),
}

impl Sink {
    fn open(target: &LogTarget) -> io::Result<Sink> {
        match target {
            LogTarget::Stdout => Ok(Sink::Stdout),
            LogTarget::File(path) => {
                let mut options = OpenOptions::new();
                options.append(true).create(true).mode(0o640);
                Ok(Sink::File(options.open(path)?))
            }
        }
    }

    /// Opens it again; the old one goes on if that fails.
    fn reopen(&mut self, target: &LogTarget) {
        match Sink::open(target) {
            Ok(new) => *self = new,
            Err(error) => tracing::warn!("the access log can't be opened again: {error}"),
        }
    }

    /// Writes whole lines. A file on a full disk keeps none in half.
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Sink::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(lines)?;
                out.flush()
            }
            Sink::File(file) => {
                let mut written = 0;
                while written < lines.len() {
                    match file.write(&lines[written..]) {
                        Ok(more) => written += more,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => {
                            let whole =
                                memchr::memrchr(b'\n', &lines[..written]).map_or(0, |at| at + 1);
                            let half = (written - whole) as u64;
                            if half > 0 {
                                file.set_len(file.metadata()?.len().saturating_sub(half))?;
                            }
                            return Err(error);
                        }
                    }
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about() -> About {
        let client = "2001:db8::1".parse().unwrap();
        let mut about = About::new(client, "GET", "http://a/\"x\u{1b}", "HTTP/1.1");
        about.time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_368_243);
        about.fields([(&b"User-Agent"[..], &b"curl\r\n"[..])].into_iter());
        about
    }

    const OUTCOME: Outcome = Outcome { status: 200, octets: 12, server: None, reason: None };

    #[test]
    fn lines_stay_lines() {
        assert_eq!(
            about().line(&OUTCOME, LogFormat::Combined),
            "2001:db8::1 - - [22/Nov/2026:17:24:03 +0000] \"GET http://a/\\\"x\\x1b HTTP/1.1\" 200 12 \"-\" \
             \"curl\\x0d\\x0a\"\n"
        );
        let common = about().line(&OUTCOME, LogFormat::Common);
        assert!(common.ends_with("HTTP/1.1\" 200 12\n"), "{common}");
        let refused = Outcome { reason: Some(Reason::Framing), ..OUTCOME };
        let json: serde_json::Value =
            serde_json::from_str(&about().line(&refused, LogFormat::Json)).unwrap();
        assert_eq!(
            (&json["target"], &json["reason"]),
            (&"http://a/\"x\u{1b}".into(), &"framing".into())
        );
        assert_eq!(json["time"], "2026-11-22T17:24:03.000Z");
    }

    #[test]
    fn a_file_that_was_moved_away_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("log"), folder.path().join("old"));
        let target = LogTarget::File(path.clone());
        let log = AccessLog::open(&Log { target, format: LogFormat::Common }).unwrap();
        log.write(&about(), &OUTCOME);
        std::fs::rename(&path, &old).unwrap();
        log.reopen();
        fordway_testhost::poll("another file", || path.exists().then_some(()));
        log.write(&about(), &OUTCOME);
        log.write(&about(), &OUTCOME);
        drop(log);
        assert_eq!(std::fs::read_to_string(old).unwrap().lines().count(), 1);
        assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 2);
    }
}
