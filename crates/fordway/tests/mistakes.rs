//! What people do by mistake must end in a sentence and an exit code, and cost them nothing.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

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
