//! Servers of NATS with JetStream, in the middle of the test's network.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use fordway_testhost::namespace::Namespace;
use fordway_testhost::nats::{PORT, configure, request};
use fordway_testhost::wait;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::world::MIDDLE;

/// Servers that are one cluster, or one alone. They end with it.
pub(crate) struct Nats {
    folder: PathBuf,
    place: Arc<Namespace>,
    servers: Vec<Option<Child>>,
}

impl Nats {
    /// Starts so many servers; `more` is added to each one's file.
    pub(crate) fn start(place: &Arc<Namespace>, folder: &Path, number: u16, more: &str) -> Self {
        let _ = configure(folder, MIDDLE, number, more);
        let mut nats =
            Self { folder: folder.into(), place: Arc::clone(place), servers: Vec::new() };
        nats.servers.resize_with(number.into(), || None);
        (0..number.into()).for_each(|n| nats.start_one(n));
        nats
    }

    /// Starts one that does not run, with what it has stored.
    pub(crate) fn start_one(&mut self, n: usize) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join(format!("nats{n}.log")))
            .unwrap();
        let config = self.folder.join(format!("nats{n}.conf"));
        let child = self.place.run(move || {
            Command::new("nats-server")
                .arg("-c")
                .arg(config)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .expect("nats-server is installed")
        });
        self.servers[n] = Some(child);
    }

    /// Kills one.
    pub(crate) fn kill(&mut self, n: usize) {
        if let Some(mut child) = self.servers[n].take() {
            child.kill().unwrap();
            wait(&mut child, "a server that was killed");
        }
    }

    /// Sends one a signal.
    pub(crate) fn signal(&self, n: usize, signal: Signal) {
        let child = self.servers[n].as_ref().expect("it runs");
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    }

    /// The answer of the first one to a request.
    pub(crate) fn request(&self, subject: &str, body: &str) -> String {
        let stream = self.place.run(|| TcpStream::connect((MIDDLE, PORT)).unwrap());
        request(stream, subject, body)
    }

    /// Their URLs.
    pub(crate) fn urls(&self) -> Vec<String> {
        (0..).zip(&self.servers).map(|(n, _)| format!("nats://[{MIDDLE}]:{}", PORT + n)).collect()
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        (0..self.servers.len()).for_each(|n| self.kill(n));
    }
}
