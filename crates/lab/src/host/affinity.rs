//! On which processors this machine does its work: what is found, and what a run sets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fordway_data::environment::Affinity;
use fordway_data::spec::{Cores, Processors};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::{LabError, Result};

/// The frequency governor under which a bound processor keeps its highest frequency.
const GOVERNOR: &str = "performance";

/// Where the kernel's files are; tests have a folder.
fn root() -> &'static Path {
    Path::new("/")
}

/// The processors of a list file; none where there is no such file.
fn listed(path: &Path) -> Processors {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}

fn text(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

fn allowed() -> Processors {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// The processors that a program may be bound to, by core: also those that the scheduler leaves alone (`isolcpus`), and none
/// that a cpuset forbids.
pub(crate) fn cores() -> Cores {
    // A thread of its own, which ends with what it is bound to.
    let tried = std::thread::spawn(|| {
        let online = listed(&root().join("sys/devices/system/cpu/online"));
        let may = |cpu: &usize| {
            let mut one = CpuSet::new();
            one.set(*cpu);
            *cpu < CpuSet::MAX_CPU
                && sched_setaffinity(None, &one).is_ok()
                && sched_getaffinity(None).is_ok_and(|now| now.is_set(*cpu))
        };
        online.iter().filter(may).collect::<Processors>()
    });
    let usable = tried.join().unwrap_or_default();
    let mut cores: Vec<Processors> = Vec::new();
    for cpu in usable.iter() {
        let file = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let siblings = listed(&root().join(file));
        let mut core: Processors = siblings.iter().filter(|s| usable.contains(*s)).collect();
        if core.is_empty() {
            core = [cpu].into_iter().collect();
        }
        if !cores.contains(&core) {
            cores.push(core);
        }
    }
    Cores(cores)
}

/// What decides here on which processors work is done, and for this device.
pub(crate) fn found(device: Option<&str>) -> Affinity {
    found_in(root(), device)
}

fn found_in(root: &Path, device: Option<&str>) -> Affinity {
    let allowed = allowed();
    let mut governors: BTreeMap<String, Processors> = BTreeMap::new();
    for cpu in listed(&root.join("sys/devices/system/cpu/online")).iter() {
        if let Some(name) = text(&governor(root, cpu)) {
            let all = governors.remove(&name).unwrap_or_default();
            governors.insert(name, all.iter().chain([cpu]).collect());
        }
    }
    let of = |files: Vec<(String, PathBuf)>| {
        files.into_iter().filter_map(|(name, path)| Some((name, text(&path)?))).collect()
    };
    let interrupts = |device| -> Vec<(String, PathBuf)> {
        let own = interrupts(root, device).into_iter();
        own.map(|(number, name)| (format!("{number} {name}"), line(root, number))).collect()
    };
    Affinity {
        allowed,
        isolated: listed(&root.join("sys/devices/system/cpu/isolated")),
        governors,
        irqbalance: balanced(root),
        interrupts: device.map(interrupts).map(of).unwrap_or_default(),
        rps: device.map(|device| of(queues(root, device, "rx-", "rps_cpus"))).unwrap_or_default(),
        xps: device.map(|device| of(queues(root, device, "tx-", "xps_cpus"))).unwrap_or_default(),
    }
}

fn governor(root: &Path, cpu: usize) -> PathBuf {
    root.join(format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"))
}

/// The file that says where an interrupt goes.
fn line(root: &Path, number: u32) -> PathBuf {
    root.join(format!("proc/irq/{number}/smp_affinity_list"))
}

/// Whether a program runs that moves interrupts.
fn balanced(root: &Path) -> bool {
    let entries = std::fs::read_dir(root.join("proc")).into_iter().flatten().flatten();
    entries
        .into_iter()
        .any(|entry| text(&entry.path().join("comm")).is_some_and(|name| name == "irqbalance"))
}

/// Files of the queues of a device, in their order.
fn queues(root: &Path, device: &str, kind: &str, file: &str) -> Vec<(String, PathBuf)> {
    let folder = root.join("sys/class/net").join(device).join("queues");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<(u32, String, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((name.strip_prefix(kind)?.parse().ok()?, name, entry.path().join(file)))
        })
        .collect();
    all.sort();
    all.into_iter().map(|(_, name, path)| (name, path)).collect()
}

/// Numbers and names of a device's interrupts: those that bear its name, or that of its virtio device, or else all of its
/// PCI function that somebody handles.
fn interrupts(root: &Path, device: &str) -> Vec<(u32, String)> {
    let own = root.join("sys/class/net").join(device).join("device");
    let parent = std::fs::canonicalize(&own).unwrap_or_else(|_| own.clone());
    let bus = parent.file_name().map(|name| name.to_string_lossy().into_owned());
    let table = std::fs::read_to_string(root.join("proc/interrupts")).unwrap_or_default();
    let all: Vec<(u32, &str)> = table
        .lines()
        .filter_map(|line| {
            let (number, rest) = line.trim_start().split_once(':')?;
            Some((number.parse().ok()?, rest.split_whitespace().last()?))
        })
        .collect();
    let of = |wanted: &dyn Fn(u32, &str) -> bool| -> Vec<(u32, String)> {
        let own = all.iter().filter(|(number, name)| wanted(*number, name));
        own.map(|(number, name)| (*number, (*name).to_owned())).collect()
    };
    let begins = |name: &str, with: &str| {
        name.strip_prefix(with).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let named = of(&|_, name| {
        let of_bus = bus.as_deref().is_some_and(|bus| begins(name, bus));
        (begins(name, device) || of_bus)
            && !name.ends_with("-config")
            && !name.ends_with("-control")
    });
    if !named.is_empty() {
        return named;
    }
    let lines: Vec<u32> = [own.join("msi_irqs"), parent.join("../msi_irqs")]
        .into_iter()
        .find_map(|folder| std::fs::read_dir(folder).ok())
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    of(&|number, _| lines.contains(&number))
}

/// What is to be written where, so that a device's interrupts go to `irq` and the processors `busy` keep their frequency.
///
/// A queue's interrupt goes to one processor, which also sends by that queue (XPS) and handles what it receives (no RPS).
/// A device without interrupts of its own hands packets on to these processors (RPS).
pub(crate) fn wanted(
    device: &str,
    irq: Option<&Processors>,
    busy: &Processors,
) -> Result<Vec<(PathBuf, String)>> {
    wanted_in(root(), device, irq, busy)
}

fn wanted_in(
    root: &Path,
    device: &str,
    irq: Option<&Processors>,
    busy: &Processors,
) -> Result<Vec<(PathBuf, String)>> {
    let governors = busy.iter().map(|cpu| governor(root, cpu)).filter(|path| path.exists());
    let mut all: Vec<(PathBuf, String)> =
        governors.map(|path| (path, GOVERNOR.to_owned())).collect();
    let Some(irq) = irq else { return Ok(all) };
    if balanced(root) {
        return Err(LabError::Usage(
            "irqbalance runs and would move the interrupts again: `systemctl stop irqbalance` for the run, or leave \
             client-irq and server-irq out"
                .into(),
        ));
    }
    let one = |index: usize| irq.nth(index).into_iter().collect::<Processors>();
    let lines = interrupts(root, device);
    let handed = if lines.is_empty() { irq.mask() } else { Processors::default().mask() };
    let before = all.len();
    for (index, (number, _)) in lines.into_iter().enumerate() {
        all.push((line(root, number), one(index).to_string()));
    }
    let readable = |(_, path): &(String, PathBuf)| std::fs::read(path).is_ok();
    for (_, path) in queues(root, device, "rx-", "rps_cpus").into_iter().filter(readable) {
        all.push((path, handed.clone()));
    }
    let sending = queues(root, device, "tx-", "xps_cpus").into_iter().filter(readable);
    for (index, (_, path)) in sending.enumerate() {
        all.push((path, one(index).mask()));
    }
    if all.len() == before {
        return Err(LabError::Usage(format!(
            "device {device} has neither interrupts nor queues that could be bound: leave client-irq and server-irq out"
        )));
    }
    Ok(all)
}

/// The processors that a thread of one of these processes may use, although they are none of `on`; in words.
pub(crate) fn astray(pids: &[u32], on: &Processors) -> Option<String> {
    pids.iter().find_map(|pid| {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
        threads.into_iter().find_map(|thread| {
            let status = std::fs::read_to_string(thread.path().join("status")).ok()?;
            let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?;
            let may: Processors = list.trim().parse().ok()?;
            (!may.within(on)).then(|| {
                format!("its process {pid} left processors {on}, which it was bound to, for {may}")
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of two processors and a card, as files.
    fn machine() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("sys/devices/system/cpu/online", "0-1\n");
        for cpu in 0..2 {
            put(
                &format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"),
                "powersave\n",
            );
        }
        put(
            "proc/interrupts",
            "           CPU0       CPU1\n  1:          9          0   IO-APIC   1-edge      i8042\n \
             35:          1          2  PCI-MSI 524289-edge      eth1-rx-0\n \
             36:          1          2  PCI-MSI 524290-edge      eth1-rx-1\n \
             40:          1          2  PCI-MSI 600000-edge      eth10\n",
        );
        for irq in [35, 36, 40] {
            put(&format!("proc/irq/{irq}/smp_affinity_list"), "0-1\n");
        }
        for queue in 0..2 {
            put(&format!("sys/class/net/eth1/queues/rx-{queue}/rps_cpus"), "3\n");
            put(&format!("sys/class/net/eth1/queues/tx-{queue}/xps_cpus"), "0\n");
        }
        put("sys/class/net/wire0/queues/rx-0/rps_cpus", "0\n");
        put("sys/class/net/bare/queues/tx-0/tx_timeout", "0\n");
        dir
    }

    /// What is to be written, with paths below the root.
    fn written(root: &Path, device: &str, irq: &str) -> Vec<(String, String)> {
        let all = wanted_in(root, device, Some(&irq.parse().unwrap()), &Processors::default());
        let short = |path: PathBuf| path.strip_prefix(root).unwrap().display().to_string();
        all.unwrap().into_iter().map(|(path, text)| (short(path), text)).collect()
    }

    #[test]
    fn each_queue_has_one_processor_and_a_card_without_interrupts_hands_packets_on() {
        let dir = machine();
        let all = written(dir.path(), "eth1", "0-1");
        let of = |part: &str| -> Vec<&str> {
            all.iter().filter(|(path, _)| path.contains(part)).map(|(_, t)| t.as_str()).collect()
        };
        assert_eq!(of("irq/35"), ["0"]);
        assert_eq!(of("irq/36"), ["1"]);
        assert!(of("irq/40").is_empty() && of("irq/1/").is_empty());
        assert_eq!(of("rps_cpus"), ["00000000", "00000000"]);
        assert_eq!(of("xps_cpus"), ["00000001", "00000002"]);
        let bare = written(dir.path(), "wire0", "1");
        assert_eq!(bare, [("sys/class/net/wire0/queues/rx-0/rps_cpus".into(), "00000002".into())]);
    }

    #[test]
    fn what_cannot_be_bound_is_refused() {
        let dir = machine();
        let one = "1".parse().unwrap();
        let refused =
            |device: &str| wanted_in(dir.path(), device, Some(&one), &one).unwrap_err().to_string();
        assert!(refused("bare").contains("device bare has neither"));
        let comm = dir.path().join("proc/77/comm");
        std::fs::create_dir_all(comm.parent().unwrap()).unwrap();
        std::fs::write(&comm, "irqbalance\n").unwrap();
        assert!(refused("eth1").contains("systemctl stop irqbalance"));
        // Without interrupts it is no matter, and processors keep their frequency.
        let all = wanted_in(dir.path(), "eth1", None, &one).unwrap();
        assert_eq!(all.len(), 1);
        assert!(all[0].0.ends_with("cpu1/cpufreq/scaling_governor") && all[0].1 == "performance");
    }

    #[test]
    fn what_is_found_names_lines_queues_and_governors() {
        let dir = machine();
        let found = found_in(dir.path(), Some("eth1"));
        assert_eq!(found.governors["powersave"].to_string(), "0-1");
        let lines: Vec<&str> = found.interrupts.keys().map(String::as_str).collect();
        assert_eq!(lines, ["35 eth1-rx-0", "36 eth1-rx-1"]);
        assert_eq!((found.rps["rx-1"].as_str(), found.xps["tx-0"].as_str()), ("3", "0"));
        assert!(!found.irqbalance && found_in(dir.path(), None).interrupts.is_empty());
        let mut later = found.clone();
        later.interrupts.insert("35 eth1-rx-0".into(), "1".into());
        assert_eq!(found.moved(&later), ["interrupt 35 eth1-rx-0: 0-1 at first, 1 at the end"]);
    }

    #[test]
    fn a_process_outside_of_its_processors_is_noticed() {
        let own = [std::process::id()];
        assert_eq!(astray(&own, &(0..CpuSet::MAX_CPU).collect()), None);
        assert!(astray(&own, &Processors::default()).is_some_and(|why| why.contains("bound to")));
        assert!(!cores().all().is_empty());
    }
}
