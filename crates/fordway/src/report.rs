//! What the daemon tells about itself: types that go over the control socket as JSON.

mod stats;
mod status;
mod table;

pub(crate) use stats::{DirectionStats, IoStats, KernelStats, Stats, Totals, TranslatorStats};
pub(crate) use status::{
    ClatStatus, KernelStatus, OffloadStatus, ProgramStatus, Status, TranslatorStatus,
};
pub(crate) use table::{kernel_table, totals_table};
