//! The CLATs of a node's pods: their entries in one map, and the programs that they share.
//!
//! Everything is pinned in one folder. `pods-VERSION` is the map of entries. `programs-ID` is a map of two programs, made
//! for one configuration; pods with equal configurations share it. Each pod has stubs at its device that continue with
//! these programs ([`PodHook`](crate::PodHook)). A stub vanishes with its device and holds the programs, but only the pin
//! keeps them callable: [`Pods::tidy`] removes a pin when no entry names it.
//!
//! Callers lock out other processes while they write entries and tidy up.

use std::fs;
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use fordway_xlat::config::HopCount;
use fordway_xlat::{Config, DropReason};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, MapType, libbpf_sys};

use crate::abi::{Abi, FwConfig, FwPod, MAX_PODS, POD_NAME};
use crate::convert::{Extra, convert, random};
use crate::error::io_error;
use crate::events::drop_reason;
use crate::maps::{self, failed, flags};
use crate::object::{Programs, Request};
use crate::pins::{BPFFS, Pins};
use crate::program::ObjectFile;
use crate::{Error, Forwarding, PassReason, Program, Result, sys};

/// Version of the entries' layout.
const VERSION: u32 = 1;

/// Octets of a container's name that an entry holds.
pub const POD_NAME_MAX: usize = POD_NAME - 1;

/// Name of the map in errors.
const MAP: &str = "pods";

/// Name of the map of programs.
const TAILS: &str = "fordway_pods";

/// [`Pod::programs`] of a pod whose programs were lost with their pin. No programs have this number.
const LOST: u64 = 0;

/// The folder of a node's pins.
#[must_use]
pub fn pods_root() -> PathBuf {
    Path::new(BPFFS).join("fordway-cni")
}

/// The CLAT at one interface of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// A number that stands for network, container and interface.
    pub key: u64,
    /// The CLAT's IPv6 address.
    pub clat: Ipv6Addr,
    /// The pod's own IPv6 address.
    pub address: Ipv6Addr,
    /// A number that stands for the network.
    pub network: u64,
    /// Which programs it uses ([`PodPrograms::id`]).
    pub programs: u64,
    /// The container's name, at most 95 octets of it.
    pub container: String,
    /// The interface's name.
    pub interface: String,
}

/// What the programs counted for a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodTotals {
    /// Packets translated, by [`Direction`](fordway_xlat::Direction). A super-packet counts once.
    pub translated: [u64; 2],
    /// Packets to the CLAT's address that are neither translated nor Neighbor Discovery: dropped.
    pub foreign: u64,
    /// Packets dropped as the core drops them.
    pub drops: Vec<(DropReason, u64)>,
    /// Packets dropped because only a user engine could translate or answer them.
    pub untranslatable: Vec<(PassReason, u64)>,
}

/// The entries of a node's pods.
#[derive(Debug)]
pub struct Pods {
    folder: PathBuf,
    map: MapHandle,
}

/// Loaded programs that many pods share.
#[derive(Debug)]
pub struct PodPrograms {
    /// A number that stands for the programs and their configuration.
    pub id: u64,
    pub(crate) tails: MapHandle,
    /// The kernel's number of that map.
    pub(crate) map: u32,
}

impl PodPrograms {
    fn new(id: u64, tails: MapHandle) -> Result<Self> {
        let map = tails.info().map_err(failed("look at", TAILS))?.info.id;
        Ok(PodPrograms { id, tails, map })
    }
}

/// Entries of the map of programs.
pub(crate) const SLOTS: [Program; 2] = [Program::PodEgress, Program::PodIngress];

impl Pods {
    /// Opens the entries below `folder`; `None`: there are none.
    pub fn open(folder: &Path) -> Result<Option<Pods>> {
        let path = entries_path(folder);
        let failed_to_look =
            |source| Error::Pin { operation: "look at", path: path.clone(), source };
        if !path.try_exists().map_err(failed_to_look)? {
            return Ok(None);
        }
        let map = MapHandle::from_pinned_path(&path).map_err(failed("open", MAP))?;
        Ok(Some(Pods { folder: folder.to_owned(), map }))
    }

    /// Opens the entries below `folder`, and makes what is missing: the folder, its file system, the map.
    pub fn create(folder: &Path) -> Result<Pods> {
        Pins::create(folder)?;
        if let Some(pods) = Pods::open(folder)? {
            return Ok(pods);
        }
        let options = flags(libbpf_sys::BPF_F_NO_PREALLOC);
        let sizes = [size_of::<u64>(), FwPod::SIZE];
        let map = maps::make(MapType::Hash, MAP, sizes, MAX_PODS, options)?;
        pin(&map, entries_path(folder))?;
        Ok(Pods { folder: folder.to_owned(), map })
    }

    /// The pod with this key.
    pub fn get(&self, key: u64) -> Result<Option<(Pod, PodTotals)>> {
        let found = self.map.lookup(&key.to_ne_bytes(), MapFlags::ANY);
        let found = found.map_err(failed("read", MAP))?;
        Ok(found.as_deref().and_then(FwPod::from_octets).map(|entry| from_entry(key, &entry)))
    }

    /// All pods, in the order of their keys.
    pub fn list(&self) -> Result<Vec<(Pod, PodTotals)>> {
        // Another process may remove one meanwhile.
        self.keys().into_iter().filter_map(|key| self.get(key).transpose()).collect()
    }

    fn keys(&self) -> Vec<u64> {
        let keys = self.map.keys().filter_map(|key| Some(u64::from_ne_bytes(key.try_into().ok()?)));
        let mut keys: Vec<u64> = keys.collect();
        keys.sort_unstable();
        keys
    }

    /// Adds a pod whose key is free. `Ok(false)`: there is no room.
    pub fn insert(&self, pod: &Pod) -> Result<bool> {
        let octets = to_entry(pod).to_octets();
        match self.map.update(&pod.key.to_ne_bytes(), &octets, MapFlags::NO_EXIST) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::TooBig => Ok(false),
            Err(error) => Err(failed("write", MAP)(error)),
        }
    }

    /// Removes a pod. It is no error if it is not there.
    pub fn remove(&self, key: u64) -> Result<()> {
        match self.map.delete(&key.to_ne_bytes()) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("write", MAP)(error)),
            _ => Ok(()),
        }
    }

    /// The programs for `config`, whose only explicit mapping has the pods' IPv4 address: those that are pinned, or
    /// newly loaded and pinned ones. Stubs of pods that had these programs before the pin was lost do not find the new
    /// ones: entries of such pods then name no programs. `link_layer_len`: octets of the link-layer header of the pods'
    /// devices.
    pub fn programs(&self, config: &Config, link_layer_len: u32) -> Result<PodPrograms> {
        let mut fw = pod_config(config, link_layer_len)?;
        let id = identify(&fw);
        if let Some(programs) = self.pinned(id)? {
            return Ok(programs);
        }
        self.mark_lost(id)?;
        // Drawn anew by each load.
        fw.identification_secret = random();
        let loaded = Programs::load(Request {
            file: ObjectFile::TC,
            programs: &SLOTS,
            config: &fw,
            eam: None,
            state: None,
            tunnels: None,
            gates: None,
            routing: None,
            pods: Some(self.map.as_fd()),
            counters: None,
            trace: None,
        })?;
        let options = libbpf_sys::bpf_map_create_opts::default();
        let sizes = [size_of::<u32>(); 2];
        let tails = maps::make(MapType::ProgArray, TAILS, sizes, SLOTS.len() as u32, options)?;
        for (slot, program) in SLOTS.into_iter().enumerate() {
            let missing = || Error::Map {
                operation: "fill",
                map: TAILS,
                source: io::ErrorKind::NotFound.into(),
            };
            let descriptor = loaded.program(program).ok_or_else(missing)?;
            let value = descriptor.as_raw_fd().to_ne_bytes();
            maps::put(&tails, TAILS, &(slot as u32).to_ne_bytes(), &value)?;
        }
        pin(&tails, self.programs_path(id))?;
        PodPrograms::new(id, tails)
    }

    /// The kernel empties a map of programs with its last pin or descriptor, although stubs hold it.
    fn mark_lost(&self, id: u64) -> Result<()> {
        for key in self.keys() {
            let key = key.to_ne_bytes();
            let found = self.map.lookup(&key, MapFlags::ANY).map_err(failed("read", MAP))?;
            let Some(mut entry) = found.as_deref().and_then(FwPod::from_octets) else { continue };
            if entry.programs == id {
                entry.programs = LOST;
                let written = self.map.update(&key, &entry.to_octets(), MapFlags::EXIST);
                written.map_err(failed("write", MAP))?;
            }
        }
        Ok(())
    }

    /// Whether the programs of a pod are still callable ([`Pod::programs`]).
    pub fn has_programs(&self, id: u64) -> bool {
        self.programs_path(id).exists()
    }

    /// Removes programs that no pod uses, and everything if there are no pods.
    pub fn tidy(self) -> Result<()> {
        let pods = self.list()?;
        let used: Vec<_> = pods.iter().map(|(pod, _)| self.programs_path(pod.programs)).collect();
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Pin { operation: "remove the pin", path, source }
        };
        for entry in fs::read_dir(&self.folder).map_err(failed(&self.folder))? {
            let path = entry.map_err(failed(&self.folder))?.path();
            let is_program =
                path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(PROGRAMS));
            if is_program && !used.contains(&path) {
                fs::remove_file(&path).map_err(failed(&path))?;
            }
        }
        if pods.is_empty() {
            let path = entries_path(&self.folder);
            fs::remove_file(&path).map_err(failed(&path))?;
            // Not if another version's entries are in it.
            remove_empty(&self.folder);
        }
        Ok(())
    }

    /// The programs with this number, if they are pinned.
    pub fn pinned(&self, id: u64) -> Result<Option<PodPrograms>> {
        let path = self.programs_path(id);
        if !path.exists() {
            return Ok(None);
        }
        let opened = MapHandle::from_pinned_path(&path);
        let failed = |source| Error::Pin { operation: "open", path, source };
        let tails = opened.map_err(|error| failed(io_error(&error)))?;
        PodPrograms::new(id, tails).map(Some)
    }

    fn programs_path(&self, id: u64) -> PathBuf {
        self.folder.join(format!("programs-{id:016x}"))
    }
}

/// Removes a folder of entries if it is empty, and the folder of all nodes' if that is empty, too.
pub fn remove_empty(folder: &Path) {
    if fs::remove_dir(folder).is_ok() || !folder.exists() {
        let _ = fs::remove_dir(pods_root());
    }
}

/// How names of pins of programs begin.
const PROGRAMS: &[u8] = b"programs-";

fn entries_path(folder: &Path) -> PathBuf {
    folder.join(format!("pods-{VERSION}"))
}

fn pin(map: &MapHandle, path: PathBuf) -> Result<()> {
    let pinned = sys::pin(map.as_fd(), &path);
    pinned.map_err(|source| Error::Pin { operation: "pin", path, source })
}

fn extra(link_layer_len: u32) -> Extra {
    Extra {
        tun: 0,
        link_layer_len,
        // The pod is the packet's end: the next router counts the first hop.
        decrement_hop_limit: HopCount::NONE,
        measure: false,
        trace: None,
        pass_rate: None,
        // Nothing behind the programs could send packets out of order.
        keep_order: false,
        forward: Forwarding::Stack,
    }
}

/// The programs' configuration, without what is drawn.
fn pod_config(config: &Config, link_layer_len: u32) -> Result<FwConfig> {
    let converted = convert(config, extra(link_layer_len))?;
    Ok(FwConfig { by_pod: 1, identification_secret: 0, ..converted })
}

/// The [`PodPrograms::id`] of programs for `config`, which need not be loaded.
pub fn pod_programs_id(config: &Config, link_layer_len: u32) -> Result<u64> {
    Ok(identify(&pod_config(config, link_layer_len)?))
}

/// Equal programs with equal configurations have equal numbers.
fn identify(fw: &FwConfig) -> u64 {
    fnv(&[ObjectFile::TC.octets, &fw.to_octets()])
}

/// FNV-1a.
pub(crate) fn fnv(parts: &[&[u8]]) -> u64 {
    parts.iter().flat_map(|part| part.iter()).fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
        (hash ^ u64::from(*octet)).wrapping_mul(0x100_0000_01b3)
    })
}

fn to_entry(pod: &Pod) -> FwPod {
    let [clat_hi, clat_lo] = halves(pod.clat);
    let [pod_hi, pod_lo] = halves(pod.address);
    FwPod {
        clat_hi,
        clat_lo,
        pod_hi,
        pod_lo,
        network: pod.network,
        programs: pod.programs,
        container: text::<POD_NAME>(&pod.container),
        interface: text::<16>(&pod.interface),
        ..FwPod::zeroed()
    }
}

fn halves(address: Ipv6Addr) -> [u64; 2] {
    let bits = address.to_bits();
    [(bits >> 64) as u64, bits as u64]
}

fn address(hi: u64, lo: u64) -> Ipv6Addr {
    Ipv6Addr::from_bits(u128::from(hi) << 64 | u128::from(lo))
}

/// As much of it as has room in front of a zero.
fn text<const N: usize>(text: &str) -> [u8; N] {
    let mut octets = [0; N];
    let end = text.floor_char_boundary(N - 1);
    octets[..end].copy_from_slice(&text.as_bytes()[..end]);
    octets
}

fn from_entry(key: u64, entry: &FwPod) -> (Pod, PodTotals) {
    let text = |octets: &[u8]| {
        let text = octets.split(|octet| *octet == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    };
    let pod = Pod {
        key,
        clat: address(entry.clat_hi, entry.clat_lo),
        address: address(entry.pod_hi, entry.pod_lo),
        network: entry.network,
        programs: entry.programs,
        container: text(&entry.container),
        interface: text(&entry.interface),
    };
    let counted = |counters: &'_ [u64]| {
        let numbered = counters.iter().enumerate().filter(|(_, count)| **count > 0);
        numbered.map(|(number, count)| (number, *count)).collect::<Vec<_>>()
    };
    let drops = counted(&entry.drops).into_iter();
    let passes = counted(&entry.passed_on).into_iter();
    let totals = PodTotals {
        translated: entry.translated,
        foreign: entry.foreign,
        drops: drops
            .filter_map(|(number, count)| Some((drop_reason(number as u8)?, count)))
            .collect(),
        untranslatable: passes
            .filter_map(|(number, count)| Some((PassReason::from_number(number as u8)?, count)))
            .collect(),
    };
    (pod, totals)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A folder of entries, which goes with the test.
    pub(crate) struct Folder(pub(crate) PathBuf);

    impl Folder {
        pub(crate) fn new(name: &str) -> Folder {
            Folder(pods_root().join(format!("test-{name}-{}", std::process::id())))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            for pin in fs::read_dir(&self.0).into_iter().flatten().flatten() {
                let _ = fs::remove_file(pin.path());
            }
            remove_empty(&self.0);
        }
    }

    #[test]
    fn entries_hold_what_was_written() {
        let mut pod = Pod {
            key: 7,
            clat: "2001:db8::c1a7:0:0:7".parse().unwrap(),
            address: "2001:db8::7".parse().unwrap(),
            network: 1,
            programs: u64::MAX,
            container: "c".repeat(64),
            interface: "eth0".to_owned(),
        };
        let (read, totals) = from_entry(7, &to_entry(&pod));
        assert_eq!((read, totals), (pod.clone(), PodTotals::default()));
        pod.container = "ä".repeat(64);
        let (read, _) = from_entry(7, &to_entry(&pod));
        assert_eq!(read.container, "ä".repeat(47));
        let mut entry = to_entry(&pod);
        entry.drops[19] = 3;
        entry.passed_on[9] = 5;
        let (_, totals) = from_entry(7, &entry);
        assert_eq!(totals.drops, [(DropReason::TooBig, 3)]);
        assert_eq!(totals.untranslatable, [(PassReason::IcmpError, 5)]);
    }

    #[test]
    fn entries_are_bounded() {
        if !fordway_testhost::is_root() {
            return;
        }
        let Folder(folder) = &Folder::new("bound");
        let pods = Pods::create(folder).unwrap();
        let entry = |key| Pod {
            key,
            clat: Ipv6Addr::LOCALHOST,
            address: Ipv6Addr::LOCALHOST,
            network: 1,
            programs: 1,
            container: "one".to_owned(),
            interface: "eth0".to_owned(),
        };
        let most = u64::from(MAX_PODS);
        assert!((0..most).all(|key| pods.insert(&entry(key)).unwrap()));
        assert!(!pods.insert(&entry(most)).unwrap(), "there is no room");
        assert_eq!(pods.list().unwrap().len(), MAX_PODS as usize);
        (0..=most).for_each(|key| pods.remove(key).unwrap());
        pods.tidy().unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn programs_are_told_apart_by_their_configuration() {
        let id = |prefix: &str, len| {
            let pool6 = fordway_xlat::addr::Pool6::new(prefix.parse().unwrap()).unwrap();
            let config = Config { pool6: vec![pool6], ..Config::default() };
            identify(&pod_config(&config, len).unwrap())
        };
        assert_eq!(id("64:ff9b::/96", 14), id("64:ff9b::/96", 14));
        assert_ne!(id("64:ff9b::/96", 14), id("64:ff9b::/96", 0));
        assert_ne!(id("64:ff9b::/96", 14), id("2001:db8:64::/96", 14));
    }
}
