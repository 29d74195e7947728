//! A table in the making, its keys in the order in which they are put into it.

use serde::ser::{Serialize, SerializeMap, Serializer};
use toml::Value;

use super::Keys;

/// A table: values, and tables in it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Written(Vec<(&'static str, Item)>);

#[derive(Debug, PartialEq)]
pub(crate) enum Item {
    Value(Value),
    Table(Written),
    Tables(Vec<Written>),
}

impl Written {
    pub(crate) fn put(&mut self, key: &'static str, value: Value) {
        self.0.push((key, Item::Value(value)));
    }

    pub(crate) fn put_some(&mut self, key: &'static str, value: Option<Value>) {
        if let Some(value) = value {
            self.put(key, value);
        }
    }

    pub(crate) fn table(&mut self, key: &'static str, table: Written) {
        self.0.push((key, Item::Table(table)));
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Item> {
        self.0.iter().find(|(name, _)| *name == key).map(|(_, item)| item)
    }

    #[cfg(test)]
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(name, _)| *name)
    }

    #[cfg(test)]
    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        match self.get(key) {
            Some(Item::Value(value)) => Some(value),
            _ => None,
        }
    }

    /// With a value at this place.
    pub(crate) fn with(mut self, key: &'static str, value: Value, at: usize) -> Written {
        self.0.insert(at.min(self.0.len()), (key, Item::Value(value)));
        self
    }

    /// A table, if there is one.
    pub(crate) fn table_of<T: Keys>(&mut self, key: &'static str, table: Option<&T>) {
        if let Some(table) = table {
            self.table(key, super::write(table));
        }
    }

    /// No key where there is no table.
    pub(crate) fn tables(&mut self, key: &'static str, tables: impl Iterator<Item = Written>) {
        let tables: Vec<Written> = tables.collect();
        if !tables.is_empty() {
            self.0.push((key, Item::Tables(tables)));
        }
    }
}

/// Values first: what stands behind a table's header belongs to it.
impl Serialize for Written {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_value = |item: &&(&str, Item)| matches!(item.1, Item::Value(_));
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, item) in self.0.iter().filter(is_value) {
            map.serialize_entry(key, item)?;
        }
        for (key, item) in self.0.iter().filter(|item| !is_value(item)) {
            map.serialize_entry(key, item)?;
        }
        map.end()
    }
}

impl Serialize for Item {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Item::Value(value) => value.serialize(serializer),
            Item::Table(table) => table.serialize(serializer),
            Item::Tables(tables) => tables.serialize(serializer),
        }
    }
}
