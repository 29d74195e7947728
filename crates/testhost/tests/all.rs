//! The test runner, held to what it promises by test binaries that are made up.

use std::process::Command;

#[test]
fn the_runner_counts_what_fails_hangs_and_is_skipped() {
    if !fordway_testhost::has_programs(&["python3"]) {
        return;
    }
    let check = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/test.d/check.py");
    let done =
        Command::new("python3").arg(check).env_remove("CI").output().expect("python3 starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
