//! The counters' maps: reading them, and going on with those of an earlier version.

use std::io;

use fordway_xlat::counters::DirectionTotals;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::abi::{Abi, FwCounters, FwDirectionCounters};
use crate::error::io_error;
use crate::{Error, Result, Totals, maps};

/// The only key.
const KEY: [u8; 4] = [0; 4];
const WORD: usize = size_of::<u64>();

/// Reads the counters, summed over the processors.
pub(crate) fn read(map: &MapHandle) -> Result<FwCounters> {
    let sums = sums(&per_processor(map).map_err(unread)?);
    FwCounters::from_octets(&octets(&sums))
        .ok_or_else(|| unread(io::Error::new(io::ErrorKind::InvalidData, "too short")))
}

/// The counters of each processor, as they lie in the map.
#[derive(Debug, Default)]
pub(crate) struct Snapshot(Vec<Vec<u8>>);

#[cfg(test)]
impl From<Vec<Vec<u8>>> for Snapshot {
    fn from(processors: Vec<Vec<u8>>) -> Snapshot {
        Snapshot(processors)
    }
}

impl Snapshot {
    pub(crate) fn of(map: &MapHandle) -> Result<Snapshot> {
        per_processor(map).map(Snapshot).map_err(unread)
    }

    /// The words that have changed until `later`, by their place in [`FwCounters`] in octets.
    pub(crate) fn changed(&self, later: &Snapshot) -> Vec<usize> {
        // Most have not, so many are compared at once.
        const MANY: usize = 16 * WORD;
        let mut words = Vec::new();
        for (old, new) in self.0.iter().zip(&later.0).filter(|(old, new)| old != new) {
            for (part, (old, new)) in old.chunks(MANY).zip(new.chunks(MANY)).enumerate() {
                if old != new {
                    let pairs = old.chunks_exact(WORD).zip(new.chunks_exact(WORD)).enumerate();
                    let changed = pairs.filter(|(_, (old, new))| old != new);
                    words.extend(changed.map(|(word, _)| part * MANY + word * WORD));
                }
            }
        }
        words.sort_unstable();
        words.dedup();
        words
    }
}

/// Whether `map` has the layout of this version, given that its version is the same.
pub(crate) fn is_usable(map: &MapHandle) -> bool {
    map.map_type() == MapType::PercpuArray && map.value_size() as usize == FwCounters::SIZE
}

/// Adds an object's counters to the totals. Programs in front of routing pass packets to the stack, not to the user engine.
pub(crate) fn add(totals: &mut Totals, counters: &FwCounters, in_front: bool) {
    for (total, counted) in totals.directions.iter_mut().zip(&counters.directions) {
        *total = DirectionTotals {
            packets: total.packets.wrapping_add(counted.packets),
            segments: total.segments.wrapping_add(counted.segments),
            octets: total.octets.wrapping_add(counted.octets),
            fragments: 0,
        };
    }
    let passed = if in_front { &mut totals.left_to_stack } else { &mut totals.passed_on };
    add_each(passed, &counters.passed_on);
    add_each(&mut totals.drops, &counters.drops);
    add_each(&mut totals.bibs_created, &counters.bibs_created);
    add_each(&mut totals.sessions_created, &counters.sessions_created);
    for (total, counted) in [
        (&mut totals.unmatched, counters.unmatched),
        (&mut totals.elsewhere, counters.elsewhere),
        (&mut totals.tagged, counters.tagged),
        (&mut totals.routed, counters.routed),
        (&mut totals.handed_over, counters.handed_over),
        (&mut totals.measured_packets, counters.measured_packets),
        (&mut totals.measured_ns, counters.measured_ns),
        (&mut totals.trace_lost, counters.trace_lost),
    ] {
        *total = total.wrapping_add(counted);
    }
}

/// Writes the totals of `old`, a map of the layout `from`, into the fresh map `new` as the first
/// processor's. Counters are found by name, so that any version can continue with those of any other.
pub(crate) fn carry_over(old: &MapHandle, from: &Layout, new: &MapHandle) -> io::Result<()> {
    let sums = sums(&per_processor(old)?);
    let mut values = vec![vec![0; FwCounters::SIZE]; per_processor(new)?.len()];
    if let Some(first) = values.first_mut() {
        *first = octets(&from.translate(&sums, &Layout::own(), FwCounters::SIZE / WORD));
    }
    new.update_percpu(&KEY, &values, MapFlags::ANY).map_err(|error| io_error(&error))
}

/// Where the counters lie in a version of their structure.
///
/// It is pinned beside the counters, so that another version can read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout(Vec<Group>);

/// A field: elements of some words each.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    name: String,
    /// Index of its first word.
    first: usize,
    words: usize,
    /// Words of an element.
    stride: usize,
}

/// Octets of a layout's text in its map.
const TEXT_LEN: usize = 1024;

impl Layout {
    /// This version's.
    pub(crate) fn own() -> Layout {
        let group = |&(name, offset, size): &(&str, usize, usize)| Group {
            name: name.to_owned(),
            first: offset / WORD,
            words: size / WORD,
            stride: if name == "directions" { FwDirectionCounters::SIZE / WORD } else { 1 },
        };
        Layout(FwCounters::FIELDS.iter().map(group).collect())
    }

    /// A map that holds the layout as text.
    pub(crate) fn to_map(&self) -> Result<MapHandle> {
        const NAME: &str = "fordway_layout";
        let mut text = String::new();
        for Group { name, first, words, stride } in &self.0 {
            text += &format!("{name} {first} {words} {stride}\n");
        }
        let mut value = text.into_bytes();
        value.resize(TEXT_LEN, 0);
        let map = maps::make(MapType::Array, NAME, [KEY.len(), TEXT_LEN], 1, maps::flags(0))?;
        maps::put(&map, NAME, &KEY, &value).map(|()| map)
    }

    /// `None`: not the text of a layout.
    pub(crate) fn from_map(map: &MapHandle) -> Option<Layout> {
        let value = map.lookup(&KEY, MapFlags::ANY).ok()??;
        let text = String::from_utf8(value).ok()?;
        let groups = text.trim_end_matches('\0').lines().map(|line| {
            let mut parts = line.split(' ');
            let name = parts.next()?.to_owned();
            let mut number = || parts.next()?.parse().ok();
            let (first, words, stride) = (number()?, number()?, number()?);
            (stride > 0).then_some(Group { name, first, words, stride })
        });
        groups.collect::<Option<Vec<Group>>>().map(Layout)
    }

    /// Arranges counters in the layout `to`; those that it does not have are dropped.
    fn translate(&self, sums: &[u64], to: &Layout, words: usize) -> Vec<u64> {
        let mut arranged = vec![0; words];
        for target in &to.0 {
            let Some(source) = self.0.iter().find(|source| source.name == target.name) else {
                continue;
            };
            let Some(from) =
                sums.get(source.first..).map(|sums| &sums[..sums.len().min(source.words)])
            else {
                continue;
            };
            let Some(place) = arranged.get_mut(target.first..target.first + target.words) else {
                continue;
            };
            for (place, from) in place.chunks_mut(target.stride).zip(from.chunks(source.stride)) {
                for (place, from) in place.iter_mut().zip(from) {
                    *place = *from;
                }
            }
        }
        arranged
    }
}

fn unread(source: io::Error) -> Error {
    Error::Map { operation: "read", map: "counters", source }
}

fn per_processor(map: &MapHandle) -> io::Result<Vec<Vec<u8>>> {
    let values = map.lookup_percpu(&KEY, MapFlags::ANY).map_err(|error| io_error(&error))?;
    values.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

fn sums(values: &[Vec<u8>]) -> Vec<u64> {
    let mut sums = Vec::new();
    for value in values {
        let words = value.chunks_exact(WORD).map(u64::read);
        sums.resize(sums.len().max(words.len()), 0u64);
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum = sum.wrapping_add(word);
        }
    }
    sums
}

fn octets(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn add_each(totals: &mut [u64], counted: &[u64]) {
    for (total, counted) in totals.iter_mut().zip(counted) {
        *total = total.wrapping_add(*counted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(groups: &[(&str, usize, usize, usize)]) -> Layout {
        let group = |&(name, first, words, stride): &(&str, usize, usize, usize)| Group {
            name: name.to_owned(),
            first,
            words,
            stride,
        };
        Layout(groups.iter().map(group).collect())
    }

    #[test]
    fn the_layout_has_every_word_once() {
        let mut next = 0;
        for group in Layout::own().0 {
            assert_eq!(group.first, next, "{}", group.name);
            next += group.words;
        }
        assert_eq!(next, FwCounters::SIZE / WORD);
    }

    #[test]
    fn counters_move_to_where_another_layout_has_them() {
        let old =
            layout(&[("a", 0, 6, 3), ("drops", 6, 2, 1), ("gone", 8, 1, 1), ("last", 9, 1, 1)]);
        let new =
            layout(&[("last", 0, 1, 1), ("drops", 1, 3, 1), ("a", 4, 8, 4), ("added", 12, 1, 1)]);
        let sums = [1, 2, 3, 4, 5, 6, 10, 11, 12, 13];
        let moved = [13, 10, 11, 0, 1, 2, 3, 0, 4, 5, 6, 0, 0];
        assert_eq!(old.translate(&sums, &new, 13), moved);
        // And back, with what is known to both.
        assert_eq!(new.translate(&moved, &old, 10), [1, 2, 3, 4, 5, 6, 10, 11, 0, 13]);
        // Values shorter than a layout says.
        assert_eq!(old.translate(&sums[..7], &new, 4), [0, 10, 0, 0]);
        assert_eq!(old.translate(&[], &new, 0), [0u64; 0]);
    }

    #[test]
    fn changes_are_found_on_any_processor() {
        let before = vec![0; FwCounters::SIZE];
        let mut after = before.clone();
        after[FwCounters::SIZE - 3] = 1;
        let two = |first: &[u8], second: &[u8]| Snapshot(vec![first.to_vec(), second.to_vec()]);
        let none = two(&before, &before);
        assert!(none.changed(&none).is_empty());
        let last = [FwCounters::SIZE - WORD];
        for changed in [two(&before, &after), two(&after, &before), two(&after, &after)] {
            assert_eq!(none.changed(&changed), last);
        }
        after[130] = 7;
        assert_eq!(none.changed(&two(&before, &after)), [128, FwCounters::SIZE - WORD]);
    }

    #[test]
    fn processors_are_added_up() {
        let values = [octets(&[1, 2]), octets(&[10, u64::MAX])];
        assert_eq!(sums(&values), [11, 1]);
    }

    #[test]
    fn what_is_left_to_the_stack_is_told_apart() {
        let mut counters = FwCounters::zeroed();
        counters.directions[1].packets = 3;
        counters.drops[35] = 4;
        counters.passed_on[16] = 5;
        counters.trace_lost = 6;
        let mut totals = Totals::default();
        add(&mut totals, &counters, false);
        add(&mut totals, &counters, true);
        assert_eq!(totals.directions[1].packets, 6);
        assert_eq!(totals.drops[35], 8);
        assert_eq!((totals.passed_on[16], totals.left_to_stack[16]), (5, 5));
        assert_eq!(totals.trace_lost, 12);
    }
}
