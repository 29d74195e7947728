//! What the daemon tells about itself: types that go over the control socket as JSON.

mod entries;
mod nat64;
mod stats;
mod status;
mod table;

pub(crate) use entries::{
    BibRow, BlockRow, DeterministicRow, Entries, EntryFilter, ReverseReport, SessionRow,
    SubscriberRow, Table, Transport4,
};
pub(crate) use nat64::{
    LatencyStats, LogStats, Nat64Stats, Nat64Status, OccupancyStats, PoolStats,
};
pub(crate) use stats::{DirectionStats, IoStats, KernelStats, Stats, Totals, TranslatorStats};
pub(crate) use status::{
    ClatStatus, KernelStatus, OffloadStatus, ProgramStatus, Status, TranslatorStatus,
};
pub(crate) use table::{kernel_table, totals_table};
