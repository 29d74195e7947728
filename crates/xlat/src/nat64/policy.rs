//! Policy: which host gets which IPv4 address and ports, and how much of everything.
//!
//! `settings` and `pool` (what the operator has configured), `owned` (its index by address), `ticks` (lifetimes as the
//! tables hold them), `subscriber` (blocks and quotas), `allocate` and `exhausted` (which port), `dynamic` (1:1
//! mappings), `operator` (changes by hand).

mod allocate;
mod dynamic;
mod exhausted;
mod operator;
mod owned;
mod pool;
mod settings;
mod subscriber;
mod ticks;

pub(crate) use owned::Owned;
pub(crate) use pool::BlockBitmap;
pub use pool::{Allocation, Pool, Range};
pub use settings::{Dynamic4, Filtering, Lifetimes, Quotas, Settings, StaticBib};
pub(crate) use subscriber::{NO_POOL, Purpose};
pub(crate) use ticks::Ticks;
#[cfg(test)]
pub(crate) use ticks::ticks;
