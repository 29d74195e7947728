//! Programs and questions.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use fordway_resolver::{Answer, LookupError, Question, Resolver};
use fordway_testhost::poll_or;
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};
use tempfile::TempDir;

use fordway_testhost::still::Still;

/// Runs a program to its end.
pub(crate) fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
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
        let is_ready = || program.log().contains(ready).then_some(());
        poll_or(is_ready, || format!("{command:?} does not get ready: {}", program.log()));
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

/// Asks in a runtime of its own, whose time stands still: no question is asked twice.
pub(crate) fn ask(
    resolver: &Arc<Resolver>,
    questions: &[Question],
) -> Vec<Result<Arc<Answer>, LookupError>> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    let lookups = questions.iter().map(|question| resolver.lookup(question));
    runtime.block_on(async {
        let _still = Still::begin();
        futures_util::future::join_all(lookups).await
    })
}

/// The data of an answer, as zone files have it.
pub(crate) fn data(answer: &Answer) -> Vec<String> {
    let records = answer.message.answers.iter().map(|record| &record.data);
    records.filter(|data| !matches!(data, RData::DNSSEC(_))).map(ToString::to_string).collect()
}
