//! Policy: allocation of IPv4 addresses and ports to hosts, and quotas.
//!
//! `settings` and `pool` (what the operator has configured), `owned` and `numbered` (their indices), `ticks` (lifetimes as the
//! tables hold them), `subscriber` (blocks and quotas), `allocate` and `exhausted` (ports), `dynamic` (1:1 mappings),
//! `operator` (changes by the operator), `shards` (what other gateways own).

mod allocate;
mod dynamic;
mod exhausted;
mod numbered;
mod operator;
mod owned;
mod pool;
mod settings;
mod shards;
mod subscriber;
mod ticks;

pub(crate) use numbered::Numbered;
pub(crate) use owned::Owned;
pub(crate) use pool::BlockBitmap;
pub use pool::{Allocation, Pool, Range};
pub use settings::{Dynamic4, Filtering, Lifetimes, Quotas, Settings, StaticBib};
pub use shards::{
    CHANGED_WORDS, Closed, Division, Gates, NEVER, OwnGates, Part, Partition, Shards,
};
pub(crate) use subscriber::{NO_POOL, Purpose, prefix};
pub(crate) use ticks::{Ticks, ticks};
