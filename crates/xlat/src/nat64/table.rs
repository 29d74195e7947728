//! The tables: what they are, and how they are read and changed without locks.
//!
//! `layout` (entries), `memory` (where they lie), `chain` (how they are linked), `view` (how entries are found), `entry`
//! and `fields` (what one holds), `bib` and `permission` (how entries are made and linked), `entries` (all of them, as
//! plain values), `adopt` (repair after a process was killed).

mod adopt;
mod bib;
mod chain;
mod entries;
mod entry;
mod fields;
mod hash;
pub mod layout;
pub mod memory;
mod permission;
mod shift;
mod view;

pub use adopt::Adopted;
pub use bib::BibError;
pub(crate) use bib::{Trouble, retry};
pub(crate) use chain::{Chain, Chained, Directory, FreeList, Seen, Unlinked, state};
pub use entries::{BibEntry, Binding, SessionEntry, SubscriberEntry};
pub(crate) use entry::{ADDING, SessionKey, SessionLife, life, life_parts, one_less, tick};
pub(crate) use fields::TIMEOUTS;
pub use fields::{PortBlock, Protocol, Side, TcpState, Timeout};
pub(crate) use hash::{Secret, halves, joined};
pub(crate) use layout::{
    Bib, FREE_SHARDS, Free, KINDS, Kind, LAYOUT, LAYOUT_PERMISSIONS, MAX_BLOCKS, Meta, PERMISSION,
    PORT_TRIES, SESSION_PERMITS, Session, Subscriber, TICK_SHIFT, bib_flags, session_seen,
};
pub use memory::{Heap, Memory, Regions, Sizes};
pub(crate) use permission::PermissionKey;
pub(crate) use view::{Found, View};
