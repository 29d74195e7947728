//! The host itself: does it have what a translator needs?

use fordway_net::privilege::{Capability, has};
use fordway_net::{Host, Ipv6State};

use super::finding::Findings;

/// IPv6 and privileges; for a translator (`translates`), TUN and the kernel engine.
pub(super) fn check(translates: bool, findings: &mut Findings) {
    let host = Host::probe();
    match host.ipv6 {
        Ipv6State::Enabled => findings.good("kernel", "IPv6 is enabled"),
        Ipv6State::DisabledBySysctl => findings.bad(
            "kernel",
            "IPv6 is disabled for new interfaces",
            "sysctl -w net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0",
        ),
        Ipv6State::Absent => findings.bad(
            "kernel",
            "the kernel has no IPv6",
            "start it without ipv6.disable=1, or take a kernel with IPv6",
        ),
    }
    let missing: Vec<String> = [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW]
        .into_iter()
        .filter(|capability| !has(*capability).unwrap_or(false))
        .map(|capability| capability.to_string())
        .collect();
    if missing.is_empty() {
        findings.good("privileges", "CAP_NET_ADMIN and CAP_NET_RAW");
    } else {
        findings.warning(
            "privileges",
            format!("without {}", missing.join(" and ")),
            "run as root: some checks are left out, and no translator can be set up",
        );
    }
    if !translates {
        return;
    }
    match host.tun {
        Ok(()) => findings.good("tun", "/dev/net/tun can be opened"),
        Err(error) => findings.bad(
            "tun",
            format!("/dev/net/tun: {error}"),
            "modprobe tun; in a container, pass the device in; or run as root",
        ),
    }
    match fordway_bpf::probe() {
        Ok(host) => {
            let attached = if host.tcx { "tcx" } else { "clsact" };
            findings.good("engine", format!("kernel engine ({attached}, Linux {})", host.kernel));
        }
        Err(why) => findings.warning(
            "engine",
            format!("user engine only: {why}"),
            why.hint
                .clone()
                .unwrap_or_else(|| "translation works, and costs more processor time".to_owned()),
        ),
    }
}
