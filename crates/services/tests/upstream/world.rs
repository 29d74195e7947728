//! Programs, ports and questions.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fordway_services::dns64::upstream::{Answer, LookupError, Question, Resolver};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);

/// Whether a program is there; says so if not. Servers are often only in root's path.
pub(crate) fn has_program(name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders)
        .chain(["/usr/sbin".into()])
        .any(|folder| folder.join(name).exists());
    if !found {
        eprintln!("SKIPPED: {name} is not installed");
    }
    found
}

/// A command whose program may be in root's path.
pub(crate) fn command(name: &str) -> Command {
    let root = Path::new("/usr/sbin").join(name);
    if root.exists() { Command::new(root) } else { Command::new(name) }
}

/// Runs a program to its end.
pub(crate) fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

/// A port of loopback that is free by UDP and TCP.
pub(crate) fn free_port() -> SocketAddr {
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        if UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
}

/// A server that ends with the test, and its files.
pub(crate) struct Program {
    child: Child,
    folder: TempDir,
}

impl Program {
    /// Starts a server, and waits until it has said that it is ready.
    pub(crate) fn start(mut command: Command, folder: TempDir, ready: &str) -> Self {
        let log = File::create(folder.path().join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let program = Self { child: command.spawn().unwrap(), folder };
        let deadline = Instant::now() + PATIENCE;
        while !program.log().contains(ready) {
            assert!(Instant::now() < deadline, "{command:?} does not get ready");
            std::thread::sleep(Duration::from_millis(20));
        }
        program
    }

    fn log(&self) -> String {
        let octets = std::fs::read(self.folder.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&octets).into_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// A question of class IN.
pub(crate) fn question(name: &str, record_type: RecordType) -> Question {
    Question {
        name: Name::from_ascii(name).unwrap(),
        record_type,
        class: DNSClass::IN,
        dnssec_ok: false,
        checking_disabled: false,
    }
}

/// Asks in a runtime of its own.
pub(crate) fn ask(
    resolver: &Arc<Resolver>,
    questions: &[Question],
) -> Vec<Result<Arc<Answer>, LookupError>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let lookups = questions.iter().map(|question| resolver.lookup(question));
    runtime.block_on(futures_util::future::join_all(lookups))
}

/// The data of an answer, as zone files have it.
pub(crate) fn data(answer: &Answer) -> Vec<String> {
    let records = answer.message.answers.iter().map(|record| &record.data);
    records.filter(|data| !matches!(data, RData::DNSSEC(_))).map(ToString::to_string).collect()
}
