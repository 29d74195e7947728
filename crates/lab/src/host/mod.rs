//! The machine: what it is, what time it keeps, what its processors do.

pub(crate) mod clocksource;
pub(crate) mod conntrack;
pub(crate) mod cpu;
pub(crate) mod environment;
pub(crate) mod links;
pub(crate) mod memory;
