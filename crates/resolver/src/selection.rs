//! Which names are meant: one, one with all below it, or all.

use hickory_proto::rr::Name;
use hickory_proto::serialize::binary::BinEncodable;

use super::key::parent;

/// A choice of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// In lower case, as on the wire.
    name: Vec<u8>,
    below: bool,
}

impl Selection {
    /// A name alone, or with all below it.
    pub fn new(name: &Name, below: bool) -> Self {
        let name = name.to_lowercase().to_bytes();
        // A name of the library can always be encoded; if one could not, it would be in no cache.
        Self { name: name.unwrap_or_default(), below }
    }

    /// All names.
    pub fn all() -> Self {
        Self::new(&Name::root(), true)
    }

    /// Whether a name in lower case, as on the wire, is one of them.
    pub fn has(&self, name: &[u8]) -> bool {
        let mut next = Some(name);
        while let Some(name) = next {
            if *name == *self.name {
                return true;
            }
            next = if self.below { parent(name) } else { None };
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_with_those_below_or_all() {
        let wire = |text: &str| Name::from_ascii(text).unwrap().to_bytes().unwrap();
        let of = |text: &str, below| Selection::new(&Name::from_ascii(text).unwrap(), below);
        let (alone, tree) = (of("Example.NET.", false), of("example.net.", true));
        for (name, is_alone, is_below) in [
            ("example.net.", true, true),
            ("www.example.net.", false, true),
            ("a.b.example.net.", false, true),
            ("xexample.net.", false, false),
            ("net.", false, false),
            (".", false, false),
        ] {
            assert_eq!(
                (alone.has(&wire(name)), tree.has(&wire(name))),
                (is_alone, is_below),
                "{name}"
            );
            assert!(Selection::all().has(&wire(name)), "{name}");
        }
    }
}
