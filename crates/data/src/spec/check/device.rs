//! Another machine as the device under test.

use super::{Check, MechanismSpec, Metric};
use crate::spec::{Group, Kind, Load};

/// What of it can't be.
pub(super) fn device(check: &mut Check<'_>, at: &str, arm: &MechanismSpec, metrics: &[Metric]) {
    let is_device = arm.implementation == "device";
    let Some(given) = &arm.device else {
        if is_device {
            let message = "implementation \"device\" needs a table of the machine";
            let fix = "add [mechanism.device] with `client`, `server` and `version`".to_owned();
            check.wrong(&format!("{at}/implementation"), message.into(), fix);
        }
        return;
    };
    if !is_device {
        let message = format!("{} runs on this machine", arm.implementation);
        let fix = "write implementation = \"device\", or leave [mechanism.device] out".to_owned();
        check.wrong(&format!("{at}/device"), message, fix);
        return;
    }
    if given.client == given.server {
        let message = "both sides are the same network device".to_owned();
        check.wrong(&format!("{at}/device/server"), message, "write another one".to_owned());
    }
    if let Some(counters) = &given.counters
        && counters.via.is_empty() == counters.snmp.is_none()
    {
        let message = "counters are read by `via` or by `snmp`".to_owned();
        check.wrong(&format!("{at}/device/counters"), message, "write one of them".to_owned());
    }
    // The kinds that translate stand in one box anyway.
    if arm.hops != 1 && arm.kind == Kind::Native {
        let message = "it is the one hop between the ends".to_owned();
        check.wrong(&format!("{at}/hops"), message, "write hops = 1".to_owned());
    }
    let of_tester =
        |metric: &&Metric| matches!(metric.group(), Some(Group::Rfc8219 | Group::Rfc9693));
    if let Some(other) = metrics.iter().find(|metric| !of_tester(metric)) {
        let message = format!(
            "another machine is measured by rfc8219_* and rfc9693_* alone, not by {}",
            other.name()
        );
        check.wrong(&format!("{at}/name"), message, "name in its metrics what it does".to_owned());
    }
    let renews = |metric: &&Metric| {
        matches!(metric.load(), Some(Load::Reset | Load::Connections | Load::Capacity))
    };
    if let Some(metric) = metrics.iter().find(renews).filter(|_| given.down.is_empty()) {
        let message = format!(
            "{} takes it down, or empties its tables, by `down`, which has no command",
            metric.name()
        );
        let fix =
            "down = [[\"ssh\", \"root@router\", \"conntrack\", \"-F\"]], or whatever does it there";
        check.wrong(&format!("{at}/device"), message, fix.to_owned());
    }
}
