//! What a process that was killed left, and ledgers that are damaged.

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::changes::{changes, ledger, prepared_host, snapshot};
use common::in_namespace;
use fordway_net::{Error, Manager, reclaim_dead};

#[test]
fn a_killed_process_is_reclaimed() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        let before = snapshot();
        let mut killed = Victim::start("nat64", run.path());
        let during = snapshot();
        assert_ne!(during, before);
        let error = Manager::open(run.path(), "nat64").unwrap_err();
        let pid = killed.child.id();
        assert!(
            matches!(&error, Error::OwnerRunning { pid: Some(held), .. } if *held == pid),
            "{error}"
        );
        assert!(reclaim_dead(run.path()).unwrap().is_empty());

        killed.kill();
        assert_eq!(snapshot(), during);
        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        assert!(manager.has_inherited());
        let report = manager.restore().unwrap();
        assert_eq!(report.undone.len(), changes().len(), "{report}");
        assert_eq!(snapshot(), before);
        drop(manager);

        // The same for all that are dead, whatever their names.
        let mut one = Victim::start("one", run.path());
        let mut two = Victim::start("two", run.path());
        one.kill();
        let reports = reclaim_dead(run.path()).unwrap();
        assert_eq!(reports.len(), 1);
        assert_eq!(reports[0].0, "one");
        assert_eq!(reports[0].1.shared.len(), changes().len());
        assert_eq!(snapshot(), during);
        two.kill();
        let reports = reclaim_dead(run.path()).unwrap();
        assert_eq!(reports[0].1.undone.len(), changes().len());
        assert_eq!(snapshot(), before);
    });
}

#[test]
fn a_ledger_from_before_the_last_start_is_void_and_a_damaged_one_is_told() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        let open = || Manager::open(run.path(), "nat64");
        let mut manager = open().unwrap();
        for change in changes() {
            manager.apply(&change).unwrap();
        }
        drop(manager);
        let path = ledger(run.path());
        let text = std::fs::read_to_string(&path).unwrap();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let other = "00000000-0000-4000-8000-000000000000";
        std::fs::write(&path, text.replace(boot.trim(), other)).unwrap();
        assert!(!open().unwrap().has_inherited());

        for damage in [
            "",
            "{}",
            "[]",
            "\0",
            &text[..text.len() / 2],
            &text.replace("\"mtu\": 1480", "\"mtu\": -1"),
        ] {
            std::fs::write(&path, damage).unwrap();
            let error = open().unwrap_err();
            assert!(matches!(error, Error::Ledger { .. }), "{error}");
            assert!(error.to_string().contains("ledger.json"));
        }
        std::fs::write(&path, &text).unwrap();
        assert!(open().unwrap().has_inherited());
    });
}

/// A process of its own that has made all changes and will be killed.
struct Victim {
    child: Child,
}

impl Victim {
    /// Starts it; returns once all changes are made.
    fn start(owner: &str, run_dir: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "victim", "--ignored", "--nocapture"])
            .env("VICTIM_OWNER", owner)
            .env("VICTIM_RUN_DIR", run_dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stderr = child.stderr.as_mut().unwrap();
        BufReader::new(stderr).read_line(&mut line).unwrap();
        let victim = Self { child };
        assert_eq!(line, "made\n");
        victim
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "the other process of a_killed_process_is_reclaimed"]
fn victim() {
    // Without its environment somebody ran all ignored tests: nothing to do.
    let (Ok(owner), Some(run_dir)) =
        (std::env::var("VICTIM_OWNER"), std::env::var_os("VICTIM_RUN_DIR"))
    else {
        return;
    };
    let mut manager = Manager::open(Path::new(&run_dir), &owner).unwrap();
    for change in changes() {
        manager.apply(&change).unwrap();
    }
    eprintln!("made");
    // Until it is killed, or the other end of standard input closes.
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn a_ledger_that_cannot_be_written_keeps_nothing_from_being_taken_back() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        let before = snapshot();
        let mut manager = Manager::open(run.path(), "clat0").unwrap();
        for change in changes() {
            manager.apply(&change).unwrap();
        }
        // A folder in the place of the draft stands for a full disk.
        std::fs::create_dir(ledger(run.path()).with_extension("json.new")).unwrap();
        assert!(matches!(manager.restore(), Err(Error::File { .. })));
        assert_eq!(snapshot(), before);
    });
}
