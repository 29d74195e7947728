//! Counters for Prometheus, and the words that `fordway stats` has for them.

mod access;
mod catalog;
pub mod counters;
mod http;
mod openmetrics;

pub(crate) use access::{Access, Guards};
pub(crate) use http::{listen, serve};
pub use openmetrics::encode;
