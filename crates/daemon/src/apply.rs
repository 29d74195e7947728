//! Makes a plan effective: devices, host changes, engines, tables; and takes it back.

pub(crate) mod change;
#[cfg(feature = "cluster")]
pub(crate) mod cluster;
#[cfg(not(feature = "cluster"))]
#[path = "apply/cluster/without.rs"]
pub(crate) mod cluster;
pub(crate) mod hosts;
pub(crate) mod journal;
pub(crate) mod kernel;
pub(crate) mod no_checksum;
pub(crate) mod prepared;
pub(crate) mod privilege;
pub(crate) mod rename;
pub(crate) mod running;
pub(crate) mod stateful;
pub(crate) mod tracing;
pub(crate) mod translators;
pub(crate) mod tunnels;
pub(crate) mod upkeep;
