//! Reconciles the host with what is wanted while the daemon runs: missing changes are put back, others are planned again.

pub(crate) mod auto;
pub(crate) mod follow;
pub(crate) mod routing;
pub(crate) mod watch;
