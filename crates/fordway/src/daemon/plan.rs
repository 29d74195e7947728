//! What a translator or a service wants: the state of the host is read, nothing is changed.

pub(crate) mod changes;
pub(crate) mod clat_address;
pub(crate) mod entry;
pub(crate) mod placement;
pub(crate) mod pool4;
pub(crate) mod resolve;
pub(crate) mod softwire;
pub(crate) mod uplink;
