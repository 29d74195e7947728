//! Where the kernel spends time on packets, of all network namespaces of the host: programs at tracepoints count packets, and
//! one that runs many times a second on each processor counts in which function the kernel is.

use std::collections::BTreeMap;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::{fs, io};

use libbpf_rs::btf::{Btf, types};
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, ObjectBuilder};

use crate::abi::{Abi, FwPathTotals};
use crate::capture::captured;
use crate::error::io_error;
use crate::program::ObjectFile;
use crate::{Error, Result, Unsupported, sys};

/// Samples per second and processor. No divisor of what timers do a hundred or a thousand times a second.
const SAMPLES_PER_SECOND: u64 = 1999;

/// The program that is sampled with.
const SAMPLE: &str = "path_sample";

/// A step on a packet's way, at a tracepoint of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The tracepoint. Of a step that has a time, it is where it begins.
    pub tracepoint: &'static str,
    /// What happens.
    pub about: &'static str,
}

/// What is counted, in the order of `enum step` in `c/fordway_path.bpf.c`.
pub const STEPS: [Step; 7] = [
    Step { tracepoint: "napi_gro_receive_entry", about: "a driver gives a frame to GRO" },
    Step { tracepoint: "netif_receive_skb", about: "a packet passes the receive path" },
    Step { tracepoint: "netif_rx", about: "a packet waits for one more receive pass" },
    Step { tracepoint: "net_dev_queue", about: "a packet is sent to a device" },
    Step {
        tracepoint: "net_dev_start_xmit",
        about: "a driver takes it; a GSO packet may be cut before",
    },
    Step { tracepoint: "kfree_skb", about: "a packet is dropped" },
    Step { tracepoint: "softirq_entry", about: "a softirq receives packets, and forwards them" },
];

/// How often a step was taken on one processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Packets; or runs of the softirq.
    pub calls: u64,
    /// Of the packets, GSO packets.
    pub super_packets: u64,
    /// Segments of the GSO packets.
    pub segments: u64,
    /// Octets of the packets.
    pub octets: u64,
    /// Nanoseconds in the softirq.
    pub ns: u64,
}

/// A step, and how often it was taken since the start.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The step.
    pub step: Step,
    /// By processor. Empty if this kernel lacks the tracepoint.
    pub processors: Vec<Calls>,
}

/// A program of Fordway that is loaded, and its runs while the kernel measures them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramRuns {
    /// The kernel's number of it.
    pub id: u32,
    /// Its name, of which the kernel keeps 15 characters.
    pub name: String,
    /// Runs.
    pub runs: u64,
    /// Nanoseconds of all of them.
    pub ns: u64,
}

/// Observes until it is dropped.
#[derive(Debug)]
pub struct PathWatch {
    object: Object,
    _links: Vec<Link>,
    observed: [bool; STEPS.len()],
    /// While it is open, the kernel measures the runs of programs.
    _measuring: OwnedFd,
    before: Vec<ProgramRuns>,
}

impl PathWatch {
    /// Samples per second and processor.
    pub const SAMPLES_PER_SECOND: u64 = SAMPLES_PER_SECOND;

    /// Starts to observe. Steps whose tracepoint this kernel lacks are left out.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] without the kernel's types (BTF); [`Error::Load`]; [`Error::Attach`].
    pub fn start() -> Result<PathWatch> {
        let (kernel, _) = captured(Btf::from_vmlinux);
        let kernel = kernel.map_err(|error| {
            let hint = "a kernel with CONFIG_DEBUG_INFO_BTF has them in /sys/kernel/btf/vmlinux";
            Unsupported::with_hint(
                format!("the types of this kernel are not known: {error:#}"),
                hint,
            )
        })?;
        let is_there = |tracepoint: &str| {
            kernel.type_by_name::<types::Typedef<'_>>(&format!("btf_trace_{tracepoint}")).is_some()
        };
        let observed = STEPS.map(|step| is_there(step.tracepoint));
        let (object, log) = captured(|| load(&is_there));
        let object = object.map_err(|error| Error::Load {
            object: ObjectFile::PATH.name,
            source: io_error(&error),
            log,
        })?;
        let mut links = Vec::new();
        for program in object.progs_mut().filter(|program| program.autoload()) {
            let name = program.name().to_string_lossy().into_owned();
            let failed = |source| Error::Attach {
                operation: "observe by".into(),
                device: name.clone(),
                source,
            };
            let mut keep = |attach: &dyn Fn() -> libbpf_rs::Result<Link>| -> Result<()> {
                let (link, _) = captured(attach);
                links.push(link.map_err(|error| failed(io_error(&error)))?);
                Ok(())
            };
            if name == SAMPLE {
                for timer in sys::sampling_timers(SAMPLES_PER_SECOND).map_err(failed)? {
                    // The link closes it.
                    let timer = timer.into_raw_fd();
                    keep(&|| program.attach_perf_event(timer))?;
                }
            } else {
                keep(&|| program.attach())?;
            }
        }
        let measuring = sys::measure_programs().map_err(|source| Error::Attach {
            operation: "measure the runs of".into(),
            device: "programs".into(),
            source,
        })?;
        Ok(PathWatch { object, _links: links, observed, _measuring: measuring, before: programs() })
    }

    /// Steps since the start, in the order of [`STEPS`].
    ///
    /// # Errors
    ///
    /// [`Error::Map`].
    pub fn steps(&self) -> Result<Vec<Observed>> {
        const MAP: &str = "path_totals";
        let map = self.map(MAP)?;
        let mut all = Vec::new();
        for (number, (step, observed)) in STEPS.into_iter().zip(self.observed).enumerate() {
            let values = per_processor(&map, MAP, &(number as u32).to_ne_bytes())?;
            let processors = values.iter().filter(|_| observed).map(|octets| {
                FwPathTotals::from_octets(octets).map(Calls::from).ok_or_else(|| too_short(MAP))
            });
            all.push(Observed { step, processors: processors.collect::<Result<_>>()? });
        }
        Ok(all)
    }

    /// Samples since the start by the kernel's function, the most first. Samples of programs in user space have the name
    /// `user space`; each has [`PathWatch::SAMPLES_PER_SECOND`] per second and processor.
    ///
    /// # Errors
    ///
    /// [`Error::Map`].
    pub fn samples(&self) -> Result<Vec<(String, u64)>> {
        const MAP: &str = "path_samples";
        let symbols = Symbols::read();
        let map = self.map(MAP)?;
        let mut functions: BTreeMap<String, u64> = BTreeMap::new();
        for key in map.keys() {
            let address = u64::from_octets(&key).ok_or_else(|| too_short(MAP))?;
            let samples = per_processor(&map, MAP, &key)?;
            let samples: u64 = samples.iter().filter_map(|octets| u64::from_octets(octets)).sum();
            *functions.entry(symbols.function(address)).or_default() += samples;
        }
        let mut functions: Vec<_> = functions.into_iter().collect();
        functions.sort_by_key(|&(_, samples)| std::cmp::Reverse(samples));
        Ok(functions)
    }

    /// Runs of Fordway's programs since the start, of those that were loaded then and are now.
    #[must_use]
    pub fn programs(&self) -> Vec<ProgramRuns> {
        let since = |now: ProgramRuns| {
            let before = self.before.iter().find(|before| before.id == now.id)?;
            let (runs, ns) = (now.runs - before.runs, now.ns - before.ns);
            Some(ProgramRuns { runs, ns, ..now })
        };
        programs().into_iter().filter_map(since).collect()
    }

    fn map(&self, name: &'static str) -> Result<Map<'_>> {
        self.object.maps().find(|map| map.name() == name).ok_or_else(|| too_short(name))
    }
}

impl From<FwPathTotals> for Calls {
    fn from(totals: FwPathTotals) -> Calls {
        let FwPathTotals { calls, super_packets, segments, octets, ns } = totals;
        Calls { calls, super_packets, segments, octets, ns }
    }
}

fn too_short(map: &'static str) -> Error {
    Error::Map { operation: "read", map, source: io::ErrorKind::InvalidData.into() }
}

fn per_processor(map: &Map<'_>, name: &'static str, key: &[u8]) -> Result<Vec<Vec<u8>>> {
    let values =
        map.lookup_percpu(key, MapFlags::ANY).map_err(crate::maps::failed("read", name))?;
    Ok(values.unwrap_or_default())
}

fn load(is_there: &dyn Fn(&str) -> bool) -> libbpf_rs::Result<Object> {
    let mut builder = ObjectBuilder::default();
    builder.name("fordway_path")?;
    let mut object = builder.open_memory(ObjectFile::PATH.octets)?;
    for mut program in object.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let tracepoint = name.strip_prefix("path_").unwrap_or_default();
        program.set_autoload(name == SAMPLE || is_there(tracepoint));
    }
    object.load()
}

fn programs() -> Vec<ProgramRuns> {
    let ours = |info: libbpf_rs::query::ProgramInfo| {
        let name = info.name.to_string_lossy().into_owned();
        let runs = ProgramRuns { id: info.id, name, runs: info.run_cnt, ns: info.run_time_ns };
        runs.name.starts_with("fordway_").then_some(runs)
    };
    ProgInfoIter::default().filter_map(ours).collect()
}

/// Where functions of the kernel and of its modules begin, in ascending order; programs are among them.
struct Symbols(Vec<(u64, String)>);

impl Symbols {
    fn read() -> Symbols {
        // Lines: address in hexadecimal digits, type, name, and the module.
        let symbol = |line: &str| {
            let mut parts = line.split_whitespace();
            let address = u64::from_str_radix(parts.next()?, 16).ok()?;
            let name = parts.nth(1)?;
            Some((address, name.to_owned()))
        };
        let text = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let mut all: Vec<_> = text.lines().filter_map(symbol).collect();
        all.sort_unstable();
        Symbols(all)
    }

    /// The function at an address; 0 is user space.
    fn function(&self, address: u64) -> String {
        if address == 0 {
            return "user space".into();
        }
        let after = self.0.partition_point(|&(start, _)| start <= address);
        match after.checked_sub(1).map(|at| &self.0[at]) {
            Some((start, name)) if *start > 0 => name.clone(),
            _ => format!("{address:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_the_function_that_begins_before_it() {
        let symbols = Symbols(vec![(0x1000, "first".into()), (0x2000, "second".into())]);
        assert_eq!(symbols.function(0x1fff), "first");
        assert_eq!(symbols.function(0x2000), "second");
        assert_eq!(symbols.function(0), "user space");
        assert_eq!(symbols.function(0x10), "0x10");
        // What reads them without the right sees zeros.
        assert_eq!(Symbols(vec![(0, "hidden".into())]).function(0x2000), "0x2000");
    }
}
