//! Names of network interfaces.

use std::fmt;
use std::str::FromStr;

/// A name that Linux takes for an interface: 1 to 15 octets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceName(String);

/// Why a text is no interface name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No octet at all.
    #[error("an interface name can't be empty")]
    Empty,
    /// More than 15 octets.
    #[error("an interface name has at most 15 octets, this one has {0}")]
    Long(usize),
    /// A character that Linux or its tools refuse.
    #[error("an interface name can't contain {0:?}")]
    Character(char),
    /// A hidden file's name: there are files and folders of the name.
    #[error("an interface name can't begin with a dot here")]
    Dot,
    /// A name with a meaning of its own.
    #[error("this name has a meaning of its own to Linux")]
    Reserved,
}

impl InterfaceName {
    /// The longest name, in octets (`IFNAMSIZ` less the final zero).
    pub const MAX: usize = 15;

    /// A valid name without a meaning, for an entry whose own is yet to be read.
    pub(crate) fn placeholder() -> InterfaceName {
        InterfaceName::fixed("fw0")
    }

    /// A name that is known to be valid.
    pub(crate) fn fixed(name: &'static str) -> InterfaceName {
        InterfaceName(name.to_owned())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for InterfaceName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<InterfaceName, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > InterfaceName::MAX {
            return Err(NameError::Long(text.len()));
        }
        // '%' would make the kernel choose a number; the rest breaks /proc paths or tools.
        let bad = |c: &char| {
            matches!(c, '/' | ':' | '%') || c.is_whitespace() || c.is_control() || !c.is_ascii()
        };
        if let Some(character) = text.chars().find(bad) {
            return Err(NameError::Character(character));
        }
        // "all" and "default" are folders of /proc/sys/net/ipv4/conf.
        if matches!(text, "." | ".." | "all" | "default" | "lo") {
            return Err(NameError::Reserved);
        }
        if text.starts_with('.') {
            return Err(NameError::Dot);
        }
        Ok(InterfaceName(text.to_owned()))
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["clat0", "a", "fifteen-octets1", "nat64.7"] {
            assert_eq!(good.parse::<InterfaceName>().unwrap().as_str(), good);
        }
        for (bad, error) in [
            ("", NameError::Empty),
            ("sixteen--octets1", NameError::Long(16)),
            ("a/b", NameError::Character('/')),
            ("tun%d", NameError::Character('%')),
            ("a b", NameError::Character(' ')),
            ("..", NameError::Reserved),
            ("all", NameError::Reserved),
            (".hid", NameError::Dot),
        ] {
            assert_eq!(bad.parse::<InterfaceName>(), Err(error), "{bad}");
        }
    }
}
