//! What the daemon tells about itself: types that go over the control socket as JSON.

mod auto;
mod dstm;
mod entries;
mod forwarding;
mod nat64;
mod proxy;
mod services;
mod stats;
mod status;
mod table;
mod trt;

pub(crate) use auto::{AutoStatus, FoundStatus};
pub(crate) use dstm::{
    DstmClientStats, DstmServerStatus, DstmTepStatus, dstm_client_table, dstm_server_table,
    dstm_tep_table, leases_table,
};
pub(crate) use entries::{
    BibRow, BlockRow, DeterministicRow, Entries, EntryFilter, ReverseReport, SessionRow,
    SubscriberRow, Table, Transport4,
};
pub(crate) use forwarding::{
    COUNTERS, ConntrackStats, DualStackStats, DualStackStatus, Nat44Count, Nat44Stats, Nat44Status,
    dual_stack_table, nat44_table,
};
pub(crate) use nat64::{
    LatencyStats, LogStats, Nat64Stats, Nat64Status, NatPtStats, NatPtStatus, OccupancyStats,
    PoolStats,
};
pub(crate) use proxy::{ProxyStatus, proxy_table};
pub(crate) use services::{
    AdvertiseStatus, Dns64Status, UpstreamStatus, advertise_table, dns64_table, rcodes,
};
pub(crate) use stats::{DirectionStats, IoStats, KernelStats, Stats, Totals, TranslatorStats};
pub(crate) use status::{
    ClatStatus, KernelStatus, KernelWarning, OffloadStatus, ProgramStatus, SoftwireStatus, Status,
    TranslatorStatus,
};
pub(crate) use table::{kernel_table, totals_table};
pub(crate) use trt::{TrtStats, TrtStatus, trt_table};
