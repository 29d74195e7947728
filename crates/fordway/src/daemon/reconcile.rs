//! Follows the host while the daemon runs: what is missing is put back, what has changed is planned anew.

pub(crate) mod auto;
pub(crate) mod follow;
pub(crate) mod watch;
