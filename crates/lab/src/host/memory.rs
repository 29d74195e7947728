//! Memory: of a process, of the maps of its programs, of the kernel's small objects.

use std::collections::BTreeMap;

/// Octets of anonymous memory of a process: what it has allocated and touched. Maps of programs that it
/// has in its address space are not among them.
pub(crate) fn anonymous(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    kib(&text, "RssAnon:").map(|kib| kib * 1024)
}

/// Octets of the kernel's slab caches: connection tracking keeps its entries there.
pub(crate) fn slab() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    kib(&text, "Slab:").map(|kib| kib * 1024)
}

/// Octets that the kernel has set aside for the maps of programs which a process holds, each map once.
pub(crate) fn program_maps(pid: u32) -> Option<u64> {
    let dir = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).ok()?;
    let files = dir.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
    let maps: BTreeMap<u64, u64> = files.filter_map(|text| one_map(&text)).collect();
    Some(maps.values().sum())
}

/// Number and octets of a map, when a descriptor is one.
fn one_map(text: &str) -> Option<(u64, u64)> {
    let field = |name: &str| number(text, name);
    Some((field("map_id:")?, field("memlock:")?))
}

fn number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn kib(text: &str, name: &str) -> Option<u64> {
    number(text, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_told_from_other_descriptors() {
        let map = "pos:\t0\nflags:\t02000002\nmap_type:\t2\nkey_size:\t4\nvalue_size:\t64\n\
                   max_entries:\t10\nmap_flags:\t0x400\nmap_extra:\t0x0\nmemlock:\t4096\n\
                   map_id:\t17\nfrozen:\t0\n";
        assert_eq!(one_map(map), Some((17, 4096)));
        assert_eq!(one_map("pos:\t0\nflags:\t0100002\nmnt_id:\t15\n"), None);
    }

    #[test]
    fn this_process_has_memory_and_the_kernel_has_slabs() {
        assert!(anonymous(std::process::id()).is_some_and(|octets| octets > 4096));
        assert!(slab().is_some_and(|octets| octets > 4096));
        assert_eq!(program_maps(std::process::id()), Some(0));
    }
}
