//! The plugin as a runtime calls it, behind the reference plugins `ptp` and `bridge`, with a NAT64 and a DNS64 of Fordway
//! in another namespace. Needs root.

mod world;

mod chain;
mod chart;
mod kill;
mod others;
mod runtime;
