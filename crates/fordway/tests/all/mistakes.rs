//! What people do by mistake must end in a sentence and an exit code, and cost them nothing.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::common::daemon::{Daemon, RunDir};
use crate::common::host::{assert_same, snapshot};
use crate::common::netns::Netns;

fn fordway(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fordway"));
    command.args(arguments).env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

/// Standard error that nobody reads any more.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// A daemon that is refused before it looks at more than sockets.
fn refused_daemon(socket: &Path) -> Command {
    let socket = socket.to_str().unwrap();
    fordway(&["siit", "--pool6", "2001:db8:46::/96", "--no-manage", "--socket", socket])
}

#[test]
fn a_reader_of_standard_error_that_went_away_changes_no_exit_code() {
    let dir = TempDir::new().unwrap();
    let no_socket = dir.path().join("letter");
    std::fs::write(&no_socket, "dear all").unwrap();
    let code = |mut command: Command| command.stderr(closed()).status().unwrap().code();
    assert_eq!(code(fordway(&["check", "-c", "/nonexistent"])), Some(2), "before the log starts");
    assert_eq!(code(refused_daemon(&no_socket)), Some(1), "in the log");
}

#[test]
fn a_file_in_the_place_of_the_control_socket_survives() {
    let dir = TempDir::new().unwrap();
    let letter = dir.path().join("letter");
    std::fs::write(&letter, "dear all").unwrap();
    let output = refused_daemon(&letter).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no socket"), "{said}");
    assert_eq!(std::fs::read_to_string(&letter).unwrap(), "dear all");
}

#[test]
fn a_socket_of_another_program_survives_and_one_of_the_dead_does_not() {
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("theirs.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let said = |output: std::process::Output| String::from_utf8(output.stderr).unwrap();
    let refused = said(refused_daemon(&socket).output().unwrap());
    assert!(refused.contains("another program listens on it"), "{refused}");
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok());
    drop(listener);
    // Nobody listens any more: what stops this one is that its metrics have no address to be at.
    let file = dir.path().join("fordway.toml");
    let text = "[[translator]]\nname = 'siit0'\nmode = 'siit'\npool6 = ['2001:db8:46::/96']\n\
                manage = false\n[metrics]\nlisten = ['192.0.2.1:9464']\ntoken_file = 'none'\n";
    std::fs::write(&file, text).unwrap();
    let (file, socket) = (file.to_str().unwrap(), socket.to_str().unwrap());
    let refused = said(fordway(&["run", "-c", file, "--socket", socket]).output().unwrap());
    assert!(refused.contains("cannot listen on 192.0.2.1:9464"), "{refused}");
}

#[test]
fn a_path_that_is_too_long_for_a_socket_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("folder").join("x".repeat(108));
    let output = refused_daemon(&socket).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("at most 107 octets"), "{said}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_lock_is_not_written_through_a_link() {
    let dir = TempDir::new().unwrap();
    let letter = dir.path().join("letter");
    std::fs::write(&letter, "dear all").unwrap();
    let socket = dir.path().join("control.sock");
    std::os::unix::fs::symlink(&letter, dir.path().join("control.sock.lock")).unwrap();
    let output = refused_daemon(&socket).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("cannot lock"), "{said}");
    assert_eq!(std::fs::read_to_string(&letter).unwrap(), "dear all");
}

#[test]
fn a_configuration_without_an_end_is_refused() {
    let output = fordway(&["check", "-c", "/dev/zero"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("16 MiB"), "{said}");
}

#[test]
fn a_capture_is_not_translated_onto_itself() {
    let dir = TempDir::new().unwrap();
    let capture = dir.path().join("capture.pcap");
    // A classic pcap file header and nothing behind it: link type 101, raw IP.
    let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
    bytes.extend([0; 8]);
    bytes.extend([0xff, 0xff, 0, 0, 101, 0, 0, 0]);
    std::fs::write(&capture, &bytes).unwrap();
    let path = capture.to_str().unwrap();
    let roundabout = dir.path().join(".").join("capture.pcap");
    let roundabout = roundabout.to_str().unwrap();
    let output =
        fordway(&["pcap", "--pool6", "2001:db8:46::/96", path, roundabout]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("it is the input too"), "{said}");
    assert_eq!(std::fs::read(&capture).unwrap(), bytes);
}

/// Everything below the folder of pins of a network namespace.
fn pins(netns: &Netns) -> Vec<std::path::PathBuf> {
    let namespace = netns.inside(|| fordway_net::NamespaceId::current().unwrap());
    let folder = fordway_bpf::pins_root().join(namespace.to_string());
    let found = std::fs::read_dir(&folder);
    found.map_or_else(|_| Vec::new(), |all| all.map(|it| it.unwrap().path()).collect())
}

#[test]
fn a_start_that_fails_leaves_no_tables_in_the_kernel() {
    if !fordway_testhost::can_use_tun() {
        return;
    }
    let (netns, run) = (Netns::new("gw"), RunDir::new());
    let before = snapshot(&netns);
    let log = run.path().join("no such folder").join("nat64.json");
    let text = format!(
        "[[translator]]\nname = 'nat64'\nmode = 'nat64'\npool6 = ['2001:db8:64::/96']\n\
         pool4 = ['192.0.2.1']\nmax_sessions = 1024\n\
         [[translator.log]]\nwhat = ['sessions']\nto = 'json:{}'\n",
        log.display()
    );
    let file = run.file("gateway.toml", &text);
    let output = run.output(&netns, &format!("run -c {}", file.display()));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot log to json:") && said.contains("mkdir -p "), "{said}");
    assert_eq!(pins(&netns), [] as [&Path; 0]);
    // Somebody else has the route.
    netns.ip("link add h4 type veth peer name g4");
    netns.configure(&[
        "link set g4 up",
        "addr add 198.51.100.1/24 dev g4",
        "route add 192.0.2.1/32 dev g4 metric 2048",
    ]);
    let output = run.output(&netns, "nat64 --pool6 2001:db8:64::/96 --pool4 192.0.2.1");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("cannot add route 192.0.2.1/32"), "{said}");
    assert_eq!(pins(&netns), [] as [&Path; 0]);
    netns.ip("link del g4");
    assert_same(&snapshot(&netns), &before);
}

#[test]
fn a_daemon_can_start_as_soon_as_another_has_left() {
    if !fordway_testhost::can_use_tun() {
        return;
    }
    let (netns, run) = (Netns::new("gw"), RunDir::new());
    let arguments = "siit --pool6 2001:db8:64::/96 --eam 192.0.2.2=2001:db8::2";
    let mut daemon = Daemon::start(&run, &netns, arguments);
    for _ in 0..3 {
        let output = run.output(&netns, "leave");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // The socket is free now, whether or not the process has been reaped.
        let next = Daemon::start(&run, &netns, arguments);
        assert!(daemon.wait().success());
        daemon = next;
    }
    daemon.stop();
}

#[test]
fn idle_clients_are_in_nobodys_way() {
    if !fordway_testhost::can_use_tun() {
        return;
    }
    let (netns, run) = (Netns::new("gw"), RunDir::new());
    let file = run.file(
        "gateway.toml",
        "[[translator]]\nname = 'siit0'\nmode = 'siit'\npool6 = ['2001:db8:64::/96']\n\
         [control]\ntimeout = '60s'\n",
    );
    let daemon = Daemon::start(&run, &netns, &format!("run -c {}", file.display()));
    let socket = run.path().join("control.sock");
    let connect = || std::os::unix::net::UnixStream::connect(&socket).unwrap();
    let _idle: Vec<_> = (0..100).map(|_| connect()).collect();
    // Each asks on a connection of its own, and waits for 10 seconds at most.
    assert_eq!(daemon.status()["translators"][0]["name"], "siit0");
    assert_eq!(daemon.stats("siit0")["mode"], "siit");
    daemon.stop();
}
