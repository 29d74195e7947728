//! The program under test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::netns::Netns;
use super::poll;

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
    netns: &'a Netns,
}

impl<'a> Daemon<'a> {
    /// Starts the program with these arguments and waits until it answers on its control socket.
    pub(crate) fn start(run_dir: &'a RunDir, netns: &'a Netns, arguments: &str) -> Daemon<'a> {
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
    pub(crate) fn spawn(run_dir: &'a RunDir, netns: &'a Netns, arguments: &str) -> Daemon<'a> {
        let number: u32 = getrandom::u32().unwrap();
        let log = run_dir.path().join(format!("log-{number:08x}"));
        let file = File::create(&log).unwrap();
        let child = run_dir.command(netns, arguments).stderr(file).spawn().unwrap();
        Daemon { child, log, run_dir, netns }
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
        poll("the daemon ends", || self.child.try_wait().unwrap())
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

    /// `fordway status --json`.
    pub(crate) fn status(&self) -> Value {
        self.ask("status --json")
    }

    /// The counters of one translator.
    pub(crate) fn stats(&self, name: &str) -> Value {
        let stats = self.ask("stats --json --per-queue");
        let translators = stats["translators"].as_array().unwrap();
        translators.iter().find(|one| one["name"] == name).unwrap().clone()
    }

    /// `fordway stats --json`.
    pub(crate) fn all_stats(&self) -> Value {
        self.ask("stats --json")
    }

    fn ask(&self, arguments: &str) -> Value {
        let output = self.run_dir.output(self.netns, arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}\n{}", self.log());
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            self.signal(Signal::TERM);
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
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
