//! Child processes: started in a namespace, watched with a deadline, ended by id.

mod dialogue;

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::error::{LabError, Result};

pub(crate) use dialogue::Dialogue;

/// How long what runs on another host may take to end.
const FAR_END: Duration = Duration::from_secs(4);
/// How long a process has after SIGTERM before it gets another.
const AGAIN: Duration = Duration::from_millis(250);
/// Shortest and longest time between two looks at a process that is to end.
const LOOKS: (Duration, Duration) = (Duration::from_micros(300), Duration::from_millis(20));

/// Holds, in an emulated guest, by how much every limit of time is multiplied.
pub(crate) const PATIENCE: &str = "FORDWAY_LAB_PATIENCE";

static FACTOR: std::sync::LazyLock<u32> = std::sync::LazyLock::new(|| {
    std::env::var(PATIENCE).ok().and_then(|text| text.parse().ok()).unwrap_or(1)
});

/// A limit of time, as long as this machine needs it.
pub(crate) fn patience(limit: Duration) -> Duration {
    limit * *FACTOR
}

/// Set by SIGINT and SIGTERM; every wait looks at it.
pub(crate) static INTERRUPTED: std::sync::LazyLock<std::sync::Arc<AtomicBool>> =
    std::sync::LazyLock::new(Default::default);

/// Turns SIGINT, SIGTERM and SIGHUP into the [`INTERRUPTED`] flag.
pub(crate) fn catch_signals() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Registering can only fail for forbidden signals; these three are allowed.
        let _ = signal_hook::flag::register(signal, INTERRUPTED.clone());
    }
}

/// Whether the user asked to stop.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// What a finished command left.
#[derive(Debug, Clone)]
pub(crate) struct Finished {
    /// The command line as started.
    pub(crate) argv: Vec<String>,
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

impl Finished {
    /// The exit status as a number; a signal is 128 + its number, as a shell has it.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Passes a success on and turns anything else into an error.
    pub(crate) fn ok(self) -> Result<Self> {
        if self.status.success() {
            return Ok(self);
        }
        let said = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        Err(LabError::Command {
            argv: self.argv.join(" "),
            status: self.status.to_string(),
            stderr: last_lines(said, 3),
        })
    }
}

/// The last `n` non-empty lines of a text, joined by " / ".
pub(crate) fn last_lines(text: &str, n: usize) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    lines[lines.len().saturating_sub(n)..].join(" / ")
}

/// What a program that failed has to say for itself: its first line that names an error, or else its
/// last two lines.
pub(crate) fn complaint(text: &str) -> String {
    let error = text.lines().map(str::trim).find(|l| {
        let head = l.split(':').next().unwrap_or_default().to_ascii_lowercase();
        head.contains("error") || head.contains("failed")
    });
    error.map_or_else(|| last_lines(text, 2), str::to_owned)
}

/// A running child. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Running {
    argv: Vec<String>,
    child: Child,
    /// Held open for a child whose far end lives as long as this is open: see [`start_held`].
    held: Option<ChildStdin>,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

/// Where the child's output goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Output<'a> {
    /// Kept in memory for [`Running::wait`].
    Keep,
    /// Appended to a file: for daemons.
    Log(&'a Path),
    /// The lab's own: for who passes it on.
    Pass,
    /// Both to the lab's standard error.
    People,
}

/// Starts a command. The child is in its own process group, so that the terminal's Ctrl-C reaches
/// the lab alone, and dies with the lab (`setpriv --pdeathsig`), so that `kill -9` leaves nothing.
pub(crate) fn start(argv: &[String], output: Output<'_>) -> Result<Running> {
    start_with(argv, Stdio::null(), output)
}

/// Starts a command whose standard input stays open until it is to end: for one that passes the end of its
/// input on to another host.
pub(crate) fn start_held(argv: &[String], output: Output<'_>) -> Result<Running> {
    start_with(argv, Stdio::piped(), output)
}

/// Starts a command that reads a file.
pub(crate) fn start_reading(argv: &[String], file: &Path) -> Result<Running> {
    let file = File::open(file).map_err(LabError::file(file))?;
    start_with(argv, file.into(), Output::Keep)
}

fn start_with(argv: &[String], input: Stdio, output: Output<'_>) -> Result<Running> {
    let failed = |source| LabError::Start { argv: argv.join(" "), source };
    let mut command = command(argv);
    command.stdin(input);
    match output {
        Output::Pass => {}
        Output::People => {
            use std::os::fd::AsFd;
            command.stdout(std::io::stderr().as_fd().try_clone_to_owned().map_err(failed)?);
        }
        Output::Keep => {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        Output::Log(path) => {
            let open = || File::options().create(true).append(true).open(path);
            command.stdout(open().map_err(LabError::file(path))?);
            command.stderr(open().map_err(LabError::file(path))?);
        }
    }
    let mut child = command.spawn().map_err(failed)?;
    let stdout = child.stdout.take().map(read_all);
    let stderr = child.stderr.take().map(read_all);
    let held = child.stdin.take();
    Ok(Running { argv: argv.to_vec(), child, held, stdout, stderr })
}

fn command(argv: &[String]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).args(argv).process_group(0);
    // Parsers read English numbers and words.
    command.env("LC_ALL", "C");
    command
}

/// Starts a command that takes orders on its standard input, and waits for its first line.
pub(crate) fn talk(argv: &[String], patience: Duration) -> Result<Dialogue> {
    dialogue::start(argv, patience)
}

/// Runs a short command of string slices to its end, within ten seconds.
///
/// It heeds no interruption, as clean-up after one is made of such commands.
pub(crate) fn run_str(argv: &[&str]) -> Result<Finished> {
    let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
    start(&argv, Output::Keep)?.wait_out(Duration::from_secs(10))
}

/// How long one of the commands of [`run_all`] may take.
pub(crate) const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// Runs commands on this machine, one after the other, until one fails.
pub(crate) fn run_all(commands: &[Vec<String>]) -> Result<()> {
    commands
        .iter()
        .try_for_each(|argv| start(argv, Output::Keep)?.wait_closely(COMMAND_LIMIT)?.ok().map(drop))
}

fn read_all(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A broken pipe ends the output; what was read until then is what there is.
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Running {
    /// Process id of the program itself: `setpriv` and `nsenter` replace themselves by it.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The command line.
    pub(crate) fn argv(&self) -> &[String] {
        &self.argv
    }

    /// Writes to the input of a child that was started with it held. One that no longer reads has ended.
    pub(crate) fn say(&mut self, bytes: &[u8]) {
        if let Some(held) = &mut self.held {
            let _ = held.write_all(bytes).and_then(|()| held.flush());
        }
    }

    /// Whether it still runs.
    pub(crate) fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// What a child that has ended wrote to standard error; only the first time.
    pub(crate) fn said(&mut self) -> String {
        self.stderr.take().and_then(|h| h.join().ok()).unwrap_or_default()
    }

    /// Waits for the end; ends the child when the deadline passes or the user interrupts.
    pub(crate) fn wait(self, limit: Duration) -> Result<Finished> {
        self.wait_until(limit, true, LOOKS.1)
    }

    /// The same for what is timed: the end is seen within a fraction of a millisecond.
    pub(crate) fn wait_closely(self, limit: Duration) -> Result<Finished> {
        self.wait_until(limit, true, LOOKS.0)
    }

    /// Waits for the end, whatever the user interrupts: for what tidies up.
    pub(crate) fn wait_out(self, limit: Duration) -> Result<Finished> {
        self.wait_until(limit, false, LOOKS.1)
    }

    fn wait_until(mut self, limit: Duration, heed: bool, longest: Duration) -> Result<Finished> {
        let limit = patience(limit);
        let deadline = Instant::now() + limit;
        let mut pause = LOOKS.0;
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) => {}
                Err(source) => {
                    return Err(LabError::Start { argv: self.argv.join(" "), source });
                }
            }
            if heed && interrupted() {
                self.stop();
                return Err(LabError::Interrupted);
            }
            if Instant::now() > deadline {
                self.stop();
                return Err(LabError::Timeout {
                    argv: self.argv.join(" "),
                    seconds: limit.as_secs(),
                });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(longest);
        };
        let take =
            |h: Option<JoinHandle<String>>| h.and_then(|h| h.join().ok()).unwrap_or_default();
        let (stdout, stderr) = (take(self.stdout.take()), take(self.stderr.take()));
        Ok(Finished { argv: std::mem::take(&mut self.argv), status, stdout, stderr })
    }

    /// Ends the child; whether that took SIGKILL. It gets SIGTERM, a second one when it has not gone after [`AGAIN`], and SIGKILL two
    /// seconds later. The second cuts waits for others: a gateway of a cluster gives routers a second to hear that it has left, and
    /// a proxy lets requests end. One whose input was held ends with that first, so that what it stands for on another host has
    /// ended when it has.
    pub(crate) fn stop(&mut self) -> bool {
        if self.held.take().is_some() {
            let deadline = Instant::now() + FAR_END;
            while self.alive() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        if !self.alive() {
            return false;
        }
        for patience in [AGAIN, Duration::from_secs(2)] {
            signal(self.pid(), Signal::TERM);
            let deadline = Instant::now() + patience;
            while self.alive() && Instant::now() < deadline {
                std::thread::sleep(LOOKS.0);
            }
        }
        let stays = self.alive();
        if stays {
            // It is our own child and not yet reaped, so the id cannot be anyone else's.
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        stays
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Sends a signal to one process, by id.
pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // The process may be gone already, which is what was wanted.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Whether a process is gone, or has ended and is not yet waited for.
pub(crate) fn ended(pid: u32) -> bool {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    // The command name may hold spaces and parentheses: fields count from the last one.
    text.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

/// Calls `ready` until it answers, the deadline passes (`None`), or the user interrupts.
pub(crate) fn poll<T>(limit: Duration, mut ready: impl FnMut() -> Option<T>) -> Result<Option<T>> {
    let deadline = Instant::now() + patience(limit);
    loop {
        if let Some(value) = ready() {
            return Ok(Some(value));
        }
        if interrupted() {
            return Err(LabError::Interrupted);
        }
        if Instant::now() > deadline {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Where a program of this name is: as a path, or on PATH with the administrator's folders added.
pub(crate) fn find_program(name: &str) -> Option<std::path::PathBuf> {
    if name.contains('/') {
        let path = Path::new(name);
        return path.is_file().then(|| path.to_path_buf());
    }
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"])
        .map(|dir| Path::new(dir).join(name))
        .find(|file| file.is_file())
}

/// This program, to run again inside a namespace.
pub(crate) fn own_program() -> Result<String> {
    let path = std::env::current_exe().map_err(LabError::file("/proc/self/exe"))?;
    Ok(path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_ended_before_it_is_waited_for() {
        assert!(!ended(std::process::id()) && ended(u32::MAX));
        let argv = ["sh", "-c", "exit 0"].map(str::to_owned);
        let child = start(&argv, Output::Keep).unwrap();
        let pid = child.pid();
        assert!(poll(Duration::from_secs(10), || ended(pid).then_some(())).unwrap().is_some());
    }

    #[test]
    fn who_waits_at_the_first_sigterm_goes_at_the_second() {
        let waits = |second| {
            format!("trap 'trap \"{second}\" TERM' TERM; echo; while :; do sleep 0.01; done")
        };
        let file = tempfile::tempdir().unwrap();
        for (second, is_killed) in [("exit 0", false), (":", true)] {
            let log = file.path().join(second);
            let argv = ["sh".into(), "-c".into(), waits(second)];
            let mut child = start(&argv, Output::Log(&log)).unwrap();
            let says = || std::fs::read(&log).is_ok_and(|said| !said.is_empty()).then_some(());
            assert!(poll(Duration::from_secs(10), says).unwrap().is_some(), "the trap is set");
            assert_eq!(child.stop(), is_killed, "{second}");
        }
    }

    #[test]
    fn a_complaint_is_the_line_that_names_the_error() {
        let clap =
            "error: unexpected argument '--x' found\n\nUsage: y\n\nFor more, try '--help'.\n";
        assert_eq!(complaint(clap), "error: unexpected argument '--x' found");
        assert_eq!(complaint("one\ntwo\n\nthree\n"), "two / three");
        assert_eq!(complaint(""), "");
    }
}
