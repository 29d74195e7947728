//! What `fordway export` writes, read by the programs it is for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use fordway_testhost::{has_programs, is_root};

/// Every file of the configuration's own tests that has something to export, and the simple one. `needs`: what it
/// has to say.
fn samples(needs: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let network = root.join("tests/cmd/export.in/network.toml");
    let valid = root.join("../config/tests/valid");
    let more = fs::read_dir(&valid).expect("samples").map(|entry| entry.expect("a sample").path());
    let has = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("a sample");
        text.contains("[[advertise]]") && text.contains("[dns64]") && text.contains(needs)
    };
    let mut all: Vec<PathBuf> = more.filter(has).chain([network]).collect();
    all.sort();
    assert!(!all.is_empty(), "{all:?}");
    all
}

fn run(program: &str, arguments: &[&str]) -> Output {
    let started = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    started.unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// Exports each sample for `program`, and has `checker` read it: at the end of its last option, or behind it.
fn check(program: &str, more: &[&str], checker: &str, options: &[&str]) {
    if !has_programs(&[checker]) {
        return;
    }
    // Kea has nothing to do where nobody asks by DHCPv6.
    let needs = if program == "kea" { "dhcpv6 = true" } else { "" };
    let folder = tempfile::tempdir().expect("a folder");
    for sample in samples(needs) {
        let sample = sample.to_str().expect("a path of text");
        let arguments = [&["export", program, "-c", sample], more].concat();
        let exported = run(env!("CARGO_BIN_EXE_fordway"), &arguments);
        let said = String::from_utf8_lossy(&exported.stderr);
        assert!(exported.status.success(), "{program}, {sample}: {said}");
        let file = folder.path().join(program);
        fs::write(&file, &exported.stdout).expect("a file");
        let file = file.to_str().expect("a path of text");
        let joined =
            options.last().filter(|last| last.ends_with('=')).map(|last| format!("{last}{file}"));
        let behind = [options, &[file]].concat();
        let arguments = match &joined {
            Some(joined) => [&options[..options.len() - 1], &[joined.as_str()]].concat(),
            None => behind,
        };
        let output = run(checker, &arguments);
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let written = String::from_utf8_lossy(&exported.stdout);
        assert!(output.status.success(), "{checker}, {sample}: {said}\n{written}");
    }
}

#[test]
fn radvd_reads_it() {
    // The oldest that is still about; it does not know nat64prefix.
    check("radvd", &["--for", "2.19"], "radvd", &["--configtest", "--config"]);
}

#[test]
fn dnsmasq_reads_it() {
    check("dnsmasq", &[], "dnsmasq", &["--test", "--conf-file="]);
}

#[test]
fn kea_reads_it() {
    if !is_root() || !has_programs(&["kea-dhcp6"]) {
        return;
    }
    // It looks for the interfaces, which are in a namespace of their own.
    let script = "ip link add lan0 type veth peer name lan1 && exec kea-dhcp6 -t \"$0\"";
    check("kea", &[], "unshare", &["--net", "sh", "-c", script]);
}

#[test]
fn unbound_reads_it() {
    check("unbound", &[], "unbound-checkconf", &[]);
}

#[test]
fn bind_reads_it() {
    check("bind", &[], "named-checkconf", &[]);
}
