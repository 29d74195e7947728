//! Where in the text things stand.

use std::ops::Range;

use toml::Spanned;

/// A table as it was read.
#[derive(Debug)]
pub(crate) struct Read<T> {
    /// What it says; of a key that is missing or wrong, what holds without it.
    pub(crate) value: T,
    /// All keys that have to be there are there, and right.
    pub(crate) complete: bool,
    /// Where it stands.
    pub(crate) at: Places,
}

impl<T> Read<T> {
    /// What it says, if it is complete.
    pub(crate) fn finish(self) -> Option<T> {
        self.complete.then_some(self.value)
    }
}

/// Where a table and its keys stand.
#[derive(Debug)]
pub(crate) struct Places {
    /// The table: octets of the text.
    pub(crate) span: Range<usize>,
    keys: Vec<(&'static str, Place)>,
}

/// Where a key's value stands.
#[derive(Debug)]
pub(crate) struct Place {
    /// The value.
    pub(crate) span: Range<usize>,
    /// It is a list, with these items.
    pub(crate) is_list: bool,
    pub(crate) items: Vec<Range<usize>>,
    /// The tables of a list of tables, or the table.
    pub(crate) tables: Vec<Places>,
    /// The value could be read.
    pub(crate) right: bool,
}

impl Places {
    pub(crate) fn new(span: Range<usize>) -> Places {
        Places { span, keys: Vec::new() }
    }

    pub(crate) fn insert(&mut self, key: &'static str, place: Place) {
        self.keys.push((key, place));
    }

    pub(crate) fn set_tables(&mut self, key: &str, tables: Vec<Places>) {
        if let Some((_, place)) = self.keys.iter_mut().find(|(name, _)| *name == key) {
            place.tables = tables;
        }
    }

    fn get(&self, key: &str) -> Option<&Place> {
        self.keys.iter().find(|(name, _)| *name == key).map(|(_, place)| place)
    }

    fn right(&self, key: &str) -> Option<&Place> {
        self.get(key).filter(|place| place.right)
    }

    /// Whether the key is there, right or wrong.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Where the key's value stands, if it is there and right.
    pub(crate) fn key(&self, key: &str) -> Option<Range<usize>> {
        self.right(key).map(|place| place.span.clone())
    }

    /// The tables of a key.
    pub(crate) fn tables(&self, key: &str) -> &[Places] {
        self.get(key).map_or(&[], |place| &place.tables)
    }

    /// A value with its place, if it is in the text.
    pub(crate) fn of<T: Clone>(&self, key: &str, value: &T) -> Option<Spanned<T>> {
        Some(Spanned::new(self.key(key)?, value.clone()))
    }

    /// The items of a list with their places, if they are in the text. One that stands there without brackets is where
    /// the value is.
    pub(crate) fn each<T: Clone>(&self, key: &str, items: &[T]) -> Vec<Spanned<T>> {
        let Some(place) = self.right(key) else { return Vec::new() };
        let places =
            if place.is_list { &place.items[..] } else { std::slice::from_ref(&place.span) };
        places.iter().zip(items).map(|(at, item)| Spanned::new(at.clone(), item.clone())).collect()
    }
}
