//! What a packet does with the tables (RFC 6146 sections 3.4 to 3.6).
//!
//! `mapper` (incoming tuple in, outgoing tuple out), `fence` (in a cluster: whether the packet's shard is translated
//! here now), `filter` (filtering and updating), `tcp` (the state machine), `make` (new BIB entries and sessions), `expect`
//! (connections that an ALG has announced).

mod expect;
mod fence;
mod filter;
mod make;
mod mapper;
mod tcp;

pub(crate) use fence::Fence;
pub use filter::{Outgoing6, Refusal, Tuple};
pub(crate) use make::Birth;
pub(crate) use mapper::Stateful;
pub use tcp::{Segment, Transition, transition};
