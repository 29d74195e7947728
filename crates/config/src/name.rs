//! Names of network interfaces.

use std::fmt;
use std::str::FromStr;

/// A name that Linux takes for an interface: 1 to 15 octets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceName(String);

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

/// The error is a sentence.
impl FromStr for InterfaceName {
    type Err = String;

    fn from_str(text: &str) -> Result<InterfaceName, String> {
        let wrong = |what: &str| Err(format!("an interface name {what}"));
        if text.is_empty() {
            return wrong("can't be empty");
        }
        if text.len() > InterfaceName::MAX {
            return wrong(&format!("has at most 15 octets, this one has {}", text.len()));
        }
        // '%' would make the kernel choose a number; the rest breaks /proc paths or tools.
        let bad = |c: &char| {
            matches!(c, '/' | ':' | '%') || c.is_whitespace() || c.is_control() || !c.is_ascii()
        };
        if let Some(character) = text.chars().find(bad) {
            return wrong(&format!("can't contain {character:?}"));
        }
        // "all" and "default" are folders of /proc/sys/net/ipv4/conf.
        if matches!(text, "." | ".." | "all" | "default" | "lo") {
            return Err("this name has a meaning of its own to Linux".to_owned());
        }
        // There are files and folders of the name.
        if text.starts_with('.') {
            return wrong("can't begin with a dot here");
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
            ("", "an interface name can't be empty"),
            ("sixteen--octets1", "an interface name has at most 15 octets, this one has 16"),
            ("a/b", "an interface name can't contain '/'"),
            ("tun%d", "an interface name can't contain '%'"),
            ("a b", "an interface name can't contain ' '"),
            ("..", "this name has a meaning of its own to Linux"),
            ("all", "this name has a meaning of its own to Linux"),
            (".hid", "an interface name can't begin with a dot here"),
        ] {
            assert_eq!(bad.parse::<InterfaceName>(), Err(error.to_owned()), "{bad}");
        }
    }
}
