//! Other translators on this host.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::finding::Findings;
use super::view::View;

/// RFC 7335: the IPv4 addresses of CLATs and their like.
const SERVICE_CONTINUITY: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 0, 0), 29);

/// Programs that translate.
const PROGRAMS: [&str; 4] = ["tayga", "tundra-nat64", "clatd", "tundra"];

/// Kernel modules that translate.
const MODULES: [&str; 3] = ["jool", "jool_siit", "nat46"];

/// The interface of a CLAT on this host.
pub(super) fn clat(view: &View) -> Option<&str> {
    clats(view).next()
}

fn clats(view: &View) -> impl Iterator<Item = &str> {
    let is_clat = |(_, address): &(&str, Ipv4Addr)| SERVICE_CONTINUITY.contains(address);
    view.v4().filter(is_clat).map(|(device, _)| device)
}

/// Checks for other translators on this host.
pub(super) fn check(view: &View, findings: &mut Findings) {
    let clats: BTreeSet<&str> = clats(view).collect();
    if clats.len() > 1 {
        let list: Vec<&str> = clats.into_iter().collect();
        findings.warning(
            "conflicts",
            format!("more than one CLAT: {}", list.join(", ")),
            "leave one: systemd-networkd (IPv6OnlyMode), NetworkManager (ipv4.clat) and clatd set one up, too",
        );
    }
    let others = others(&programs(), &fs::read_to_string("/proc/modules").unwrap_or_default());
    if others.is_empty() {
        findings.good("conflicts", "no other translator");
    } else {
        findings.warning(
            "conflicts",
            format!("another translator is here: {}", others.join(", ")),
            "see that each has prefixes and addresses of its own, or end one of them",
        );
    }
}

/// Names of the host's processes.
fn programs() -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_process = |name: &str| name.bytes().all(|octet| octet.is_ascii_digit());
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_process))
        .filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok())
        .map(|name| name.trim().to_owned())
        .collect()
}

fn others(programs: &[String], modules: &str) -> Vec<String> {
    let mut others: Vec<String> =
        programs.iter().filter(|name| PROGRAMS.contains(&name.as_str())).cloned().collect();
    let loaded = modules.lines().filter_map(|line| line.split(' ').next());
    others
        .extend(loaded.filter(|name| MODULES.contains(name)).map(|name| format!("module {name}")));
    others.sort_unstable();
    others.dedup();
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translators_are_known_by_their_names() {
        let programs = ["tayga", "bash", "tayga"].map(str::to_owned);
        let modules = "jool 16384 0 - Live 0x0\nnf_tables 300 1 - Live 0x0\n";
        assert_eq!(others(&programs, modules), ["module jool", "tayga"]);
        assert!(others(&["clatd2".to_owned()], "jool_common 1 0 - Live 0x0\n").is_empty());
    }
}
