//! Why there is no stateful translation.

/// Why there is no stateful translation with these settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Nat64Error {
    /// The tables' layout or sizes are not those of the settings.
    #[error("the tables that exist have another layout or other sizes")]
    Memory,
    /// Only address-dependent filtering counts sessions in permissions.
    #[error("filtering can't change while the tables have entries")]
    Filtering,
}
