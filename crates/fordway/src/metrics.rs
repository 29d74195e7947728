//! Counters for Prometheus.

mod http;
mod openmetrics;

pub(crate) use http::{listen, serve};
pub(crate) use openmetrics::encode;
