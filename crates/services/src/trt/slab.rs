//! Things under numbers that are used again, told apart from those that had the number before.

/// A number and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// The number of bits of an index: two more have room in [`Key::to_bits`].
    const INDEX_BITS: u32 = 30;

    /// As one word, with two bits of somebody else.
    pub(super) fn to_bits(self, two: u8) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index) << 2 | u64::from(two & 3)
    }

    /// The other way round.
    pub(super) fn from_bits(bits: u64) -> (Key, u8) {
        let key = Key { index: bits as u32 >> 2, generation: (bits >> 32) as u32 };
        (key, (bits & 3) as u8)
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// The things.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Puts a thing in; `None` if there are more than any limit allows.
    pub(super) fn insert(&mut self, value: T) -> Option<Key> {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return Some(Key { index, generation: slot.generation });
        }
        let index = u32::try_from(self.slots.len()).ok()?;
        if index >> Key::INDEX_BITS != 0 {
            return None;
        }
        self.slots.push(Slot { generation: 0, value: Some(value) });
        Some(Key { index, generation: 0 })
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_mut() } else { None }
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }

    /// All, with their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        let slots = (0..).zip(&self.slots);
        slots.filter_map(|(index, slot)| {
            let key = Key { index, generation: slot.generation };
            slot.value.as_ref().map(|value| (key, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_had_a_number_before_is_not_meant() {
        let mut slab = Slab::default();
        let a = slab.insert("a").unwrap();
        let b = slab.insert("b").unwrap();
        assert_eq!(slab.remove(a), Some("a"));
        let c = slab.insert("c").unwrap();
        assert_eq!(slab.get_mut(a), None);
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.get_mut(b), Some(&mut "b"));
        assert_eq!(slab.iter().map(|(_, it)| *it).collect::<Vec<_>>(), ["c", "b"]);
        for (key, two) in [(a, 0), (b, 1), (c, 3)] {
            assert_eq!(Key::from_bits(key.to_bits(two)), (key, two));
        }
        slab.remove(b);
        slab.remove(c);
        assert_eq!(slab.iter().count(), 0);
    }
}
