//! What `fordway trace` tells of packets, as they pass the kernel engine.

mod filter;
mod line;

pub use filter::{Filter, FilterError, SYNTAX};
pub(crate) use line::line;
