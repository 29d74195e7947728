//! The program under test.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::netns::Netns;
use fordway_testhost::{PATIENCE, poll, poll_or};

/// The binary.
pub(crate) const FORDWAY: &str = env!("CARGO_BIN_EXE_fordway");

/// A folder for locks, ledger and sockets, which outlives daemons.
pub(crate) struct RunDir(TempDir);

impl RunDir {
    pub(crate) fn new() -> RunDir {
        RunDir(TempDir::with_prefix("fordway-test-").unwrap())
    }

    /// One in memory, as /run is: the ledger is brought to disk with each change.
    pub(crate) fn in_memory() -> RunDir {
        let dir = TempDir::with_prefix_in("fordway-test-", "/dev/shm");
        dir.map_or_else(|_| RunDir::new(), RunDir)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file into the folder.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A command of the program, in the namespace, with this folder.
    pub(crate) fn command(&self, netns: &Netns, arguments: &str) -> Command {
        let mut command = netns.command(FORDWAY);
        command.arg("--run-dir").arg(self.path()).args(arguments.split_whitespace());
        command.env_remove("NOTIFY_SOCKET").env_remove("JOURNAL_STREAM").env("NO_COLOR", "1");
        command
    }

    /// Runs it to its end.
    pub(crate) fn output(&self, netns: &Netns, arguments: &str) -> Output {
        self.command(netns, arguments).output().unwrap()
    }
}

/// A daemon; it is ended with SIGTERM when dropped.
pub(crate) struct Daemon<'a> {
    child: Child,
    log: PathBuf,
    run_dir: &'a RunDir,
}

impl<'a> Daemon<'a> {
    /// Starts the program with these arguments and waits until it answers on its control socket.
    pub(crate) fn start(run_dir: &'a RunDir, netns: &Netns, arguments: &str) -> Daemon<'a> {
        let mut daemon = Daemon::spawn(run_dir, netns, arguments);
        poll("the daemon is ready", || {
            if let Some(status) = daemon.child.try_wait().unwrap() {
                panic!("the daemon ended at once: {status}\n{}", daemon.log());
            }
            daemon.log().contains("ready after").then_some(())
        });
        daemon
    }

    /// Starts the program and does not wait.
    pub(crate) fn spawn(run_dir: &'a RunDir, netns: &Netns, arguments: &str) -> Daemon<'a> {
        let number: u32 = getrandom::u32().unwrap();
        let log = run_dir.path().join(format!("log-{number:08x}"));
        let file = File::create(&log).unwrap();
        let child = run_dir.command(netns, arguments).stderr(file).spawn().unwrap();
        Daemon { child, log, run_dir }
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        // nsenter without --pid becomes the program; it does not start a child.
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Waits for the end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        fordway_testhost::wait(&mut self.child, "the daemon")
    }

    /// Ends it as an operator would; it must end well.
    pub(crate) fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        let status = self.wait();
        let log = self.log();
        assert!(status.success(), "{status}\n{log}");
        log
    }

    /// Ends it without any chance to clean up.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        let _ = self.wait();
    }

    /// What `fordway status --json` shows.
    pub(crate) fn status(&self) -> Value {
        self.ask("status")
    }

    /// The counters of one translator, as `fordway stats --json --per-queue` shows them.
    pub(crate) fn stats(&self, name: &str) -> Value {
        let stats = self.all_stats();
        let translators = stats["translators"].as_array().unwrap();
        translators.iter().find(|one| one["name"] == name).unwrap().clone()
    }

    /// What `fordway stats --json --per-queue` shows.
    pub(crate) fn all_stats(&self) -> Value {
        self.ask("stats")
    }

    /// Waits until a counter of a translator has this value and no other: a packet is counted after it has been sent on.
    /// Gives all its counters.
    #[track_caller]
    pub(crate) fn counts(&self, name: &str, path: &str, expected: u64) -> Value {
        let stats = self.counts_at_least(name, path, expected);
        assert_eq!(count(&stats, path), expected, "{path}: {stats}");
        stats
    }

    /// Waits until a counter of a translator has at least this value. Gives all its counters.
    #[track_caller]
    pub(crate) fn counts_at_least(&self, name: &str, path: &str, least: u64) -> Value {
        let reached = || {
            let stats = self.stats(name);
            (count(&stats, path) >= least).then_some(stats)
        };
        poll_or(reached, || format!("{least} at {path}: {}", self.stats(name)))
    }

    /// The daemon's answer on its control socket.
    fn ask(&self, command: &str) -> Value {
        let answer = || -> std::io::Result<Value> {
            let mut stream = UnixStream::connect(self.run_dir.path().join("control.sock"))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(format!("{{\"command\":\"{command}\"}}\n").as_bytes())?;
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line)?;
            Ok(serde_json::from_str(&line)?)
        };
        let answer = answer().unwrap_or_else(|error| panic!("{command}: {error}\n{}", self.log()));
        answer.get(command).unwrap_or_else(|| panic!("{command}: {answer}")).clone()
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let is_panicking = std::thread::panicking();
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            self.signal(Signal::TERM);
            let deadline = Instant::now() + PATIENCE;
            let mut status = None;
            while status.is_none() && Instant::now() < deadline {
                status = self.child.try_wait().unwrap_or_default();
                std::thread::sleep(Duration::from_millis(2));
            }
            if status.is_none() {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
            let ended_well = status.is_some_and(|status| status.success());
            assert!(is_panicking || ended_well, "{status:?}\n{}", self.log());
        }
        if is_panicking {
            eprintln!("--- log of the daemon ---\n{}", self.log());
        }
    }
}

/// A counter below a path such as `v4_to_v6/packets`.
pub(crate) fn count(stats: &Value, path: &str) -> u64 {
    let value = stats.pointer(&format!("/{path}")).unwrap_or_else(|| panic!("{path}: {stats}"));
    value.as_u64().unwrap()
}

/// All drops together.
pub(crate) fn dropped(stats: &Value) -> u64 {
    let drops = stats["drops"].as_object().unwrap();
    drops.values().map(|count| count.as_u64().unwrap()).sum()
}
