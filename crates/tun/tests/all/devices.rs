//! Creating, adopting, refusing and locking devices.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fordway_testhost::{poll, skip, wait};
use fordway_tun::{Device, Error, OpenOptions};

use crate::common::{in_namespace, ip, options, try_ip};

/// The interface goes at once, unless a process that another test starts has its descriptors for the moment
/// between fork and exec.
#[track_caller]
fn assert_vanishes(name: &str) {
    let show = format!("link show {name}");
    poll(&format!("{name} to go"), || (!try_ip(&show)).then_some(()));
}

#[test]
fn a_created_device_vanishes_and_a_persistent_one_stays() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let mut options = options(run.path(), 2);
        let (device, queues) = Device::open("fw0", &options).unwrap();
        assert!(!device.adopted());
        assert!(device.ifindex() > 0);
        assert_eq!(device.name(), "fw0");
        drop(queues);
        assert!(try_ip("link show fw0"), "the device alone keeps it");
        drop(device);
        assert_vanishes("fw0");

        options.persist = true;
        drop(Device::open("fw0", &options).unwrap());
        assert!(try_ip("link show fw0"));
        let (device, _queues) = Device::open("fw0", &options).unwrap();
        assert!(device.adopted());
        device.set_persistent(false).unwrap();
        drop((device, _queues));
        assert_vanishes("fw0");
    });
}

#[test]
fn persistent_devices_are_adopted_with_the_queues_they_allow() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        ip("tuntap add dev fw0 mode tun multi_queue vnet_hdr");
        ip("tuntap add dev fw1 mode tun");
        for (name, queues, single) in [("fw0", 3, false), ("fw1", 1, true)] {
            let (device, opened) = Device::open(name, &options(run.path(), 3)).unwrap();
            assert!(device.adopted());
            assert_eq!(device.single_queue(), single);
            assert_eq!(opened.len(), queues);
            drop((device, opened));
            assert!(try_ip(&format!("link show {name}")));
        }
        let refuse = OpenOptions { adopt: false, ..options(run.path(), 1) };
        let error = Device::open("fw0", &refuse).unwrap_err();
        assert!(matches!(error, Error::Exists(_)), "{error}");
    });
}

#[test]
fn what_cannot_be_adopted_is_named() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        ip("tuntap add dev tap0 mode tap");
        ip("link add veth0 type veth peer name veth1");
        let error = Device::open("tap0", &options(run.path(), 1)).unwrap_err();
        assert!(matches!(error, Error::IsTap(_)), "{error}");
        assert!(error.to_string().contains("mode tun multi_queue vnet_hdr"));
        let error = Device::open("veth0", &options(run.path(), 1)).unwrap_err();
        assert!(matches!(&error, Error::NotTun { kind, .. } if kind == "veth"), "{error}");
        let error = Device::open("lo", &options(run.path(), 1)).unwrap_err();
        assert!(matches!(error, Error::NotTun { .. }), "{error}");
    });
}

#[test]
fn a_device_that_others_read_is_refused() {
    let run = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    in_namespace(|| {
        ip("tuntap add dev fw1 mode tun");
        let _multi = Device::open("fw0", &options(run.path(), 2)).unwrap();
        let _single = Device::open("fw1", &options(run.path(), 1)).unwrap();
        // Another lock directory stands for a program that does not lock.
        for name in ["fw0", "fw1"] {
            let error = Device::open(name, &options(elsewhere.path(), 1)).unwrap_err();
            assert!(matches!(error, Error::InUse(_)), "{error}");
        }
    });
}

#[test]
fn a_second_process_is_refused_until_the_first_is_killed() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let mut holder = Holder::start("fw0", run.path());
        assert_eq!(holder.line(), "open");
        let error = Device::open("fw0", &options(run.path(), 1)).unwrap_err();
        let pid = holder.child.id();
        assert!(matches!(&error, Error::Locked { pid: Some(held), .. } if *held == pid), "{error}");
        assert!(error.to_string().contains(&format!("process {pid}")));

        holder.child.kill().unwrap();
        wait(&mut holder.child, "the process that holds fw0");
        let (device, _queues) = Device::open("fw0", &options(run.path(), 1)).unwrap();
        assert!(!device.adopted());

        let mut second = Holder::start("fw0", run.path());
        assert!(second.line().contains(&format!("process {}", std::process::id())));
        wait(&mut second.child, "the process that was refused");
    });
}

#[test]
fn a_lock_directory_that_cannot_be_made_is_named() {
    let run = tempfile::tempdir().unwrap();
    let file = run.path().join("file");
    std::fs::write(&file, "").unwrap();
    in_namespace(|| {
        let error = Device::open("fw0", &options(&file, 1)).unwrap_err();
        assert!(matches!(error, Error::Lock { .. }), "{error}");
        assert!(error.to_string().contains("file/tun"));
    });
}

/// A process of its own that opens a device and holds it.
struct Holder {
    child: Child,
}

impl Holder {
    /// Runs [`holder`] in a process; call [`Holder::line`] for what it says.
    fn start(name: &str, run_dir: &Path) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "devices::holder", "--ignored", "--nocapture"])
            .env("HOLDER_NAME", name)
            .env("HOLDER_RUN_DIR", run_dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let stderr = self.child.stderr.as_mut().unwrap();
        BufReader::new(stderr).read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "the other process of a_second_process_is_refused_until_the_first_is_killed"]
fn holder() {
    // Without its environment somebody ran all ignored tests: nothing to hold.
    let (Ok(name), Some(run_dir)) =
        (std::env::var("HOLDER_NAME"), std::env::var_os("HOLDER_RUN_DIR"))
    else {
        return skip("it is the other process of another test");
    };
    let opened = Device::open(&name, &options(Path::new(&run_dir), 1));
    let text = match &opened {
        Ok(_) => "open".to_owned(),
        Err(error) => error.to_string(),
    };
    writeln!(std::io::stderr(), "{text}").unwrap();
    if opened.is_ok() {
        // Held until the other end of standard input closes.
        let _ = std::io::stdin().read_line(&mut String::new());
    }
}
