//! What a process that was killed left, and ledgers that are damaged.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::changes::{changes, ledger, prepared_host, snapshot};
use crate::common::{in_namespace, ip};
use fordway_net::{Change, Error, Manager, NamespaceId, SysctlKey, reclaim_dead, sysctl};
use fordway_testhost::wait;

#[test]
fn a_killed_process_is_reclaimed() {
    if VICTIM.iter().any(|name| std::env::var_os(name).is_some()) {
        return be_the_victim();
    }
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
        assert!(reclaim_dead(run.path(), |_| false).unwrap().is_empty());

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
        let reports = reclaim_dead(run.path(), |_| false).unwrap();
        assert_eq!(reports.len(), 1);
        assert_eq!(reports[0].0, "one");
        assert_eq!(reports[0].1.shared.len(), changes().len());
        assert_eq!(snapshot(), during);
        two.kill();
        let reports = reclaim_dead(run.path(), |_| false).unwrap();
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

        // A loss of power may leave an empty file, of which nothing had come to disk.
        std::fs::write(&path, "").unwrap();
        assert!(!open().unwrap().has_inherited());
        for damage in [
            "{}",
            "[]",
            "\0",
            &text[..text.len() / 2],
            &text.replace("\"entries\": [", "\"entries\": [3, "),
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

/// The owner and the folder of a process that is to be killed: such a process is this test once more.
const VICTIM: [&str; 2] = ["FORDWAY_TEST_VICTIM_OWNER", "FORDWAY_TEST_VICTIM_RUN_DIR"];

/// Makes all changes, and waits to be killed.
fn be_the_victim() {
    let [owner, run_dir] = VICTIM.map(|name| std::env::var_os(name).expect(name));
    let mut manager = Manager::open(Path::new(&run_dir), owner.to_str().unwrap()).unwrap();
    for change in changes() {
        manager.apply(&change).unwrap();
    }
    eprintln!("made");
    // Until it is killed, or the other end of standard input closes.
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// A process of its own that has made all changes and will be killed.
struct Victim {
    child: Child,
}

impl Victim {
    /// Starts it; returns once all changes are made.
    fn start(owner: &str, run_dir: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "ledger::a_killed_process_is_reclaimed", "--nocapture"])
            .env(VICTIM[0], owner)
            .env(VICTIM[1], run_dir)
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
        wait(&mut self.child, "a process that was killed");
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Root works in a run directory of a service, which may put links there to have root write or give away what they lead to.
#[test]
fn links_in_the_run_directory_of_a_service_are_not_followed() {
    let (run, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    in_namespace(|| {
        prepared_host();
        chown(run.path(), Some(12345), Some(12346)).unwrap();
        let file = theirs.path().join("file");
        std::fs::write(&file, "theirs").unwrap();
        let untouched = || {
            assert_eq!(
                (theirs.path().metadata().unwrap().uid(), file.metadata().unwrap().uid()),
                (0, 0)
            );
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "theirs");
            assert_eq!(std::fs::read_dir(theirs.path()).unwrap().count(), 1);
        };
        let open = || Manager::open(run.path(), "nat64");
        let folder = run.path().join("net").join(NamespaceId::current().unwrap().to_string());
        for link in [folder.parent().unwrap(), &folder] {
            symlink(theirs.path(), link).unwrap();
            let error = open().unwrap_err();
            assert!(matches!(error, Error::File { operation: "make", .. }), "{error}");
            assert!(error.hint().is_some_and(|hint| hint.contains("symbolic link")), "{error}");
            assert!(reclaim_dead(run.path(), |_| false).is_err());
            untouched();
            std::fs::remove_file(link).unwrap();
            std::fs::create_dir_all(folder.parent().unwrap()).unwrap();
        }

        let mut manager = open().unwrap();
        assert_eq!(folder.metadata().unwrap().uid(), 12345);
        // A link in the place of the draft is replaced.
        symlink(&file, folder.join("ledger.json.new")).unwrap();
        manager.apply(&Change::sysctl(SysctlKey::forwarding_v4(), "1")).unwrap();
        assert_eq!(ledger(run.path()).symlink_metadata().unwrap().uid(), 12345);
        untouched();
        for link in ["ledger.json", "ledger.lock", "other.owner"] {
            let link = folder.join(link);
            let kept = std::fs::read(&link).ok();
            let _ = std::fs::remove_file(&link);
            symlink(&file, &link).unwrap();
            let error = Manager::open(run.path(), "other").unwrap_err();
            assert!(matches!(error, Error::File { .. }), "{error}");
            untouched();
            std::fs::remove_file(&link).unwrap();
            if let Some(text) = kept {
                std::fs::write(&link, text).unwrap();
            }
        }
        assert_eq!(manager.restore().unwrap().undone.len(), 1);
    });
}

#[test]
fn a_full_disk_keeps_nothing_from_being_taken_back() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        let before = snapshot();
        let mut manager = Manager::open(run.path(), "clat0").unwrap();
        for change in changes() {
            manager.apply(&change).unwrap();
        }
        // A folder in the place of the draft stands for a full disk.
        let draft = ledger(run.path()).with_extension("json.new");
        std::fs::create_dir(&draft).unwrap();
        let more = Change::sysctl(SysctlKey::conf_v4("veth1", "rp_filter").unwrap(), "2");
        assert!(matches!(manager.apply(&more), Err(Error::File { .. })));
        // To say that there is nothing left needs no room.
        let report = manager.restore().unwrap();
        assert_eq!(report.undone.len(), changes().len(), "{report}");
        assert_eq!(snapshot(), before);
        drop(manager);
        assert!(!Manager::open(run.path(), "clat0").unwrap().has_inherited());
    });
}

#[test]
fn a_ledger_that_others_need_and_that_cannot_be_written_is_told() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        let key = |field| SysctlKey::conf_v4("veth0", field).unwrap();
        let before = sysctl::read(&key("rp_filter")).unwrap();
        let mut other = Manager::open(run.path(), "clat1").unwrap();
        other.apply(&Change::sysctl(key("accept_local"), "1")).unwrap();
        let mut manager = Manager::open(run.path(), "clat0").unwrap();
        manager.apply(&Change::sysctl(key("rp_filter"), "2")).unwrap();
        std::fs::create_dir(ledger(run.path()).with_extension("json.new")).unwrap();
        assert!(matches!(manager.restore(), Err(Error::File { .. })));
        assert_eq!(sysctl::read(&key("rp_filter")).unwrap(), before);
    });
}

#[test]
fn a_process_that_was_killed_while_it_changed_a_value_is_reclaimed() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        let before = snapshot();
        let rp_filter = SysctlKey::conf_v4("veth0", "rp_filter").unwrap();
        let changes = |mtu, value, group| {
            let device = || "veth0".to_owned();
            [
                Change::Mtu { device: device(), mtu },
                Change::sysctl(rp_filter.clone(), value),
                Change::Group { device: device(), group },
            ]
        };
        // Killed before the new value was set, or after it.
        for set in [false, true] {
            let mut manager = Manager::open(run.path(), "clat0").unwrap();
            for change in changes(1400, "1", 7) {
                manager.apply(&change).unwrap();
            }
            drop(manager);
            // The ledger as it is at that moment.
            let path = ledger(run.path());
            let text = std::fs::read_to_string(&path).unwrap();
            let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
            let wanted = changes(1300, "2", 9);
            for (entry, wanted) in value["entries"].as_array_mut().unwrap().iter_mut().zip(&wanted)
            {
                entry["earlier"] = entry["change"].take();
                entry["change"] = serde_json::to_value(wanted).unwrap();
            }
            std::fs::write(&path, value.to_string()).unwrap();
            if set {
                ip("link set veth0 mtu 1300 group 9");
                sysctl::write(&rp_filter, "2").unwrap();
            }
            let mut manager = Manager::open(run.path(), "clat0").unwrap();
            let report = manager.restore().unwrap();
            assert_eq!(report.undone.len(), 3, "{report}");
            assert_eq!(snapshot(), before);
        }
    });
}

/// What lies in the folder of ledgers.
fn folders(run: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(run.join("net")).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_last_owner_leaves_no_files() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        let mut one = Manager::open(run.path(), "one").unwrap();
        let mut two = Manager::open(run.path(), "two").unwrap();
        let change = Change::sysctl(SysctlKey::forwarding_v4(), "1");
        for manager in [&mut one, &mut two] {
            manager.apply(&change).unwrap();
        }
        let _ = one.restore().unwrap();
        drop(one);
        let own = NamespaceId::current().unwrap().to_string();
        assert_eq!(folders(run.path()).len(), 1);
        // What is not taken back stays, and so does its record.
        drop(two);
        assert_eq!(folders(run.path()), [own]);
        let mut two = Manager::open(run.path(), "two").unwrap();
        assert_eq!(two.restore().unwrap().undone, [change]);
        drop(two);
        assert!(folders(run.path()).is_empty());
        assert!(reclaim_dead(run.path(), |_| false).unwrap().is_empty());
        assert!(folders(run.path()).is_empty());
    });
}

#[test]
fn folders_of_namespaces_that_are_no_more_are_removed() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let NamespaceId { inode, cookie } = NamespaceId::current().unwrap();
        let cookie = cookie.expect("Linux 5.14");
        // The kernel gives an inode to one namespace at a time.
        let (dead, other) = (format!("{inode}-{}", cookie + 1), format!("{}-{cookie}", inode + 1));
        for name in [&dead, &other] {
            let dir = run.path().join("net").join(name);
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("ledger.json"), "{}").unwrap();
        }
        let manager = Manager::open(run.path(), "one").unwrap();
        assert_eq!(folders(run.path()), [format!("{inode}-{cookie}"), other.clone()]);
        drop(manager);
        assert_eq!(folders(run.path()), [other]);
    });
}

#[test]
fn owners_that_come_and_go_at_once_do_not_disturb_each_other() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        let before = snapshot();
        std::thread::scope(|scope| {
            for number in 0..4 {
                let run = run.path();
                scope.spawn(move || {
                    let owner = format!("owner{number}");
                    for _ in 0..100 {
                        let mut manager = Manager::open(run, &owner).unwrap();
                        manager.apply(&Change::sysctl(SysctlKey::forwarding_v4(), "1")).unwrap();
                        let report = manager.restore().unwrap();
                        assert_eq!(report.undone.len() + report.shared.len(), 1, "{report}");
                    }
                });
            }
        });
        assert_eq!(snapshot(), before);
        assert!(folders(run.path()).is_empty());
    });
}

#[test]
fn what_another_version_has_noted_is_left_as_it_is() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let forward = Change::sysctl(SysctlKey::forwarding_v4(), "1");
        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        let _ = manager.apply(&forward).unwrap();
        drop(manager);
        let file = std::fs::read_dir(run.path().join("net")).unwrap().next().unwrap().unwrap();
        let file = file.path().join("ledger.json");
        let mut ledger: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        ledger["hint"] = "of the ledger".into();
        ledger["entries"][0]["noted"] = 7.into();
        ledger["entries"][0]["undo"]["why"] = "of a way back".into();
        let unknown = serde_json::json!({
            "owners": ["nat64"], "change": {"change": "qdisc", "device": "lo"}, "ifindex": 1, "undo": {"undo": "qdisc"},
        });
        ledger["entries"].as_array_mut().unwrap().push(unknown.clone());
        std::fs::write(&file, ledger.to_string()).unwrap();

        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        assert!(manager.has_inherited());
        manager.keep(Some("home")).unwrap();
        let read = || -> serde_json::Value {
            serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap()
        };
        assert_eq!(read()["hint"], "of the ledger");
        assert_eq!(read()["entries"][0]["noted"], 7);
        assert_eq!(read()["entries"][1], unknown);
        let report = manager.restore().unwrap();
        assert_eq!((report.undone.as_slice(), report.foreign), ([forward].as_slice(), 1));
        assert_eq!(
            report.to_string(),
            "1 changes taken back; 1 left to the version that made them"
        );
        assert_eq!(read()["entries"], serde_json::json!([unknown]));
    });
}
