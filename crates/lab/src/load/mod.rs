//! Load and its measurement by tools that everybody knows.

pub(crate) mod iperf;
pub(crate) mod ping;
