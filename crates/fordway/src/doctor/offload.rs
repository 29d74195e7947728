//! Offloads of devices that translated packets do not survive.

use fordway_net::device_feature;

use super::finding::Findings;
use super::view::View;

/// Receive offload that chains whole packets instead of joining them. Programs change the headers of the first alone;
/// kernels without commit 426ca15c7f6c ("net: fix segmentation of forwarding fraglist GRO") send the others as they came.
const FEATURE: &str = "rx-gro-list";

pub(super) fn check(view: &View, findings: &mut Findings) {
    let on = |name: &&str| device_feature(name, FEATURE) == Some(true);
    let found: Vec<&str> = view.links.iter().map(|link| link.name.as_str()).filter(on).collect();
    if found.is_empty() {
        return;
    }
    let off: Vec<String> =
        found.iter().map(|it| format!("ethtool -K {it} {FEATURE} off")).collect();
    findings.warning(
        "offload",
        format!(
            "{FEATURE} is on at {}: kernels without commit 426ca15c7f6c cut what the kernel engine has translated into \
             wrong packets",
            found.join(", ")
        ),
        off.join("; "),
    );
}
