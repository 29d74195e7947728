//! A TOML text as values, with the place of each in the text.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::findings::Finding;

/// Where a value stands, and the key before it.
#[derive(Debug, Clone)]
struct Place {
    key: Range<usize>,
    value: Range<usize>,
}

/// A text that is TOML. Places go by JSON pointer (RFC 6901): `/mechanism/0/base`.
#[derive(Debug)]
pub(super) struct Document<'t> {
    pub(super) value: Value,
    text: &'t str,
    places: BTreeMap<String, Place>,
}

impl<'t> Document<'t> {
    /// Reads a text; all errors of syntax.
    pub(super) fn read(text: &'t str) -> Result<Self, Vec<Finding>> {
        let (root, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            let told = errors.into_iter().map(|error| Finding {
                span: error.span().unwrap_or(0..0),
                message: format!("this is no TOML: {}", error.message()),
                fix: None,
            });
            return Err(told.collect());
        }
        let mut places = BTreeMap::new();
        let value = table(root.get_ref(), "", &mut places);
        Ok(Self { value, text, places })
    }

    /// Takes a table out, as if it did not stand there.
    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        self.value.as_object_mut()?.remove(key)
    }

    /// Where the value of a pointer stands; of what is not there, where it belongs.
    pub(super) fn value_at(&self, pointer: &str) -> Range<usize> {
        self.nearest(pointer).map_or(0..0, |place| place.value.clone())
    }

    /// Where a part of a text stands; the whole where it is written in another way there.
    pub(super) fn inside(&self, pointer: &str, part: &str) -> Range<usize> {
        let whole = self.value_at(pointer);
        let found = self.text.get(whole.clone()).and_then(|text| text.find(part));
        found.map_or(whole.clone(), |at| whole.start + at..whole.start + at + part.len())
    }

    /// Where the key of a pointer stands.
    pub(super) fn key_at(&self, pointer: &str) -> Range<usize> {
        self.nearest(pointer).map_or(0..0, |place| place.key.clone())
    }

    fn nearest(&self, pointer: &str) -> Option<&Place> {
        let mut rest = pointer;
        loop {
            if let Some(place) = self.places.get(rest) {
                return Some(place);
            }
            rest = rest.rsplit_once('/')?.0;
        }
    }
}

/// A pointer to what stands under this key.
pub(super) fn below(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

fn table(own: &DeTable<'_>, pointer: &str, places: &mut BTreeMap<String, Place>) -> Value {
    let mut all = Map::new();
    for (key, value) in own {
        let name = key.get_ref().to_string();
        let pointer = below(pointer, &name);
        places.insert(pointer.clone(), Place { key: key.span(), value: value.span() });
        all.insert(name, convert(value, &pointer, places));
    }
    Value::Object(all)
}

fn convert(
    value: &Spanned<DeValue<'_>>,
    pointer: &str,
    places: &mut BTreeMap<String, Place>,
) -> Value {
    match value.get_ref() {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(it) => Value::Bool(*it),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or(Value::Null, Value::from)
        }
        DeValue::Float(number) => number.as_str().parse::<f64>().map_or(Value::Null, Value::from),
        DeValue::Datetime(time) => Value::String(time.to_string()),
        DeValue::Array(items) => {
            let each = items.iter().enumerate().map(|(index, item)| {
                let pointer = below(pointer, &index.to_string());
                let place = Place { key: item.span(), value: item.span() };
                places.insert(pointer.clone(), place);
                convert(item, &pointer, places)
            });
            Value::Array(each.collect())
        }
        DeValue::Table(own) => table(own, pointer, places),
    }
}
