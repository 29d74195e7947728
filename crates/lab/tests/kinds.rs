//! Mechanisms beside translation, each deployed, asked which ways it opens, and taken down. Needs what the other tests of whole
//! runs need; an arm whose program is missing is left out.

mod common;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{ALONE, LAB, can_run, lab, namespaces, programs, text};
use serde_json::Value;

const BACK: [&str; 3] = ["from server: TCP", "from server: UDP", "from server: ICMP"];

/// Cells in which a mechanism says no because of what it is; all others have to say yes.
fn closed(arm: &str) -> Vec<&'static str> {
    let own: &[&str] = match arm.split('-').next().unwrap() {
        "dual" | "softwire" | "dstm" => return Vec::new(),
        // A bound address is reached by whoever knows it.
        "nat" => return vec!["IPv4 literal"],
        "trt" => &["to server: ICMP", "IPv4 literal", "FTP active", "ICMP errors"],
        "proxy" => &["to server: UDP", "to server: ICMP", "FTP active", "fragments", "ICMP errors"],
        _ => &[
            "to server: UDP",
            "to server: ICMP",
            "IPv4 literal",
            "FTP active",
            "FTP passive",
            "fragments",
            "ICMP errors",
        ],
    };
    own.iter().chain(&BACK).copied().collect()
}

/// The lab's namespaces that were not there before.
fn left(before: &[String]) -> Vec<String> {
    let own = namespaces().into_iter().filter(|name| name.starts_with("fwlab-"));
    own.filter(|name| !before.contains(name)).collect()
}

#[test]
fn each_mechanism_opens_the_ways_that_it_is_for() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !can_run() || !programs(&["vsftpd", "curl", "tcpdump"]) {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("run").display().to_string();
    let arms = "native-v6,dual-stack-fordway,nat-pt-fordway,trt-fordway,softwire-fordway-interface,softwire-fordway-uplink,softwire-fordway,\
                dstm-fordway-interface,\
                proxy-fordway,proxy-apache,proxy-squid,site-fordway,site-nginx,site-apache";
    let before = namespaces();
    let own = ["run", "interop-mechanisms", "--only", arms, "--blocks", "1", "--duration", "1"];
    let done = lab(&[&own[..], &["--seed", "5", "--out", &out]].concat());
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(left(&before), Vec::<String>::new(), "everything is taken down");

    let file = std::fs::read(dir.path().join("run/results.json")).expect("results");
    let results: Value = serde_json::from_slice(&file).expect("JSON");
    let spec = std::fs::read_to_string(dir.path().join("run/spec.toml")).expect("a spec");
    for arm in arms.split(',').filter(|arm| *arm != "native-v6") {
        let Some(cells) = results["matrix"][arm].as_array() else {
            assert!(spec.contains(&format!("{arm} = ")), "{arm} was skipped without a word");
            eprintln!("SKIPPED: {arm}");
            continue;
        };
        let told: BTreeMap<&str, &Value> =
            cells.iter().map(|cell| (cell["name"].as_str().unwrap(), cell)).collect();
        assert_eq!(told.len(), 13, "{arm}");
        let closed = closed(arm);
        for (name, cell) in told {
            assert_eq!(cell["ok"] == true, !closed.contains(&name), "{arm}, {name}: {cell}");
            assert!(cell["detail"].as_str().is_some_and(|why| !why.is_empty()), "{arm}, {name}");
        }
        let all = results["cells"].as_array().expect("cells");
        let of = |cell: &&Value| cell["mechanism"] == arm && cell["metric"] == "initiation";
        let initiation = all.iter().find(of).unwrap_or_else(|| panic!("{arm}: no initiation"));
        assert!(initiation["median"].as_f64().is_some_and(|us| us > 0.0), "{arm}: {initiation}");
        assert_eq!(initiation["broken"], Value::Null, "{arm}: {initiation}");
    }
}

#[test]
fn a_lab_that_is_killed_under_proxies_leaves_nothing_after_the_next_look() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !can_run() || !programs(&["nginx"]) {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("run");
    let before = namespaces();
    let only = ["--only", "site-nginx,native-v6", "--blocks", "3", "--duration", "1"];
    let mut child = Command::new(LAB)
        .args(["run", "interop-mechanisms"])
        .args(only)
        .args(["--out", &out.display().to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the lab starts");
    let deadline = Instant::now() + Duration::from_secs(60);
    let proxied = || {
        let files = std::fs::read_dir(out.join("raw")).into_iter().flatten().flatten();
        files
            .map(|file| file.file_name())
            .any(|name| name.to_string_lossy().ends_with("-proxy.log"))
    };
    while !proxied() {
        assert!(Instant::now() < deadline, "nginx was not deployed");
        assert!(child.try_wait().expect("a child").is_none(), "the lab has ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("killed");
    child.wait().expect("gone");
    assert!(lab(&["doctor", "--clean"]).status.success());
    assert_eq!(left(&before), Vec::<String>::new());
    let own = std::fs::read_dir("/run/fordway-lab").into_iter().flatten().flatten();
    let own: Vec<_> = own.map(|entry| entry.file_name()).collect();
    let of_this = |name: &&std::ffi::OsString| name.to_string_lossy().ends_with("-origin");
    assert!(!own.iter().any(|name| of_this(&name)), "{own:?}");
}
