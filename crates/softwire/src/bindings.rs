//! The table of bindings (RFC 7596 section 6.1).
//!
//! A table is immutable while packets use it. A change is made in a copy, which then replaces the table. A copy shares
//! the unchanged parts with its original, so it is cheap.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::net::Ipv4Addr;
use std::sync::Arc;

use crate::binding::Binding;
use crate::path::PathMtu;
use crate::port_set::psid_of;

/// Parts of a table that are copied separately.
const SHARDS: usize = 256;

/// A table of bindings.
#[derive(Clone, Debug)]
pub struct Bindings {
    shards: Vec<Arc<BTreeMap<Ipv4Addr, Address>>>,
    len: usize,
}

/// The client or clients that have an IPv4 address.
#[derive(Clone, Debug)]
pub enum Address {
    /// One client has it.
    Whole(Arc<Entry>),
    /// Several clients have it, each with its own ports.
    Shared(Shared),
}

/// How an address is shared, and its clients. All port sets of an address have the same offset and PSID length.
#[derive(Clone, Debug)]
pub struct Shared {
    offset_bits: u8,
    psid_len: u8,
    sets: BTreeMap<u16, Arc<Entry>>,
}

/// A binding, and the MTU of its path.
#[derive(Debug)]
pub struct Entry {
    /// The binding.
    pub binding: Binding,
    /// The path MTU learnt from Packet Too Big messages.
    pub path: PathMtu,
}

/// Why a binding can't be in the table with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindingError {
    /// One client has or wants the whole address, another a part of it.
    #[error("{v4} is given to one client whole, and in part to another")]
    WholeAndShared {
        /// The address.
        v4: Ipv4Addr,
    },
    /// The port sets of an address differ in offset or PSID length.
    #[error(
        "{v4} is shared in two ways: PSIDs of {} bits behind {}, and of {} behind {}",
        (.0).1, (.0).0, (.1).1, (.1).0, v4 = .2
    )]
    Differently((u8, u8), (u8, u8), Ipv4Addr),
}

impl Default for Bindings {
    fn default() -> Bindings {
        Bindings { shards: vec![Arc::default(); SHARDS], len: 0 }
    }
}

impl Bindings {
    /// Inserts a binding; returns the one that it replaces. If both have the same tunnel, its path MTU is kept.
    ///
    /// Errors: [`BindingError`]; the table is as before.
    pub fn insert(&mut self, binding: Binding) -> Result<Option<Binding>, BindingError> {
        let Binding { v4, ports, .. } = binding;
        let shard = Arc::make_mut(&mut self.shards[shard_of(v4)]);
        let before = match (shard.entry(v4), ports) {
            (btree_map::Entry::Vacant(vacant), None) => {
                vacant.insert(Address::Whole(Entry::of(binding)));
                None
            }
            (btree_map::Entry::Vacant(vacant), Some(ports)) => {
                let sets = BTreeMap::from([(ports.psid(), Entry::of(binding))]);
                let (offset_bits, psid_len) = (ports.offset_bits(), ports.psid_len());
                vacant.insert(Address::Shared(Shared { offset_bits, psid_len, sets }));
                None
            }
            (btree_map::Entry::Occupied(mut occupied), ports) => {
                match (occupied.get_mut(), ports) {
                    (Address::Whole(entry), None) => Some(Entry::replace(entry, binding)),
                    (Address::Shared(shared), Some(ports)) => {
                        let asked = (ports.offset_bits(), ports.psid_len());
                        let have = (shared.offset_bits, shared.psid_len);
                        if have != asked {
                            return Err(BindingError::Differently(have, asked, v4));
                        }
                        match shared.sets.entry(ports.psid()) {
                            btree_map::Entry::Vacant(vacant) => {
                                vacant.insert(Entry::of(binding));
                                None
                            }
                            btree_map::Entry::Occupied(mut entry) => {
                                Some(Entry::replace(entry.get_mut(), binding))
                            }
                        }
                    }
                    _ => return Err(BindingError::WholeAndShared { v4 }),
                }
            }
        };
        self.len += usize::from(before.is_none());
        Ok(before)
    }

    /// Inserts a binding, unless another one has its address and ports. Whether the binding is in the table now.
    pub fn add(&mut self, binding: Binding) -> bool {
        let free = match (self.address(binding.v4), binding.ports) {
            (None, _) => true,
            (Some(Address::Shared(shared)), Some(ports)) => {
                !shared.sets.contains_key(&ports.psid())
            }
            _ => false,
        };
        self.contains(&binding) || free && self.insert(binding).is_ok()
    }

    /// Removes a binding, if exactly this one is in the table.
    pub fn remove(&mut self, binding: &Binding) -> bool {
        if !self.contains(binding) {
            return false;
        }
        let shard = Arc::make_mut(&mut self.shards[shard_of(binding.v4)]);
        let is_last = match (shard.get_mut(&binding.v4), binding.ports) {
            (Some(Address::Shared(shared)), Some(ports)) => {
                shared.sets.remove(&ports.psid());
                shared.sets.is_empty()
            }
            _ => true,
        };
        if is_last {
            shard.remove(&binding.v4);
        }
        self.len -= 1;
        true
    }

    /// Whether exactly this binding is in the table.
    #[must_use]
    pub fn contains(&self, binding: &Binding) -> bool {
        let entry = match (self.address(binding.v4), binding.ports) {
            (Some(Address::Whole(entry)), None) => Some(entry),
            (Some(Address::Shared(shared)), Some(ports)) => shared.sets.get(&ports.psid()),
            _ => None,
        };
        entry.is_some_and(|entry| entry.binding == *binding)
    }

    /// The clients of an address.
    #[inline]
    #[must_use]
    pub fn address(&self, v4: Ipv4Addr) -> Option<&Address> {
        self.shards[shard_of(v4)].get(&v4)
    }

    /// All bindings, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.shards.iter().flat_map(|shard| shard.values()).flat_map(Address::entries)
    }

    /// How many bindings there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the path MTUs of tunnels that are in both tables from another table.
    pub fn keep_paths(&mut self, other: &Bindings) {
        for entry in other.iter() {
            let binding = entry.binding;
            if !self.contains(&binding) {
                continue;
            }
            let shard = Arc::make_mut(&mut self.shards[shard_of(binding.v4)]);
            match (shard.get_mut(&binding.v4), binding.ports) {
                (Some(Address::Whole(own)), None) => *own = Arc::clone(entry),
                (Some(Address::Shared(shared)), Some(ports)) => {
                    shared.sets.insert(ports.psid(), Arc::clone(entry));
                }
                _ => {}
            }
        }
    }
}

impl Extend<Binding> for Bindings {
    /// Inserts bindings, except those that conflict with others.
    fn extend<T: IntoIterator<Item = Binding>>(&mut self, bindings: T) {
        for binding in bindings {
            let _ = self.insert(binding);
        }
    }
}

impl Address {
    fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        let (whole, shared) = match self {
            Address::Whole(entry) => (Some(entry), None),
            Address::Shared(shared) => (None, Some(shared.sets.values())),
        };
        whole.into_iter().chain(shared.into_iter().flatten())
    }
}

impl Shared {
    /// The binding of a port.
    #[inline]
    #[must_use]
    pub fn of_port(&self, port: u16) -> Option<&Arc<Entry>> {
        self.sets.get(&psid_of(self.offset_bits, self.psid_len, port)?)
    }

    /// a: bits in front of the PSID.
    #[must_use]
    pub fn offset_bits(&self) -> u8 {
        self.offset_bits
    }

    /// k: bits of the PSID.
    #[must_use]
    pub fn psid_len(&self) -> u8 {
        self.psid_len
    }
}

impl Entry {
    fn of(binding: Binding) -> Arc<Entry> {
        Arc::new(Entry { binding, path: PathMtu::default() })
    }

    fn replace(entry: &mut Arc<Entry>, binding: Binding) -> Binding {
        let before = entry.binding;
        if before != binding {
            *entry = Entry::of(binding);
        }
        before
    }
}

fn shard_of(v4: Ipv4Addr) -> usize {
    // Neighbouring addresses are in different shards.
    v4.to_bits() as usize % SHARDS
}

#[cfg(test)]
mod tests;
