//! Plans: which changes, addresses and attach points a translator or a service wants. The host is read, not changed.

pub(crate) mod changes;
pub(crate) mod clat_address;
pub(crate) mod entry;
pub(crate) mod forwarding;
pub(crate) mod placement;
pub(crate) mod pool4;
pub(crate) mod resolve;
pub(crate) mod softwire;
pub(crate) mod uplink;
