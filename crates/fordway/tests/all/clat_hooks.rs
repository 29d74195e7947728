//! The hooks of network managers, run as these run them, with a service manager that only takes notes.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `packaging/`.
fn packaging(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(path)
}

/// What a hook has the service manager do. `enabled` and `active` are what that says of the unit.
fn asked(
    hook: &str,
    arguments: &[&str],
    iface: Option<&str>,
    enabled: bool,
    active: bool,
) -> String {
    let dir = tempfile::TempDir::with_prefix("fordway-hook-").unwrap();
    let notes = dir.path().join("notes");
    let code = |yes: bool| if yes { 0 } else { 1 };
    let systemctl = format!(
        "#!/bin/sh\ncase \"$*\" in\n*is-enabled*) exit {} ;;\n*is-active*) exit {} ;;\nesac\n\
         echo \"$*\" >> '{}'\n",
        code(enabled),
        code(active),
        notes.display()
    );
    let program = dir.path().join("systemctl");
    std::fs::write(&program, systemctl).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", dir.path().display());
    let mut command = Command::new(packaging(hook));
    command.args(arguments).env_clear().env("PATH", path);
    if let Some(iface) = iface {
        command.env("IFACE", iface).env("OperationalState", "routable");
    }
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{hook} {arguments:?}: {errors}");
    std::fs::read_to_string(&notes).unwrap_or_default()
}

const STARTED: &str = "reset-failed fordway-clat.service\n--no-block start fordway-clat.service\n";
const NM: &str = "NetworkManager/dispatcher.d/50-fordway-clat";
const NETWORKD: &str = "networkd/fordway-clat";

#[test]
fn a_network_brings_a_service_up_that_is_enabled_and_does_not_run() {
    for action in ["up", "vpn-up", "dhcp6-change", "connectivity-change"] {
        assert_eq!(asked(NM, &["eth0", action], None, true, false), STARTED, "{action}");
    }
    // Changes of connectivity have no device.
    assert_eq!(asked(NM, &["", "connectivity-change"], None, true, false), STARTED);
    assert_eq!(asked(NETWORKD, &[], Some("eth0"), true, false), STARTED);
}

#[test]
fn otherwise_nothing_is_done() {
    for (enabled, active) in [(false, false), (true, true), (false, true)] {
        assert_eq!(asked(NM, &["eth0", "up"], None, enabled, active), "");
        assert_eq!(asked(NETWORKD, &[], Some("eth0"), enabled, active), "");
    }
    for action in ["down", "pre-up", "hostname", ""] {
        assert_eq!(asked(NM, &["eth0", action], None, true, false), "", "{action}");
    }
    for device in ["lo", "clat0"] {
        assert_eq!(asked(NM, &[device, "up"], None, true, false), "");
        assert_eq!(asked(NETWORKD, &[], Some(device), true, false), "");
    }
    // Called by hand, with nothing at all.
    assert_eq!(asked(NM, &[], None, true, false), "");
}

/// The service may do what the daemon needs, and nothing is there that the daemon does not know.
#[test]
fn the_service_has_what_the_daemon_needs() {
    let unit = std::fs::read_to_string(packaging("fordway-clat.service")).unwrap();
    let value = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(&format!("{key}=")));
        line.unwrap_or_else(|| panic!("{key}")).to_owned()
    };
    for capability in ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF", "CAP_PERFMON"] {
        assert!(value("CapabilityBoundingSet").split(' ').any(|it| it == capability));
    }
    for family in ["AF_UNIX", "AF_NETLINK", "AF_INET", "AF_INET6", "AF_PACKET"] {
        assert!(value("RestrictAddressFamilies").split(' ').any(|it| it == family));
    }
    let start = value("ExecStart");
    let words =
        start.strip_prefix("@BINDIR@/fordway ").unwrap().replace("$OPTIONS", "--print-config");
    let output = Command::new(env!("CARGO_BIN_EXE_fordway"))
        .args(words.split_whitespace())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("pref64 = \"auto\""), "{text}");
}
