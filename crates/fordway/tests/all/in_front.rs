//! Programs in front of routing that see other frames than was meant.

use fordway_testhost::poll;
use serde_json::Value;

use crate::common::can_test_kernel;
use crate::common::daemon::{Daemon, RunDir, count};
use crate::common::topology::{BORDER, Border, V4_HOST_AS_V6, V6_HOST_AS_V4};

const XDP: &str = "--engine kernel --attach xdp --device g4 --device g6";

/// A link-layer address as VRRP has it (RFC 9568 section 7.3).
const VIRTUAL: &str = "00:00:5e:00:01:07";

/// The IPv4 host sends to the gateway by a virtual address.
fn share(net: &Border) {
    net.v4.ip(&format!("neigh replace 198.51.100.1 lladdr {VIRTUAL} dev h4 nud permanent"));
}

fn warnings(daemon: &Daemon<'_>) -> Vec<Value> {
    let warnings = &daemon.status()["translators"][0]["kernel"]["warnings"];
    warnings.as_array().cloned().unwrap_or_default()
}

#[test]
fn a_virtual_address_is_known_at_xdp() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.gateway, &format!("{BORDER} {XDP}"));
    share(&net);
    // As keepalived does it where the host has the virtual router (`use_vmac`).
    net.gateway.ip(&format!("link add vrrp4 link g4 address {VIRTUAL} type macvlan mode private"));
    net.gateway.ip("link set vrrp4 up");
    poll("the address is followed", || {
        daemon.log().contains("programs are at g4, g6 now").then_some(())
    });
    let ping = net.v4.run(&format!("ping -n -c 3 -i 0.2 {V6_HOST_AS_V4}"));
    assert!(ping.contains("3 received"), "{ping}");
    let stats = daemon.stats("siit0");
    assert_eq!(count(&stats, "kernel/elsewhere"), 0, "{stats}");
    assert!(count(&stats, "kernel/v4_to_v6/packets") >= 3, "{stats}");
    assert_eq!(warnings(&daemon), [Value::Null; 0]);

    // Another gateway has the virtual router now.
    net.gateway.ip("link set vrrp4 down");
    poll("frames to the address are others'", || {
        let _ = net.v4.try_run(&format!("ping -n -c 1 -W 1 {V6_HOST_AS_V4}"));
        (count(&daemon.stats("siit0"), "kernel/elsewhere") > 0).then_some(())
    });
    daemon.stop();
}

#[test]
fn programs_that_take_nothing_are_warned_of() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.gateway, &format!("{BORDER} {XDP}"));
    assert_eq!(warnings(&daemon), [Value::Null; 0]);
    share(&net);
    let flood = net.v4.try_run(&format!("ping -n -q -c 1200 -l 1200 -W 1 {V6_HOST_AS_V4}"));
    assert!(!flood.status.success(), "nobody answers");
    let found = poll("the warning", || warnings(&daemon).pop());
    assert_eq!(found["about"], "elsewhere", "{found}");
    let text = found["text"].as_str().unwrap();
    assert!(text.contains("g4, g6 take nothing: 1200 frames"), "{text}");
    // What is taken ends it, whatever becomes of the answer.
    let _ = net.v6.try_run(&format!("ping -n -c 1 -W 1 {V4_HOST_AS_V6}"));
    assert_eq!(warnings(&daemon), [Value::Null; 0]);
    daemon.stop();
}

#[test]
fn xdp_in_front_of_the_stack_is_warned_of() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    // Such devices have no XDP of their own.
    net.gateway.ip("link add top4 link g4 type macvlan mode bridge");
    net.gateway.ip("link set top4 up");
    let devices = XDP.replace("--device g4", "--device top4");
    let daemon = Daemon::start(&run, &net.gateway, &format!("{BORDER} {devices}"));
    let found = warnings(&daemon);
    assert!(matches!(&found[..], [found] if found["about"] == "generic top4"), "{found:?}");
    let log = daemon.log();
    assert!(log.contains("the driver of top4 does not run XDP"), "{log}");
    assert!(log.contains("use attach = \"ingress\""), "{log}");
    let file = run.output(&net.gateway, &format!("{BORDER} {devices} --print-config")).stdout;
    let file = run.file("siit.toml", &String::from_utf8(file).unwrap());
    let doctor = format!("doctor --timeout 200ms -c {}", file.display());
    let doctor = run.output(&net.gateway, &doctor);
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.contains("the driver of top4 does not run XDP"), "{doctor}");
    daemon.stop();
}
