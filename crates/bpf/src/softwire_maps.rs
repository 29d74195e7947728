//! The bindings of softwires as maps of the kernel.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fordway_softwire::{Binding, PortSet, Role};
use libbpf_rs::{MapCore, MapHandle, MapType, libbpf_sys};
use rustix::time::{ClockId, clock_gettime};

use crate::abi::{Abi, FwSoftwireAddress, FwSoftwireHere, FwSoftwireKey, FwSoftwireTunnel};
use crate::maps::{self, put};
use crate::{Result, Unsupported};

/// Names of the maps in the object.
const ADDRESSES: &str = "softwire_addresses";
const BINDINGS: &str = "softwire_bindings";
const HERE: &str = "softwire_here";

/// The bindings of softwires as maps of the kernel, changed entry by entry while packets flow.
///
/// A packet finds a binding as it was before a change or as it is after it, or none. Without one it is passed to the user
/// engine, whose table should change first. The maps are freed with the last value of this type and the last program
/// that uses them.
pub struct SoftwireMaps {
    role: Role,
    addresses: MapHandle,
    bindings: MapHandle,
    here: MapHandle,
    written: Mutex<Written>,
}

/// What is in the maps. One writer at a time.
#[derive(Debug, Default)]
struct Written {
    bindings: BTreeMap<Key, Binding>,
    /// Each address's bindings.
    counts: BTreeMap<Ipv4Addr, usize>,
}

/// Address, and PSID or 0.
type Key = (Ipv4Addr, u16);

impl SoftwireMaps {
    /// Maps of at most `capacity` bindings, for one end of their tunnels.
    pub fn make(role: Role, capacity: u32) -> Result<SoftwireMaps> {
        let hash = |name, key, value| {
            let options = maps::flags(libbpf_sys::BPF_F_NO_PREALLOC);
            maps::make(MapType::Hash, name, [key, value], capacity, options)
        };
        let here = [size_of::<u32>(), FwSoftwireHere::SIZE];
        Ok(SoftwireMaps {
            role,
            addresses: hash(ADDRESSES, size_of::<Ipv4Addr>(), FwSoftwireAddress::SIZE)?,
            bindings: hash(BINDINGS, FwSoftwireKey::SIZE, FwSoftwireTunnel::SIZE)?,
            here: maps::make(MapType::Array, HERE, here, 1, maps::flags(0))?,
            written: Mutex::default(),
        })
    }

    /// Adds a binding, or replaces the one with its address and ports.
    ///
    /// # Errors
    ///
    /// The maps are full; or bindings that share the address in another way have to be removed first.
    /// The maps are unchanged.
    pub fn insert(&self, binding: &Binding) -> Result<()> {
        self.insert_into(&mut self.written(), binding)
    }

    /// Removes a binding. `false`: there is none that equals it.
    pub fn remove(&self, binding: &Binding) -> Result<bool> {
        let mut written = self.written();
        if written.bindings.get(&key_of(binding)) != Some(binding) {
            return Ok(false);
        }
        self.remove_from(&mut written, binding)?;
        Ok(true)
    }

    /// Removes bindings that are not among `wanted`, and adds those that are new or changed.
    ///
    /// # Errors
    ///
    /// As [`SoftwireMaps::insert`]; earlier changes stay.
    pub fn replace(&self, wanted: impl IntoIterator<Item = Binding>) -> Result<()> {
        let wanted: BTreeMap<Key, Binding> =
            wanted.into_iter().map(|binding| (key_of(&binding), binding)).collect();
        let mut written = self.written();
        let stays = |binding: &Binding| {
            wanted.get(&key_of(binding)).is_some_and(|wanted| wanted.ports == binding.ports)
        };
        let stale: Vec<Binding> =
            written.bindings.values().filter(|binding| !stays(binding)).copied().collect();
        for binding in &stale {
            self.remove_from(&mut written, binding)?;
        }
        wanted.values().try_for_each(|binding| self.insert_into(&mut written, binding))
    }

    /// Sets the path MTU of a binding's tunnel that a router has reported: packets of more than `mtu` octets are passed
    /// to the user engine for `lifetime`. Without effect if no binding equals this one.
    pub fn set_path_mtu(&self, binding: &Binding, mtu: u32, lifetime: Duration) -> Result<()> {
        let written = self.written();
        if written.bindings.get(&key_of(binding)) != Some(binding) {
            return Ok(());
        }
        let now = clock_gettime(ClockId::Monotonic);
        let now = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32);
        let until = u64::try_from((now + lifetime).as_nanos()).unwrap_or(u64::MAX);
        self.write(binding, mtu, until)
    }

    /// How many bindings there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.written().bindings.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn map(&self, name: &str) -> Option<BorrowedFd<'_>> {
        let map = match name {
            ADDRESSES => &self.addresses,
            BINDINGS => &self.bindings,
            HERE => &self.here,
            _ => return None,
        };
        Some(map.as_fd())
    }

    fn insert_into(&self, written: &mut Written, binding: &Binding) -> Result<()> {
        let key = key_of(binding);
        let before = written.bindings.get(&key);
        if before == Some(binding) {
            return Ok(());
        }
        if written.of(binding.v4).is_some_and(|other| !are_alike(other.ports, binding.ports)) {
            return Err(Unsupported::new(format!("{} is shared in two ways", binding.v4)).into());
        }
        let is_new = before.is_none();
        self.write(binding, 0, 0)?;
        let announced = self.write_address(binding).and_then(|()| match self.role {
            Role::Tep => Ok(()),
            Role::Client => self.write_here(binding.remote),
        });
        if let (Err(_), true) = (&announced, is_new) {
            // The first error is the one to report.
            let _ = delete(&self.bindings, BINDINGS, &fw_key(binding).to_octets());
        }
        announced?;
        written.bindings.insert(key, *binding);
        if is_new {
            *written.counts.entry(binding.v4).or_default() += 1;
        }
        Ok(())
    }

    fn remove_from(&self, written: &mut Written, binding: &Binding) -> Result<()> {
        let count = written.counts.get(&binding.v4).copied().unwrap_or_default();
        if self.role == Role::Client {
            self.write_here(Ipv6Addr::UNSPECIFIED)?;
        }
        if count <= 1 {
            delete(&self.addresses, ADDRESSES, &binding.v4.octets())?;
        }
        delete(&self.bindings, BINDINGS, &fw_key(binding).to_octets())?;
        written.bindings.remove(&key_of(binding));
        match count {
            0 | 1 => written.counts.remove(&binding.v4),
            _ => written.counts.insert(binding.v4, count - 1),
        };
        Ok(())
    }

    fn write(&self, binding: &Binding, mtu: u32, mtu_until_ns: u64) -> Result<()> {
        let (here, there) = match self.role {
            Role::Tep => (binding.local, binding.remote),
            Role::Client => (binding.remote, binding.local),
        };
        let key = fw_key(binding);
        let [(here_hi, here_lo), (there_hi, there_lo)] = [here, there].map(network_halves);
        let FwSoftwireKey { v4, psid } = key;
        let tunnel = FwSoftwireTunnel {
            here_hi,
            here_lo,
            there_hi,
            there_lo,
            mtu_until_ns,
            mtu,
            v4,
            psid,
            reserved: 0,
        };
        put(&self.bindings, BINDINGS, &key.to_octets(), &tunnel.to_octets())
    }

    fn write_address(&self, binding: &Binding) -> Result<()> {
        let (offset_bits, psid_len) =
            binding.ports.map_or((0, 0), |ports| (ports.offset_bits(), ports.psid_len()));
        let address = FwSoftwireAddress { offset_bits, psid_len, ..FwSoftwireAddress::zeroed() };
        put(&self.addresses, ADDRESSES, &binding.v4.octets(), &address.to_octets())
    }

    fn write_here(&self, here: Ipv6Addr) -> Result<()> {
        let (hi, lo) = network_halves(here);
        put(&self.here, HERE, &0u32.to_octets(), &FwSoftwireHere { hi, lo }.to_octets())
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Written {
    /// Any binding of an address.
    fn of(&self, v4: Ipv4Addr) -> Option<&Binding> {
        self.bindings.range((v4, 0)..=(v4, u16::MAX)).next().map(|(_, binding)| binding)
    }
}

impl fmt::Debug for SoftwireMaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoftwireMaps").field("role", &self.role).finish_non_exhaustive()
    }
}

fn key_of(binding: &Binding) -> Key {
    (binding.v4, binding.ports.map_or(0, PortSet::psid))
}

fn fw_key(binding: &Binding) -> FwSoftwireKey {
    let (v4, psid) = key_of(binding);
    FwSoftwireKey { v4: u32::from_ne_bytes(v4.octets()), psid: psid.into() }
}

/// Whether both are port sets of the same form, or both none.
fn are_alike(a: Option<PortSet>, b: Option<PortSet>) -> bool {
    let form = |ports: PortSet| (ports.offset_bits(), ports.psid_len());
    a.map(form) == b.map(form)
}

/// The octets of an address as they lie in a packet.
fn network_halves(addr: Ipv6Addr) -> (u64, u64) {
    let bits = addr.to_bits();
    (((bits >> 64) as u64).to_be(), (bits as u64).to_be())
}

fn delete(map: &MapHandle, name: &'static str, key: &[u8]) -> Result<()> {
    map.delete(key).map_err(maps::failed("write", name))
}
