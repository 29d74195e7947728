//! Variables: values that only the translator knows, and that later steps name again.

use std::collections::BTreeMap;

use toml::{Table, Value};

use crate::view::View;

/// The variables that have a value.
#[derive(Clone, Debug, Default)]
pub(super) struct Bindings(BTreeMap<String, Value>);

/// A variable: its name, and what is added to its value.
fn variable(text: &str) -> Option<(&str, i64)> {
    let name = text.strip_prefix('$')?;
    match name.split_once('+') {
        Some((name, number)) => Some((name, number.parse().ok()?)),
        None => Some((name, 0)),
    }
}

impl Bindings {
    /// The value with every variable replaced. `Err`: the name of one that has none.
    pub(super) fn resolve(&self, value: &Value) -> Result<Value, String> {
        match value {
            Value::String(text) => match variable(text) {
                None => Ok(value.clone()),
                Some((name, plus)) => {
                    let known = self.0.get(name).ok_or_else(|| name.to_owned())?;
                    Ok(match known {
                        Value::Integer(number) => Value::Integer(number + plus),
                        other => other.clone(),
                    })
                }
            },
            Value::Array(items) => items
                .iter()
                .map(|item| self.resolve(item))
                .collect::<Result<_, _>>()
                .map(Value::Array),
            Value::Table(table) => self.resolve_table(table).map(Value::Table),
            other => Ok(other.clone()),
        }
    }

    /// Whether all of these have a value.
    pub(super) fn knows(&self, values: &[Value]) -> bool {
        values.iter().all(|value| self.resolve(value).is_ok())
    }

    /// [`resolve`](Bindings::resolve) for a table.
    pub(super) fn resolve_table(&self, table: &Table) -> Result<Table, String> {
        let resolved = table.iter().map(|(key, value)| Ok((key.clone(), self.resolve(value)?)));
        resolved.collect()
    }

    /// Gives the variables of an expected packet that have no value yet the values of the packet that
    /// came, and the identification of IPv4 headers that set none.
    pub(super) fn learn(&mut self, expected: &mut Table, seen: &[u8]) {
        let Some(view) = View::of(seen) else { return };
        for (key, value) in expected.iter_mut() {
            let Value::Table(fields) = value else { continue };
            if key == "inner" {
                if let Some(inner) = view.inner() {
                    self.learn(fields, inner.bytes);
                }
                continue;
            }
            if key == "v4" && view.v4 && !fields.contains_key("id") {
                fields.insert("id".into(), Value::Integer(view.identification.into()));
            }
            for (field, value) in fields.iter() {
                let Value::String(text) = value else { continue };
                let Some((name, 0)) = variable(text) else { continue };
                if !self.0.contains_key(name)
                    && let Some(value) = field_of(&view, key, field)
                {
                    self.0.insert(name.to_owned(), value);
                }
            }
        }
    }
}

/// A field of a packet by its name in a description.
fn field_of(view: &View<'_>, header: &str, field: &str) -> Option<Value> {
    let word = |at: usize| {
        let bytes = view.payload().get(at..at + 2)?;
        Some(Value::Integer(i64::from(u16::from_be_bytes([bytes[0], bytes[1]]))))
    };
    let addr = |octets: &[u8]| {
        let text = match <[u8; 4]>::try_from(octets) {
            Ok(octets) => std::net::Ipv4Addr::from(octets).to_string(),
            Err(_) => std::net::Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?).to_string(),
        };
        Some(Value::String(text))
    };
    match (header, field) {
        ("tcp", "sport") if view.protocol == 6 => word(0),
        ("tcp", "dport") if view.protocol == 6 => word(2),
        ("udp", "sport") if view.protocol == 17 => word(0),
        ("udp", "dport") if view.protocol == 17 => word(2),
        ("icmp", "id") if view.is_icmp() && !view.is_icmp_error() => word(4),
        ("v4" | "v6", "src") => addr(view.src),
        ("v4" | "v6", "dst") => addr(view.dst),
        _ => None,
    }
}
