//! Why there is no stateful translation.

/// Why there is no stateful translation with these settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nat64Error {
    /// The tables' layout or sizes are not those of the settings.
    Memory,
    /// Filtering can't change while there are sessions: only address-dependent filtering counts them in permissions.
    Filtering,
}

impl core::fmt::Display for Nat64Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Nat64Error::Memory => "the tables that exist have another layout or other sizes",
            Nat64Error::Filtering => "filtering can't change while the tables have entries",
        })
    }
}

impl core::error::Error for Nat64Error {}
