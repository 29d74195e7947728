//! The tables of a stateful translator as maps of the kernel: the programs change them, and so does the core,
//! which has them in its memory.

use std::fmt;
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use fordway_xlat::nat64::layout::{Bib, FREE_SHARDS, Free, KINDS, Meta, Session, Subscriber};
use fordway_xlat::nat64::{Memory, Regions, Sizes, memory};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};

use crate::maps::StateMap;
use crate::pins::{Pin, Pins};
use crate::sys::Mapped;
use crate::{Error, Result, Unsupported, maps};

impl StateMap {
    /// Octets of an entry, and how many there are, in tables with these heads.
    fn shape(self, sizes: &Sizes, heads: [u32; 4]) -> (usize, u32) {
        let [bibs, sessions, subscribers] = sizes.entries();
        let [bib6, bib4, session, subscriber] = heads;
        let head = size_of::<AtomicU64>();
        match self {
            StateMap::Meta => (size_of::<Meta>(), 1),
            StateMap::Bibs => (size_of::<Bib>(), bibs),
            StateMap::Sessions => (size_of::<Session>(), sessions),
            StateMap::Subscribers => (size_of::<Subscriber>(), subscribers),
            StateMap::Free => (size_of::<Free>(), (FREE_SHARDS * KINDS) as u32),
            StateMap::Bib6 => (head, bib6),
            StateMap::Bib4 => (head, bib4),
            StateMap::SessionHeads => (head, session),
            StateMap::SubscriberHeads => (head, subscriber),
        }
    }
}

/// The tables in this process's memory, in the order of [`StateMap::ALL`].
struct Tables(Vec<Mapped>);

impl Tables {
    fn regions(&self) -> Regions<'_> {
        let table = |state: StateMap| &self.0[state as usize];
        let heads =
            [StateMap::Bib6, StateMap::Bib4, StateMap::SessionHeads, StateMap::SubscriberHeads];
        Regions {
            meta: &table(StateMap::Meta).slice()[0],
            bibs: table(StateMap::Bibs).slice(),
            sessions: table(StateMap::Sessions).slice(),
            subscribers: table(StateMap::Subscribers).slice(),
            heads: heads.map(|state| table(state).slice()),
            free: table(StateMap::Free).slice(),
        }
    }
}

/// The tables of a stateful translator that has no programs in the kernel: in this process's memory, whose
/// pages count when they are first used.
pub struct StateMemory {
    tables: Tables,
}

impl StateMemory {
    /// New tables. `secret`: random.
    pub fn new(sizes: &Sizes, secret: [u64; 2]) -> io::Result<StateMemory> {
        let tables = StateMap::ALL.map(|state| {
            let (octets, entries) = state.shape(sizes, sizes.heads());
            Mapped::anonymous(octets * entries as usize)
        });
        let tables = Tables(tables.into_iter().collect::<io::Result<_>>()?);
        memory::prepare(tables.regions().meta, sizes, secret);
        Ok(StateMemory { tables })
    }
}

impl Memory for StateMemory {
    fn regions(&self) -> Regions<'_> {
        self.tables.regions()
    }
}

impl fmt::Debug for StateMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateMemory").finish_non_exhaustive()
    }
}

/// Name of the map of marks.
pub(crate) const MARKS: &str = "nat64_marks";

/// Hosts whose marks are kept.
const MARKED_HOSTS: u32 = 65_536;

/// Where tables came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// They were made now, and are empty.
    Made,
    /// An earlier process has made them, and their entries are kept.
    Adopted,
    /// Tables of an earlier version, which can't be used, were replaced by new ones, and so many sessions are lost.
    Replaced(u64),
}

/// Tables that an earlier process has left.
#[derive(Debug)]
pub enum Left {
    /// There are none.
    Nothing,
    /// A start takes them over.
    Fits(StateMaps),
    /// They are of an earlier version and can't be used: a start replaces them, and so many sessions are lost.
    Superseded(u64),
    /// A start refuses them. How many sessions are in them; `None`: their layout is not known here.
    Misfit(Option<u64>),
}

/// The tables of a stateful translator as maps of the kernel.
///
/// They are freed with the last of their pins, of the programs that use them, and of the values of this type.
pub struct StateMaps {
    /// In the order of [`StateMap::ALL`].
    maps: Vec<MapHandle>,
    tables: Tables,
    marks: OnceLock<MapHandle>,
}

impl StateMaps {
    /// Adopts the tables that are pinned in the folder `pins`, or makes and pins new ones. `secret`: random;
    /// it counts only if they are made.
    ///
    /// What was pinned has to be of a known layout and of these sizes;
    /// [`discard`](StateMaps::discard) removes what does not fit. Tables of an earlier version with address-dependent
    /// filtering, whose chains have no bound, are replaced.
    pub fn open(pins: &Path, sizes: &Sizes, secret: [u64; 2]) -> Result<(StateMaps, Origin)> {
        let pins = Pins::create(pins)?;
        // This one is pinned last: if it is there, so are the others.
        let lost = if pins.exists(Pin::State(StateMap::Meta)) {
            match superseded(&pins)? {
                None => return Ok((StateMaps::adopt(&pins, sizes)?, Origin::Adopted)),
                lost => lost,
            }
        } else {
            None
        };
        let made = StateMaps::make_in(&pins, sizes, secret);
        if made.is_err() {
            // The first error is the one to report.
            let _ = StateMaps::discard(pins.folder());
        }
        Ok((made?, lost.map_or(Origin::Made, Origin::Replaced)))
    }

    /// Looks at the tables that are pinned in the folder `pins` as [`open`](StateMaps::open) does, and changes nothing.
    pub fn look(pins: &Path, sizes: &Sizes) -> Result<Left> {
        let pins = Pins::at(pins);
        if !pins.exists(Pin::State(StateMap::Meta)) {
            return Ok(Left::Nothing);
        }
        if let Some(lost) = superseded(&pins)? {
            return Ok(Left::Superseded(lost));
        }
        match StateMaps::adopt(&pins, sizes) {
            Ok(maps) => Ok(Left::Fits(maps)),
            Err(Error::Unsupported(_)) => Ok(Left::Misfit(sessions_in(&pins)?)),
            Err(error) => Err(error),
        }
    }

    fn make_in(pins: &Pins, sizes: &Sizes, secret: [u64; 2]) -> Result<StateMaps> {
        remove(pins)?;
        let maps = StateMaps::make(sizes, secret)?;
        for (state, map) in StateMap::ALL.into_iter().zip(&maps.maps).rev() {
            pins.put(Pin::State(state), map.as_fd())?;
        }
        Ok(maps)
    }

    /// New tables that are pinned nowhere.
    pub fn make(sizes: &Sizes, secret: [u64; 2]) -> Result<StateMaps> {
        let tables = StateMap::ALL.map(|state| {
            let (octets, entries) = state.shape(sizes, sizes.heads());
            let sizes = [size_of::<u32>(), octets];
            let options = maps::flags(libbpf_sys::BPF_F_MMAPABLE);
            let map = maps::make(MapType::Array, state.name(), sizes, entries, options)?;
            let failed = |source| Error::Map { operation: "make", map: state.name(), source };
            let memory = Mapped::of(map.as_fd(), octets * entries as usize).map_err(failed)?;
            Ok((map, memory))
        });
        let maps = StateMaps::of(tables)?;
        memory::prepare(maps.regions().meta, sizes, secret);
        Ok(maps)
    }

    /// From each map with its memory, in the order of [`StateMap::ALL`].
    fn of(tables: [Result<(MapHandle, Mapped)>; 9]) -> Result<StateMaps> {
        let (maps, tables) = tables.into_iter().collect::<Result<(Vec<_>, Vec<_>)>>()?;
        Ok(StateMaps { maps, tables: Tables(tables), marks: OnceLock::new() })
    }

    /// Removes the pins of tables in the folder `pins`, and of a cluster's gates; and with the pins what they hold, unless it is
    /// in use. The folder is removed if it is empty then.
    pub fn discard(pins: &Path) -> Result<()> {
        let pins = Pins::at(pins);
        remove(&pins)?;
        pins.remove(Pin::Gates)?;
        let _ = pins.remove_folder();
        Ok(())
    }

    /// The mark of the last packet of an IPv6 host that the programs passed to the user engine, with pools by mark: a TUN
    /// device does not carry it.
    #[must_use]
    pub fn mark(&self, host: Ipv6Addr) -> Option<u32> {
        let value = self.marks.get()?.lookup(&host.octets(), MapFlags::ANY).ok()??;
        Some(u32::from_ne_bytes(value.try_into().ok()?))
    }

    /// Makes the map of marks, from which on they are kept.
    pub(crate) fn keep_marks(&self) -> Result<()> {
        if self.marks.get().is_some() {
            return Ok(());
        }
        let sizes = [size_of::<Ipv6Addr>(), size_of::<u32>()];
        let map = maps::make(MapType::LruHash, MARKS, sizes, MARKED_HOSTS, maps::flags(0))?;
        // If another thread was first, its map serves as well.
        let _ = self.marks.set(map);
        Ok(())
    }

    pub(crate) fn map(&self, name: &str) -> Option<BorrowedFd<'_>> {
        if name == MARKS {
            return self.marks.get().map(AsFd::as_fd);
        }
        let place = StateMap::ALL.into_iter().position(|state| state.name() == name)?;
        self.maps.get(place).map(AsFd::as_fd)
    }

    fn adopt(pins: &Pins, sizes: &Sizes) -> Result<StateMaps> {
        let (_, meta) = pinned(pins, StateMap::Meta)?;
        let heads = meta.slice::<Meta>().first().and_then(memory::heads_of).ok_or_else(misfit)?;
        let tables = StateMap::ALL.map(|state| {
            let (map, memory) = pinned(pins, state)?;
            let (octets, entries) = state.shape(sizes, heads);
            if map.value_size() as usize != octets || map.max_entries() != entries {
                return Err(misfit());
            }
            Ok((map, memory))
        });
        let maps = StateMaps::of(tables)?;
        if memory::fits(maps.regions().meta, sizes) { Ok(maps) } else { Err(misfit()) }
    }
}

/// A pinned map, and all of its memory.
fn pinned(pins: &Pins, state: StateMap) -> Result<(MapHandle, Mapped)> {
    let pin = Pin::State(state);
    let failed = |source| pins.failed("open", pin, source);
    let map = pins.open_map(pin)?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    let octets = map.value_size() as usize * map.max_entries() as usize;
    let memory = Mapped::of(map.as_fd(), octets).map_err(failed)?;
    Ok((map, memory))
}

/// The number of sessions in pinned tables of an earlier version that can't be used; `None`: the tables are not such.
fn superseded(pins: &Pins) -> Result<Option<u64>> {
    let (_, meta) = pinned(pins, StateMap::Meta)?;
    let is_superseded = meta.slice::<Meta>().first().is_some_and(memory::is_superseded);
    if !is_superseded {
        return Ok(None);
    }
    let (_, sessions) = pinned(pins, StateMap::Sessions)?;
    Ok(Some(memory::live_sessions(sessions.slice())))
}

/// The number of sessions in pinned tables of any size; `None`: their layout is not known here.
fn sessions_in(pins: &Pins) -> Result<Option<u64>> {
    let (_, meta) = pinned(pins, StateMap::Meta)?;
    let (map, sessions) = pinned(pins, StateMap::Sessions)?;
    let is_known = meta.slice::<Meta>().first().is_some_and(memory::is_known)
        && map.value_size() as usize == size_of::<Session>();
    Ok(is_known.then(|| memory::live_sessions(sessions.slice())))
}

fn misfit() -> Error {
    Unsupported::with_hint(
        "the sessions that an earlier process has left lie in tables of another size or layout",
        "keep the sizes as they were, or take the translator down first, which ends its sessions",
    )
    .into()
}

fn remove(pins: &Pins) -> Result<()> {
    StateMap::ALL.into_iter().try_for_each(|state| pins.remove(Pin::State(state)))
}

impl Memory for StateMaps {
    fn regions(&self) -> Regions<'_> {
        self.tables.regions()
    }
}

impl fmt::Debug for StateMaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateMaps")
            .field("octets", &self.regions().octets())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_add_up_to_the_octets() {
        let sizes = Sizes { bibs: 1000, sessions: 3000, subscribers: 10 };
        let octets = |state: StateMap| {
            let (octets, entries) = state.shape(&sizes, sizes.heads());
            octets as u64 * u64::from(entries)
        };
        let beside = [StateMap::Meta, StateMap::Free];
        let all = StateMap::ALL.into_iter().filter(|state| !beside.contains(state));
        assert_eq!(all.map(octets).sum::<u64>(), sizes.octets());
    }

    #[test]
    fn maps_are_found_in_their_order() {
        for (place, state) in StateMap::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, place);
            // The kernel's names have 15 letters; the object's are longer, and both start alike.
            assert!(state.name().starts_with("nat64_"));
        }
    }
}
