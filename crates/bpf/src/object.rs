//! Loading of an object: programs made for a configuration, and their maps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use fordway_xlat::addr::Eam;
use libbpf_rs::{
    MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, ProgramType, libbpf_sys,
};

use crate::abi::{
    Abi, FwConfig, FwEamKey4, FwEamKey6, FwNat64Config, FwSoftwireConfig, FwVirtualMac, PAIRS_BITS,
};
use crate::capture::captured;
use crate::convert::fw_eam;
use crate::error::io_error;
use crate::maps::{GATES, ROUTING};
use crate::program::{CONSTANTS, ObjectFile, Program};
use crate::state_maps::MARKS;
use crate::{Error, Result, SoftwireMaps, StateMaps, maps, sys};

/// Entries of a batch: bounds the memory that the kernel copies at once.
const BATCH: usize = 4096;

/// What an object is loaded with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) file: ObjectFile,
    /// The programs that are wanted; others are not loaded.
    pub(crate) programs: &'a [Program],
    pub(crate) config: &'a FwConfig,
    /// The explicit mappings, if they go into maps.
    pub(crate) eam: Option<&'a [Eam]>,
    /// Tables, and what the programs know of them.
    pub(crate) state: Option<(&'a StateMaps, &'a FwNat64Config)>,
    /// In a cluster: which packets may be translated.
    pub(crate) gates: Option<BorrowedFd<'a>>,
    /// In front of routing: what is heard of changes of routes.
    pub(crate) routing: Option<BorrowedFd<'a>>,
    /// The bindings of softwires, and what the programs know of them.
    pub(crate) tunnels: Option<(&'a SoftwireMaps, &'a FwSoftwireConfig)>,
    /// The entries of pods.
    pub(crate) pods: Option<BorrowedFd<'a>>,
    /// The counters to go on with.
    pub(crate) counters: Option<BorrowedFd<'a>>,
    /// The ring buffer to go on with.
    pub(crate) trace: Option<BorrowedFd<'a>>,
}

/// A loaded object.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) object: Object,
    programs: Vec<(Program, OwnedFd, u32)>,
    pub(crate) counters: MapHandle,
    /// Only if tracing is on.
    pub(crate) trace: Option<MapHandle>,
    /// Only of the XDP object.
    pub(crate) devices: Option<MapHandle>,
    macs: Option<MapHandle>,
    virtual_macs: Option<MapHandle>,
}

/// Puts an entry into a map that only some objects have.
fn put(map: Option<&MapHandle>, name: &'static str, key: &[u8], value: &[u8]) -> Result<()> {
    map.map_or(Ok(()), |map| maps::put(map, name, key, value))
}

impl Programs {
    /// Lets the XDP program send to `device`.
    pub(crate) fn take_redirected(&self, device: u32) -> Result<()> {
        let key = device.to_ne_bytes();
        put(self.devices.as_ref(), "devices", &key, &key)
    }

    /// Tells the XDP program which frames at `device` are for this host.
    pub(crate) fn take_address(&self, device: u32, mac_number: u64) -> Result<()> {
        put(self.macs.as_ref(), "macs", &device.to_ne_bytes(), &mac_number.to_ne_bytes())
    }

    /// Tells the XDP program of a further address by which frames at `device` are for this host.
    pub(crate) fn take_virtual(&self, ifindex: u32, mac: u64) -> Result<()> {
        let key = FwVirtualMac { mac, ifindex, reserved: 0 }.to_octets();
        put(self.virtual_macs.as_ref(), "virtual_macs", &key, &[1])
    }

    /// Keeps the XDP program from sending to `device`.
    pub(crate) fn take_no_redirected(&self, device: u32) {
        if let Some(map) = &self.devices {
            // Fails if it is not there, as it has to be.
            let _ = map.delete(&device.to_ne_bytes());
        }
    }

    /// Loads programs and fills the maps of explicit mappings.
    pub(crate) fn load(request: Request<'_>) -> Result<Programs> {
        let (loaded, log) = captured(|| load(request));
        let object =
            loaded.map_err(|source| Error::Load { object: request.file.name, source, log })?;
        if let Some(entries) = request.eam {
            fill_eam(&object, entries).map_err(|source| Error::Map {
                operation: "fill",
                map: "eam",
                source,
            })?;
        }
        let handle = |name: &str| {
            object
                .maps()
                .find(|map| map.name() == name)
                .map(|map| MapHandle::try_from(&map))
                .transpose()
        };
        let handles = || -> libbpf_rs::Result<_> {
            let mut programs = Vec::new();
            for &program in request.programs {
                let found = object.progs().find(|found| found.name() == program.name());
                let found = found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
                let descriptor = found.as_fd().try_clone_to_owned()?;
                let id = libbpf_rs::Program::id_from_fd(descriptor.as_fd())?;
                programs.push((program, descriptor, id));
            }
            let counters =
                handle("counters")?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            let trace = if request.config.trace != 0 { handle("trace")? } else { None };
            let xdp = [handle("devices")?, handle("macs")?, handle("virtual_macs")?];
            Ok((programs, counters, trace, xdp))
        };
        let (programs, counters, trace, [devices, macs, virtual_macs]) =
            handles().map_err(|error| Error::Load {
                object: request.file.name,
                source: io_error(&error),
                log: String::new(),
            })?;
        Ok(Programs { object, programs, counters, trace, devices, macs, virtual_macs })
    }

    /// A program's descriptor.
    pub(crate) fn program(&self, program: Program) -> Option<BorrowedFd<'_>> {
        self.programs.iter().find(|found| found.0 == program).map(|found| found.1.as_fd())
    }

    /// The programs that were loaded.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Program, BorrowedFd<'_>)> {
        self.programs.iter().map(|found| (found.0, found.1.as_fd()))
    }

    /// The descriptor of the program with this number.
    pub(crate) fn by_id(&self, id: u32) -> Option<BorrowedFd<'_>> {
        self.programs.iter().find(|found| found.2 == id).map(|found| found.1.as_fd())
    }
}

fn load(request: Request<'_>) -> io::Result<Object> {
    let open = || -> libbpf_rs::Result<OpenObject> {
        let mut builder = ObjectBuilder::default();
        builder.name(format!("fordway_{}", request.file.name))?;
        let mut object = builder.open_memory(request.file.octets)?;
        for mut program in object.progs_mut() {
            let wanted = request.programs.iter().any(|wanted| program.name() == wanted.name());
            program.set_autoload(wanted);
            // With large MTUs drivers run only such programs; this one leaves frames of which it sees a
            // part to the stack.
            if program.prog_type() == ProgramType::Xdp && has_xdp_frags() {
                program.set_flags(libbpf_sys::BPF_F_XDP_HAS_FRAGS);
            }
        }
        set_maps(&mut object, request)?;
        Ok(object)
    };
    open().and_then(OpenObject::load).map_err(|error| io_error(&error))
}

/// Whether XDP programs can see frames of several buffers.
fn has_xdp_frags() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| captured(sys::takes_xdp_frags).0)
}

fn set_maps(object: &mut OpenObject, request: Request<'_>) -> libbpf_rs::Result<()> {
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        match name.as_str() {
            "counters" => {
                if let Some(counters) = request.counters {
                    map.reuse_fd(counters)?;
                }
            }
            // Maps that a configuration does not use are not even made: the verifier removes the
            // code that names them.
            "eam4" | "eam6" => match request.eam {
                Some(entries) => map.set_max_entries(entries.len().max(1) as u32)?,
                None => map.set_autocreate(false)?,
            },
            "pods" | "this_pod" if !request.programs.iter().any(|program| program.is_of_pods()) => {
                map.set_autocreate(false)?;
            }
            "pods" => request.pods.map_or(Ok(()), |pods| map.reuse_fd(pods))?,
            "routes" | "pairs" | "at_hand" | ROUTING
                if request.programs.iter().all(|program| !program.is_in_front()) =>
            {
                map.set_autocreate(false)?;
            }
            "routes" | "pairs" => {
                let bits = if name == "routes" { request.config.routes_bits } else { PAIRS_BITS };
                map.set_max_entries((libbpf_rs::num_possible_cpus()? as u32) << bits)?;
            }
            ROUTING => request.routing.map_or(Ok(()), |routing| map.reuse_fd(routing))?,
            "trace" => match request.trace {
                _ if request.config.trace == 0 => map.set_autocreate(false)?,
                Some(trace) => map.reuse_fd(trace)?,
                None => {}
            },
            constants if constants.ends_with(CONSTANTS) => {
                let octets = map.initial_value_mut().unwrap_or_default();
                write_constant(request.file, octets, "config", request.config)?;
                if let Some((_, config)) = request.state {
                    write_constant(request.file, octets, "nat64", config)?;
                }
                if let Some((_, config)) = request.tunnels {
                    write_constant(request.file, octets, "softwire", config)?;
                }
            }
            bindings if bindings.starts_with("softwire_") => {
                if let Some((maps, _)) = request.tunnels {
                    map.reuse_fd(maps.map(bindings).ok_or_else(not_found)?)?;
                }
            }
            GATES => match request.gates {
                Some(gates) => map.reuse_fd(gates)?,
                None => map.set_autocreate(false)?,
            },
            state if state.starts_with("nat64_") => match request.state {
                Some((maps, _)) => match maps.map(state) {
                    Some(found) => map.reuse_fd(found)?,
                    None if state == MARKS => map.set_autocreate(false)?,
                    None => return Err(not_found().into()),
                },
                None => map.set_autocreate(false)?,
            },
            _ => {}
        }
    }
    Ok(())
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

/// Gives a variable of the programs its value.
fn write_constant(
    file: ObjectFile,
    octets: &mut [u8],
    name: &str,
    value: &impl Abi,
) -> io::Result<()> {
    let written = file.constant(name).and_then(|offset| {
        value.write(octets.get_mut(offset..)?.get_mut(..value.to_octets().len())?);
        Some(())
    });
    written.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("no {name} in the object"))
    })
}

fn fill_eam(object: &Object, entries: &[Eam]) -> io::Result<()> {
    let key4 = |eam: &Eam| {
        let addr = eam.v4().addr().octets();
        FwEamKey4 { prefix_len: u32::from(eam.v4().prefix_len()), addr }.to_octets()
    };
    let key6 = |eam: &Eam| {
        let addr = eam.v6().addr().octets();
        FwEamKey6 { prefix_len: u32::from(eam.v6().prefix_len()), addr }.to_octets()
    };
    for map in object.maps() {
        if map.name() == "eam4" {
            fill(&map, entries, key4)?;
        } else if map.name() == "eam6" {
            fill(&map, entries, key6)?;
        }
    }
    Ok(())
}

/// Fills a map in batches, or one by one where the kernel has no batches for this type of map
/// (before 5.18).
fn fill(map: &impl MapCore, entries: &[Eam], key: impl Fn(&Eam) -> Vec<u8>) -> io::Result<()> {
    for chunk in entries.chunks(BATCH) {
        let keys: Vec<u8> = chunk.iter().flat_map(&key).collect();
        let values: Vec<u8> = chunk.iter().flat_map(|eam| fw_eam(eam).to_octets()).collect();
        let count = chunk.len() as u32;
        if map.update_batch(&keys, &values, count, MapFlags::ANY, MapFlags::ANY).is_ok() {
            continue;
        }
        for eam in chunk {
            let value = fw_eam(eam).to_octets();
            patiently(|| {
                map.update(&key(eam), &value, MapFlags::ANY).map_err(|error| io_error(&error))
            })?;
        }
    }
    Ok(())
}

/// Tries again for two seconds while the system has no memory. The kernel takes the nodes of a trie from memory that is
/// free at the moment; where the page cache has all of it, some is free again after a few milliseconds.
fn patiently(mut attempt: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    const ATTEMPTS: u32 = 200;
    const PAUSE: Duration = Duration::from_millis(10);
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => thread::sleep(PAUSE),
            other => return other,
        }
    }
    attempt()
}

#[cfg(test)]
mod tests;
