//! What an earlier run has left: `fordway takeover` before a restart, `fordway down --all` before a removal.

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use fordway_bpf::{Left, StateMaps, pins_dir};
use fordway_net::NamespaceId;
use fordway_testhost::can_use_tun;
use fordway_xlat::nat64::{Memory, Sizes};
use serde_json::Value;

use crate::common::can_test_kernel;
use crate::common::connection::Connection;
use crate::common::daemon::{Daemon, RunDir};
use crate::common::host::{assert_same, snapshot};
use crate::common::netns::Netns;
use crate::common::topology::{Border, V4_HOST_AS_V6};

/// Exit code and output.
fn says(run: &RunDir, netns: &Netns, arguments: &str) -> (Option<i32>, String) {
    let output = run.output(netns, arguments);
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.code(), said)
}

fn nat64(run: &RunDir) -> String {
    let text = "[[translator]]\nname = 'nat64'\nmode = 'nat64'\nengine = 'kernel'\n\
                pool6 = ['2001:db8:64::/96']\npool4 = ['192.0.2.1']\n";
    run.file("nat64.toml", text).display().to_string()
}

fn connections(net: &Border) -> Vec<Connection> {
    let server: IpAddr = V4_HOST_AS_V6.parse().unwrap();
    (0..3).map(|_| Connection::open(&net.v6, &net.v4, server)).collect()
}

/// Makes the tables of translator `nat64` look as if a version with another layout had made them.
fn change_layout(netns: &Netns) {
    let namespace = netns.inside(|| NamespaceId::current().unwrap());
    let pins = pins_dir(&namespace.to_string(), "nat64");
    let Left::Fits(maps) = StateMaps::look(&pins, &Sizes::default()).unwrap() else {
        panic!("no tables of the default sizes");
    };
    maps.regions().meta.layout.store(99, Relaxed);
}

#[test]
fn sessions_that_the_next_start_takes_over_are_known_before() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let before = snapshot(&net.gateway);
    let file = nat64(&run);
    let takeover = |more: &str| says(&run, &net.gateway, &format!("takeover -c {file} {more}"));
    assert_eq!(takeover(""), (Some(0), "nothing is left by an earlier run\n".to_owned()));
    let mut daemon = Daemon::start(&run, &net.gateway, &format!("run -c {file}"));
    let mut open = connections(&net);
    assert_eq!(takeover(""), (Some(0), "nat64: 3 sessions: taken over\n".to_owned()));
    for (set, why) in [
        (
            "max_sessions=1000",
            "max_sessions, max_bib, max_subscribers or filtering is not as it was",
        ),
        (
            "filtering=address-dependent",
            "max_sessions, max_bib, max_subscribers or filtering is not as it was",
        ),
        ("pool6=['2001:db8:65::/96']", "pool6 or subscriber_len is not as it was"),
        ("engine=user", "engine = \"user\" has its own tables"),
    ] {
        let (code, said) = takeover(&format!("--set translator.nat64.{set}"));
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(&format!("nat64: 3 sessions: not taken over: {why}")), "{said}");
    }
    let renamed = std::fs::read_to_string(&file).unwrap().replace("'nat64'\nmode", "'other'\nmode");
    let renamed = run.file("renamed.toml", &renamed).display().to_string();
    let (code, said) = says(&run, &net.gateway, &format!("takeover -c {renamed}"));
    let gone = "nat64: 3 sessions: not taken over: it is not in the file any more";
    assert!(code == Some(1) && said.contains(gone), "{said}");
    // Sessions of a daemon that runs are not ended.
    let (code, said) = takeover("--drop --set translator.nat64.max_sessions=1000");
    assert!(code == Some(1) && said.contains("nat64 is in use: its daemon runs"), "{said}");
    open.iter_mut().for_each(Connection::check);
    let (code, said) = says(&run, &net.gateway, "leave");
    assert_eq!(code, Some(0), "{said}");
    assert!(daemon.wait().success());
    change_layout(&net.gateway);
    let (code, said) = takeover("--json");
    let json = said.split("error:").next().unwrap();
    let found: Value = serde_json::from_str(json).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!(code, Some(1));
    assert_eq!((&found[0]["count"], &found[0]["taken_over"]), (&Value::Null, &Value::Bool(false)));
    let mut refused = Daemon::spawn(&run, &net.gateway, &format!("run -c {file}"));
    assert_eq!(refused.wait().code(), Some(1), "{}", refused.log());
    open.iter_mut().for_each(Connection::check);
    let (code, said) = takeover("--drop");
    let of_another = "an unknown number of sessions: not taken over: another version left them";
    assert!(code == Some(0) && said.contains(of_another), "{said}");
    assert!(said.contains("nat64: kernel engine and set-up of a dead daemon"), "{said}");
    assert_same(&snapshot(&net.gateway), &before);
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {file}"));
    connections(&net).iter_mut().for_each(Connection::check);
    daemon.stop();
}

#[test]
fn files_of_another_version_are_named_and_kept() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let (mappings, leases) = (run.path().join("mappings"), run.path().join("leases"));
    let key = run.file("key", &"5a".repeat(32));
    let text = format!(
        "[[translator]]\nname = 'tep0'\nmode = 'softwire'\nrole = 'tep'\nlocal = '2001:db8:f::1'\n\
         [[translator]]\nname = 'siit0'\nmode = 'siit'\npool6 = ['2001:db8:64::/96']\ndynamic4 = ['192.0.2.0/28']\n\
         dynamic4_file = '{}'\n[dstm_server]\nlisten = ['[2001:db8:6::1]:13653']\npool = ['198.51.100.0/28']\nstate = '{}'\n\
         tep = 'tep0'\n[[dstm_server.client]]\nid = 'host'\nkey_file = '{}'\n",
        mappings.display(),
        leases.display(),
        key.display()
    );
    let file = run.file("both.toml", &text).display().to_string();
    let takeover = |more: &str| says(&run, &net.gateway, &format!("takeover -c {file} {more}"));
    let write = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
    write(&mappings, "fordway dynamic4 1 1767323045\n2001:db8::5 192.0.2.7 42\n");
    write(&leases, "fordway dstm leases 1\n");
    let (code, said) = takeover("");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said, "siit0: 1 mappings: taken over\ndstm_server: 0 lease records: taken over\n");
    write(&mappings, "fordway dynamic4 2 1767323045\n2001:db8::5 192.0.2.7 42 new\n");
    write(&leases, "fordway dstm leases 2\nnew\n");
    let (code, said) = takeover("");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("another version has written them to"), "{said}");
    let (code, said) = takeover("--drop");
    assert_eq!(code, Some(0), "{said}");
    for path in [&mappings, &leases] {
        let aside = format!("{}.other", path.display());
        assert!(!path.exists() && Path::new(&aside).exists() && said.contains(&aside), "{said}");
    }
    assert_eq!(takeover(""), (Some(0), "nothing is left by an earlier run\n".to_owned()));
}

#[test]
fn everything_that_dead_daemons_have_left_is_taken_down() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let before = snapshot(&net.gateway);
    let file = nat64(&run);
    let all = || says(&run, &net.gateway, "down --all");
    assert_eq!(all(), (Some(0), String::new()));
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {file}"));
    assert_eq!(all(), (Some(0), "nat64: stays: its daemon runs\n".to_owned()));
    connections(&net).iter_mut().for_each(Connection::check);
    daemon.kill();
    let (code, said) = all();
    assert!(code == Some(0) && said.starts_with("nat64: kernel engine and set-up"), "{said}");
    assert_same(&snapshot(&net.gateway), &before);
    let (code, _) = says(&run, &net.gateway, "down nat64 --all");
    assert_eq!(code, Some(2));
}
