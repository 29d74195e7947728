//! The fence of a cluster, as programs see it.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::AtomicU64;

use fordway_xlat::nat64::{CHANGED_WORDS, Gates};
use libbpf_rs::{MapCore, MapHandle, MapType, libbpf_sys};

use crate::abi::MAX_SHARDS;
use crate::maps::GATES;
use crate::pins::{Pin, Pins};
use crate::sys::Mapped;
use crate::{Error, Result, maps};

/// The words of all shards that a cluster can have.
const WORDS: usize = 1 + 3 * MAX_SHARDS;
/// Octets of its value.
const OCTETS: usize = (WORDS + CHANGED_WORDS) * size_of::<AtomicU64>();

/// Words that say which packets may be translated, and bits of sessions that have changed, in a map that programs use. They
/// outlive the process with the programs.
pub struct ShardGates {
    map: MapHandle,
    memory: Mapped,
}

impl ShardGates {
    /// Adopts the map that is pinned in the folder `pins`, or makes a new one.
    pub fn open(pins: &Path) -> Result<ShardGates> {
        let pinned = Pins::at(pins).open_map(Pin::Gates)?;
        match pinned.filter(|map| map.value_size() as usize == OCTETS) {
            Some(map) => ShardGates::of(map),
            None => ShardGates::new(),
        }
    }

    /// Pins the map in the folder `pins`, in which tables are pinned already.
    pub fn pin(&self, pins: &Path) -> Result<()> {
        Pins::at(pins).put(Pin::Gates, self.map())
    }

    /// Makes a map that is pinned nowhere.
    pub fn new() -> Result<ShardGates> {
        let sizes = [size_of::<u32>(), OCTETS];
        let options = maps::flags(libbpf_sys::BPF_F_MMAPABLE);
        let map = maps::make(MapType::Array, GATES, sizes, 1, options)?;
        ShardGates::of(map)
    }

    fn of(map: MapHandle) -> Result<ShardGates> {
        let failed = |source| Error::Map { operation: "open", map: GATES, source };
        let memory = Mapped::of(map.as_fd(), OCTETS).map_err(failed)?;
        Ok(ShardGates { map, memory })
    }

    pub(crate) fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl Gates for ShardGates {
    fn words(&self) -> &[AtomicU64] {
        &self.memory.slice()[..WORDS]
    }

    fn changed(&self) -> &[AtomicU64] {
        &self.memory.slice()[WORDS..]
    }
}

impl fmt::Debug for ShardGates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardGates").finish_non_exhaustive()
    }
}
