//! Values of replicated records.

use std::fmt;
use std::ops::Deref;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;

/// A record's value. Those of BIB entries and sessions, the most by far, are short enough to need no memory of their own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Octets(SmallVec<[u8; 24]>);

impl Deref for Octets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Octets {
    fn from(octets: &[u8]) -> Octets {
        Octets(SmallVec::from_slice(octets))
    }
}

impl<const N: usize> From<[u8; N]> for Octets {
    fn from(octets: [u8; N]) -> Octets {
        octets.as_slice().into()
    }
}

impl Serialize for Octets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self)
    }
}

struct OctetsVisitor;

impl Visitor<'_> for OctetsVisitor {
    type Value = Octets;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("octets")
    }

    fn visit_bytes<E: Error>(self, octets: &[u8]) -> Result<Octets, E> {
        Ok(octets.into())
    }
}

impl<'de> Deserialize<'de> for Octets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Octets, D::Error> {
        deserializer.deserialize_bytes(OctetsVisitor)
    }
}
